"""Times the task queue by itself: tasks a second, and how long after its commit a task begins; jobs do nothing."""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.report import Report
from memos.core.clock import SystemClock
from memos.core.settings import TaskSettings
from memos.memcube.ledger import tasks
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler.runner import Runner
from memos.scheduler.task import Job, TaskRun

_CUBES = (1, 10, 100)
_WORKERS = 2
_PAUSE_S = 0.002  # between two tasks whose start is timed, so that each finds the workers idle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what this part asks for."""
    parser.add_argument("--drained", type=int, default=2_000, help="tasks of a full queue (default 2,000)")
    parser.add_argument("--timed", type=int, default=300, help="single tasks whose start is timed (default 300)")


def measure(arguments: argparse.Namespace) -> Report:
    """Return tasks a second and start delays at 1, 10 and 100 cubes."""
    found = rates(_CUBES, arguments.drained, arguments.timed)
    table = Table(title="task queue, SQLite", title_justify="left")
    for name in ("cubes", "tasks a second", "start p50 ms", "start p99 ms"):
        table.add_column(name, justify="right")
    for cubes, figures in found.items():
        table.add_row(cubes, *(f"{figure:,.1f}" for figure in figures.values()))
    return Report({"n": {"drained": arguments.drained, "timed": arguments.timed}, "tasks": found}, tables=[table])


def rates(cube_counts: Sequence[int], drained: int, timed: int) -> dict[str, dict[str, float]]:
    """Return for each number of cubes the tasks a second of a full queue, and the start delay of single tasks."""
    found = {}
    for cubes in cube_counts:
        with tempfile.TemporaryDirectory(prefix="hippocube-tasks-") as folder:
            ledger = Ledger.open(sqlite_url(Path(folder) / "ledger.db"))
            try:
                found[str(cubes)] = _measure(ledger, [f"cube-{number}" for number in range(cubes)], drained, timed)
            finally:
                ledger.close()
    return found


def _measure(ledger: Ledger, cubes: Sequence[str], drained: int, timed: int) -> dict[str, float]:
    begun: dict[str, float] = {}
    change = threading.Condition()

    def job(run: TaskRun) -> None:
        with change:
            begun[run.task.id] = time.perf_counter()
            change.notify_all()

    for cube in cubes:
        _put(ledger, cube, drained // len(cubes))
    runner = Runner(ledger, SystemClock(), TaskSettings(workers=_WORKERS), busy_share=1)
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
