"""What only SQLite needs of the ledger: how its connections are set up, and what its messages mean."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import sqlalchemy as sa

from memos.errors import BackendTimeout, BackendUnavailable, IntegrityError, MemosError, PermissionDenied

_BUSY_TIMEOUT_MS = 30_000
_ASK_AGAIN_S = 0.005
# Pages read from the map cost no call and no copy, a sixth of a search's time in the ledger. Writes do not use it.
_MAPPED_BYTES = 1 << 30


def damaged(where: str, text: str) -> IntegrityError:
    """Return the error for a ledger whose pages cannot be trusted."""
    return IntegrityError(
        f"The ledger {where} is damaged ({' '.join(text.split())}). Nothing was changed. Restore it from a copy, "
        f"or recover what is readable with `sqlite3 {where} .recover`; `memos data reindex` then rebuilds the indexes."
    )


def translate(text: str, where: str) -> MemosError:
    """Map a driver's message to the tree; SQLite tells its conditions apart by text only."""
    if "malformed" in text or "not a database" in text or "corrupt" in text:
        return damaged(where, text)
    if "full" in text:
        return BackendUnavailable(
            f"The disk that holds {where} is full: free some space and repeat; nothing was written."
        )
    if "readonly" in text or "unable to open" in text or "attempt to write" in text:
        return PermissionDenied(
            f"Cannot write {where} ({text}): make the folder writable or choose another --data-dir."
        )
    if "locked" in text or "busy" in text:
        return BackendTimeout(
            f"The ledger {where} stayed locked for {_BUSY_TIMEOUT_MS // 1000} s; another program holds it."
        )
    return BackendUnavailable(f"The ledger {where} cannot be used: {text}")


def prepare(engine: sa.Engine) -> None:
    """Set durability, secrecy, explicit transactions and Python's case folding on every connection.

    Source: https://sqlite.org/pragma.html (journal_mode, synchronous, secure_delete) and SQLAlchemy's
    pysqlite notes on `isolation_level = None` with an emitted BEGIN.
    """

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}").close()
        _log_ahead(connection)
        for pragma in (
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=ON",
            "temp_store=MEMORY",
            "cache_size=-32000",
            f"mmap_size={_MAPPED_BYTES}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
        connection.create_function("casefold", 1, _casefold, deterministic=True)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("memos_write")
        raw: Any = connection.connection.dbapi_connection
        raw.execute("BEGIN IMMEDIATE" if write else "BEGIN")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Have the file write ahead: SQLite asks no busy handler when two connections make that change at once.

    Source: https://sqlite.org/c3ref/busy_handler.html, on locks that would otherwise wait for each other.
    """
    until = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_ASK_AGAIN_S)


def _casefold(value: object) -> str | None:
    """Fold case as `like` does (`memos.memcube.ledger.filter_sql`); what is no text has none."""
    return value.casefold() if isinstance(value, str) else None
