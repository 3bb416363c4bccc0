"""Times to live of items: from its end on an item is out of every answer, and the retention job erases it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.memcube.ledger.items import in_batches, rows_in
from memos.memcube.ledger.schema import items


def end_of(ttl_s: float | None, now: datetime) -> datetime | None:
    return None if ttl_s is None else now + timedelta(seconds=ttl_s)


def is_live(now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition that an item has not expired."""
    return sa.or_(items.c.expires_at.is_(None), items.c.expires_at > now)


def set_ttl(connection: sa.Connection, item_id: str, ttl_s: float | None, now: datetime) -> None:
    """Let an item live for so long from now on, None for ever; this creates no new version."""
    mine = sa.update(items).where(items.c.id == item_id)
    if ttl_s is None:
        mine = mine.where(items.c.expires_at.is_not(None))
    connection.execute(mine.values(ttl_s=ttl_s, expires_at=end_of(ttl_s, now)))


def refresh(connection: sa.Connection, ids: Iterable[str], now: datetime) -> None:
    """Let items with a time to live, that have not expired, live as long again from now on."""
    columns = sa.select(items.c.id, items.c.ttl_s).where(items.c.ttl_s.is_not(None), items.c.expires_at > now)
    for row in list(rows_in(connection, columns, items.c.id, ids)):
        set_ttl(connection, row.id, row.ttl_s, now)


def expired(
    connection: sa.Connection, now: datetime, limit: int, item_ids: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Return expired items by cube."""
    query = sa.select(items.c.cube_id, items.c.id).where(items.c.expires_at <= now)
    if item_ids is not None:
        query = query.where(items.c.id.in_(item_ids))
    found: dict[str, list[str]] = {}
    for row in connection.execute(query.order_by(items.c.cube_id, items.c.id).limit(limit)):
        found.setdefault(row.cube_id, []).append(row.id)
    return found


def expired_among(connection: sa.Connection, ids: Collection[str], now: datetime) -> set[str]:
    found: set[str] = set()
    for batch in in_batches(ids):
        found.update(connection.scalars(sa.select(items.c.id).where(items.c.id.in_(batch), items.c.expires_at <= now)))
    return found
