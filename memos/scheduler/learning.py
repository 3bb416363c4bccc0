"""What every job that reads messages into facts does: read them outside any transaction, keep what came out in one.

Knows no segments and no windows: which messages are read, and what is said of them afterwards, is the job's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.core.types import Fact, Item
from memos.errors import BackendUnavailable
from memos.memcube import facts
from memos.memcube.changes import Change
from memos.memcube.ledger import cubes, items
from memos.memcube.profiles.stored import template_of
from memos.memcube.profiles.template import Template
from memos.reader.facts.extractor import Extraction, FactReader
from memos.reader.masking import Masking
from memos.scheduler import consolidation as consolidate
from memos.scheduler.consolidation import Near, Outcome, Verdicts
from memos.scheduler.judging import Judge
from memos.scheduler.nearness import NearOf
from memos.scheduler.prompting import meter_of
from memos.scheduler.task import Run


@dataclass(frozen=True, slots=True)
class ToRead:
    """Messages in order with their sources, and what a reader has to know of their cube.

    Of those in `context` nothing is read; `before` is a summary of what came before.
    """

    messages: Sequence[Item]
    zone: ZoneInfo
    template: Template | None
    context: frozenset[str] = frozenset()
    before: str = ""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What one attempt found, before it knows whether that may be kept."""

    extraction: Extraction
    near: Sequence[Sequence[Near]]
    verdicts: Verdicts


@dataclass(frozen=True, slots=True)
class Learner:
    """Reads with the model that is there, by pattern without one.

    `settled` is called after facts were stored, so that the indexes show them soon; `masking` makes what masks a
    cube's texts.
    """

    reader: FactReader
    judge: Judge
    near: NearOf
    has_model: Callable[[], bool]
    settled: Callable[[], object]
    masking: Callable[[str], Masking]

    def read(self, run: Run, shown: ToRead, *, asks: bool) -> Learnt:
        """Return the facts in messages and what they are near to. Raises: ModelError, BackendUnavailable, OverBudget.

        Without `asks` no model is asked, also when there is one.
        """
        meter = meter_of(run, "reader")
        run.check_budget()
        reader = self.reader if asks else FactReader(lambda: None)
        extraction = reader.read(shown.messages, shown.zone, meter, shown.before, shown.template, shown.context)
        if extraction.model is not None:
            extraction = _masked(extraction, self.masking(run.task.cube))
        run.go_on(0.4)
        found, cube = extraction.facts, run.task.cube
        near = self._near(cube, found)
        with run.ledger.read() as connection:
            known = items.current(connection, [cube], {one.item for close in near for one in close})
        run.check_budget()
        pairs = consolidate.undecided(found, near, known) if asks else ()
        verdicts = self.judge.decide(found, pairs, known, meter)
        run.go_on(0.7)
        return Learnt(extraction, near, verdicts)

    def _near(self, cube: str, found: Sequence[Fact]) -> list[list[Near]]:
        try:
            return self.near(cube, found)
        except BackendUnavailable:
            # Keys still decide; what is the same in other words stays apart until it is said again.
            return [[] for _ in found]


def _masked(found: Extraction, masking: Masking) -> Extraction:
    """Return what a model wrote without what must not be stored: it may join what was split, and so not masked."""
    return replace(
        found,
        facts=tuple(masking.fact("fact", fact) for fact in found.facts),
        summary=None if found.summary is None else masking.whole("summary", found.summary),
        output=None if found.output is None else masking.whole("output", found.output),
    )


def to_read(connection: sa.Connection, cube: str, messages: Sequence[Item]) -> ToRead:
    """Return messages as a reader wants them: with their sources, since it has to know whom to trust."""
    sources = items.sources_of(connection, [message.id for message in messages])
    told = [replace(message, sources=sources.get(message.id, ())) for message in messages]
    zone = cubes.zones(connection, [cube]).get(cube, ZoneInfo("UTC"))
    return ToRead(told, zone, template_of(connection, cube))


def keep(change: Change, learnt: Learnt, shown: Iterable[str]) -> Outcome:
    """Store the facts with a record of what read them, and in which messages. Repeating it stores no fact twice."""
    found = learnt.extraction
    record = facts.keep_record(change, found.reader, found.model or "", found.output or "", shown)
    kept = [replace(fact, extraction=record) for fact in found.facts]
    return consolidate.settle(change, kept, learnt.near, learnt.verdicts)


def told(outcome: Outcome, rejected: int) -> dict[str, object]:
    """Return an outcome as an event tells it."""
    return {
        "new": outcome.new,
        "merged": outcome.merged,
        "superseded": outcome.superseded,
        "pending": outcome.pending,
        "rejected": rejected,
    }
