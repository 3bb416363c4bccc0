"""The memories of a cube that no adapter may learn: its owner said so. They go with their items.

What saw one of them may not answer (`adapter_rows`). Every function takes an open write transaction unless it only
reads; what changes a cube's exclusions locks the cube first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import sqlalchemy as sa

from memos.memcube.ledger import items
from memos.memcube.ledger.schema import adapter_exclusions as t


def exclude(connection: sa.Connection, cube: str, ids: Sequence[str], by: str, now: datetime) -> list[str]:
    """Let no adapter learn these memories of a cube; return those that were not excluded before."""
    known = among(connection, ids)
    new = [id_ for id_ in dict.fromkeys(ids) if id_ not in known]
    rows = [{"item_id": id_, "cube_id": cube, "excluded_by": by, "excluded_at": now} for id_ in new]
    if rows:
        connection.execute(sa.insert(t), rows)
    return new


def include(connection: sa.Connection, cube: str, ids: Collection[str]) -> list[str]:
    """Take that back; return of which memories."""
    found = sorted(among(connection, ids))
    for batch in items.in_batches(found):
        connection.execute(sa.delete(t).where(t.c.cube_id == cube, t.c.item_id.in_(batch)))
    return found


def of(connection: sa.Connection, cube: str) -> frozenset[str]:
    """Return the memories of a cube that no adapter may learn."""
    return frozenset(connection.scalars(sa.select(t.c.item_id).where(t.c.cube_id == cube)))


def among(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    """Return those of some memories that no adapter may learn."""
    found: set[str] = set()
    for batch in items.in_batches(ids):
        found.update(connection.scalars(sa.select(t.c.item_id).where(t.c.item_id.in_(batch))))
    return found
