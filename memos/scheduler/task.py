"""An attempt at a task as its job sees it: progress, cancellation, and the transaction that ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.types import WHOLE, Task
from memos.errors import BackendTimeout, BackendUnavailable
from memos.memcube.ledger import cubes, queues, tasks
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.queues import Spending
from memos.reader.arguments import seconds_of


class ShuttingDown(Exception):
    """The process is closing: the task is given back unchanged."""


class LeaseLost(Exception):
    """The task was taken over or cancelled; nothing of this attempt may be kept."""


class OverBudget(Exception):
    """The cube has spent today's budget; the task continues tomorrow."""


class WaitingForSetting(Exception):
    """The task needs a setting that is missing; it is blocked until a process with it starts."""

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


class RetryLater(Exception):
    """The task continues at another time; its note says why."""

    def __init__(self, until: datetime, note: str) -> None:
        super().__init__(note)
        self.until, self.note = until, note


@dataclass(frozen=True, slots=True)
class Job:
    """The code that runs one kind of task.

    `cost` is charged to the cube's turn in the fair queue. A `budgeted` job waits for the next day once its cube has
    spent its token budget. A job with `exclusive_thread` may take hours: it runs on its own thread, one at a time,
    outside the budget. Write effects to the ledger in `TaskRun.finishing`; everything else must be idempotent. `failed`
    is called when a task ends without success.
    """

    kind: str
    run: Callable[[TaskRun], None]
    cost: float = 1.0
    budgeted: bool = True
    exclusive_thread: bool = False
    failed: Callable[[sa.Connection, Task, str], None] | None = None


@dataclass(slots=True)
class TaskRun:
    """An attempt at a task: call `check_cancelled` between steps and `finishing` once; `note` is stored with the task.

    `lost` is set when the lease is lost, `finished` once the final transaction is committed.
    """

    ledger: Ledger
    clock: Clock
    task: Task
    owner: str
    stopping: threading.Event
    budget: Callable[[Spending], bool]
    started: float = field(default_factory=time.monotonic)
    spent: Spending = field(default_factory=Spending)
    progress: float = 0.0
    note: str | None = None
    finished: bool = False
    lost: bool = False

    def check_cancelled(self, progress: float | None = None) -> None:
        if progress is not None:
            self.progress = min(1.0, max(0.0, progress))
        if self.lost:
            raise LeaseLost
        if self.stopping.is_set():
            raise ShuttingDown

    def spend(self, calls: int, prompt_tokens: int, completion_tokens: int) -> None:
        before = self.spent
        self.spent = Spending(
            before.calls + calls, before.prompt_tokens + prompt_tokens, before.completion_tokens + completion_tokens
        )

    def check_budget(self) -> None:
        """Stop before another model call if the cube's budget is spent."""
        if not self.budget(self.spent):
            raise OverBudget

    def check_held(self, connection: sa.Connection) -> None:
        """Check in another transaction than `finishing` that the lease is held. Raises: LeaseLost."""
        if self.task.cube != WHOLE:
            cubes.lock(connection, self.task.cube)
        queues.lock(connection, self.task.cube)  # cancelling a task takes the same lock
        if not tasks.is_held(connection, self.task.id, self.owner):
            raise LeaseLost

    @contextmanager
    def finishing(self) -> Iterator[sa.Connection]:
        """Yield the transaction that ends the task, so that its effects and its end are atomic. Raises: LeaseLost."""
        with self.ledger.write() as connection:
            if self.task.cube != WHOLE:
                cubes.lock(connection, self.task.cube)
            queues.lock(connection, self.task.cube)
            if not tasks.finish(connection, self.task.id, self.owner, self.clock.now(), self.note):
                raise LeaseLost
            yield connection
            self.record(connection)
        self.finished = True

    def record(self, connection: sa.Connection) -> None:
        spent = replace(self.spent, seconds=time.monotonic() - self.started)
        if tasks.spent(connection, self.task.id, spent.tokens, spent.seconds):
            queues.add(connection, self.task.cube, self.task.kind, self.clock.now(), spent)


_POLLS_S = (0.02, 0.5)
_UNTIL: ContextVar[threading.Event | None] = ContextVar("memos_waiting_until", default=None)


@contextmanager
def give_up_waits_on(stop: threading.Event) -> Iterator[None]:
    """Make `poll_until` in this block raise once the event is set: the caller is gone, or the program is closing."""
    token = _UNTIL.set(stop)
    try:
        yield
    finally:
        _UNTIL.reset(token)


def poll_until(timeout_s: float | None) -> Iterator[None]:
    deadline = None if timeout_s is None else time.monotonic() + seconds_of("timeout_s", timeout_s)
    pause, slowest = _POLLS_S
    stop = _UNTIL.get()
    while True:
        yield
        if deadline is not None and time.monotonic() >= deadline:
            raise BackendTimeout(f"Not finished after {timeout_s:g} s; the task continues. Wait again, or longer.")
        if stop is None:
            time.sleep(pause)
        elif stop.wait(pause):
            raise BackendUnavailable(
                "The server is shutting down; the task continues when it runs again. Wait again then."
            )
        pause = min(slowest, pause * 1.5)
