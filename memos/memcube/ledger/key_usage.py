"""What keys used in a span of time, counted in rows, so that it holds over restarts and over several processes."""

from __future__ import annotations

import sqlalchemy as sa

from memos.memcube.ledger import queues
from memos.memcube.ledger.schema import key_usage


def take(connection: sa.Connection, key: str, what: str, span: str, amount: int, limit: int | None) -> bool:
    """Count an amount unless more than the limit were used then; a negative one gives back. Say whether it was counted.

    The row is changed by one statement, and other transactions wait for it: together they never use more.
    """
    where = (key_usage.c.key_id == key, key_usage.c.what == what, key_usage.c.span == span)
    if queues.insert_new(connection, key_usage, {"key_id": key, "what": what, "span": span, "used": 0}):
        before = (key_usage.c.key_id == key, key_usage.c.what == what, key_usage.c.span < span)
        connection.execute(sa.delete(key_usage).where(*before))
    fits = () if limit is None else (key_usage.c.used + amount <= limit,)
    counted = sa.update(key_usage).where(*where, *fits).values(used=key_usage.c.used + amount)
    return connection.execute(counted).rowcount == 1


def used(connection: sa.Connection, key: str, span: str) -> dict[str, int]:
    """Return what a key used in a span."""
    query = sa.select(key_usage.c.what, key_usage.c.used).where(key_usage.c.key_id == key, key_usage.c.span == span)
    return {row.what: row.used for row in connection.execute(query)}
