"""Rows of background tasks: enqueued in the transaction that causes them, leased in fair turns, ended once.

Functions take an open write transaction unless they only read. Lock order: cube, queue, waiting tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import ENDED, Json, Task, TaskState
from memos.errors import Conflict, NotFound
from memos.memcube.ledger import queues
from memos.memcube.ledger.schema import fields_of, tasks

PRIORITY = 5
"""Default priority, for tasks that no caller waits for; within a cube, lower numbers run first."""

RUNNING = sa.text("state = 'running'")
"""Written as in the partial index, otherwise the database would not use it."""

BLOCKED = datetime(9999, 1, 1, tzinfo=UTC)
"""`not_before` of a task that is blocked until a setting is made; `unblock` releases it."""

_ERROR_CHARS = 500
_CLEANED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue; at most one with the same kind and `key` waits. `payload` and `scope` contain ids only."""

    kind: str
    payload: Mapping[str, Json] = field(default_factory=dict)
    key: str | None = None
    priority: int = PRIORITY
    scope: Mapping[str, Json] = field(default_factory=dict)
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    owner: str
    until: datetime


def enqueue(connection: sa.Connection, cube: str, new: Sequence[NewTask], now: datetime) -> list[str]:
    """Enqueue tasks; return their ids, or that of the waiting task with the same kind and key."""
    ids: list[str] = []
    plain: list[dict[str, Any]] = []
    if new:
        queues.lock(connection, cube)  # first, so that no waiting task is leased or cancelled meanwhile
    for task in new:
        what = {"kind": task.kind, "priority": task.priority, "scope": dict(task.scope), "payload": dict(task.payload)}
        when = {"state": TaskState.WAITING, "not_before": task.not_before or now, "created_at": now}
        ids.append(new_id())
        row = {"id": ids[-1], "cube_id": cube, "idempotency_key": task.key, **what, **when}
        if task.key is None:
            plain.append(row)
        elif not queues.insert_new(connection, tasks, row):
            duplicate = sa.select(tasks.c.id).where(*_waiting_with_key(cube, task.kind, task.key))
            ids[-1] = connection.execute(duplicate).scalar_one()
    if plain:
        connection.execute(sa.insert(tasks), plain)
    if ids:
        queues.wake_up(connection, cube, min(task.not_before or now for task in new), now)
    return ids


def take(connection: sa.Connection, lease: Lease, now: datetime, costs: Mapping[str, float]) -> Task | None:
    """Lease the next due task of a kind in `costs`, and advance the cube's turn by its cost."""
    queues.give_turns(connection, now)
    while (queue := queues.next_turn(connection)) is not None:
        row = connection.execute(
            sa.select(tasks)
            .where(*_waiting(queue.cube_id), tasks.c.not_before <= now, tasks.c.kind.in_(costs))
            .order_by(tasks.c.priority, tasks.c.id)
            .limit(1)
            .with_for_update()
        ).one_or_none()
        if row is None:
            queues.update_queue(connection, queue.cube_id, None, now)
            continue
        held: dict[str, Any] = {"state": TaskState.RUNNING, "lease_owner": lease.owner, "lease_until": lease.until}
        held |= {"attempts": row.attempts + 1, "started_at": row.started_at or now, "note": None, "progress": 0.0}
        connection.execute(sa.update(tasks).where(tasks.c.id == row.id).values(held))
        queues.update_queue(connection, queue.cube_id, queue.turn + costs[row.kind] / queue.weight, now)
        return replace(to_task(row), **held)
    return None


def renew(connection: sa.Connection, task_id: str, lease: Lease, progress: float) -> bool:
    held = _held(task_id, lease.owner)
    return bool(connection.execute(held.values(lease_until=lease.until, progress=progress)).rowcount)


def is_held(connection: sa.Connection, task_id: str, owner: str) -> bool:
    mine = (tasks.c.id == task_id, tasks.c.state == TaskState.RUNNING, tasks.c.lease_owner == owner)
    return connection.scalar(sa.select(tasks.c.id).where(*mine)) is not None


def finish(connection: sa.Connection, task_id: str, owner: str, now: datetime, note: str | None = None) -> bool:
    """Set a task done, in the transaction with its effects; if it returns False the lease is lost: roll back."""
    done = {"state": TaskState.DONE, "finished_at": now, "progress": 1.0, "error": None, "note": note}
    return bool(connection.execute(_held(task_id, owner).values(**done, **_NO_LEASE)).rowcount)


def fail(connection: sa.Connection, task: Task, owner: str, state: TaskState, error: str, now: datetime) -> bool:
    ended = {"state": state, "finished_at": now, "error": error[:_ERROR_CHARS]}
    return bool(connection.execute(_held(task.id, owner).values(**ended, **_NO_LEASE)).rowcount)


@dataclass(frozen=True, slots=True)
class Delay:
    """Until when a task waits again, and why; `counted` is False if the attempt does not count as a failure."""

    until: datetime
    note: str | None = None
    error: str | None = None
    counted: bool = True


