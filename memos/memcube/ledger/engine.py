"""Opens the ledger database, brings it to this program's schema, hands out transactions, translates driver errors."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    IntegrityError,
    InvalidInput,
    MemosError,
    PermissionDenied,
)

HEAD = "0002"
"""The schema revision this program reads and writes."""

_BUSY_TIMEOUT_MS = 30_000
_READERS = 16
# Pages read from the map cost no call and no copy, a sixth of a search's time in the ledger. Writes do not use it.
_MAPPED_BYTES = 1 << 30


class Ledger:
    """The source of truth: `write()` is one durable transaction, `read()` one consistent snapshot."""

    def __init__(self, engine: sa.Engine, description: str) -> None:
        self.description = description
        self._engine = engine
        # SQLite has one writer; queueing here is fair and cheap, its busy loop is neither.
        self._writer = threading.Lock() if engine.dialect.name == "sqlite" else None
        self._changes = 0

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Open or create the database and migrate it.

        Raises: InvalidInput (URL), IntegrityError, PermissionDenied, BackendUnavailable.
        """
        try:
            parsed = sa.make_url(url)
            engine = sa.create_engine(
                parsed,
                pool_size=_READERS,
                max_overflow=_READERS,
                pool_timeout=30,
                pool_use_lifo=True,  # the last one used has its pages and statements at hand
                json_deserializer=_from_json,
            )
        except (exc.ArgumentError, ImportError) as error:
            raise InvalidInput(
                "ledger_url", f"cannot be used ({error}); write it like postgresql+psycopg://user@host/database"
            ) from error
        if parsed.get_backend_name() == "sqlite":
            _prepare_sqlite(engine)
        ledger = cls(engine, parsed.database or parsed.render_as_string())
        try:
            ledger._migrate()
        except BaseException:
            engine.dispose()
            raise
        return ledger

    @property
    def is_sqlite(self) -> bool:
        """True for the embedded ledger, whose files erase has to clean."""
        return self._engine.dialect.name == "sqlite"

    @property
    def changes(self) -> int | None:
        """Return a number that grows with every change, before it is acknowledged; None when others may write too."""
        return None if self._writer is None else self._changes

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Yield a connection whose reads all see one moment."""
        with self._translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Yield a connection whose changes are durable when the block ends, and gone when it raises."""
        with self._translated():
            if self._writer is None:
                with self._engine.begin() as connection:
                    yield connection
                return
            with self._writer:
                with self._engine.connect().execution_options(memos_write=True) as connection, connection.begin():
                    yield connection
                self._changes += 1

    def check(self) -> list[str]:
        """Return what the database says is wrong with its own pages; empty when whole."""
        if not self.is_sqlite:
            return []
        with self.read() as connection:
            rows = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
        return [] if rows == ["ok"] else [str(row) for row in rows]

    def quick_check(self) -> None:
        """Look at every page once. Raises: IntegrityError saying what to do."""
        if not self.is_sqlite:
            return
        with self.read() as connection:
            first = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if first != "ok":
            raise damaged(self.description, str(first))

    def vacuum(self) -> None:
        """Write SQLite's file anew: `secure_delete` misses copies that a page keeps after its cells were moved."""
        if not self.is_sqlite:
            return
        assert self._writer is not None
        with self._translated(), self._writer, self._engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("VACUUM")

    def truncate_wal(self) -> bool:
        """Empty SQLite's write-ahead log, so that no deleted text is left in it; False when a reader is in the way."""
        if not self.is_sqlite:
            return True
        assert self._writer is not None
        with self._translated(), self._writer, self._engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        """Close every connection; SQLite then folds its log into the database."""
        self._engine.dispose()

    def _migrate(self) -> None:
        with self._translated():
            with self._engine.connect() as connection:
                found = _revision(connection)
            if found == HEAD:
                return
            from memos.memcube.ledger.migrate import upgrade  # noqa: PLC0415 - alembic costs 0.2 s, once

            with self.write() as connection:
                upgrade(connection, found, self.description)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except MemosError:
            raise
        except exc.TimeoutError as error:
            raise BackendTimeout(
                f"The ledger gave no connection within 30 s; {self.description} is overloaded."
            ) from error
        except exc.IntegrityError as error:
            raise Conflict(f"The ledger refused the change ({error.orig}); read again and retry.") from error
        except exc.DBAPIError as error:
            raise _translate(str(error.orig), self.description) from error
        except sqlite3.Error as error:
            raise _translate(str(error), self.description) from error


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def damaged(where: str, text: str) -> IntegrityError:
    """Return the error for a ledger whose pages cannot be trusted."""
    return IntegrityError(
        f"The ledger {where} is damaged ({' '.join(text.split())}). Nothing was changed. Restore it from a copy, "
        f"or recover what is readable with `sqlite3 {where} .recover`; `memos reindex` then rebuilds the indexes."
    )


def _translate(text: str, where: str) -> MemosError:
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


def _prepare_sqlite(engine: sa.Engine) -> None:
    """Set durability, secrecy, explicit transactions and Python's case folding on every connection.

    Source: https://sqlite.org/pragma.html (journal_mode, synchronous, secure_delete) and SQLAlchemy's
    pysqlite notes on `isolation_level = None` with an emitted BEGIN.
    """

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={_BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
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


def _from_json(text: str) -> Any:
    """Parse a column; most hold an empty list, which is known without parsing."""
    return [] if text == "[]" else {} if text == "{}" else json.loads(text)


def _casefold(value: object) -> str | None:
    """Fold case as `like` does (`memos.memcube.ledger.filter_sql`); what is no text has none."""
    return value.casefold() if isinstance(value, str) else None


def sqlite_url(path: Path) -> str:
    """Return the SQLAlchemy URL of a SQLite file."""
    return sa.URL.create("sqlite", database=str(path)).render_as_string()
