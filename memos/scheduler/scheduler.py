"""`Scheduler`: the background work of an open installation: jobs, workers, periodic jobs and access counts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.settings import Settings, UpkeepSettings
from memos.core.types import WHOLE, Hit, Segment, Tier
from memos.errors import Conflict, InvalidInput, MemosError, NotFound, shown
from memos.llm.client import LLMClients
from memos.memcube import changes, prompt_prefix
from memos.memcube.changes import Change
from memos.memcube.images import DESCRIBE
from memos.memcube.ledger import adapters, queues, reading, tasks, tier_moves, tools
from memos.memcube.ledger import segments as segment_rows
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.segments import SegmentRow
from memos.memcube.ledger.tasks import NewTask
from memos.memcube.relations import JUDGE, Pair
from memos.reader.facts.extractor import FactReader
from memos.reader.masking import Masking
from memos.scheduler.accesses import Accesses, Triggers, warmth_of
from memos.scheduler.heat import Access
from memos.scheduler.jobs import facts
from memos.scheduler.jobs.facts import REFLECT, ConsolidateJob, ReflectJob, active, reflect_task
from memos.scheduler.jobs.files import DescribeJob
from memos.scheduler.jobs.judge import JudgeJob
from memos.scheduler.jobs.read import AnalyseJob, ReadJob
from memos.scheduler.jobs.segments import OverflowJob, RemakeJob, SummariseJob, SweepJob, TurnsOf, move, summary
from memos.scheduler.jobs.skills import SkillsJob
from memos.scheduler.learning import FactPipeline, Judge, NearOf
from memos.scheduler.presets import PresetComparison, compare
from memos.scheduler.rules import CubeRules, TierSettings, rules_of
from memos.scheduler.runner import Runner
from memos.scheduler.task import Job, TaskRun

# Short commands end before this, and never import APScheduler.
_BEGIN_S = 1.0
_CHECKS_PER_PERIOD = 4
_CHECK_INTERVAL_S = (0.2, 60.0)

log = logging.getLogger("memos.tasks")


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    kind: str
    every: timedelta


BACKUP_EVERY = timedelta(days=1)
LEARNING = "learning"  # kind of the periodic job that plans adapter trainings at night


def periodic_jobs(settings: UpkeepSettings, *, learns: bool = False) -> list[PeriodicJob]:
    chores = [
        PeriodicJob("retention", timedelta(hours=1)),
        PeriodicJob("settle", timedelta(hours=1)),
        PeriodicJob("heat", timedelta(hours=1)),
        PeriodicJob("consolidation", timedelta(days=1)),
    ]
    if settings.backup_folder is not None:
        chores.append(PeriodicJob("backup", BACKUP_EVERY))
    if learns:
        chores.append(PeriodicJob(LEARNING, timedelta(minutes=30)))  # a night is an hour at the least
    return chores


class Periodic:
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
        if not self._started and not self._stop.is_set():
            self._started = True
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler.shutdown(wait=True)

    def fire(self, chore: PeriodicJob) -> bool:
        """Enqueue a job's task unless it was enqueued in this period; errors are logged, and the next check retries."""
        try:
            now = self._clock.now()
            with self._ledger.read() as connection:
                if not queues.due(connection, chore.kind, now, chore.every):
                    return False
            with self._ledger.write() as connection:
                if not queues.fire(connection, chore.kind, self._runner.owner, now, chore.every):
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
            shortest_s, longest_s = _CHECK_INTERVAL_S
            check_s = min(longest_s, max(shortest_s, chore.every.total_seconds() / _CHECKS_PER_PERIOD))
            scheduler.add_job(self.fire, "interval", seconds=check_s, args=[chore], next_run_time=datetime.now(UTC))
        scheduler.start()
        self._scheduler = scheduler


_CROWDED_AT_ONCE = 500
_MOST_TALKS = 100_000


