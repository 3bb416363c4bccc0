"""Fair queueing of tasks, with one queue per cube, so that a busy cube does not delay the others.

Start-time fair queueing with one tag, the turn, per cube: the cube with the lowest turn is served next, and its turn
advances by cost / weight. Source: Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from memos.core.types import WHOLE
from memos.memcube.ledger.postgres import MOST_SKEW
from memos.memcube.ledger.schema import cubes as known
from memos.memcube.ledger.schema import leases, queues, tasks, usage

WAITING = sa.text("state = 'waiting'")
"""Written as in the partial indexes, otherwise the database would not use them."""

TASK_DUE = "memos_task_due"
"""Set in `connection.info` by a transaction that enqueues a task which is due at once."""


def lock(connection: sa.Connection, cube: str) -> sa.Row[Any]:
    query = sa.select(queues).where(queues.c.cube_id == cube).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        insert_new(connection, queues, {"cube_id": cube})
        row = connection.execute(query).one()
    return row


def wake_up(connection: sa.Connection, cube: str, due: datetime, now: datetime) -> None:
    queue = lock(connection, cube)
    values: dict[str, Any] = {"due": due if queue.due is None else min(due, queue.due)}
    if due <= now:
        connection.info[TASK_DUE] = True
    if queue.turn is None and values["due"] <= now:
        values["turn"] = _initial_turn(connection, queue.weight)
    connection.execute(sa.update(queues).where(queues.c.cube_id == cube).values(values))


def give_turns(connection: sa.Connection, now: datetime) -> None:
    query = (
        sa.select(queues.c.cube_id, queues.c.weight)
        .where(queues.c.turn.is_(None), queues.c.due <= now)
        .order_by(queues.c.cube_id)
        .with_for_update(skip_locked=True)
    )
    for row in connection.execute(query).all():
        turn = _initial_turn(connection, row.weight)
        connection.execute(sa.update(queues).where(queues.c.cube_id == row.cube_id).values(turn=turn))


def next_turn(connection: sa.Connection) -> sa.Row[Any] | None:
    query = (
        sa.select(queues)
        .where(queues.c.turn.is_not(None))
        .order_by(queues.c.turn, queues.c.cube_id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(query).one_or_none()


def update_queue(connection: sa.Connection, cube: str, turn: float | None, now: datetime) -> None:
    """Update a locked queue: when its next task is due, and its turn, which is null unless a task may start."""
    due = connection.scalar(sa.select(sa.func.min(tasks.c.not_before)).where(tasks.c.cube_id == cube, WAITING))
    values = {"due": due, "turn": turn if due is not None and due <= now else None}
    connection.execute(sa.update(queues).where(queues.c.cube_id == cube).values(values))


def set_weight(connection: sa.Connection, cube: str, weight: float) -> None:
    """Set a cube's weight: its share of the turns relative to a cube of weight 1."""
    lock(connection, cube)
    connection.execute(sa.update(queues).where(queues.c.cube_id == cube).values(weight=weight))


def next_due(connection: sa.Connection) -> datetime | None:
    due: datetime | None = connection.scalar(sa.select(sa.func.min(queues.c.due)))
    return due


