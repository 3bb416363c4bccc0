"""Reads messages into long-term facts: by pattern, or with one call of a model when there is one.

A model that cannot write facts down is asked what it can answer: which sentences say what lasts (`choosing`).
The one function through which hot segments become facts; it stores nothing and knows no segments.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from memos.core.types import Fact, Item
from memos.errors import UnfitAnswer
from memos.llm.client import LLMClient
from memos.llm.usage import UsageMeter
from memos.memcube.profiles.extraction import TraitsAnswer, traits_of
from memos.memcube.profiles.template import Template
from memos.memcube.profiles.traits import find_traits
from memos.reader.facts import llm as fact_asking
from memos.reader.facts import patterns as fact_patterns
from memos.reader.facts import sentence_choice as choosing
from memos.reader.facts.answer import answer_about
from memos.reader.facts.llm import grounded, question, shown_tokens
from memos.reader.facts.patterns import facts_by_pattern

# So many useless answers in a row, and a model is asked less, but for each so many-th time.
_UNFIT = 2
_AGAIN = 50

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

    def __init__(self, asker: Callable[[], LLMClient | None]) -> None:
        self._asker = asker
        self._examined = choosing.Examined()
        self._lock = threading.Lock()
        self._unfit: dict[str, int] = {}
        self._reads: Counter[str] = Counter()

    def read(
        self,
        messages: Sequence[Item],
        zone: ZoneInfo,
        meter: UsageMeter,
        before: str = "",
        template: Template | None = None,
        context: Collection[str] = (),
    ) -> Extraction:
        """Return the facts in messages, oldest first; days are those of `zone`, `before` is the summary so far.

        With a `template` the speakers' traits in its dimensions are among them. Messages whose ids are in `context`
        only tell a model what the others mean: nothing is read in them.
        A model whose answers do not fit, twice in a row or about a single message, is asked about sentences instead.
        Raises: ModelError, BackendUnavailable, InvalidInput; a model's failure is never text or an empty result.
        """
        shown = _Shown(messages, [message for message in messages if message.id not in context], zone, template)
        if not shown.messages:
            return Extraction(())
        asker = self._asker()
        if asker is None:
            return _by_patterns(shown)
        if self._may_write(asker.model):
            try:
                found = _written(asker, shown, before, meter)
            except UnfitAnswer:
                # Of a window with several messages the next attempt shows fewer; a good model answers then.
                if self._told_unfit(asker.model) < _UNFIT and len(shown.messages) > 1:
                    raise
            else:
                self._told_fit(asker.model)
                return found
        try:
            return self._chosen(asker, shown, meter)
        except UnfitAnswer:
            # It can do neither now: next time it begins anew, as a server does that was given another model.
            self._told_fit(asker.model)
            raise

    def _may_write(self, model: str) -> bool:
        """Say whether a model is asked to write facts down: not after useless answers, but now and again."""
        with self._lock:
            self._reads[model] += 1
            return self._unfit.get(model, 0) < _UNFIT or self._reads[model] % _AGAIN == 0

    def _told_unfit(self, model: str) -> int:
        with self._lock:
            self._unfit[model] = self._unfit.get(model, 0) + 1
            return self._unfit[model]

    def _told_fit(self, model: str) -> None:
        with self._lock:
            self._unfit.pop(model, None)

    def _chosen(self, asker: LLMClient, shown: _Shown, meter: UsageMeter) -> Extraction:
        """Return what patterns find and, from a model that can tell, the sentences that it chooses beside that."""
        if not self._examined.passes(asker, meter):
            return _by_patterns(shown)
        facts, output = choosing.facts_by_choice(asker, shown.messages, shown.zone, meter)
        if output is None:
            return Extraction(_with_traits(facts, shown))
        return Extraction(_with_traits(facts, shown), choosing.READER, None, asker.model, output)


class _Shown(NamedTuple):
    """What is read: messages with their context, those of them in which facts are wanted, and how."""

    everything: Sequence[Item]
    messages: Sequence[Item]
    zone: ZoneInfo
    template: Template | None

    @property
    def context(self) -> list[Item]:
        ids = {message.id for message in self.messages}
        return [message for message in self.everything if message.id not in ids]


def _by_patterns(shown: _Shown) -> Extraction:
    return Extraction(_with_traits(facts_by_pattern(shown.messages, shown.zone), shown))


def _with_traits(facts: Sequence[Fact], shown: _Shown) -> tuple[Fact, ...]:
    traits = [] if shown.template is None else find_traits(shown.messages, facts, shown.template)
    return _ordered(_corrected([*facts, *traits], shown.messages))


def _written(asker: LLMClient, shown: _Shown, before: str, meter: UsageMeter) -> Extraction:
    """Return the facts that a model writes down and the messages bear out."""
    messages, context, template = shown.messages, shown.context, shown.template
    wanted = answer_about(sum(shown_tokens(message) for message in messages))
    ids = {message.id for message in context}
    answer = asker.ask(question(shown.everything, shown.zone, before, template, ids), wanted, meter=meter)
    facts, summary, rejected = grounded(answer, messages, shown.zone, context)
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
