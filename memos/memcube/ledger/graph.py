"""The graph of items, read from the ledger: neighbours in the session, and linked items."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from memos.core.types import Status
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.schema import items, links, versions


class LedgerGraph:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        if not cubes or limit < 1:
            return []
        with self._ledger.read() as connection:
            found = connection.execute(_ADJACENT, {"seed": seed, "cubes": list(cubes), "limit": limit})
            return [row.id for row in found]


def _adjacent_query() -> sa.Select[tuple[str]]:
    # Each of the four parts uses an index: two on positions in a conversation, and one on each end of the links.
    seed = sa.select(items).where(items.c.id == sa.bindparam("seed")).cte("seed")

    def beside(*, later: bool) -> sa.Select[tuple[str]]:
        same = sa.and_(items.c.conversation_id == seed.c.conversation_id, items.c.session == seed.c.session)
        near = sa.select(items.c.id).join(seed, same).join(versions, versions.c.id == items.c.version_id)
        near = near.where(versions.c.status != Status.DELETED)
        if later:
            near = near.where(items.c.position > seed.c.position).order_by(items.c.position)
        else:
            near = near.where(items.c.position < seed.c.position).order_by(items.c.position.desc())
        found = near.limit(1).subquery()
        return sa.select(found.c.id, sa.literal(0).label("far"))

    linked = (
        sa.select(end.label("id"), sa.literal(1).label("far")).where(
            other == sa.bindparam("seed"), links.c.confidence.is_(None)
        )  # searches follow judged ones by themselves
        for end, other in ((links.c.to_id, links.c.from_id), (links.c.from_id, links.c.to_id))
    )
    near = sa.union_all(beside(later=False), beside(later=True), *linked).subquery()
    return (
        sa.select(items.c.id)
        .join(near, near.c.id == items.c.id)
        .join(versions, versions.c.id == items.c.version_id)
        .where(items.c.cube_id.in_(sa.bindparam("cubes", expanding=True)))
        .where(versions.c.status != Status.DELETED, items.c.id != sa.bindparam("seed"))
        .group_by(items.c.id, items.c.created_at)
        .order_by(sa.func.min(near.c.far), items.c.created_at.desc(), items.c.id)
        .limit(sa.bindparam("limit"))
    )


_ADJACENT = _adjacent_query()