def insert_new(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
    insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    # RETURNING instead of the row count, in which drivers differ for skipped rows.
    [first, *_] = table.primary_key
    returned = connection.execute(insert.values(row).on_conflict_do_nothing().returning(first))
    return returned.one_or_none() is not None


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(_upsert(connection.dialect.name, table, tuple(rows[0])), list(rows))


@cache
def _upsert(dialect: str, table: sa.Table, names: tuple[str, ...]) -> Any:
    insert = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    keys = [column.name for column in table.primary_key]
    others = {name: insert.excluded[name] for name in names if name not in keys}
    return insert.on_conflict_do_update(index_elements=keys, set_=others)


def _initial_turn(connection: sa.Connection, weight: float) -> float:
    """Return the turn of a cube that joins the queue: one task behind the lowest."""
    lowest = connection.scalar(sa.select(sa.func.min(queues.c.turn)).where(queues.c.turn.is_not(None)))
    return (lowest or 0.0) + 1.0 / weight


def due(connection: sa.Connection, name: str, now: datetime, every: timedelta) -> bool:
    """Return True if no process has fired the job within the period."""
    until: datetime | None = connection.scalar(sa.select(leases.c.until).where(leases.c.name == name))
    return until is None or _is_over(connection, until, now, every)


def fire(connection: sa.Connection, name: str, owner: str, now: datetime, every: timedelta) -> bool:
    """Claim this period's run of a job; return False if another process has claimed it."""
    mine = {"owner": owner, "until": now + every}
    if insert_new(connection, leases, {"name": name, **mine}):
        return True
    until = connection.execute(sa.select(leases.c.until).where(leases.c.name == name).with_for_update()).scalar_one()
    if not _is_over(connection, until, now, every):
        return False
    connection.execute(sa.update(leases).where(leases.c.name == name).values(mine))
    return True


def _is_over(connection: sa.Connection, until: datetime, now: datetime, every: timedelta) -> bool:
    # A lease that ends later than one period and the clock skew from now is invalid: the clock was set back, or the
    # period was shortened.
    ahead = timedelta(0) if connection.dialect.name == "sqlite" else 2 * MOST_SKEW
    return until <= now or until > now + every + ahead


@dataclass(frozen=True, slots=True)
class Spending:
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def add(connection: sa.Connection, cube: str, purpose: str, now: datetime, spending: Spending) -> None:
    where = (usage.c.cube_id == cube, usage.c.day == _day(now), usage.c.purpose == purpose)
    start = {"cube_id": cube, "day": _day(now), "purpose": purpose}
    nothing = dict.fromkeys(("calls", "prompt_tokens", "completion_tokens", "seconds"), 0)
    insert_new(connection, usage, {**start, **nothing})
    sums = {
        "calls": usage.c.calls + spending.calls,
        "prompt_tokens": usage.c.prompt_tokens + spending.prompt_tokens,
        "completion_tokens": usage.c.completion_tokens + spending.completion_tokens,
        "seconds": usage.c.seconds + spending.seconds,
    }
    connection.execute(sa.update(usage).where(*where).values(sums))


def today(connection: sa.Connection, cube: str, now: datetime, besides: Collection[str] = ()) -> Spending:
    """Return a cube's usage since midnight UTC, except for the purposes in `besides`."""
    columns = (usage.c.calls, usage.c.prompt_tokens, usage.c.completion_tokens, usage.c.seconds)
    query = sa.select(*(sa.func.sum(column) for column in columns))
    query = query.where(usage.c.cube_id == cube, usage.c.day == _day(now), usage.c.purpose.not_in(besides))
    row = connection.execute(query).one()
    return Spending(int(row[0] or 0), int(row[1] or 0), int(row[2] or 0), float(row[3] or 0.0))


def seconds_today(connection: sa.Connection, purpose: str, now: datetime) -> float:
    query = sa.select(sa.func.sum(usage.c.seconds)).where(usage.c.day == _day(now), usage.c.purpose == purpose)
    return float(connection.scalar(query.where(usage.c.cube_id.in_(_every_cube()))) or 0.0)


def tokens_today(connection: sa.Connection, cubes: Sequence[str] | None, now: datetime) -> dict[str, int]:
    query = sa.select(usage.c.cube_id, sa.func.sum(usage.c.prompt_tokens + usage.c.completion_tokens))
    query = query.where(usage.c.cube_id.in_(_every_cube() if cubes is None else cubes), usage.c.day == _day(now))
    return {cube: int(tokens) for cube, tokens in connection.execute(query.group_by(usage.c.cube_id)) if tokens}


def next_day(now: datetime) -> datetime:
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + timedelta(days=1)


def _every_cube() -> sa.CompoundSelect[tuple[str]]:
    # The primary key begins with the cube, so listing all cubes lets the database use it.
    return sa.select(known.c.id).union_all(sa.select(sa.literal(WHOLE)))


def _day(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y-%m-%d}"
