"""A new ledger's tables from the dump of one that was migrated, since thousands of tests begin with one."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa
from uuid_utils import uuid7

from memos.memcube.ledger import migrate

_migrated = migrate.upgrade


def upgrade(connection: sa.Connection, found: str | None, where: str) -> None:
    """Stand in for `migrate.upgrade`: new SQLite databases get the same tables, indexes and rows from a dump."""
    if found is not None or connection.dialect.name != "sqlite" or sa.inspect(connection).has_table("alembic_version"):
        _migrated(connection, found, where)
        return
    raw: Any = connection.connection.driver_connection
    for statement in _statements():
        raw.execute(statement)
    raw.execute("UPDATE meta SET value = ? WHERE key = 'ledger_id'", (str(uuid7()),))


@cache
def _statements() -> tuple[str, ...]:
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        _migrated(connection, None, "a database in memory")
        raw: Any = connection.connection.driver_connection
        statements = tuple(raw.iterdump())
    engine.dispose()
    return tuple(line for line in statements if line not in ("BEGIN TRANSACTION;", "COMMIT;"))