def give_back(connection: sa.Connection, task: Task, owner: str, delay: Delay, now: datetime) -> bool:
    """Return a task to the queue; False if this owner no longer holds it.

    If another task with the same kind and key is waiting, this one is cancelled instead.
    """
    if connection.scalar(sa.select(tasks.c.id).where(tasks.c.id == task.id)) is None:
        return False  # dropped with its cube
    queues.lock(connection, task.cube)
    if task.key is not None and _has_waiting_duplicate(connection, task):
        gone = {
            "state": TaskState.CANCELLED,
            "finished_at": now,
            "note": "another task of this kind and key is waiting",
        }
        return bool(connection.execute(_held(task.id, owner).values(**gone, **_NO_LEASE)).rowcount)
    waiting = {
        "state": TaskState.WAITING,
        "not_before": delay.until,
        "note": delay.note,
        "error": None if delay.error is None else delay.error[:_ERROR_CHARS],
        "attempts": task.attempts if delay.counted else task.attempts - 1,
    }
    if not connection.execute(_held(task.id, owner).values(**waiting, **_NO_LEASE)).rowcount:
        return False
    queues.wake_up(connection, task.cube, delay.until, now)
    return True


def reclaim(connection: sa.Connection, now: datetime, most_attempts: int, skew: timedelta) -> list[Task]:
    """Requeue tasks with expired leases, or set them dead after `most_attempts`; return them.

    `skew` is how far the clocks of two processes may differ.
    """
    overdue = sa.select(tasks).where(RUNNING, tasks.c.lease_until < now - skew)
    rows = connection.execute(overdue.order_by(tasks.c.cube_id, tasks.c.id).limit(_CLEANED_AT_ONCE)).all()
    found = []
    for task in map(to_task, rows):
        owner = task.lease_owner or ""
        queues.lock(connection, task.cube)
        # The lease may have been renewed since it was read.
        still = sa.update(tasks).where(tasks.c.id == task.id, tasks.c.lease_until == task.lease_until)
        if not connection.execute(still.where(tasks.c.lease_owner == owner).values(lease_until=now)).rowcount:
            continue
        error = f"The worker {owner} stopped while running this task."
        if task.attempts >= most_attempts:
            fail(connection, task, owner, TaskState.DEAD, error, now)
        else:
            give_back(connection, task, owner, Delay(now, error=error), now)
        found.append(task)
    return found


def cancel(connection: sa.Connection, task: Task, now: datetime) -> None:
    """Cancel a waiting or running task; its worker finds the lease lost. Raises: Conflict (it has ended)."""
    queues.lock(connection, task.cube)
    cancelled = {"state": TaskState.CANCELLED, "finished_at": now, **_NO_LEASE}
    alive = sa.update(tasks).where(tasks.c.id == task.id, tasks.c.state.not_in(ENDED))
    if not connection.execute(alive.values(cancelled)).rowcount:
        raise Conflict(f"Task {task.id} has ended already; there is nothing to cancel.")


def retry(connection: sa.Connection, task: Task, now: datetime) -> None:
    queues.lock(connection, task.cube)
    if task.key is not None and _has_waiting_duplicate(connection, task):
        raise Conflict(f"Task {task.id} needs no retry; another {task.kind} task for the same is already waiting.")
    again = {"state": TaskState.WAITING, "attempts": 0, "not_before": now, "finished_at": None, "note": None}
    ended = tasks.c.state.in_([TaskState.FAILED, TaskState.DEAD, TaskState.CANCELLED])
    if not connection.execute(sa.update(tasks).where(tasks.c.id == task.id, ended).values(again)).rowcount:
        raise Conflict(f"Task {task.id} is not failed, dead or cancelled; only those can be retried.")
    queues.wake_up(connection, task.cube, now, now)


def postpone(connection: sa.Connection, cube: str, kinds: Collection[str], delay: Delay) -> None:
    queues.lock(connection, cube)
    later = {"not_before": delay.until, "note": delay.note}
    early = (*_waiting(cube), tasks.c.kind.in_(kinds), tasks.c.not_before < delay.until)
    connection.execute(sa.update(tasks).where(*early).values(later))


def unblock(connection: sa.Connection, kind: str, now: datetime) -> int:
    blocked = (tasks.c.kind == kind, queues.WAITING, tasks.c.not_before == BLOCKED)
    found = 0
    cubes = sa.select(tasks.c.cube_id).where(*blocked).distinct().order_by(tasks.c.cube_id)
    for cube in connection.scalars(cubes).all():
        queues.lock(connection, cube)
        these = sa.update(tasks).where(tasks.c.cube_id == cube, *blocked)
        found += connection.execute(these.values(not_before=now, note=None)).rowcount
        queues.wake_up(connection, cube, now, now)
    return found


