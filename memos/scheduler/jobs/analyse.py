"""Reads unread pages of hot segments into long-term memory, one segment a task, in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.clock import Clock
from memos.errors import BackendUnavailable
from memos.memcube import changes, facts
from memos.memcube.changes import Change
from memos.memcube.ledger import cubes, items, moves, tasks, tiers
from memos.memcube.ledger.tasks import NewTask
from memos.memcube.ledger.tiers import Page, SegmentRow
from memos.memcube.traits import template_of
from memos.model import Fact, Item
from memos.reader.facts import Extraction, FactReader
from memos.scheduler import consolidate
from memos.scheduler.accesses import heat, warmth_of
from memos.scheduler.consolidate import Near, Outcome, Verdicts
from memos.scheduler.cube_rules import CubeRules
from memos.scheduler.jobs.overflow import ACTOR, live, said_by, summary
from memos.scheduler.judging import Judge
from memos.scheduler.nearness import NearOf
from memos.scheduler.prompting import meter_of
from memos.scheduler.rules import HeatRules
from memos.scheduler.task_run import Run
from memos.scheduler.triggers import is_hot

# What one model call is shown; without a model there is no reason for few.
_PAGES_BY_MODEL = 12
_PAGES_BY_PATTERN = 64
# Looked at when levels are not in the order of heats.
_CANDIDATES = 32


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one attempt found, before it knows whether that may be kept."""

    segment: SegmentRow
    pages: tuple[Page, ...]
    behind: tuple[Item, ...]
    """Messages whose words the model may have seen in the summary so far."""
    extraction: Extraction
    facts: tuple[Fact, ...]
    near: Sequence[Sequence[Near]]
    verdicts: Verdicts


@dataclass(frozen=True, slots=True)
class AnalyseJob:
    """`settled` is called after facts were stored, so that the indexes show them soon."""

    rules: CubeRules
    clock: Clock
    reader: FactReader
    judge: Judge
    near: NearOf
    has_model: Callable[[], bool]
    settled: Callable[[], object]

    def run(self, run: Run) -> None:
        """Read the hottest segment that the task asks for, and leave a task for the next one."""
        reading = self._read(run)
        if reading is None:
            return
        run.go_on(0.7)
        with run.finishing() as connection:
            change = changes.begin(connection, run.task.cube, ACTOR, run.clock)
            rules = self.rules.ready(connection, change.cube)
            if self._is_as_read(connection, reading):
                self._keep(change, rules, reading)
            if self._next(connection, run, rules) is not None:
                again = NewTask(run.task.kind, dict(run.task.payload), key=run.task.key)
                tasks.enqueue(connection, change.cube, [again], change.now)
        self.settled()

    def _read(self, run: Run) -> _Reading | None:
        cube = run.task.cube
        with run.ledger.read() as connection:
            segment = self._next(connection, run, self.rules.of(connection, cube))
            if segment is None:
                return None
            asks = self.has_model() and not run.task.payload.get("cheaply")
            most = _PAGES_BY_MODEL if asks else _PAGES_BY_PATTERN
            pages = tuple(moves.unread_pages(connection, segment, most))
            messages = _with_sources(connection, [message for page in pages for message in live(page)])
            zone = cubes.zones(connection, [cube]).get(cube, ZoneInfo("UTC"))
            before = summary(connection, segment)
            behind = tuple(tiers.members(connection, segment.id)) if asks and before else ()
            template = template_of(connection, cube)
        meter = meter_of(run, "reader")
        run.check_budget()
        extraction = (self.reader if asks else FactReader(lambda: None)).read(messages, zone, meter, before, template)
        run.go_on(0.4)
        found = extraction.facts
        near = self._near(cube, found)
        with run.ledger.read() as connection:
            known = items.current(connection, [cube], {one.item for close in near for one in close})
        run.check_budget()
        pairs = consolidate.undecided(found, near, known) if asks else ()
        verdicts = self.judge.decide(found, pairs, known, meter)
        return _Reading(segment, pages, behind, extraction, found, near, verdicts)

    def _near(self, cube: str, found: Sequence[Fact]) -> list[list[Near]]:
        try:
            return self.near(cube, found)
        except BackendUnavailable:
            # Keys still decide; what is the same in other words stays apart until it is said again.
            return [[] for _ in found]

    def _next(self, connection: sa.Connection, run: Run, rules: HeatRules) -> SegmentRow | None:
        """Return the segment to read, None when there is none with an unread page."""
        cube, payload = run.task.cube, run.task.payload
        if "segment" in payload:
            named = tiers.get_segments(connection, [str(payload["segment"])])
            return next((one for one in named.values() if one.unread and one.cube == cube), None)
        if payload.get("all"):
            return next(iter(moves.any_unread(connection, cube)), None)
        now = self.clock.now()
        level = rules.policy.level_of(rules.thresholds.promote_above, now) - rules.policy.slack
        found = moves.hot_unread(connection, cube, level, _CANDIDATES, int(payload.get("least", 1)))
        hot = [segment for segment in found if is_hot(segment, rules, now)]
        return max(hot, key=lambda segment: rules.policy.heat(warmth_of(segment), now), default=None)

    @staticmethod
    def _is_as_read(connection: sa.Connection, reading: _Reading) -> bool:
        """Say that nothing of what was shown was changed or erased, and no page moved or read by another meanwhile."""
        segment = tiers.get_segments(connection, [reading.segment.id]).get(reading.segment.id)
        if segment is None:
            return False
        still = moves.unread_pages(connection, segment, len(reading.pages))
        now = {message.id: message.version_id for message in tiers.members(connection, segment.id)}
        same = all(now.get(message.id) == message.version_id for message in reading.behind)
        return same and said_by(still) == said_by(reading.pages)

    def _keep(self, change: Change, rules: HeatRules, reading: _Reading) -> None:
        connection, found = change.connection, reading.extraction
        segment = tiers.get_segments(connection, [reading.segment.id])[reading.segment.id]
        answer = None
        if found.output is not None and found.model is not None:
            shown = [message.id for page in reading.pages for message in live(page)]
            shown += [message.id for message in reading.behind]
            reader = found.facts[0].reader if found.facts else "model"
            answer = facts.keep_answer(change, reader, found.model, found.output, shown)
        kept = [replace(fact, extraction=answer) for fact in reading.facts]
        outcome = consolidate.settle(change, kept, reading.near, reading.verdicts)
        moves.mark_read(connection, segment, reading.pages)
        heat_then = rules.policy.heat(warmth_of(segment), change.now)
        if found.summary is not None:
            segment.told, segment.told_pages = found.summary, segment.pages
        if not segment.unread:
            heat(segment, rules.policy.analysed(warmth_of(segment), change.now))
        segment.updated_at = change.now
        tiers.save(connection, [segment], [segment.id])
        _tell(change, reading, outcome, heat_then)


def _with_sources(connection: sa.Connection, messages: Sequence[Item]) -> list[Item]:
    """Return messages with their sources: a reader has to know whom to trust."""
    sources = items.sources_of(connection, [message.id for message in messages])
    return [replace(message, sources=sources.get(message.id, ())) for message in messages]


def _tell(change: Change, reading: _Reading, outcome: Outcome, heat_then: float) -> None:
    body = {
        "tier": "long",
        "segment": reading.segment.id,
        "heat": round(heat_then, 4),
        "pages": [page.id for page in reading.pages],
        "new": outcome.new,
        "merged": outcome.merged,
        "superseded": outcome.superseded,
        "pending": outcome.pending,
        "rejected": reading.extraction.rejected,
    }
    changes.record(change, "move", body)
