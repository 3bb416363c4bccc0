"""Merge duplicates and competing values that extraction left, and reflect on recent facts.

They are left when the index lags behind, and after an approval, an edit or a rollback. Idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa
from pydantic import BaseModel, Field

from memos.core.clock import Clock
from memos.core.text.matching import normalized_value
from memos.core.text.rendering import is_untrusted
from memos.core.types import DERIVED, Fact, Item, ItemType, Span, Status, Trust
from memos.errors import BackendUnavailable
from memos.llm.client import LLMClient
from memos.memcube import changes, facts
from memos.memcube.changes import Change
from memos.memcube.facts import event_time
from memos.memcube.ledger import items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler import consolidation
from memos.scheduler.consolidation import STATIC, SimilarItem, comparable, same
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.learning import NearOf, meter_of, question, shortened
from memos.scheduler.task import TaskRun

CONSOLIDATE = "consolidate"
EVERY = timedelta(days=1)
_MOST_KEYS = 500
_MOST_FACTS = 500
# Profile traits have rules of their own (`memos.memcube.profiles.traits.may_replace`); summaries have no key.
_KINDS = sorted(str(kind) for kind in DERIVED - {ItemType.PROFILE, ItemType.SUMMARY})


@dataclass(frozen=True, slots=True)
class ConsolidateJob:
    """Consolidates keys with several current items, and the newest facts without a key."""

    near: NearOf
    settled: Callable[[], object]

    def run(self, run: TaskRun) -> None:
        cube = run.task.cube
        with run.ledger.read() as connection:
            fresh = _without_key(connection, cube, run.clock.now() - 2 * EVERY)
        try:
            near = self.near(cube, [_as_fact(item) for item in fresh])
        except BackendUnavailable:
            near = [[] for _ in fresh]
        run.check_cancelled(0.5)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            for key in _ambiguous_keys(connection, cube):
                _supersede_older(change, key)
            for item, close in zip(fresh, near, strict=True):
                _merge_duplicate(change, item, close)
        self.settled()


def consolidate_task() -> NewTask:
    return NewTask(CONSOLIDATE, {}, key="")


def _ambiguous_keys(connection: sa.Connection, cube: str) -> list[str]:
    v = t.versions
    query = (
        sa.select(v.c.key)
        .where(v.c.cube_id == cube, v.c.recorded_to.is_(None), v.c.key.is_not(None))
        .where(v.c.status == Status.ACTIVE, v.c.type.in_(_KINDS))
        .group_by(v.c.key)
        .having(sa.func.count() > 1)
        .order_by(v.c.key)
        .limit(_MOST_KEYS)
    )
    return list(connection.scalars(query))


def _without_key(connection: sa.Connection, cube: str, since: datetime) -> list[Item]:
    query = (
        sa.select(t.items.c.id)
        .join(t.versions, t.versions.c.id == t.items.c.version_id)
        .where(t.items.c.cube_id == cube, t.items.c.created_at >= since, t.versions.c.key.is_(None))
        .where(t.versions.c.type.in_(_KINDS), t.versions.c.status == Status.ACTIVE)
        .order_by(t.items.c.created_at.desc(), t.items.c.id)
        .limit(_MOST_FACTS)
    )
    ids = list(connection.scalars(query))
    states = items.current(connection, [cube], ids)
    return [states[id_] for id_ in reversed(ids) if id_ in states]


def _supersede_older(change: Change, key: str) -> None:
    line = [item for item in facts.with_keys(change.connection, change.cube, [key])[key] if _current(item)]
    if any(STATIC in item.tags for item in line):
        return
    while len(line) > 1:
        older, newer = line[0], line[1]
        if normalized_value(older.value) == normalized_value(newer.value):
            _absorb(change, older, newer)
            del line[1]
        else:
            facts.supersede(change, older, newer.id, event_time(newer))
            del line[0]


def _current(item: Item) -> bool:
    """Return True if an item states a current value; ended facts may coexist with current ones."""
    return item.status is Status.ACTIVE and item.valid_to is None and str(item.type) in _KINDS


def _merge_duplicate(change: Change, item: Item, close: Sequence[SimilarItem]) -> None:
    states = items.current(change.connection, [change.cube], [item.id, *(one.item for one in close)])
    mine = states.get(item.id)
    if mine is None or mine.version != item.version:
        return
    for one in close:
        other = states.get(one.item)
        if (
            other is not None
            and other.id != mine.id
            and (other.created_at, other.id) < (mine.created_at, mine.id)
            and other.key is None
            and comparable(other, _as_fact(mine))
            and same(other.memory, mine.memory, one.cosine)
        ):
            _absorb(change, other, mine)
            return


def _absorb(change: Change, kept: Item, double: Item) -> None:
    facts.copy_sources(change, kept.id, double.id)
    edits = {"status": Status.SUPERSEDED, "superseded_by": kept.id}
    changes.edit(change, double, edits, f"superseded by {kept.id}", kind="merge")
    facts.link_superseded(change, kept.id, double.id)


def _as_fact(item: Item) -> Fact:
    whole = (Span(item.id, 0, max(1, len(item.memory))),)
    said = item.said_at or item.created_at
    fact = Fact(item.type, item.memory, whole, item.speaker, "stored", said, confidence=item.confidence)
    return replace(fact, valid_from=item.valid_from, valid_to=item.valid_to)


REFLECT = "reflect"
PROMPT = "reflection-1"
REFLECT_EVERY = timedelta(days=1)
_SHOWN_FACTS = 40
_SHOWN_CHARS = 300
_LEAST_EVIDENCE = 2
# Less than for what somebody said.
_CONFIDENCE = 0.6


class Insight(BaseModel):
    """A conclusion, and the numbers of the statements that support it."""

    text: str = Field(min_length=1, max_length=500)
    statements: list[int] = Field(max_length=_SHOWN_FACTS)


class Insights(BaseModel):
    """A model's conclusions."""

    insights: list[Insight] = Field(default_factory=list, max_length=10)


