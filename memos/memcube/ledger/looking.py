"""Looks at a ledger without changing it: whether it can be reached, which schema it has, what is wrong with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from memos.core.clock import from_micros
from memos.errors import IntegrityError
from memos.memcube.ledger import postgres, sqlite
from memos.memcube.ledger.engine import HEAD, Ledger, _parsed, _revision

_CHECK_UP_TO_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """What a ledger is: where, its schema's revision (None before the first), and when it was last changed."""

    place: str
    revision: str | None
    changed_at: datetime | None

    @property
    def is_current(self) -> bool:
        """Say whether this program reads and writes it as it is."""
        return self.revision == HEAD


def look_at_file(path: Path) -> Look:
    """Look at an embedded ledger. Raises: IntegrityError, BackendUnavailable, PermissionDenied."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            if path.stat().st_size <= _CHECK_UP_TO_BYTES:
                said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if said != "ok":
                    raise sqlite.damaged(str(path), str(said))
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "alembic_version" not in tables:
                return Look(str(path), None, None)
            [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            [newest] = connection.execute("SELECT max(at) FROM events").fetchone()
    except sqlite3.Error as error:
        raise sqlite.translate(str(error), str(path)) from error
    return Look(str(path), revision, None if newest is None else from_micros(newest))


def look_at_server(url: str) -> Look:
    """Look at a ledger on PostgreSQL, its version and clock too. Raises: InvalidInput, BackendUnavailable."""
    parsed = _parsed(url)
    engine = postgres.make_engine(parsed, pool_size=1)
    ledger = Ledger(engine, postgres.place_of(parsed))
    try:
        with ledger.read() as connection:
            postgres.check_server(connection, datetime.now(UTC))
            revision = _revision(connection)
            newest = None if revision is None else connection.scalar(sa.text("SELECT max(at) FROM events"))
    finally:
        ledger.close()
    return Look(ledger.description, revision, None if newest is None else from_micros(newest))


def check_schema(look: Look) -> None:
    """Refuse a ledger of a newer program. Raises: IntegrityError."""
    if look.revision is not None and look.revision > HEAD:
        raise IntegrityError(
            f"The ledger {look.place} was written by a newer memstrata (schema {look.revision}): install that version."
        )
