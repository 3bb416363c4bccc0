"""Reads messages into long-term facts: by pattern, or with one call of a model when there is one.

The one function through which hot segments become facts; it stores nothing and knows no segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from memos.asking.asker import Asker
from memos.asking.meter import Meter
from memos.model import Fact, Item
from memos.profiles.asking import TraitsAnswer, traits_of
from memos.profiles.template import Template
from memos.profiles.traits import find_traits
from memos.reader import fact_asking, fact_patterns
from memos.reader.answer import answer_about
from memos.reader.fact_asking import grounded, question, shown_tokens
from memos.reader.fact_patterns import facts_by_pattern

FEEDBACK = "feedback"
"""The tag of messages that correct what is stored."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a reader found in messages: facts in order of event time, and what a model added.

    `reader` is what read them, with its version. `summary` is of at most 600 characters and only there when a model
    wrote it; `model` is the name of who was asked, `output` its answer as JSON text; `rejected` counts facts that are
    not in the messages, or not as they say.
    """

    facts: tuple[Fact, ...]
    reader: str = fact_patterns.READER
    summary: str | None = None
    model: str | None = None
    output: str | None = None
    rejected: int = 0


class FactReader:
    """Reads facts with the model that `asker` gives at each read, by pattern when it gives None. Thread-safe."""

    def __init__(self, asker: Callable[[], Asker | None]) -> None:
        self._asker = asker

    def read(
        self,
        messages: Sequence[Item],
        zone: ZoneInfo,
        meter: Meter,
        before: str = "",
        template: Template | None = None,
        context: Collection[str] = (),
    ) -> Extraction:
        """Return the facts in messages, oldest first; days are those of `zone`, `before` is the summary so far.

        With a `template` the speakers' traits in its dimensions are among them. Messages whose ids are in `context`
        only tell a model what the others mean: nothing is read in them.
        Raises: ModelError, BackendUnavailable, InvalidInput; a model's failure is never text or an empty result.
        """
        shown, messages = messages, [message for message in messages if message.id not in context]
        if not messages:
            return Extraction(())
        asker = self._asker()
        if asker is None:
            facts = facts_by_pattern(messages, zone)
            traits = [] if template is None else find_traits(messages, facts, template)
            return Extraction(_ordered(_corrected([*facts, *traits], messages)))
        wanted = answer_about(sum(shown_tokens(message) for message in messages))
        answer = asker.ask(question(shown, zone, before, template, context), wanted, meter=meter)
        around = [message for message in shown if message.id in context]
        facts, summary, rejected = grounded(answer, messages, zone, around)
        if template is not None:
            believed = traits_of(TraitsAnswer(traits=answer.traits), messages, template)
            facts, rejected = [*facts, *believed.traits], rejected + len(believed.refused)
        kept = _ordered(_corrected(facts, messages))
        return Extraction(
            kept, fact_asking.READER, summary, asker.model, answer.model_dump_json(exclude_unset=True), rejected
        )


def _corrected(facts: Sequence[Fact], messages: Sequence[Item]) -> list[Fact]:
    """Let what somebody gives as a correction be so from then on: an earlier day in it must not put it in the past."""
    given = {message.id for message in messages if FEEDBACK in message.tags}
    return [
        replace(fact, valid_from=fact.said_at)
        if fact.valid_from is not None and fact.valid_to is None and given.issuperset(span.item for span in fact.spans)
        else fact
        for fact in facts
    ]


def _ordered(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Order facts by when what they say began or, of what is over, ended."""
    return tuple(sorted(facts, key=_event_time))


def _event_time(fact: Fact) -> datetime:
    return fact.valid_from or fact.valid_to or fact.said_at