class Scheduler:
    """The background work of one open installation."""

    def __init__(  # noqa: PLR0913 - what its jobs need
        self,
        ledger: Ledger,
        clock: Clock,
        settings: Settings,
        *,
        turns_of: TurnsOf,
        near: NearOf,
        open_pairs: Callable[[str, Sequence[str]], list[Pair]],
        askers: LLMClients,
        wait_indexed: Callable[[], object],
        masking: Callable[[str], Masking],
        jobs: Sequence[Job],
        is_busy: Callable[[], bool],
    ) -> None:
        """Register the background jobs.

        `turns_of` returns the vectors of messages, `near` the items similar to facts, `open_pairs` the
        pairs with newer statements that rules leave to a model, `masking` the masking of a cube.
        `jobs` are further jobs, of higher layers. `is_busy` returns True while calls are in progress.
        """
        self._ledger = ledger
        self._clock = clock
        self._askers = askers
        heat = self._heat = TierSettings.of(settings.heat)
        self._prefixed = settings.prefixed
        self.rules = rules_of(heat)
        self.cube_rules = CubeRules(heat)
        triggers = Triggers(self._has_reader, lambda: askers.has("chat"))
        self.accesses = Accesses(ledger, clock, self.cube_rules, triggers.warmed)
        self.runner = Runner(ledger, clock, settings.tasks, busy=is_busy)
        learner = FactPipeline(
            FactReader(lambda: askers.reader),
            Judge(lambda: askers.reader),
            near,
            self._has_reader,
            wait_indexed,
            masking,
        )
        describe = DescribeJob(lambda: askers.vision, wait_indexed, clock, masking)
        self.runner.register(
            [
                *jobs,
                Job("settle", self._settle, budgeted=False),
                Job("heat", self._enqueue_sweeps, budgeted=False),
                Job(segment_rows.OVERFLOW, OverflowJob(self.cube_rules, turns_of, triggers).run, budgeted=False),
                Job(tools.TOOLS, SkillsJob(turns_of, wait_indexed).run, budgeted=False),
                Job(segment_rows.REMAKE, RemakeJob(turns_of).run, budgeted=False),
                Job(tier_moves.ANALYSE, AnalyseJob(self.cube_rules, clock, learner).run),
                Job(reading.READ, ReadJob(learner).run),
                Job(JUDGE, JudgeJob(lambda: askers.reader, open_pairs).run),
                Job(tier_moves.SUMMARISE, SummariseJob(lambda: askers.chat).run),
                Job(DESCRIBE, describe.run, failed=describe.failed),
                Job(REFLECT, ReflectJob(lambda: askers.chat, wait_indexed).run),
                Job(facts.CONSOLIDATE, ConsolidateJob(near, wait_indexed).run, budgeted=False),
                Job("consolidation", self._consolidate, budgeted=False),
                Job(tier_moves.SWEEP, SweepJob(self.cube_rules).run, budgeted=False),
            ]
        )
        self._may_learn = settings.learning_model is not None
        learns = self._may_learn and settings.parametric.night is not None
        self.periodic = Periodic(ledger, clock, self.runner, periodic_jobs(settings.upkeep, learns=learns))

    def _has_reader(self) -> bool:
        return self._askers.has("reader")

    def start(self) -> None:
        self._unblock()
        self.runner.start()
        self.periodic.start()

    def ask_to_stop(self) -> None:
        self.runner.ask_to_stop()

    def stop(self) -> None:
        self.periodic.stop()
        self.runner.stop()
        with suppress(MemosError):  # only the accesses of some seconds are lost
            self.accesses.flush()

    def record_found(self, hits: Iterable[Hit]) -> None:
        self.accesses.record(((hit.item.cube, hit.item.id) for hit in hits), Access.RETRIEVED)

    def segments(self, cube: str, limit: int, *, state: str | None = None, after: str | None = None) -> list[Segment]:
        """Return a cube's segments by heat. Raises: NotFound (there is no segment `after`)."""
        with self._ledger.read() as connection:
            last = None if after is None else self._segment(connection, cube, after)
            found = segment_rows.hottest(connection, cube, limit, state=state, after=last)
            return [self._told(connection, row) for row in found]

    def segment(self, connection: sa.Connection, cube: str, id_: str) -> Segment:
        """Return one segment. Raises: NotFound."""
        return self._told(connection, self._segment(connection, cube, id_))

    def compare_presets(self, connection: sa.Connection, cube: str) -> PresetComparison:
        """Return what each preset of heat would have made of a cube's topics."""
        return compare(connection, cube, self._heat, self._clock.now())

    @staticmethod
    def _segment(connection: sa.Connection, cube: str, id_: str) -> SegmentRow:
        row = segment_rows.get_segments(connection, [id_]).get(id_)
        if row is None or row.cube != cube:
            raise NotFound("segment", id_)
        return row

    def _told(self, connection: sa.Connection, row: SegmentRow) -> Segment:
        policy = self.cube_rules.of(connection, row.cube).policy
        return Segment(
            row.id,
            row.cube,
            row.state,
            summary(connection, row, self._clock.now()),
            tuple(row.keywords),
            row.pages,
            policy.heat(warmth_of(row), self._clock.now()),
            row.visits,
            row.pinned,
            row.created_at,
            row.updated_at,
        )

    def pin(self, change: Change, id_: str, *, pinned: bool) -> None:
        if not tier_moves.pin(change.connection, change.cube, id_, pinned=pinned):
            raise NotFound("item or segment", id_)
        changes.record(change, "pin" if pinned else "unpin", {"id": id_})
        if self._prefixed:
            tasks.enqueue(change.connection, change.cube, [prompt_prefix.compose_task()], change.now)

    def move(self, change: Change, segment: str, tier: str) -> None:
        row = self._segment(change.connection, change.cube, segment)
        match tier:
            case Tier.LONG:
                tier_moves.enqueue(change.connection, change.cube, tier_moves.analyse_task(segment=segment), change.now)
            case Tier.MID | "archive":
                if tier == "archive" and row.unread:
                    raise Conflict(f"Segment {segment} has pages without extracted facts; move it to `long` first.")
                state = segment_rows.ARCHIVED if tier == "archive" else segment_rows.OPEN
                if row.state != state:
                    move(change, self.cube_rules.ready(change.connection, change.cube), [row], state)
            case _:
                raise InvalidInput("tier", f"must be long, mid or archive, got {shown(tier)}")

    def analyse(self, change: Change, *, everything: bool) -> None:
        tier_moves.enqueue(change.connection, change.cube, tier_moves.analyse_task(everything=everything), change.now)
        if everything:
            talks = segment_rows.idle(change.connection, None, _MOST_TALKS, cube=change.cube)
            new = [segment_rows.idle_task(id_, read=True) for id_, _ in talks]
            tasks.enqueue(change.connection, change.cube, new, change.now)

    def reflect(self, change: Change) -> None:
        if not self._askers.has("chat"):
            raise InvalidInput(
                "chat_model", "is not configured; set MEMOS_CHAT_MODEL__BASE_URL (docs/how-to/models.md)"
            )
        tasks.enqueue(change.connection, change.cube, [reflect_task()], change.now)

    def sweep(self, change: Change) -> None:
        tier_moves.enqueue(change.connection, change.cube, tier_moves.sweep_task(), change.now)

    def consolidate(self, change: Change) -> None:
        tasks.enqueue(change.connection, change.cube, [facts.consolidate_task()], change.now)

    def used(self, cube: str, item_ids: Iterable[str], access: Access) -> None:
        self.accesses.record(((cube, item) for item in item_ids), access)

    def _consolidate(self, run: TaskRun) -> None:
        with self._ledger.read() as connection:
            found = active(connection, self._clock)
        for cube in found:
            run.check_cancelled()
            with self._ledger.write() as connection:
                tasks.enqueue(connection, cube, [facts.consolidate_task()], self._clock.now())

    def _enqueue_sweeps(self, run: TaskRun) -> None:
        """Enqueue sweeps and prefix composition, since heat also decays without any write."""
        with self._ledger.read() as connection:
            found = tier_moves.cubes_with_segments(connection)
            warm = prompt_prefix.cubes_to_compose(connection) if self._prefixed else []
        new = [(cube, tier_moves.sweep_task()) for cube in found] + [
            (cube, prompt_prefix.compose_task()) for cube in warm
        ]
        for cube, task in new:
            run.check_cancelled()
            with self._ledger.write() as connection:
                tasks.enqueue(connection, cube, [task], self._clock.now())

    def _unblock(self) -> None:
        for kind, may_begin in ((DESCRIBE, self._askers.has("vision")), (adapters.LEARN, self._may_learn)):
            if may_begin:
                with self._ledger.write() as connection:
                    tasks.unblock(connection, kind, self._clock.now())

    def _settle(self, run: TaskRun) -> None:
        self._unblock()  # a process without these models may have blocked tasks
        capacity, now = self.rules.short_capacity, self._clock.now()
        self._enqueue_moves(
            run,
            lambda connection, last: segment_rows.crowded(connection, capacity, _CROWDED_AT_ONCE, last),
            lambda conversation: segment_rows.overflow_task(conversation, now),
        )
        if self._heat.idle_hours:
            before = now - timedelta(hours=self._heat.idle_hours)
            self._enqueue_moves(
                run,
                lambda connection, last: segment_rows.idle(connection, before, _CROWDED_AT_ONCE, last),
                segment_rows.idle_task,
            )

    def _enqueue_moves(
        self, run: TaskRun, find: Callable[[sa.Connection, str], list[tuple[str, str]]], task: Callable[[str], NewTask]
    ) -> None:
        last = ""
        while True:
            run.check_cancelled()
            with self._ledger.read() as connection:
                found = find(connection, last)
            if not found:
                return
            last = found[-1][0]
            for cube in {cube for _, cube in found}:
                new = [task(id_) for id_, its in found if its == cube]
                with self._ledger.write() as connection:
                    tasks.enqueue(connection, cube, new, self._clock.now())
