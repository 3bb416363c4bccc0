"""Times the task queue by itself: tasks a second, and how long after its commit a task begins; jobs do nothing."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from memos.clock import SystemClock
from memos.memcube.ledger import tasks
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler.runner import Runner
from memos.scheduler.task_run import Job, Run
from memos.settings import TaskSettings

_WORKERS = 2
_PAUSE_S = 0.002  # between two tasks whose start is timed, so that each finds the workers idle


def rates(cube_counts: Sequence[int], drained: int, timed: int) -> dict[str, dict[str, float]]:
    """Return for each number of cubes the tasks a second of a full queue, and the start delay of single tasks."""
    found = {}
    for cubes in cube_counts:
        with tempfile.TemporaryDirectory(prefix="memstrata-tasks-") as folder:
            ledger = Ledger.open(sqlite_url(Path(folder) / "ledger.db"))
            try:
                found[str(cubes)] = _measure(ledger, [f"cube-{number}" for number in range(cubes)], drained, timed)
            finally:
                ledger.close()
    return found


def _measure(ledger: Ledger, cubes: Sequence[str], drained: int, timed: int) -> dict[str, float]:
    begun: dict[str, float] = {}
    change = threading.Condition()

    def job(run: Run) -> None:
        with change:
            begun[run.task.id] = time.perf_counter()
            change.notify_all()

    for cube in cubes:
        _put(ledger, cube, drained // len(cubes))
    runner = Runner(ledger, SystemClock(), TaskSettings(workers=_WORKERS))
    runner.register([Job("nothing", job)])
    count, delays = drained // len(cubes) * len(cubes), []
    started = time.perf_counter()
    runner.start()
    with change:
        change.wait_for(lambda: len(begun) == count)
    _until_ended(ledger)
    drain_s = time.perf_counter() - started
    for number in range(timed):
        [task] = _put(ledger, cubes[number % len(cubes)], 1)
        committed = time.perf_counter()
        runner.wake()
        with change:
            change.wait_for(lambda task=task: task in begun)
        delays.append((begun[task] - committed) * 1000)
        _until_ended(ledger)
        time.sleep(_PAUSE_S)
    runner.stop()
    p50, p99 = np.percentile(delays, [50, 99])
    return {
        "tasks_per_s": round(count / drain_s, 1),
        "start_p50_ms": round(float(p50), 2),
        "start_p99_ms": round(float(p99), 2),
    }


def _put(ledger: Ledger, cube: str, count: int) -> list[str]:
    with ledger.write() as connection:
        return tasks.enqueue(connection, cube, [NewTask("nothing")] * count, datetime.now(UTC))


def _until_ended(ledger: Ledger) -> None:
    while True:
        with ledger.read() as connection:
            if not tasks.unended(connection, None):
                return
        time.sleep(_PAUSE_S)
