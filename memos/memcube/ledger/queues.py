"""Whose turn it is: one queue a cube, so that a busy cube never makes the others wait.

Start-time fair queuing (P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996) with one tag a cube: the
cube with the lowest turn is served next and its turn moves on by cost / weight. Knows of tasks only when they are due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from memos.memcube.ledger.schema import queues, tasks

WAITING = sa.text("state = 'waiting'")
"""Spelt as the partial indexes are, or the database would not use them."""


def lock(connection: sa.Connection, cube: str) -> sa.Row[Any]:
    """Return a cube's queue, made when new; no other transaction changes it before this one ends."""
    query = sa.select(queues).where(queues.c.cube_id == cube).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        insert_new(connection, queues, {"cube_id": cube})
        row = connection.execute(query).one()
    return row


def wake_up(connection: sa.Connection, cube: str, due: datetime, now: datetime) -> None:
    """See that a cube with a new waiting task is served."""
    queue = lock(connection, cube)
    values: dict[str, Any] = {"due": due if queue.due is None else min(due, queue.due)}
    if queue.turn is None and values["due"] <= now:
        values["turn"] = _entry(connection, queue.weight)
    connection.execute(sa.update(queues).where(queues.c.cube_id == cube).values(values))


def give_turns(connection: sa.Connection, now: datetime) -> None:
    """Give turns to the cubes whose first task has become due."""
    query = (
        sa.select(queues.c.cube_id, queues.c.weight)
        .where(queues.c.turn.is_(None), queues.c.due <= now)
        .order_by(queues.c.cube_id)
        .with_for_update(skip_locked=True)
    )
    for row in connection.execute(query).all():
        turn = _entry(connection, row.weight)
        connection.execute(sa.update(queues).where(queues.c.cube_id == row.cube_id).values(turn=turn))


def next_turn(connection: sa.Connection) -> sa.Row[Any] | None:
    """Return and lock the queue to be served next; what another transaction serves is passed over."""
    query = (
        sa.select(queues)
        .where(queues.c.turn.is_not(None))
        .order_by(queues.c.turn, queues.c.cube_id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(query).one_or_none()


def settle(connection: sa.Connection, cube: str, turn: float | None, now: datetime) -> None:
    """Write down when a locked queue's next task is due, and its turn unless none may begin."""
    due = connection.scalar(sa.select(sa.func.min(tasks.c.not_before)).where(tasks.c.cube_id == cube, WAITING))
    values = {"due": due, "turn": turn if due is not None and due <= now else None}
    connection.execute(sa.update(queues).where(queues.c.cube_id == cube).values(values))


def set_weight(connection: sa.Connection, cube: str, weight: float) -> None:
    """Give a cube this many turns for each one of a cube of weight 1."""
    lock(connection, cube)
    connection.execute(sa.update(queues).where(queues.c.cube_id == cube).values(weight=weight))


def next_due(connection: sa.Connection) -> datetime | None:
    """Return when the earliest waiting task may begin, None when none waits."""
    due: datetime | None = connection.scalar(sa.select(sa.func.min(queues.c.due)))
    return due


def insert_new(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless a constraint says it is there already; say whether it was inserted."""
    insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    # What was inserted is returned: drivers count skipped rows each in their own way.
    [first, *_] = table.primary_key
    returned = connection.execute(insert.values(row).on_conflict_do_nothing().returning(first))
    return returned.one_or_none() is not None


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, or replace those with the same primary key."""
    if rows:
        connection.execute(_upsert(connection.dialect.name, table, tuple(rows[0])), list(rows))


@cache
def _upsert(dialect: str, table: sa.Table, names: tuple[str, ...]) -> Any:
    insert = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    keys = [column.name for column in table.primary_key]
    others = {name: insert.excluded[name] for name in names if name not in keys}
    return insert.on_conflict_do_update(index_elements=keys, set_=others)


def _entry(connection: sa.Connection, weight: float) -> float:
    """Return the turn of a cube that begins to be served: one task behind the one that is next."""
    lowest = connection.scalar(sa.select(sa.func.min(queues.c.turn)).where(queues.c.turn.is_not(None)))
    return (lowest or 0.0) + 1.0 / weight
