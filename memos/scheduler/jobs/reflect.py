"""Has a model say what several facts of a cube show together; off unless asked for, and every insight has sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from pydantic import BaseModel, Field

from memos.core.clock import Clock
from memos.core.text.rendering import is_untrusted
from memos.core.types import DERIVED, Fact, Item, ItemType, Span, Status, Trust
from memos.llm.client import Asker
from memos.memcube import changes, facts
from memos.memcube.ledger import items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler import consolidation as consolidate
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.learning import meter_of, plain, question
from memos.scheduler.task import Run

REFLECT = "reflect"
PROMPT = "reflection-1"
EVERY = timedelta(days=1)
_SHOWN_FACTS = 40
_SHOWN_CHARS = 300
_LEAST_EVIDENCE = 2
# What a model concludes is less sure than what somebody said.
_CONFIDENCE = 0.6


class Insight(BaseModel):
    """One sentence and the numbers of the statements that show it."""

    text: str = Field(min_length=1, max_length=500)
    statements: list[int] = Field(max_length=_SHOWN_FACTS)


class Insights(BaseModel):
    """What a model concluded."""

    insights: list[Insight] = Field(default_factory=list, max_length=10)


@dataclass(frozen=True, slots=True)
class ReflectJob:
    """At most one call a cube and day."""

    asker: Callable[[], Asker | None]
    settled: Callable[[], object]

    def run(self, run: Run) -> None:
        """Conclude from the newest facts of the task's cube. Raises: ModelError, BackendUnavailable."""
        asker, cube = self.asker(), run.task.cube
        with run.ledger.read() as connection:
            shown = _newest(connection, cube)
        if asker is None or len(shown) < _LEAST_EVIDENCE:
            return
        run.check_budget()
        lines = [
            f"{number}. {facts.event_time(fact):%F} {plain(fact.speaker, 80)}: {plain(fact.memory, _SHOWN_CHARS)}"
            for number, fact in enumerate(shown, start=1)
        ]
        answer = asker.ask(question(PROMPT, lines), Insights, meter=meter_of(run, "chat"))
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            now = items.current(connection, [cube], [fact.id for fact in shown])
            same = {fact.id for fact in shown if fact.id in now and now[fact.id].version == fact.version}
            for insight in answer.insights:
                evidence = [
                    shown[number - 1] for number in sorted(set(insight.statements)) if 1 <= number <= len(shown)
                ]
                if len(evidence) >= _LEAST_EVIDENCE and all(fact.id in same for fact in evidence):
                    consolidate.settle(change, [_fact(insight.text, evidence)])
        self.settled()


def active(connection: sa.Connection, clock: Clock) -> list[str]:
    """Return the cubes that something was added to since the last reflection."""
    since = clock.now() - EVERY
    query = sa.select(t.cubes.c.id).where(
        sa.exists(sa.select(t.items.c.id).where(t.items.c.cube_id == t.cubes.c.id, t.items.c.created_at >= since))
    )
    return list(connection.scalars(query.order_by(t.cubes.c.id)))


def task() -> NewTask:
    """Return the task that reflects on a cube; nobody waits for it."""
    return NewTask(REFLECT, {}, key="")


def _newest(connection: sa.Connection, cube: str) -> list[Item]:
    """Return a cube's newest current facts, oldest first; conclusions are not drawn from conclusions."""
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
