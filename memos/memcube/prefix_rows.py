"""The entries of cubes' prefixes: which memories prompts of a cube begin with, in which order. Ids and numbers only.

An entry stands for the version that it names; what became of the item since is told behind it, by who reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from memos.memcube.ledger import items, tasks
from memos.memcube.ledger.schema import cubes, warmth
from memos.memcube.ledger.schema import prefix_entries as t
from memos.memcube.ledger.tasks import NewTask

COMPOSE, WARM = "compose", "warm"
"""Kinds of tasks: the prefix of a cube is composed; a model computes its KV before somebody asks."""


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """One entry."""

    ordinal: int
    item: str
    version: int
    added_at: datetime


def compose_task() -> NewTask:
    """Return the task that composes a cube's prefix."""
    return NewTask(COMPOSE, {}, key="")


def warm_task() -> NewTask:
    """Return the task that has a model compute a cube's prefix."""
    return NewTask(WARM, {}, key="")


def of(connection: sa.Connection, cube: str) -> list[PrefixRow]:
    """Return a cube's entries in their order."""
    query = sa.select(t.c.ordinal, t.c.item_id, t.c.version, t.c.added_at).where(t.c.cube_id == cube)
    return [PrefixRow(*row) for row in connection.execute(query.order_by(t.c.ordinal))]


def append(connection: sa.Connection, cube: str, rows: Sequence[PrefixRow]) -> None:
    """Add entries."""
    if rows:
        values = [
            {"cube_id": cube, "ordinal": row.ordinal, "item_id": row.item, "version": row.version,
             "added_at": row.added_at} for row in rows
        ]  # fmt: skip
        connection.execute(sa.insert(t), values)


def replace(connection: sa.Connection, cube: str, rows: Sequence[PrefixRow]) -> None:
    """Let these be a cube's only entries."""
    connection.execute(sa.delete(t).where(t.c.cube_id == cube))
    append(connection, cube, rows)


def cubes_to_compose(connection: sa.Connection) -> list[str]:
    """Return the cubes that have entries, or memories that were looked up, by id."""
    used = sa.exists(sa.select(warmth.c.item_id).where(warmth.c.cube_id == cubes.c.id))
    held = sa.exists(sa.select(t.c.ordinal).where(t.c.cube_id == cubes.c.id))
    return list(connection.scalars(sa.select(cubes.c.id).where(used | held).order_by(cubes.c.id)))


def changed(connection: sa.Connection, cube: str, item_ids: Iterable[str], now: datetime) -> None:
    """Have a cube's prefix looked at, and its new text computed, if one of these items, which changed, has an entry."""
    for batch in items.in_batches(item_ids):
        if connection.scalar(sa.select(t.c.ordinal).where(t.c.item_id.in_(batch)).limit(1)) is not None:
            tasks.enqueue(connection, cube, [compose_task(), warm_task()], now)
            return