def spent(connection: sa.Connection, task_id: str, tokens: int, seconds: float) -> bool:
    """Add the usage of an attempt, whoever holds the task now; False if the task was dropped with its cube."""
    added = {"tokens": tasks.c.tokens + tokens, "seconds": tasks.c.seconds + seconds}
    return bool(connection.execute(sa.update(tasks).where(tasks.c.id == task_id).values(added)).rowcount)


def clean(connection: sa.Connection, before: datetime) -> int:
    ended = tasks.c.state.in_([TaskState.DONE, TaskState.CANCELLED])
    old = sa.select(tasks.c.id).where(tasks.c.finished_at < before, ended).limit(_CLEANED_AT_ONCE)
    ids = connection.scalars(old).all()
    if ids:
        connection.execute(sa.delete(tasks).where(tasks.c.id.in_(ids)))
    return len(ids)


# Reading


def get(connection: sa.Connection, task_id: str) -> Task:
    row = connection.execute(sa.select(tasks).where(tasks.c.id == task_id)).one_or_none()
    if row is None:
        raise unknown(task_id)
    return to_task(row)


@dataclass(frozen=True, slots=True)
class TaskQuery:
    states: tuple[TaskState, ...] = ()
    kinds: tuple[str, ...] = ()
    limit: int = 100
    after: str | None = None
    about: frozenset[str] = frozenset()
    since: datetime | None = None
    """With `about`: no task that ended before this time."""


def unknown(task: str) -> NotFound:
    return NotFound("task", task, "List tasks with `memos task list`; ended tasks are kept for a week.")


def find(connection: sa.Connection, cubes: Sequence[str] | None, wanted: TaskQuery) -> list[Task]:
    query = _of(cubes, sa.select(tasks)).order_by(tasks.c.id.desc()).limit(wanted.limit)
    if wanted.states:
        query = query.where(tasks.c.state.in_(wanted.states))
    if wanted.kinds:
        query = query.where(tasks.c.kind.in_(wanted.kinds))
    if wanted.after is not None:
        query = query.where(tasks.c.id < wanted.after)
    if wanted.about:
        told = sa.cast(tasks.c.payload, sa.Text)
        query = query.where(sa.or_(*(told.contains(f'"{id_}"', autoescape=True) for id_ in sorted(wanted.about))))
        if wanted.since is not None:
            query = query.where(sa.or_(tasks.c.finished_at.is_(None), tasks.c.finished_at >= wanted.since))
    return [to_task(row) for row in connection.execute(query)]


def counts(connection: sa.Connection, cubes: Sequence[str] | None) -> dict[TaskState, int]:
    query = _of(cubes, sa.select(tasks.c.state, sa.func.count())).group_by(tasks.c.state)
    return {TaskState(state): number for state, number in connection.execute(query)}


def unended(connection: sa.Connection, cubes: Sequence[str] | None, by: datetime = BLOCKED) -> int:
    """Return the number of tasks that are running, or waiting and due before `by`; blocked ones are not counted."""
    count = _of(cubes, sa.select(sa.func.count()).select_from(tasks)).where(tasks.c.not_before < by)
    return sum(connection.scalar(count.where(state)) or 0 for state in (queues.WAITING, RUNNING))


# Inside


_NO_LEASE: dict[str, Any] = {"lease_owner": None, "lease_until": None}


def _held(task_id: str, owner: str) -> sa.Update:
    mine = (tasks.c.id == task_id, tasks.c.state == TaskState.RUNNING, tasks.c.lease_owner == owner)
    return sa.update(tasks).where(*mine)


def _waiting(cube: str) -> tuple[Any, ...]:
    return (tasks.c.cube_id == cube, queues.WAITING)


def _of(cubes: Sequence[str] | None, query: sa.Select[Any]) -> sa.Select[Any]:
    return query if cubes is None else query.where(tasks.c.cube_id.in_(cubes))


def _waiting_with_key(cube: str, kind: str, key: str | None) -> tuple[Any, ...]:
    return (*_waiting(cube), tasks.c.kind == kind, tasks.c.idempotency_key == key)


def _has_waiting_duplicate(connection: sa.Connection, task: Task) -> bool:
    duplicate = sa.select(tasks.c.id).where(*_waiting_with_key(task.cube, task.kind, task.key), tasks.c.id != task.id)
    return connection.scalar(duplicate) is not None


def to_task(row: Any) -> Task:
    told = fields_of(row) | {"state": TaskState(row.state)}
    key = told.pop("idempotency_key")
    return Task(key=key, **told)


def backoff(attempts: int, first_s: float, longest_s: float, share: float) -> timedelta:
    """Return the delay after the n-th failure: full jitter, with `share` in [0, 1) as the random number.

    At least a tenth of the ceiling, so that a failing backend gets a pause.
    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    ceiling = min(longest_s, first_s * 2.0 ** min(attempts - 1, 60))
    return timedelta(seconds=ceiling * (0.1 + 0.9 * share))
