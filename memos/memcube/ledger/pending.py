"""Items that await review as rows: which they are, with their sources and why they wait; changes nothing."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from memos.core.filters import Condition, Op
from memos.core.types import Item, PendingItem, Status
from memos.memcube.ledger import items
from memos.memcube.ledger.schema import versions

WHY = "pending"
"""The key of an item's info under which a reader says in short why it waits."""

_WHY_CHARS = 300


def of_cube(connection: sa.Connection, cube: str, limit: int) -> list[PendingItem]:
    """Return a cube's pending items with their sources, the oldest first."""
    waiting = Condition("status", Op.EQ, str(Status.PENDING))
    found = items.matching(connection, [cube], waiting, limit=limit)
    sources = items.sources_of(connection, [state.id for state in found])
    reasons = _reasons(connection, found)
    return [
        PendingItem(replace(state, sources=sources.get(state.id, ())), _why(state, reasons[state.version_id]))
        for state in found
    ]


def _why(state: Item, reason: str) -> str:
    """Return what the reader told, else the reason of the item's last change."""
    told = state.info.get(WHY)
    return (told if isinstance(told, str) and told.strip() else reason)[:_WHY_CHARS]


def _reasons(connection: sa.Connection, states: list[Item]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for batch in items.in_batches(state.version_id for state in states):
        query = sa.select(versions.c.id, versions.c.reason).where(versions.c.id.in_(batch))
        reasons.update((row.id, row.reason) for row in connection.execute(query))
    return reasons
