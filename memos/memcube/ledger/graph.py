"""The graph of items, read from the ledger: neighbours in the session, and linked items."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from memos.core.types import Status
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import items, links, versions


class LedgerGraph:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        if not cubes or limit < 1:
            return []
        with self._ledger.read() as connection:
            return [row.id for row in _adjacent(limit).rows(connection, seed=[seed], cubes=cubes)]


@cache
def _adjacent(limit: int) -> PreparedSelect:
    # Each of the four parts uses an index: two on positions in a conversation, and one on each end of the links.
    seed: sa.BindParameter[str] = sa.bindparam("seed", expanding=True)
    own = items.alias("own")

    def of_seed(column: sa.Column[Any]) -> sa.ScalarSelect[Any]:
        return sa.select(own.c[column.name]).where(own.c.id.in_(seed)).scalar_subquery()

    def beside(*, later: bool) -> sa.Select[tuple[str]]:
        near = sa.select(items.c.id).join(versions, versions.c.id == items.c.version_id)
        near = near.where(*(column == of_seed(column) for column in (items.c.conversation_id, items.c.session)))
        near = near.where(versions.c.status != Status.DELETED)
        if later:
            near = near.where(items.c.position > of_seed(items.c.position)).order_by(items.c.position)
        else:
            near = near.where(items.c.position < of_seed(items.c.position)).order_by(items.c.position.desc())
        found = near.limit(1).subquery()
        return sa.select(found.c.id, sa.literal(0).label("far"))

    linked = (
        sa.select(end.label("id"), sa.literal(1).label("far")).where(
            other.in_(seed), links.c.confidence.is_(None)
        )  # searches follow judged ones by themselves
        for end, other in ((links.c.to_id, links.c.from_id), (links.c.from_id, links.c.to_id))
    )
    near = sa.union_all(beside(later=False), beside(later=True), *linked).subquery()
    # Not by the index on cubes, with which SQLite would read all items of a cube to find these few.
    cube = items.c.cube_id.concat("")
    return PreparedSelect(
        sa.select(items.c.id)
        .join(near, near.c.id == items.c.id)
        .join(versions, versions.c.id == items.c.version_id)
        .where(cube.in_(sa.bindparam("cubes", expanding=True)))
        .where(versions.c.status != Status.DELETED, items.c.id.not_in(seed))
        .group_by(items.c.id, items.c.created_at)
        .order_by(sa.func.min(near.c.far), items.c.created_at.desc(), items.c.id)
        .limit(limit)
    )
