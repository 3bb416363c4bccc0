"""What an overview counts: each number from an index or a few rows, none by reading what memories say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.core.types import Task
from memos.memcube.ledger import queues
from memos.memcube.ledger.schema import conversations, cubes, events, items, messages, outbox, segments, tasks
from memos.memcube.ledger.tasks import RUNNING, to_task


@dataclass(frozen=True, slots=True)
class Head:
    """The newest event of a cube: its number, 0 before the first, and when it was recorded."""

    cube: str
    seq: int
    at: datetime | None


def heads(connection: sa.Connection, named: Sequence[str] | None) -> list[Head]:
    """Return the newest event of these cubes, without a list of all, by cube."""
    newest = sa.and_(events.c.cube_id == cubes.c.id, events.c.seq == cubes.c.event_seq)
    query = sa.select(cubes.c.id, cubes.c.event_seq, events.c.at).join(events, newest, isouter=True)
    if named is not None:
        query = query.where(cubes.c.id.in_(named))
    return [Head(row.id, row.event_seq, row.at) for row in connection.execute(query.order_by(cubes.c.id))]


# Tiers


@dataclass(frozen=True, slots=True)
class Stored:
    """How many messages a cube holds, and how many items in all: each message is one, the others were made of them."""

    messages: int = 0
    items: int = 0


def stored(connection: sa.Connection, named: Sequence[str]) -> dict[str, Stored]:
    """Return what each of these cubes holds; takes as long as it is much."""
    said = _by_cube(connection, sa.select(messages.c.cube_id, sa.func.count()), messages.c.cube_id, named)
    kept = _by_cube(connection, sa.select(items.c.cube_id, sa.func.count()), items.c.cube_id, named)
    return {cube: Stored(said.get(cube, 0), kept.get(cube, 0)) for cube in named}


def short_pages(connection: sa.Connection, named: Sequence[str]) -> dict[str, int]:
    """Return how many pages are in the short tier of each cube, as overflowing counts them: with erased ones."""
    pages = sa.func.sum(conversations.c.next_page - conversations.c.first_short + 1)
    return _by_cube(connection, sa.select(conversations.c.cube_id, pages), conversations.c.cube_id, named)


def segments_by_state(connection: sa.Connection, named: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return how many segments each cube has in each state."""
    query = sa.select(segments.c.cube_id, segments.c.state, sa.func.count()).where(segments.c.cube_id.in_(named))
    rows = connection.execute(query.group_by(segments.c.cube_id, segments.c.state))
    return {(cube, state): number for cube, state, number in rows}


def _by_cube(
    connection: sa.Connection, query: sa.Select[Any], column: sa.Column[Any], named: Sequence[str]
) -> dict[str, int]:
    rows = connection.execute(query.where(column.in_(named)).group_by(column))
    return {cube: int(number or 0) for cube, number in rows}


# Tasks


def waiting(connection: sa.Connection, named: Sequence[str] | None) -> dict[tuple[str, str], int]:
    """Return how many tasks wait, by cube and kind."""
    query = sa.select(tasks.c.cube_id, tasks.c.kind, sa.func.count()).where(queues.WAITING)
    rows = connection.execute(_of(named, query).group_by(tasks.c.cube_id, tasks.c.kind))
    return {(cube, kind): number for cube, kind, number in rows}


def running(connection: sa.Connection, named: Sequence[str] | None) -> list[Task]:
    """Return the tasks that run, the longest first; no more than all workers have threads."""
    # A lease is there exactly while a task runs; naming it makes SQLite use the index.
    leased = sa.select(tasks).where(RUNNING, tasks.c.lease_until.is_not(None))
    query = _of(named, leased).order_by(tasks.c.started_at, tasks.c.id)
    return [to_task(row) for row in connection.execute(query)]


def ended(connection: sa.Connection, named: Sequence[str] | None, since: datetime) -> dict[tuple[str, str], int]:
    """Return how many tasks ended since a moment, by kind and state."""
    query = sa.select(tasks.c.kind, tasks.c.state, sa.func.count()).where(tasks.c.finished_at >= since)
    rows = connection.execute(_of(named, query).group_by(tasks.c.kind, tasks.c.state))
    return {(kind, state): number for kind, state, number in rows}


def _of(named: Sequence[str] | None, query: sa.Select[Any]) -> sa.Select[Any]:
    return query if named is None else query.where(tasks.c.cube_id.in_(named))


# The whole installation


@dataclass(frozen=True, slots=True)
class Whole:
    """What all cubes together hold; takes as long as it is much."""

    cubes: int
    messages: int
    items: int
    short_pages: int
    segments: dict[str, int]
    outbox: dict[tuple[str, bool], int]


def whole(connection: sa.Connection) -> Whole:
    """Count all cubes at once: segments by state, rows of the outbox by index and whether they are parked."""
    pages = sa.func.sum(conversations.c.next_page - conversations.c.first_short + 1)
    by_state = sa.select(segments.c.state, sa.func.count()).group_by(segments.c.state)
    left = sa.select(outbox.c.target, outbox.c.parked, sa.func.count()).group_by(outbox.c.target, outbox.c.parked)
    return Whole(
        connection.scalar(sa.select(sa.func.count()).select_from(cubes)) or 0,
        connection.scalar(sa.select(sa.func.count()).select_from(messages)) or 0,
        connection.scalar(sa.select(sa.func.count()).select_from(items)) or 0,
        int(connection.scalar(sa.select(pages)) or 0),
        {row[0]: row[1] for row in connection.execute(by_state)},
        {(target, bool(parked)): number for target, parked, number in connection.execute(left)},
    )
