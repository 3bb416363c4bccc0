"""Asks a model that cannot write facts down which sentences of a user say what lasts; what is kept is the sentence.

It answers with one of four words a sentence, so that any model's answer fits and none can invent anything. Whether it
knows what it answers is found out first, with sentences of which that is known.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BaseModel, create_model

from memos.core.ports import ChatMessage
from memos.core.text.sentences import asserted, is_question, is_supposed, sentences, without_pasted_text
from memos.core.types import Fact, Item, ItemType, Role, Span, Trust
from memos.llm.client import LLMClient
from memos.llm.usage import UsageMeter
from memos.reader.facts.grounding import said_at, trust_of
from memos.reader.facts.patterns import SCAN_CHARS, facts_by_pattern

log = logging.getLogger(__name__)

READER = "choosing/1"
"""The number is that of the prompt, `prompts/choosing-1.txt`, and of what is known of `KNOWN`."""

_AT_ONCE = 16
_SHOWN_CHARS = 300
# Shorter ones ("I did!") say nothing that is understood alone.
_LEAST_CHARS = {True: 6, False: 12}
_CONFIDENCE = 0.6
_Kind = Literal["fact", "preference", "instruction", "nothing"]
_TYPES = {"fact": ItemType.USER, "preference": ItemType.PREFERENCE, "instruction": ItemType.INSTRUCTION}

# With 20 of each a guesser passes 3 times in 100,000 at most, whatever its rate (two binomial tails, best at 0.4).
_MUST_TAKE = 14
_MAY_TAKE = 2
KNOWN: tuple[tuple[str, bool], ...] = (
    ("I grew up on a farm near Toledo.", True), ("Thanks, that was quick.", False),
    ("The traffic was awful this morning.", False), ("My daughter started school in September.", True),
    ("I'm allergic to penicillin.", True), ("Haha, good one.", False),
    ("Let me think about it for a minute.", False), ("I work as a welder at a shipyard.", True),
    ("我在成都当老师。", True), ("谢谢你，辛苦了。", False),
    ("Shorten the second paragraph, please.", False), ("We adopted two cats last winter.", True),
    ("I never eat pork.", True), ("The capital of Peru is Lima.", False),
    ("Sounds good to me.", False), ("My brother Tom and I share a flat in Leeds.", True),
    ("我对海鲜过敏。", True), ("今天天气真好。", False),
    ("That joke made my day.", False), ("I'm moving to Bergen next spring.", True),
    ("I play the cello in an amateur orchestra.", True), ("Here is the error message I get.", False),
    ("It is late, good night.", False), ("I prefer window seats on trains.", True),
    ("我女儿今年上小学了。", True), ("帮我把这句话改短一点。", False),
    ("One moment, the phone rings.", False), ("My wife is a nurse at the children's hospital.", True),
    ("From now on call me Captain.", True), ("I see what you mean.", False),
    ("The meeting ran a bit long today.", False), ("I have had type 1 diabetes since I was nine.", True),
    ("我喜欢喝普洱茶。", True), ("好的，没问题。", False),
    ("Never mind, I found it.", False), ("I lost my mother two years ago.", True),
    ("I own a small bakery with my cousin.", True), ("Write a haiku about the sea.", False),
    ("Wow, that is a long list.", False), ("I can't drink milk.", True),
)  # fmt: skip
"""Sentences in the order in which a model is asked about them, and whether they say something that lasts."""


class Chosen(NamedTuple):
    """What a model took sentences for, in their order, and the JSON of it."""

    kinds: tuple[str, ...]
    output: str


class Open(NamedTuple):
    """A user's sentence in which no pattern found anything."""

    item: Item
    start: int
    end: int

    @property
    def text(self) -> str:
        """Return the sentence."""
        return self.item.memory[self.start : self.end]


