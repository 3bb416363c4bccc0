"""Reads each cube's chain of events by number, so that following it costs what is new; `cubes` writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from memos.core.types import Event
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger.schema import cubes, events


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events to read: those behind the number `after`, of any of these kinds, of all when there are none."""

    after: int = 0
    kinds: tuple[str, ...] = ()
    limit: int = 100


def head(connection: sa.Connection, cube: str) -> int:
    """Return the number of a cube's newest event. Raises: NotFound."""
    found: int | None = connection.scalar(sa.select(cubes.c.event_seq).where(cubes.c.id == cube))
    if found is None:
        raise cube_rows.unknown(cube)
    return found


def find(connection: sa.Connection, cube: str, wanted: Wanted) -> list[Event]:
    """Return a cube's events in the order they were committed."""
    columns = (events.c.seq, events.c.at, events.c.actor, events.c.kind, events.c.item_id, events.c.body)
    query = sa.select(*columns).where(events.c.cube_id == cube, events.c.seq > wanted.after)
    if wanted.kinds:
        query = query.where(events.c.kind.in_(wanted.kinds))
    return [
        Event(
            cube, row.seq, row.at, row.actor, row.kind, row.item_id, None if row.body is None else json.loads(row.body)
        )
        for row in connection.execute(query.order_by(events.c.seq).limit(wanted.limit))
    ]


def number_at(connection: sa.Connection, cube: str, moment: datetime) -> int:
    """Return the number of a cube's last event up to a moment, 0 when there was none; reads what came after it."""
    query = sa.select(events.c.seq).where(events.c.cube_id == cube, events.c.at <= moment)
    return int(connection.scalar(query.order_by(events.c.seq.desc()).limit(1)) or 0)


def tally_all(connection: sa.Connection, cube: str, after: int) -> dict[str, int]:
    """Return how many events of each kind came behind a number."""
    query = sa.select(events.c.kind, sa.func.count()).where(events.c.cube_id == cube, events.c.seq > after)
    return {row[0]: row[1] for row in connection.execute(query.group_by(events.c.kind))}


def tally(connection: sa.Connection, cube: str, after: int, kinds: Sequence[str]) -> dict[str, int]:
    """Return how many events of each of these kinds came behind a number; kinds without one are left out."""
    query = sa.select(events.c.kind, sa.func.count().label("number")).where(
        events.c.cube_id == cube, events.c.seq > after
    )
    rows = connection.execute(query.where(events.c.kind.in_(kinds)).group_by(events.c.kind))
    return {row.kind: row.number for row in rows}
