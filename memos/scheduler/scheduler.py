"""`Scheduler`: everything an open installation does in the background besides making its indexes follow.

Wires jobs, their workers, periodic jobs and access counts; what each does is in its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.settings import Settings
from memos.core.types import Hit, Segment, Tier
from memos.errors import Conflict, InvalidInput, MemosError, NotFound, shown
from memos.llm.client import LLMClients
from memos.memcube import changes
from memos.memcube import prompt_prefix as prefix_rows
from memos.memcube.changes import Change
from memos.memcube.images import DESCRIBE
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import reading, tasks
from memos.memcube.ledger import segments as tiers
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger import tools as tool_tasks
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.tasks import NewTask
from memos.reader.facts.extractor import FactReader
from memos.reader.masking import Masking
from memos.scheduler.accesses import Accesses, Triggers, warmth_of
from memos.scheduler.heat import Access
from memos.scheduler.jobs import facts as tidy
from memos.scheduler.jobs.facts import REFLECT, ConsolidateJob, ReflectJob, active, reflect_task
from memos.scheduler.jobs.files import DescribeJob
from memos.scheduler.jobs.read import AnalyseJob, ReadJob
from memos.scheduler.jobs.segments import OverflowJob, RemakeJob, SummariseJob, SweepJob, TurnsOf, move, summary
from memos.scheduler.jobs.skills import SkillsJob
from memos.scheduler.learning import FactPipeline, Judge, NearOf
from memos.scheduler.periodic import Periodic, periodic_jobs
from memos.scheduler.rules import CubeRules, TierSettings, rules_of
from memos.scheduler.runner import Runner
from memos.scheduler.task import Job, TaskRun

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
        askers: LLMClients,
        wait_indexed: Callable[[], object],
        masking: Callable[[str], Masking],
        jobs: Sequence[Job],
        is_busy: Callable[[], bool],
    ) -> None:
        """Register the jobs of the background.

        Args:
            ledger: The ledger whose tasks are run.
            clock: Where the time comes from.
            settings: The installation's settings.
            turns_of: Returns the vectors of pages.
            near: Returns what lies near a fact.
            askers: The language models.
            wait_indexed: Lets the indexes catch up.
            masking: Returns what masks the texts that are written into a cube.
            jobs: Jobs that need more than this package has.
            is_busy: Whether calls of people are under way.
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
                Job("heat", self._look_at_heat, budgeted=False),
                Job(tiers.OVERFLOW, OverflowJob(self.cube_rules, turns_of, triggers).run, budgeted=False),
                Job(tool_tasks.TOOLS, SkillsJob(turns_of, wait_indexed).run, budgeted=False),
                Job(tiers.REMAKE, RemakeJob(turns_of).run, budgeted=False),
                Job(moves.ANALYSE, AnalyseJob(self.cube_rules, clock, learner).run),
                Job(reading.READ, ReadJob(learner).run),
                Job(moves.SUMMARISE, SummariseJob(lambda: askers.chat).run),
                Job(DESCRIBE, describe.run, failed=describe.failed),
                Job(REFLECT, ReflectJob(lambda: askers.chat, wait_indexed).run),
                Job(tidy.CONSOLIDATE, ConsolidateJob(near, wait_indexed).run, budgeted=False),
                Job("consolidation", self._consolidate, budgeted=False),
                Job(moves.SWEEP, SweepJob(self.cube_rules).run, budgeted=False),
            ]
        )
        self._may_learn = settings.learning_model is not None
        learns = self._may_learn and settings.parametric.night is not None
        self.periodic = Periodic(ledger, clock, self.runner, periodic_jobs(settings.upkeep, learns=learns))

    def _has_reader(self) -> bool:
        return self._askers.has("reader")

    def start(self) -> None:
        """Begin to work; calling it again changes nothing."""
        self._unpark()
        self.runner.start()
        self.periodic.start()

    def ask_to_stop(self) -> None:
        """Let tasks end at their next step."""
        self.runner.ask_to_stop()

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
            policy = self.cube_rules.of(connection, cube).policy
            return [
                Segment(
                    row.id,
                    row.cube,
                    row.state,
                    summary(connection, row),
                    tuple(row.keywords),
                    row.pages,
                    policy.heat(warmth_of(row), now),
                    row.visits,
                    row.pinned,
                    row.created_at,
                    row.updated_at,
                )
                for row in tiers.hottest(connection, cube, limit)
            ]

    def pin(self, change: Change, id_: str, *, pinned: bool) -> None:
        """Keep an item in sight or a segment out of the archive. Raises: NotFound."""
        if not moves.pin(change.connection, change.cube, id_, pinned=pinned):
            raise NotFound("item or segment", id_)
        changes.record(change, "pin" if pinned else "unpin", {"id": id_})
        if self._prefixed:
            tasks.enqueue(change.connection, change.cube, [prefix_rows.compose_task()], change.now)

    def move(self, change: Change, segment: str, tier: str) -> None:
        """Send a segment to a tier by hand. Raises: NotFound, Conflict (unread pages), InvalidInput."""
        row = tiers.get_segments(change.connection, [segment]).get(segment)
        if row is None or row.cube != change.cube:
            raise NotFound("segment", segment)
        match tier:
            case Tier.LONG:
                moves.enqueue(change.connection, change.cube, moves.analyse_task(segment=segment), change.now)
            case Tier.MID | "archive":
                if tier == "archive" and row.unread:
                    raise Conflict(f"Segment {segment} has pages that were not read yet; move it to long first.")
                state = tiers.ARCHIVED if tier == "archive" else tiers.OPEN
                if row.state != state:
                    move(change, self.cube_rules.ready(change.connection, change.cube), [row], state)
            case _:
                raise InvalidInput("tier", f"must be long, mid or archive, got {shown(tier)}")

    def analyse(self, change: Change, *, everything: bool) -> None:
        """Have unread pages read into long-term memory: those of hot segments, or all."""
        task = moves.analyse_task(everything=everything)
        moves.enqueue(change.connection, change.cube, task, change.now)
        if everything:
            talks = tiers.idle(change.connection, None, _MOST_TALKS, cube=change.cube)
            new = [tiers.idle_task(id_, read=True) for id_, _ in talks]
            tasks.enqueue(change.connection, change.cube, new, change.now)

    def reflect(self, change: Change) -> None:
        """Have a model conclude from the cube's facts. Raises: InvalidInput when there is no model."""
        if not self._askers.has("chat"):
            raise InvalidInput("chat_model", "is not configured; set MEMOS_CHAT_MODEL__BASE_URL (docs/models.md)")
        tasks.enqueue(change.connection, change.cube, [reflect_task()], change.now)

    def sweep(self, change: Change) -> None:
        """Have the cube's segments go where their heat says."""
        moves.enqueue(change.connection, change.cube, moves.sweep_task(), change.now)

    def consolidate(self, change: Change) -> None:
        """Have the cube's facts put in order."""
        tasks.enqueue(change.connection, change.cube, [tidy.task()], change.now)

    def used(self, cube: str, item_ids: Iterable[str], access: Access) -> None:
        """Count that items were used in an answer, or that a person said they are right."""
        self.accesses.note(((cube, item) for item in item_ids), access)

    def _consolidate(self, run: TaskRun) -> None:
        """Have every cube that changed of late consolidated."""
        with self._ledger.read() as connection:
            found = active(connection, self._clock)
        for cube in found:
            run.go_on()
            with self._ledger.write() as connection:
                tasks.enqueue(connection, cube, [tidy.task()], self._clock.now())

    def _look_at_heat(self, run: TaskRun) -> None:
        """Have segments swept and prefixes composed: heat falls by itself, and nobody writes when it does."""
        with self._ledger.read() as connection:
            found = moves.cubes_with_segments(connection)
            warm = prefix_rows.cubes_to_compose(connection) if self._prefixed else []
        new = [(cube, moves.sweep_task()) for cube in found] + [(cube, prefix_rows.compose_task()) for cube in warm]
        for cube, task in new:
            run.go_on()
            with self._ledger.write() as connection:
                tasks.enqueue(connection, cube, [task], self._clock.now())

    def _unpark(self) -> None:
        """Have images described that waited for a model that sees, and adapters trained that waited for one here."""
        kinds = ((DESCRIBE, self._askers.has("vision")), (adapter_rows.LEARN, self._may_learn))
        for kind, may_begin in kinds:
            if may_begin:
                with self._ledger.write() as connection:
                    tasks.unpark(connection, kind, self._clock.now())

    def _settle(self, run: TaskRun) -> None:
        """See to conversations that are longer than the short tier may be, and to those that have ended."""
        self._unpark()  # another process without such a model may have parked some
        capacity, now = self.rules.short_capacity, self._clock.now()
        self._move_on(
            run,
            lambda connection, last: tiers.crowded(connection, capacity, _CROWDED_AT_ONCE, last),
            lambda conversation: tiers.overflow_task(conversation, now),
        )
        if self._heat.idle_hours:
            before = now - timedelta(hours=self._heat.idle_hours)
            self._move_on(
                run, lambda connection, last: tiers.idle(connection, before, _CROWDED_AT_ONCE, last), tiers.idle_task
            )

    def _move_on(
        self,
        run: TaskRun,
        find: Callable[[sa.Connection, str], list[tuple[str, str]]],
        task: Callable[[str], NewTask],
    ) -> None:
        last = ""
        while True:
            run.go_on()
            with self._ledger.read() as connection:
                found = find(connection, last)
            if not found:
                return
            last = found[-1][0]
            for cube in {cube for _, cube in found}:
                new = [task(id_) for id_, its in found if its == cube]
                with self._ledger.write() as connection:
                    tasks.enqueue(connection, cube, new, self._clock.now())
