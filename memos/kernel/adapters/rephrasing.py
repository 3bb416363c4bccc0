"""Has a chat model ask what a course asks in other words. What it writes is checked; without one there is none of it.

The model sees questions alone, never their answers, so that none can stand in what it writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from memos.core.ports import ChatMessage
from memos.errors import BackendUnavailable, ModelError
from memos.llm.client import LLMClient
from memos.llm.usage import UsageMeter
from memos.memcube.parametric.quiz import KnownFact, plain, questions_of
from memos.scheduler import learning as prompting

log = logging.getLogger("memos.tasks")

PROMPT, PHRASINGS = "phrasings-1", "phrasings"
_AT_ONCE = 8
_MORE = 2
_MOST_CHARS = 160


class _Asked(BaseModel):
    number: int
    ways: list[str] = Field(max_length=8)


class Phrasings(BaseModel):
    """A model's other words for numbered questions."""

    questions: list[_Asked] = Field(max_length=2 * _AT_ONCE)


@dataclass(frozen=True, slots=True)
class Rephrasing:
    """Asks the chat model where that is another than the one that learns: `asker` is None without such a model."""

    asker: Callable[[], LLMClient | None]

    def __call__(
        self, facts: Sequence[KnownFact], meter: UsageMeter, check: Callable[[], None]
    ) -> Mapping[str, tuple[str, ...]]:
        """Return by item at most two more questions for each fact; fewer, or none, where the model fails.

        `check` raises when the facts are wanted no more: then nothing of them is asked, or kept as an answer.
        """
        asker, found = self.asker(), dict[str, tuple[str, ...]]()
        if asker is None:
            return found
        for begin in range(0, len(facts), _AT_ONCE):
            some = facts[begin : begin + _AT_ONCE]
            check()
            try:
                answer = asker.complete_json(_question(some), Phrasings, meter=meter)
            except (ModelError, BackendUnavailable) as error:
                log.warning("facts are taught in the usual words alone: %s", error)
                return found
            try:
                check()
            except Exception:  # whatever it is: what was erased while the model wrote is remembered by nobody
                asker.forget()
                raise
            for each in answer.questions:
                if 1 <= each.number <= len(some):
                    fact = some[each.number - 1]
                    found[fact.item] = checked(fact, (*found.get(fact.item, ()), *each.ways))
        return {item: ways for item, ways in found.items() if ways}


def _question(facts: Sequence[KnownFact]) -> list[ChatMessage]:
    asked = [prompting.shortened(questions_of(fact)[0], _MOST_CHARS) for fact in facts]
    return prompting.question(PROMPT, [f"{number}. {question}" for number, question in enumerate(asked, 1)])


def checked(fact: KnownFact, ways: Sequence[str]) -> tuple[str, ...]:
    """Return those of some questions that ask for a fact, say nothing of its value, and are none that there are."""
    known, kept = {plain(each) for each in questions_of(fact)}, list[str]()
    for way in ways:
        text = " ".join(way.split())
        said = plain(text)
        tells = bool(fact.value) and plain(fact.value) in said and plain(fact.value) not in plain(fact.thing)
        fits = len(said) >= 2 and len(text) <= _MOST_CHARS and text.endswith(("?", "?", ".", "。"))
        names = all(plain(each or "") in said for each in (fact.thing, fact.subject))
        if fits and names and not tells and said not in known:
            known.add(said)
            kept.append(text)
    return tuple(kept[:_MORE])