class Examined:
    """Which models tell lasting sentences from others, found out once for each name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed: dict[str, bool] = {}

    def passes(self, asker: LLMClient, meter: UsageMeter) -> bool:
        """Say whether a model's choices are worth more than chance. Raises: as `LLMClient.ask`."""
        with self._lock:
            known = self._passed.get(asker.model)
        if known is not None:
            return known
        taken = [kind != "nothing" for kind in choose(asker, [text for text, _ in KNOWN], meter).kinds]
        right = sum(took for took, (_, lasts) in zip(taken, KNOWN, strict=True) if lasts)
        wrong = sum(took for took, (_, lasts) in zip(taken, KNOWN, strict=True) if not lasts)
        passed = right >= _MUST_TAKE and wrong <= _MAY_TAKE
        if not passed:
            log.warning(
                "The model %s does not tell what lasts from small talk: it took %d of %d lasting sentences for such, "
                "and %d of %d others. Reading goes by patterns until a larger one is configured.",
                asker.model,
                right,
                sum(lasts for _, lasts in KNOWN),
                wrong,
                sum(not lasts for _, lasts in KNOWN),
            )
        with self._lock:
            self._passed[asker.model] = passed
        return passed


def question(texts: Sequence[str]) -> list[ChatMessage]:
    """Return the prompt, and the sentences numbered, each on one line and cut at 300 characters."""
    lines = [f"{number}. {' '.join(text.split())[:_SHOWN_CHARS]}" for number, text in enumerate(texts, 1)]
    return [ChatMessage("system", _prompt()), ChatMessage("user", "\n".join(lines))]


def choose(asker: LLMClient, texts: Sequence[str], meter: UsageMeter) -> Chosen:
    """Return what a model takes sentences for, asked about sixteen at once. Raises: as `LLMClient.ask`."""
    kinds: list[str] = []
    for first in range(0, len(texts), _AT_ONCE):
        part = texts[first : first + _AT_ONCE]
        answer = asker.ask(question(part), _answer(len(part)), meter=meter)
        kinds += answer.model_dump(by_alias=True).values()
    return Chosen(tuple(kinds), json.dumps(dict(zip(texts, kinds, strict=True)), ensure_ascii=False))


def still_open(messages: Sequence[Item], found: Sequence[Fact]) -> list[Open]:
    """Return the sentences that users state in their own words and in which nothing was found yet."""
    taken = [span for fact in found for span in fact.spans]
    return [
        one
        for item in messages
        if item.role is Role.USER and trust_of([item]) is not Trust.UNTRUSTED
        for one in _stated(item)
        if not any(span.item == item.id and span.start < one.end and one.start < span.end for span in taken)
    ]


def facts_by_choice(
    asker: LLMClient, messages: Sequence[Item], zone: ZoneInfo, meter: UsageMeter
) -> tuple[list[Fact], str | None]:
    """Return what patterns find and, as facts, the sentences beside it that a model chooses; with its answer as JSON.

    Raises: as `LLMClient.ask`.
    """
    found = facts_by_pattern(messages, zone)
    left = still_open(messages, found)
    if not left:
        return found, None
    chosen = choose(asker, [one.text for one in left], meter)
    kept = [_fact(one, _TYPES[kind]) for one, kind in zip(left, chosen.kinds, strict=True) if kind in _TYPES]
    return [*found, *kept], chosen.output


def _stated(item: Item) -> list[Open]:
    whole = item.memory[:SCAN_CHARS]
    own = without_pasted_text(whole)
    said = []
    for start, end in sentences(own):
        text = own[start:end]
        least = _LEAST_CHARS[not text.isascii()]
        whole_own = text == whole[start:end] and least <= len(text) <= _SHOWN_CHARS
        states = not is_question(text) and not is_supposed(text) and not text.endswith((":", "："))
        if whole_own and states and asserted(text, len(text), len(text)):
            said.append(Open(item, start, end))
    return said


def _fact(one: Open, type_: ItemType) -> Fact:
    at = said_at(one.item)
    return Fact(
        type=type_,
        memory=one.text,
        spans=(Span(one.item.id, one.start, one.end),),
        subject=one.item.speaker,
        reader=READER,
        said_at=at,
        confidence=_CONFIDENCE,
        valid_from=at,
        tags=("explicit",) if type_ is ItemType.PREFERENCE else (),
        trust=trust_of([one.item]),
    )


@lru_cache(maxsize=_AT_ONCE)
def _answer(count: int) -> type[BaseModel]:
    """Return the shape of an answer about so many sentences: each number once, with one of four words."""
    fields: Any = {f"of_{number}": (_Kind, ...) for number in range(1, count + 1)}
    return create_model("Choices", __config__={"alias_generator": lambda name: name.removeprefix("of_")}, **fields)


@lru_cache(maxsize=1)
def _prompt() -> str:
    return resources.files("memos.reader").joinpath("prompts", "choosing-1.txt").read_text(encoding="utf-8").strip()
