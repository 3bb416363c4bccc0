"""The worker threads of a process: lease tasks, run their jobs, record the outcome."""

from __future__ import annotations

import itertools
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.settings import TaskSettings
from memos.core.types import Task, TaskState
from memos.errors import BackendUnavailable, Conflict, MemosError, ModelError
from memos.memcube.ledger import queues, tasks
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.postgres import MOST_SKEW
from memos.memcube.ledger.queues import Spending
from memos.memcube.ledger.tasks import Delay, Lease
from memos.scheduler.task import Job, LeaseLost, OverBudget, RetryLater, ShuttingDown, TaskRun, WaitingForSetting

_POLL_S = 1.0
_PAUSE_S = 5.0
_RENEWALS = 3
_CLEAN_EVERY_S = 600.0
# While calls are in progress: with a share of one half, two threads doubled the latency of searches
# (docs/development/log.md).
_SHARE_DURING_CALLS = 0.1
_LONGEST_REST_S = 5.0
_BUSY_POLL_S = 0.05
_OVER_BUDGET = "the cube's token budget for today is used up (MEMOS_TASKS__TOKENS_PER_DAY)"

log = logging.getLogger("memos.tasks")


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds and counts for every worker.

    A lease expires `lease_s` after its last renewal. A failed attempt is retried after up to `backoff_s`, doubled each
    time up to `backoff_max_s`, for up to `max_attempts`. Running tasks get `stop_s` to end at shutdown. Finished tasks
    are kept for `keep_days`. With PostgreSQL, the clocks of two processes may differ by `skew_s`.
    """

    lease_s: float = 60.0
    max_attempts: int = 5
    backoff_s: float = 2.0
    backoff_max_s: float = 900.0
    stop_s: float = 10.0
    skew_s: float = 2 * MOST_SKEW.total_seconds()
    keep_days: int = 7


Ending = Callable[[sa.Connection], object]


class Runner:
    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        settings: TaskSettings,
        limits: Limits | None = None,
        busy: Callable[[], bool] = lambda: False,
        *,
        busy_share: float = 0.5,
    ) -> None:
        """Create a runner whose workers run for `busy_share` of the time, and less while `busy` returns True."""
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"[-128:]
        self._ledger = ledger
        self._clock = clock
        self._settings = settings
        self._limits = limits or Limits()
        self._busy = busy
        self._busy_share = busy_share
        self._jobs: dict[str, Job] = {}
        self._stop = threading.Event()
        self._work = threading.Condition()
        self._wakes = 0
        self._running: dict[str, TaskRun] = {}
        self._attempts = itertools.count(1)
        self._skew = timedelta(seconds=0 if ledger.is_sqlite else self._limits.skew_s)
        self._threads: list[threading.Thread] = []
        self._exclusive = threading.Lock()
        self._exclusive_thread: threading.Thread | None = None
        self._cleaned_at = -_CLEAN_EVERY_S
        self.last_error: str | None = None

    def register(self, jobs: Sequence[Job]) -> None:
        """Register jobs by kind; a task of an unregistered kind waits for a process that has its job."""
        self._jobs |= {job.kind: job for job in jobs}

    def start(self) -> None:
        """Start the workers; idempotent, and does nothing with no workers set."""
        if self._threads or not self._settings.workers:
            return
        names = [*(f"memos-task-{number}" for number in range(self._settings.workers)), "memos-leases"]
        targets = [*[self._serve] * self._settings.workers, self._keep_leases]
        for name, target in zip(names, targets, strict=True):
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
        for thread in self._threads:
            thread.start()
        self._ledger.on_task_due = self.wake

    def wake(self) -> None:
        with self._work:
            self._wakes += 1
            self._work.notify_all()

    def ask_to_stop(self) -> None:
        self._stop.set()
        self.wake()

    def stop(self) -> None:
        """Stop after the current steps; a task that does not end in time is given back without effect."""
        self.ask_to_stop()
        deadline = time.monotonic() + self._limits.stop_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._exclusive_thread is not None:
            self._exclusive_thread.join(max(0.0, deadline - time.monotonic()))
        for run in list(self._running.values()):
            run.lost = True
            with suppress(MemosError), self._ledger.write() as connection:
                self._give_back(run, Delay(self._clock.now(), counted=False))(connection)

    # Working

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._guarded(self._serve_once)

    def _serve_once(self) -> None:
        seen = self._wakes
        run = self._next()
        if run is None:
            self._idle(seen)
        elif self._jobs[run.task.kind].exclusive_thread:
            self._exclusive_thread = threading.Thread(
                target=self._serve_exclusive, args=[run], name="memos-task-apart", daemon=True
            )
            self._exclusive_thread.start()
        else:
            used_s = time.thread_time()
            self._attempt(run)
            if run.task.priority >= tasks.PRIORITY:
                # A task that calls a model mostly waits, so only the processor time that it used counts.
                asked = run.spent.calls > 0
                self._rest(time.thread_time() - used_s if asked else time.monotonic() - run.started)

    def _serve_exclusive(self, run: TaskRun) -> None:
        try:
            self._guarded(partial(self._attempt, run))
        finally:
            self._exclusive.release()
            self.wake()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except MemosError as error:
            self._failed(error)
        except Exception as error:
            self._failed(error)
            log.exception("a task worker failed unexpectedly")

    def _failed(self, error: Exception) -> None:
        self.last_error = f"{type(error).__name__}: {error}"
        log.warning("background tasks cannot run: %s", self.last_error)
        self._stop.wait(_PAUSE_S)

    def _next(self) -> TaskRun | None:
        now = self._clock.now()
        with self._ledger.read() as connection:
            due = queues.next_due(connection)
        if due is None or due > now:
            return None
        if not self._exclusive.acquire(blocking=False):
            return self._lease(now, exclusive=False)
        run = None
        try:
            run = self._lease(now, exclusive=True)
        finally:
            if run is None or not self._jobs[run.task.kind].exclusive_thread:
                self._exclusive.release()
        return run

    def _lease(self, now: datetime, *, exclusive: bool) -> TaskRun | None:
        costs = {kind: job.cost for kind, job in self._jobs.items() if exclusive or not job.exclusive_thread}
        # An owner for each attempt: a task may be cancelled, retried and leased again while an earlier attempt runs.
        lease = Lease(f"{self.owner}#{next(self._attempts)}", now + timedelta(seconds=self._limits.lease_s))
        with self._ledger.write() as connection:
            while (task := tasks.take(connection, lease, now, costs)) is not None:
                if self._in_budget(connection, task, lease.owner, now):
                    break
        return None if task is None else self._start_run(task, lease.owner)

    def _start_run(self, task: Task, owner: str) -> TaskRun:
        run = TaskRun(self._ledger, self._clock, task, owner, self._stop, partial(self._may_spend, task))
        self._running[owner] = run
        return run

    def _idle(self, seen: int) -> None:
        with self._ledger.read() as connection:
            due = queues.next_due(connection)
        wait_s = _POLL_S if due is None else min(_POLL_S, (due - self._clock.now()).total_seconds())
        with self._work:
            if self._wakes == seen:
                # A task that is due already is of a kind that only other processes have jobs for.
                self._work.wait(_POLL_S if wait_s <= 0 else wait_s)

    def _attempt(self, run: TaskRun) -> None:
        try:
            end = self._outcome(run)
            if not run.finished:
                with self._ledger.write() as connection:
                    if end is not None and not run.lost:
                        end(connection)
                    run.record(connection)
        finally:
            self._running.pop(run.owner, None)

    def _rest(self, took_s: float) -> None:
        share, began = self._busy_share, time.monotonic()
        self._stop.wait(took_s * (1 / share - 1))
        during_calls = _SHARE_DURING_CALLS / max(1, self._settings.workers)  # the share is that of all threads together
        longest_s = min(_LONGEST_REST_S, took_s * (1 / min(share, during_calls) - 1))
        while self._busy() and (left_s := began + longest_s - time.monotonic()) > 0:
            if self._stop.wait(min(left_s, _BUSY_POLL_S)):
                return

    def _outcome(self, run: TaskRun) -> Ending | None:
        task, now = run.task, self._clock.now
        try:
            self._jobs[task.kind].run(run)
            if not run.finished:
                with run.finishing():
                    pass
            return None
        except LeaseLost:
            return None
        except ShuttingDown:
            return self._give_back(run, Delay(now(), counted=False))
        except OverBudget:
            return self._give_back(run, Delay(queues.next_day(now()), _OVER_BUDGET, counted=False))
        except RetryLater as later:
            return self._give_back(run, Delay(later.until, later.note, counted=False))
        except WaitingForSetting as blocked:
            return self._give_back(run, Delay(tasks.BLOCKED, blocked.note, counted=False))
        except (BackendUnavailable, ModelError) as error:
            if self._stop.is_set():  # the models were closed while this task waited for one
                return self._give_back(run, Delay(now(), counted=False))
            return self._failure(run, error, transient=not error.permanent)
        except Conflict as error:
            return self._failure(run, error, transient=True)
        except MemosError as error:
            return self._failure(run, error, transient=False)
        except Exception as error:
            # The message of an unknown error may contain memory text.
            log.exception("task %s (%s) failed unexpectedly", task.id, task.kind)
            return self._failure(run, RuntimeError(f"{type(error).__name__}; see the log"), transient=True)

    def _failure(self, run: TaskRun, error: Exception, *, transient: bool) -> Ending:
        task, text = run.task, f"{type(error).__name__}: {error}"
        log.warning("task %s (%s), attempt %d: %s", task.id, task.kind, task.attempts, text)
        if transient and task.attempts < self._limits.max_attempts:
            chance = random.random()  # noqa: S311
            wait = tasks.backoff(task.attempts, self._limits.backoff_s, self._limits.backoff_max_s, chance)
            asked = getattr(error, "retry_after_s", None) or 0.0
            until = self._clock.now() + max(wait, timedelta(seconds=asked))
            return self._give_back(run, Delay(until, f"attempt {task.attempts} failed", text))
        return lambda connection: self._end(connection, run, TaskState.DEAD if transient else TaskState.FAILED, text)

    def _end(self, connection: sa.Connection, run: TaskRun, state: TaskState, text: str) -> None:
        if tasks.fail(connection, run.task, run.owner, state, text, self._clock.now()):
            self._notify_failed(connection, run.task, text)

    def _notify_failed(self, connection: sa.Connection, task: Task, text: str) -> None:
        job = self._jobs.get(task.kind)
        if job is not None and job.failed is not None:
            job.failed(connection, task, text)

    def _give_back(self, run: TaskRun, delay: Delay) -> Ending:
        return lambda connection: tasks.give_back(connection, run.task, run.owner, delay, self._clock.now())

    # Budgets

    def _in_budget(self, connection: sa.Connection, task: Task, owner: str, now: datetime) -> bool:
        if not self._jobs[task.kind].budgeted or self._is_within_budget(self._today(connection, task.cube, now)):
            return True
        delay = Delay(queues.next_day(now), _OVER_BUDGET, counted=False)
        tasks.give_back(connection, task, owner, delay, now)
        tasks.postpone(connection, task.cube, [kind for kind, job in self._jobs.items() if job.budgeted], delay)
        return False

    def _may_spend(self, task: Task, spent: Spending) -> bool:
        with self._ledger.read() as connection:
            before = self._today(connection, task.cube, self._clock.now())
        return self._is_within_budget(replace(before, prompt_tokens=before.prompt_tokens + spent.tokens))

    def _today(self, connection: sa.Connection, cube: str, now: datetime) -> Spending:
        exclusive = [kind for kind, job in self._jobs.items() if job.exclusive_thread]
        return queues.today(connection, cube, now, besides=exclusive)

    def _is_within_budget(self, spent: Spending) -> bool:
        most = self._settings.tokens_per_day
        return most is None or spent.tokens < most

    # Leases

    def _keep_leases(self) -> None:
        while not self._stop.wait(self._limits.lease_s / _RENEWALS):
            try:
                self.keep_leases()
            except MemosError as error:
                log.warning("task leases could not be renewed: %s", error)
            except Exception:
                log.exception("leases could not be renewed")

    def keep_leases(self) -> None:
        now = self._clock.now()
        until = now + timedelta(seconds=self._limits.lease_s)
        for run in list(self._running.values()):
            with self._ledger.write() as connection:
                kept = tasks.renew(connection, run.task.id, Lease(run.owner, until), run.progress)
            run.lost = run.lost or not (kept or run.finished)
        with self._ledger.write() as connection:
            back = tasks.reclaim(connection, now, self._limits.max_attempts, self._skew)
            for task in back:
                if task.attempts >= self._limits.max_attempts:
                    self._notify_failed(connection, task, "its workers stopped while running it")
        if back:
            log.warning("%d tasks of stopped workers are queued again", len(back))
            self.wake()
        if time.monotonic() - self._cleaned_at >= _CLEAN_EVERY_S:
            with self._ledger.write() as connection:
                more = tasks.clean(connection, now - timedelta(days=self._limits.keep_days))
            if not more:
                self._cleaned_at = time.monotonic()
