"""Extract facts from messages: a window of a conversation, or pages of a segment, per task."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.types import Item, Reading
from memos.errors import ModelError
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import items, reading, segments, tasks, tier_moves
from memos.memcube.ledger.segments import Page, SegmentRow
from memos.memcube.ledger.tasks import NewTask
from memos.reader.facts.llm import ReadingBudget, Window, window
from memos.scheduler import learning
from memos.scheduler.accesses import heat, is_hot, warmth_of
from memos.scheduler.consolidation import Outcome
from memos.scheduler.jobs.segments import ACTOR, live_items, speakers_of, summary
from memos.scheduler.learning import ExtractedFacts, FactPipeline, ReadingInput
from memos.scheduler.rules import CubeRules, HeatRules
from memos.scheduler.task import TaskRun

# Pages in one model call.
_PAGES_BY_MODEL = 12
# Few, since other writers wait while the facts are stored: with 64 the transaction took a second.
_PAGES_BY_PATTERN = 8
# Segments whose heat is computed, where levels and heats differ in order.
_CANDIDATES = 32


@dataclass(frozen=True, slots=True)
class _Reading:
    segment: SegmentRow
    pages: tuple[Page, ...]
    summarised: tuple[Item, ...]  # messages that the summary shown to the model may quote
    shown: tuple[str, ...]  # ids of the pages' messages that facts were extracted from
    learnt: ExtractedFacts | None  # None when there are no such messages
    marks_read: bool  # the messages count as read in `fine` mode too


@dataclass(frozen=True, slots=True)
class AnalyseJob:
    rules: CubeRules
    clock: Clock
    learner: FactPipeline

    def run(self, run: TaskRun) -> None:
        found = self._read(run)
        if found is None:
            return
        with run.finishing() as connection:
            change = changes.begin(connection, run.task.cube, ACTOR, run.clock)
            rules = self.rules.ready(connection, change.cube)
            if self._is_unchanged(connection, found):
                self._keep(change, rules, found)
            if self._next(connection, run, rules) is not None:
                again = NewTask(run.task.kind, dict(run.task.payload), key=run.task.key)
                tasks.enqueue(connection, change.cube, [again], change.now)
        self.learner.settled()

    def _read(self, run: TaskRun) -> _Reading | None:
        cube = run.task.cube
        with run.ledger.read() as connection:
            segment = self._next(connection, run, self.rules.of(connection, cube))
            if segment is None:
                return None
            asks = self.learner.has_model() and not run.task.payload.get("cheaply")
            most = _PAGES_BY_MODEL if asks else _PAGES_BY_PATTERN
            pages = tuple(tier_moves.unread_pages(connection, segment, most))
            messages = _unread_messages(connection, pages, {"all", "segment"}.isdisjoint(run.task.payload))
            before = summary(connection, segment, run.clock.now())
            summarised = tuple(segments.members(connection, segment.id)) if asks and before else ()
            shown = replace(learning.to_read(connection, cube, messages), before=before)
        learnt = self.learner.read(run, shown, asks=asks) if messages else None
        marks_read = asks or not self.learner.has_model()
        return _Reading(segment, pages, summarised, tuple(message.id for message in messages), learnt, marks_read)

    def _next(self, connection: sa.Connection, run: TaskRun, rules: HeatRules) -> SegmentRow | None:
        cube, payload = run.task.cube, run.task.payload
        if "segment" in payload:
            named = segments.get_segments(connection, [str(payload["segment"])])
            return next((one for one in named.values() if one.unread and one.cube == cube), None)
        if payload.get("all"):
            return next(iter(tier_moves.any_unread(connection, cube)), None)
        now = self.clock.now()
        level = rules.policy.level_of(rules.thresholds.promote_above, now) - rules.policy.slack
        found = tier_moves.hot_unread(connection, cube, level, _CANDIDATES, int(payload.get("least", 1)))
        hot = [segment for segment in found if is_hot(segment, rules, now)]
        return max(hot, key=lambda segment: rules.policy.heat(warmth_of(segment), now), default=None)

    @staticmethod
    def _is_unchanged(connection: sa.Connection, found: _Reading) -> bool:
        segment = segments.get_segments(connection, [found.segment.id]).get(found.segment.id)
        if segment is None:
            return False
        still = tier_moves.unread_pages(connection, segment, len(found.pages))
        members = segments.members(connection, segment.id) if found.summarised else []
        now = {message.id: message.version_id for message in members}
        same = all(now.get(message.id) == message.version_id for message in found.summarised)
        return same and speakers_of(still) == speakers_of(found.pages)

    def _keep(self, change: Change, rules: HeatRules, found: _Reading) -> None:
        connection = change.connection
        learnt = found.learnt
        outcome = Outcome()
        segment = segments.get_segments(connection, [found.segment.id])[found.segment.id]
        if learnt is not None:
            summarised = () if learnt.extraction.model is None else (message.id for message in found.summarised)
            outcome = learning.keep(change, learnt, [*found.shown, *summarised])
        if found.marks_read:
            reading.mark(connection, found.shown)
        tier_moves.mark_read(connection, segment, found.pages)
        heat_then = rules.policy.heat(warmth_of(segment), change.now)
        if learnt is not None and learnt.extraction.summary is not None:
            segment.told, segment.told_pages = learnt.extraction.summary, segment.pages
        if not segment.unread:
            heat(segment, rules.policy.analysed(warmth_of(segment), change.now))
        segment.updated_at = change.now
        segments.save(connection, [segment], [segment.id])
        _record_move(change, found, outcome, heat_then)


def _unread_messages(connection: sa.Connection, pages: tuple[Page, ...], by_heat: bool) -> list[Item]:
    """Return the pages' messages that were not read in `fine` mode; with `by_heat`, nor are queued for it."""
    done = {Reading.READ, Reading.WANTED} if by_heat else {Reading.READ}
    messages = [message for page in pages for message in live_items(page)]
    states = reading.states(connection, [message.id for message in messages])
    return [message for message in messages if states.get(message.id) not in done]


