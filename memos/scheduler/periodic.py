"""Fires periodic jobs: APScheduler looks often, a lease in the ledger lets one process a period through.

Firing is nothing but enqueuing a task, so the work itself is leased, retried and listed like any other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from memos.core.clock import Clock
from memos.core.settings import UpkeepSettings
from memos.core.types import WHOLE
from memos.errors import MemosError
from memos.memcube.ledger import queues as leases
from memos.memcube.ledger import tasks
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler.runner import Runner

# A short command ends before this and never loads the library.
_BEGIN_S = 1.0
_LOOKS = 4
_LOOK_S = (0.2, 60.0)

log = logging.getLogger("memos.tasks")


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A task about the whole installation that comes back."""

    kind: str
    every: timedelta


LEARNING = "learning"
"""The chore that looks in the nights which cubes are to be learned."""


def periodic_jobs(settings: UpkeepSettings, *, learns: bool = False) -> list[PeriodicJob]:
    """Return what comes back, and how often; `learns` says whether adapters are trained by themselves."""
    chores = [
        PeriodicJob("retention", timedelta(hours=1)),
        PeriodicJob("settle", timedelta(hours=1)),
        PeriodicJob("heat", timedelta(hours=1)),
        PeriodicJob("consolidation", timedelta(days=1)),
    ]
    if settings.backup_folder is not None:
        chores.append(PeriodicJob("backup", timedelta(hours=settings.backup_every_h)))
    if learns:
        chores.append(PeriodicJob(LEARNING, timedelta(minutes=30)))  # a night is an hour at the least
    return chores


class Periodic:
    """The periodic jobs of one process."""

    def __init__(self, ledger: Ledger, clock: Clock, runner: Runner, chores: Sequence[PeriodicJob]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._runner = runner
        self._chores = chores
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._begin, name="memos-periodic", daemon=True)
        self._scheduler: Any = None
        self._started = False

    def start(self) -> None:
        """Begin to look; calling it again changes nothing."""
        if not self._started and not self._stop.is_set():
            self._started = True
            self._thread.start()

    def stop(self) -> None:
        """End after the present firing; safe to call twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler.shutdown(wait=True)

    def fire(self, chore: PeriodicJob) -> bool:
        """Enqueue a chore's task if this period's was not yet; the errors of a store are left to the next look."""
        try:
            now = self._clock.now()
            with self._ledger.read() as connection:
                if not leases.due(connection, chore.kind, now, chore.every):
                    return False
            with self._ledger.write() as connection:
                if not leases.fire(connection, chore.kind, self._runner.owner, now, chore.every):
                    return False
                tasks.enqueue(connection, WHOLE, [NewTask(chore.kind, key=chore.kind)], now)
        except MemosError as error:
            log.warning("%s could not be enqueued: %s", chore.kind, error)
            return False
        self._runner.wake()
        return True

    def _begin(self) -> None:
        if self._stop.wait(_BEGIN_S):
            return
        from apscheduler.schedulers.background import BackgroundScheduler  # noqa: PLC0415 - 0.2 s, after the start

        scheduler = BackgroundScheduler(
            timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        for chore in self._chores:
            look_s = min(_LOOK_S[1], max(_LOOK_S[0], chore.every.total_seconds() / _LOOKS))
            scheduler.add_job(self.fire, "interval", seconds=look_s, args=[chore], next_run_time=datetime.now(UTC))
        scheduler.start()
        self._scheduler = scheduler
