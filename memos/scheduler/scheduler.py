"""`Scheduler`: everything an open installation does in the background besides making its indexes follow.

Wires jobs, their workers, periodic jobs and access counts; what each does is in its own module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from memos.clock import Clock
from memos.errors import MemosError
from memos.memcube.ledger import tasks, tiers
from memos.memcube.ledger.engine import Ledger
from memos.model import Hit, Segment
from memos.scheduler.accesses import Accesses, warmth_of
from memos.scheduler.jobs.overflow import OverflowJob, TurnsOf, summary
from memos.scheduler.jobs.remake import RemakeJob
from memos.scheduler.periodic import Periodic, chores_of
from memos.scheduler.policy import Access
from memos.scheduler.rules import rules_of
from memos.scheduler.runner import Runner
from memos.scheduler.task_run import Job, Run
from memos.settings import Settings

_CROWDED_AT_ONCE = 500


class Scheduler:
    """The background of one open installation; `upkeep` are the jobs that need more than the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        settings: Settings,
        turns_of: TurnsOf,
        upkeep: Sequence[Job],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self.rules = rules_of(settings.heat)
        self.accesses = Accesses(ledger, clock, self.rules.policy)
        self.runner = Runner(ledger, clock, settings.tasks)
        self.runner.register(
            [
                *upkeep,
                Job("settle", self._settle, budgeted=False),
                Job(tiers.OVERFLOW, OverflowJob(self.rules, turns_of).run, budgeted=False),
                Job(tiers.REMAKE, RemakeJob(turns_of).run, budgeted=False),
            ]
        )
        self.periodic = Periodic(ledger, clock, self.runner, chores_of(settings.upkeep))

    def start(self) -> None:
        """Begin to work; calling it again changes nothing."""
        self.runner.start()
        self.periodic.start()

    def stop(self) -> None:
        """Finish or give back what runs, and write down what was counted."""
        self.periodic.stop()
        self.runner.stop()
        with suppress(MemosError):  # counts of some seconds
            self.accesses.flush()

    def found(self, hits: Iterable[Hit]) -> None:
        """Count that these were found by a search."""
        self.accesses.note(((hit.item.cube, hit.item.id) for hit in hits), Access.RETRIEVED)

    def segments(self, cube: str, limit: int) -> list[Segment]:
        """Return a cube's segments, the hottest first."""
        now = self._clock.now()
        with self._ledger.read() as connection:
            return [
                Segment(
                    row.id, row.cube, row.state, summary(connection, row), tuple(row.keywords), row.pages,
                    self.rules.policy.heat(warmth_of(row), now), row.visits, row.pinned, row.created_at,
                    row.updated_at,
                )
                for row in tiers.hottest(connection, cube, limit)
            ]  # fmt: skip

    def _settle(self, run: Run) -> None:
        """See to conversations that are longer than the short tier may be, after an upgrade or another setting."""
        last = ""
        while True:
            run.go_on()
            with self._ledger.read() as connection:
                found = tiers.crowded(connection, self.rules.short_capacity, _CROWDED_AT_ONCE, last)
            if not found:
                return
            last = found[-1][0]
            now = self._clock.now()
            for cube in {cube for _, cube in found}:
                new = [tiers.overflow_task(id_, now) for id_, its in found if its == cube]
                with self._ledger.write() as connection:
                    tasks.enqueue(connection, cube, new, now)