@dataclass(frozen=True, slots=True)
class ReflectJob:
    """Derives conclusions from a cube's newest facts with one model call."""

    asker: Callable[[], LLMClient | None]
    settled: Callable[[], object]

    def run(self, run: TaskRun) -> None:
        asker, cube = self.asker(), run.task.cube
        with run.ledger.read() as connection:
            shown = _newest(connection, cube)
        if asker is None or len(shown) < _LEAST_EVIDENCE:
            return
        run.check_budget()
        lines = [
            f"{number}. {facts.event_time(fact):%F} {shortened(fact.speaker, 80)}: "
            f"{shortened(fact.memory, _SHOWN_CHARS)}"
            for number, fact in enumerate(shown, start=1)
        ]
        answer = asker.complete_json(question(PROMPT, lines), Insights, meter=meter_of(run, "chat"))
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            now = items.current(connection, [cube], [fact.id for fact in shown])
            same = {fact.id for fact in shown if fact.id in now and now[fact.id].version == fact.version}
            for insight in answer.insights:
                evidence = [
                    shown[number - 1] for number in sorted(set(insight.statements)) if 1 <= number <= len(shown)
                ]
                if len(evidence) >= _LEAST_EVIDENCE and all(fact.id in same for fact in evidence):
                    consolidation.consolidate(change, [_fact(insight.text, evidence)])
        self.settled()


def active(connection: sa.Connection, clock: Clock) -> list[str]:
    """Return the cubes with additions since the last reflection."""
    since = clock.now() - REFLECT_EVERY
    query = sa.select(t.cubes.c.id).where(
        sa.exists(sa.select(t.items.c.id).where(t.items.c.cube_id == t.cubes.c.id, t.items.c.created_at >= since))
    )
    return list(connection.scalars(query.order_by(t.cubes.c.id)))


def reflect_task() -> NewTask:
    return NewTask(REFLECT, {}, key="")


def _newest(connection: sa.Connection, cube: str) -> list[Item]:
    kinds = sorted(str(kind) for kind in DERIVED - {ItemType.SUMMARY})
    query = (
        sa.select(t.items.c.id)
        .join(t.versions, t.versions.c.id == t.items.c.version_id)
        .where(t.items.c.cube_id == cube, t.versions.c.type.in_(kinds), t.versions.c.status == Status.ACTIVE)
        .order_by(t.items.c.created_at.desc(), t.items.c.id)
        .limit(_SHOWN_FACTS)
    )
    states = items.with_sources(connection, [cube], list(connection.scalars(query)))
    return sorted(states.values(), key=lambda state: (facts.event_time(state), state.id))


def _fact(text: str, evidence: Sequence[Item]) -> Fact:
    latest = max(facts.event_time(fact) for fact in evidence)
    return Fact(
        type=ItemType.SUMMARY,
        memory=text.strip(),
        spans=tuple(Span(fact.id, 0, len(fact.memory)) for fact in evidence),
        subject=evidence[0].speaker,
        reader=PROMPT,
        said_at=latest,
        confidence=_CONFIDENCE,
        valid_from=latest,
        tags=("reflection",),
        trust=Trust.UNTRUSTED if any(is_untrusted(fact.sources) for fact in evidence) else Trust.TRUSTED,
    )