def _record_move(change: Change, found: _Reading, outcome: Outcome, heat_then: float) -> None:
    rejected = 0 if found.learnt is None else found.learnt.extraction.rejected
    body = {
        "tier": "long",
        "segment": found.segment.id,
        "heat": round(heat_then, 4),
        "pages": [page.id for page in found.pages],
        **learning.told(outcome, rejected),
    }
    changes.record(change, "move", body)


# Queued messages fetched at once: short ones take many to fill a window.
_MAX_QUEUED = 100
_MAX_CONTEXT = 20
_BUDGET = ReadingBudget()


@dataclass(frozen=True, slots=True)
class ReadJob:
    learner: FactPipeline
    budget: ReadingBudget = _BUDGET

    def run(self, run: TaskRun) -> None:
        cube, conversation = run.task.cube, run.task.payload.get("conversation")
        with run.ledger.read() as connection:
            if reading.is_read_elsewhere(connection, cube, conversation, run.task.id):
                found, shown = None, None
            else:
                found = self._next(connection, run)
                shown = replace(learning.to_read(connection, cube, found.messages), context=found.context)
        learnt = None if shown is None or not shown.messages else self._learn(run, shown)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            if found is not None:
                reading.mark(connection, found.passed)
            if found is not None and learnt is not None and _is_unchanged(connection, cube, found):
                _keep(change, found, learnt)
            reading.enqueue_next(connection, cube, conversation, run.task.id, change.now)
        if learnt is not None:
            self.learner.settled()

    def _next(self, connection: sa.Connection, run: TaskRun) -> Window:
        """Return the oldest queued messages; fewer after each failed attempt, as their number may be the cause."""
        conversation = run.task.payload.get("conversation")
        found = reading.next_range(connection, run.task.cube, conversation, _MAX_QUEUED, _MAX_CONTEXT)
        return window(found.messages, found.wanted, self.budget.shrunk(run.task.attempts - 1))

    def _learn(self, run: TaskRun, shown: ReadingInput) -> ExtractedFacts:
        try:
            return self.learner.read(run, shown, asks=self.learner.has_model())
        except ModelError as error:
            if error.permanent and len(shown.messages) > 1:
                # Not permanent for a shorter window, which may fit the model, or leave out the message it refuses.
                raise ModelError(str(error), tokens=error.tokens) from error
            raise


def _is_unchanged(connection: sa.Connection, cube: str, found: Window) -> bool:
    ids = [message.id for message in found.messages]
    now: dict[str, Item] = items.current(connection, [cube], ids)
    same = all(message.id in now and now[message.id].version_id == message.version_id for message in found.messages)
    states = reading.states(connection, ids)
    return same and all(states.get(id_) is Reading.WANTED for id_ in ids if id_ not in found.context)


def _keep(change: Change, found: Window, learnt: ExtractedFacts) -> None:
    read = [message.id for message in found.messages if message.id not in found.context]
    shown = read if learnt.extraction.model is None else [message.id for message in found.messages]
    outcome = learning.keep(change, learnt, shown)
    reading.mark(change.connection, read)
    changes.record(change, "read", {"messages": read, **learning.told(outcome, learnt.extraction.rejected)})
