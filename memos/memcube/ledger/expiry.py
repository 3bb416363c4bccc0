"""Times to live of items: from its end on an item is out of every answer, and the retention job erases it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.core.types import Item, LinkKind
from memos.memcube.ledger.schema import items, links

# The module of items needs this one.
_BATCH = 500


def end_of(ttl_s: float | None, now: datetime) -> datetime | None:
    return None if ttl_s is None else now + timedelta(seconds=ttl_s)


def is_live(now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition that an item has not expired."""
    return sa.or_(items.c.expires_at.is_(None), items.c.expires_at > now)


def ended(cube: str, now: datetime) -> sa.Select[tuple[str]]:
    """Return the query for the expired items of a cube: few, found by an index."""
    return sa.select(items.c.id).where(items.c.expires_at <= now, items.c.cube_id == cube)


def live(states: Iterable[Item], now: datetime) -> list[Item]:
    """Return the items that have not expired."""
    return [state for state in states if state.expires_at is None or state.expires_at > now]


def set_ttl(connection: sa.Connection, item_id: str, ttl_s: float | None, now: datetime) -> None:
    """Let an item live for so long from now on, None for ever, with what was made of it.

    This creates no new version.
    """
    mine = sa.update(items).where(items.c.id == item_id)
    if ttl_s is None:
        mine = mine.where(items.c.expires_at.is_not(None))
    if connection.execute(mine.values(ttl_s=ttl_s, expires_at=end_of(ttl_s, now))).rowcount:
        inherit(connection, _derived(connection, [item_id]))


def inherit(connection: sa.Connection, ids: Collection[str]) -> None:
    """Let derived items without a time to live of their own end with the first of what they are made of."""
    front, seen = set(ids), set[str]()
    origin = items.alias("origin")
    first = (
        sa.select(sa.func.min(origin.c.expires_at))
        .join_from(links, origin, origin.c.id == links.c.to_id)
        .where(links.c.from_id == items.c.id, links.c.kind == LinkKind.DERIVED_FROM)
        .scalar_subquery()
    )
    while front:
        seen |= front
        for batch in _batches([*front]):
            own = sa.update(items).where(items.c.id.in_(batch), items.c.ttl_s.is_(None))
            connection.execute(own.values(expires_at=first))
        front = _derived(connection, front) - seen


def _derived(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    query = sa.select(links.c.from_id).where(links.c.kind == LinkKind.DERIVED_FROM)
    return {id_ for batch in _batches([*ids]) for id_ in connection.scalars(query.where(links.c.to_id.in_(batch)))}


def refresh(connection: sa.Connection, ids: Sequence[str], now: datetime) -> None:
    """Let items with a time to live, that have not expired, live as long again from now on."""
    timed = sa.select(items.c.id, items.c.ttl_s).where(items.c.ttl_s.is_not(None), items.c.expires_at > now)
    for batch in _batches(ids):
        for row in connection.execute(timed.where(items.c.id.in_(batch))).all():
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
    query = sa.select(items.c.id).where(items.c.expires_at <= now)
    return {id_ for batch in _batches([*ids]) for id_ in connection.scalars(query.where(items.c.id.in_(batch)))}


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]
