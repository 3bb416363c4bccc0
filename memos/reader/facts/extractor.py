"""Extract long-term facts from messages: by pattern, or with one model call.

A model is examined before its first reading. One that cannot tell sentences that state lasting facts from others is not
used; one that can is asked about sentences, and one that does so almost without a fault may write facts, if it does
that well, too. What patterns find is there in any case.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

from memos.core.ports import ChatMessage
from memos.core.text.matching import entities, folded, numbers, stems
from memos.core.text.sentences import (
    asserted,
    is_hypothetical,
    is_question,
    is_request,
    sentences,
    without_pasted_text,
)
from memos.core.text.statements import is_passing, key_of
from memos.core.types import Fact, Item, ItemType, Json, Role, Span, Trust
from memos.errors import InvalidAnswer
from memos.llm.client import LLMClient
from memos.llm.examination import Examination
from memos.llm.usage import UsageMeter
from memos.memcube.profiles.extraction import TraitsAnswer, traits_of
from memos.memcube.profiles.template import Template
from memos.memcube.profiles.traits import find_traits
from memos.reader.facts import llm, patterns
from memos.reader.facts.grounding import said_at, trust_of
from memos.reader.facts.llm import answer_about, ground, question, shown_tokens
from memos.reader.facts.patterns import SCAN_CHARS, facts_by_pattern
from memos.reader.messages import read, read_messages, unstored

log = logging.getLogger(__name__)

READER = "choosing/2"
"""The number is that of the prompt, `prompts/choosing-2.txt`."""

_SHOWN_CHARS = 300
# Shorter ones ("I did!") say nothing that is understood alone.
_LEAST_CHARS = {True: 6, False: 12}
# Quotations are mostly somebody else's words, but small models attribute them to the speaker.
_QUOTATION = re.compile(r"[\"“„«「『]|(?<!\w)['‘](?=\w)")
_CONFIDENCE = 0.6
_TYPES = {"Fact": ItemType.USER, "Preference": ItemType.PREFERENCE, "Instruction": ItemType.INSTRUCTION}
_NOTHING = "Nothing"
_WORDS = (*_TYPES, _NOTHING)
_LEAST_PROBABILITY = 0.8
"""Minimum probability that a sentence says something lasting; small models overestimate it."""
# Sentences of two words in which nobody speaks of himself ("ok, thanks") are courtesy.
_COURTESY_WORDS = 2
_OWN = re.compile(
    r"\b(?:[Ii]|[Ii]['’]?(?:m|ve|d|ll)|m[eya]|mine|we|us|ours?|ich|mir|mich|mein\w*|wir|uns\w*|yo|mis?|nuestr\w+|je|mon|"
    r"mes|moi|nous|notre|я|мо[йяёи]|мы)\b|\b[Jj]['’]|[我咱俺私僕저나내]",
    re.IGNORECASE,
)

# With 20 of each a guesser passes 3 times in 100,000 at most, whatever its rate (two binomial tails, best at 0.4).
_MUST_TAKE = 14
_MAY_TAKE = 2
# A model that errs more often than this never wrote facts well either, and is spared two minutes of trying.
_STRONG_TAKES = 19
_STRONG_MAY_TAKE = 1
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


class OpenSentence(NamedTuple):
    item: Item
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.item.memory[self.start : self.end]


class ChoosingTrial(NamedTuple):
    """How a model sorted `KNOWN`: lasting sentences and others that it took for lasting."""

    right: int
    wrong: int

    @property
    def passed(self) -> bool:
        return self.right >= _MUST_TAKE and self.wrong <= _MAY_TAKE

    @property
    def strong(self) -> bool:
        """True if the model is worth the long examination of writing."""
        return self.right >= _STRONG_TAKES and self.wrong <= _STRONG_MAY_TAKE


def try_choosing(asker: LLMClient, meter: UsageMeter) -> ChoosingTrial:
    """Examine whether a model tells sentences that say something lasting from others: 40 questions of one word."""
    taken = [lasts for text, lasts in KNOWN if choose(asker, text, meter) is not None]
    trial = ChoosingTrial(taken.count(True), taken.count(False))
    if not trial.passed:
        log.warning(
            "The model %s cannot tell lasting facts from small talk: it selected %d of %d lasting sentences, and "
            "%d of %d others. Facts are extracted by patterns until a larger model is configured.",
            asker.model,
            trial.right,
            sum(lasts for _, lasts in KNOWN),
            trial.wrong,
            sum(not lasts for _, lasts in KNOWN),
        )
    return trial


def choice_question(text: str) -> list[ChatMessage]:
    """Build the prompt about a sentence; what precedes it is always the same, so that a server computes it once."""
    system, examples = _prompt().split("\n\n")
    talk = [ChatMessage("system", system)]
    for line in examples.splitlines():
        answer, sentence = line.split(" | ")
        talk += [ChatMessage("user", _asked(sentence)), ChatMessage("assistant", answer)]
    return [*talk, ChatMessage("user", _asked(text))]


def choose(asker: LLMClient, text: str, meter: UsageMeter) -> ItemType | None:
    """Return the kind of memory that a model makes of a sentence; None if it would not keep it."""
    try:
        found = asker.complete_choice(choice_question(text), _WORDS, meter=meter)
    except InvalidAnswer:
        return None
    lasting = {word: found.get(word, 0.0) for word in _TYPES}
    if sum(lasting.values()) < _LEAST_PROBABILITY * (sum(lasting.values()) + found.get(_NOTHING, 0.0)):
        return None
    return _TYPES[max(lasting, key=lambda word: lasting[word])]


def _asked(text: str) -> str:
    return f"Sentence: {' '.join(text.split())[:_SHOWN_CHARS]}"


def undecided_sentences(messages: Sequence[Item], found: Sequence[Fact]) -> list[OpenSentence]:
    taken = [span for fact in found for span in fact.spans]
    undecided = []
    for item in messages:
        if item.role is not Role.USER or trust_of([item]) is Trust.UNTRUSTED:
            continue
        spans = [span for span in taken if span.item == item.id]
        for one in _stated(item):
            if not any(span.start < one.end and one.start < span.end for span in spans):
                undecided.append(one)
    return undecided


def facts_by_choice(
    asker: LLMClient, messages: Sequence[Item], zone: ZoneInfo, meter: UsageMeter
) -> tuple[list[Fact], str | None]:
    found = facts_by_pattern(messages, zone)
    left = undecided_sentences(messages, found)
    if not left:
        return found, None
    chosen = [(one, choose(asker, one.text, meter)) for one in left]
    output = json.dumps({one.text: kind for one, kind in chosen}, ensure_ascii=False)
    return [*found, *(_fact(one, kind, zone) for one, kind in chosen if kind is not None)], output


def _stated(item: Item) -> list[OpenSentence]:
    whole = item.memory[:SCAN_CHARS]
    own = without_pasted_text(whole)
    said = []
    for start, end in sentences(own):
        text = own[start:end]
        least = _LEAST_CHARS[not text.isascii()]
        whole_own = text == whole[start:end] and least <= len(text) <= _SHOWN_CHARS
        states = not is_question(text) and not is_hypothetical(text) and not text.endswith((":", "："))
        told = states and asserted(text, len(text), len(text)) and not _QUOTATION.search(text)
        if whole_own and told and _may_last(text):
            said.append(OpenSentence(item, start, end))
    return said


def _may_last(text: str) -> bool:
    """Return False for courtesy, requests, and what is unsettled or over within the day: no model is asked about it."""
    if is_passing(text) or is_request(text):
        return False
    spoken = _OWN.search(text) or entities(text) or numbers(text)
    return bool(spoken) or len(stems(text)) > _COURTESY_WORDS


def _fact(one: OpenSentence, type_: ItemType, zone: ZoneInfo) -> Fact:
    at = said_at(one.item)
    # A time in an order is part of what is ordered.
    began, ended = (at, None) if type_ is ItemType.INSTRUCTION else patterns.times_of(one.item, one.text, zone)
    return Fact(
        type=type_,
        memory=one.text,
        spans=(Span(one.item.id, one.start, one.end),),
        subject=one.item.speaker,
        reader=READER,
        said_at=at,
        confidence=_CONFIDENCE,
        valid_from=began,
        valid_to=ended,
        tags=("explicit",) if type_ is ItemType.PREFERENCE else (),
        trust=trust_of([one.item]),
    )


@lru_cache(maxsize=1)
def _prompt() -> str:
    return resources.files("memos.reader").joinpath("prompts", "choosing-2.txt").read_text(encoding="utf-8").strip()


# So many useless answers in a row, and a model is asked less, but for each so many-th time.
_UNFIT = 2
_AGAIN = 50

WRITTEN: tuple[tuple[str, str | None], ...] = (
    ("Morning! The tram was packed again.", None),
    ("My sister Nora teaches maths in Graz.", "Graz"),
    ("Could you shorten the last paragraph?", None),
    ("I have been allergic to walnuts since I was a child.", "walnut"),
    ("I've worked at a print shop in Turin since 2021.", "Turin"),
    ("We might get a parrot some day, who knows.", None),
    ("Never use emojis when you answer me.", "emoji"),
)
"""Messages of the examination, each with a word that its fact must contain; None if it contains no fact."""

_EXAMINED, _EXAMINED_AT = "Ada", datetime(2024, 3, 4, 9, tzinfo=UTC)
_SISTER = "Nora"
_MUST_WRITE = 3
# Rejected facts count, too: a model that writes one for every message cannot tell facts from the rest.
_MAY_WRITE_WRONGLY = 2

FEEDBACK = "feedback"
"""The tag of messages that correct what is stored."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of reading messages: facts by event time, and what a model added."""

    # `reader` is the reader with its version. `summary` has at most 600 characters and exists only if a model wrote
    # one; `model` is the model's name, `output` its answer as JSON; `rejected` counts facts that the messages do not
    # support. `note` says what a person should know of the reading, such as that a model is not used.

    facts: tuple[Fact, ...]
    reader: str = patterns.READER
    summary: str | None = None
    model: str | None = None
    output: str | None = None
    rejected: int = 0
    note: str | None = None


class FactReader:
    """Extracts facts with the model that `asker` returns, or by patterns if it returns None. Thread-safe."""

    def __init__(self, asker: Callable[[], LLMClient | None]) -> None:
        self._asker = asker
        self._choosing = Examination(try_choosing)
        self._writing = Examination(try_writing)
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
        """Return the facts in messages, oldest first; days are those of `zone`, `before` is the summary so far."""
        # With a `template` the speakers' traits in its dimensions are among them. Messages whose ids are in `context`
        # only tell a model what the others mean: nothing is read in them. A model that failed the examination of its
        # writing, or whose answers do not fit, twice in a row or about a single message, is asked about sentences.
        shown = _Shown(messages, [message for message in messages if message.id not in context], zone, template)
        if not shown.messages:
            return Extraction(())
        asker = self._asker()
        if asker is None:
            return _by_patterns(shown)
        unusable = None
        sorts = self._choosing.result(asker, meter)
        if sorts.strong and self._writing.result(asker, meter).passed and self._may_write(asker.model):
            try:
                found = _written(asker, shown, before, meter)
            except InvalidAnswer as error:
                unusable = error
                # Of a window with several messages the next attempt shows fewer; a good model answers then.
                with self._lock:
                    self._unfit[asker.model] = times = self._unfit.get(asker.model, 0) + 1
                if times < _UNFIT and len(shown.messages) > 1:
                    raise
            else:
                self._told_fit(asker.model)
                joined = _joined(_by_patterns(shown).facts, found.facts)
                return replace(found, facts=_ordered(joined))
        if sorts.passed:
            return _chosen(asker, shown, meter)
        if unusable is not None:
            raise unusable  # by a model that can write: it is asked again before patterns read alone
        note = f"the model {asker.model} fails its examination; patterns read alone"
        return replace(_by_patterns(shown), note=note)

    def _may_write(self, model: str) -> bool:
        """Return True if a model may write facts: not after useless answers, except for a retry now and then."""
        with self._lock:
            self._reads[model] += 1
            return self._unfit.get(model, 0) < _UNFIT or self._reads[model] % _AGAIN == 0

    def _told_fit(self, model: str) -> None:
        with self._lock:
            self._unfit.pop(model, None)


class WritingTrial(NamedTuple):
    """How a model wrote the facts of `WRITTEN` down: facts found of those there, wrong entries, wrong persons."""

    right: int
    facts: int
    wrong: int
    misattributed: int

    @property
    def passed(self) -> bool:
        return self.right >= _MUST_WRITE and self.wrong <= _MAY_WRITE_WRONGLY and not self.misattributed


def try_writing(asker: LLMClient, meter: UsageMeter) -> WritingTrial:
    """Examine whether a model writes down the facts in messages, and hardly anything else: one long question."""
    raw: list[Json] = [{"role": "user", "name": _EXAMINED, "content": text} for text, _ in WRITTEN]
    drafts = read(read_messages(raw, ZoneInfo("UTC"), _EXAMINED_AT), (), {}, ZoneInfo("UTC"))
    messages = [unstored(draft, "", None, number) for number, draft in enumerate(drafts)]
    words = {message.id: word for message, (_, word) in zip(messages, WRITTEN, strict=True)}
    try:
        found = _written(asker, _Shown(messages, messages, ZoneInfo("UTC"), None), "", meter)
    except InvalidAnswer:
        found = Extraction(())
    right, wrong = set[str](), found.rejected
    for fact in found.facts:
        [message] = {span.item for span in fact.spans}
        word = words[message]
        if word is not None and word in fact.memory:
            right.add(message)
        else:
            wrong += 1
    there = sum(word is not None for word in words.values())
    trial = WritingTrial(len(right), there, wrong, sum(map(_misattributed, found.facts)))
    if not trial.passed:
        log.warning(
            "The model %s does not write facts down well enough: in its examination it found %d of %d facts, "
            "wrote %d wrong entries, and took %d for another person's. It is asked which sentences say something "
            "lasting instead.",
            asker.model,
            *trial,
        )
    return trial


def _misattributed(fact: Fact) -> bool:
    """Return True if a fact attributes to the speaker what is her sister's, or a home that nobody mentioned."""
    of_speaker = (fact.key or "").startswith(key_of(_EXAMINED, ""))
    of_sister = _SISTER in fact.memory and fact.value != _SISTER
    return of_speaker and (of_sister or fact.key == key_of(_EXAMINED, "residence"))


class _Shown(NamedTuple):
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


def _chosen(asker: LLMClient, shown: _Shown, meter: UsageMeter) -> Extraction:
    facts, output = facts_by_choice(asker, shown.messages, shown.zone, meter)
    if output is None:
        return Extraction(_with_traits(facts, shown))
    return Extraction(_with_traits(facts, shown), READER, None, asker.model, output)


def _with_traits(facts: Sequence[Fact], shown: _Shown) -> tuple[Fact, ...]:
    traits = [] if shown.template is None else find_traits(shown.messages, facts, shown.template)
    return _ordered(_corrected([*facts, *traits], shown.messages))


def _written(asker: LLMClient, shown: _Shown, before: str, meter: UsageMeter) -> Extraction:
    messages, context, template = shown.messages, shown.context, shown.template
    wanted = answer_about(sum(shown_tokens(message) for message in messages))
    ids = {message.id for message in context}
    answer = asker.complete_json(question(shown.everything, shown.zone, before, template, ids), wanted, meter=meter)
    facts, summary, rejected = ground(answer, messages, shown.zone, context)
    if template is not None:
        believed = traits_of(TraitsAnswer(traits=answer.traits), messages, template)
        facts, rejected = [*facts, *believed.traits], rejected + len(believed.refused)
    kept = _ordered(_corrected(facts, messages))
    return Extraction(kept, llm.READER, summary, asker.model, answer.model_dump_json(exclude_unset=True), rejected)


def _joined(known: Sequence[Fact], written: Sequence[Fact]) -> list[Fact]:
    """Join what patterns and a model found, so that no model makes reading worse than patterns alone are.

    Every fact of a pattern stays, in the model's words where the model confirms its key and value; what a model says of
    the same passage under the same key, or as the same type without one, is left out.
    """
    confirmed = [next((fact for fact in written if _confirms(fact, other)), other) for other in known]
    return [*confirmed, *(fact for fact in written if not any(_repeats(fact, other) for other in known))]


def _confirms(fact: Fact, known: Fact) -> bool:
    if known.key is None or fact.key != known.key or not _overlap(fact, known):
        return False
    same = folded(fact.value or "") == folded(known.value or "") and (fact.valid_to is None) == (known.valid_to is None)
    return same and fact.type is known.type and folded(known.value or "") in folded(fact.memory)


def _repeats(fact: Fact, known: Fact) -> bool:
    same = fact.key == known.key or (fact.key is None and fact.type is known.type)
    return same and fact.subject == known.subject and _overlap(fact, known)


def _overlap(fact: Fact, known: Fact) -> bool:
    return any(
        one.item == other.item and one.start < other.end and other.start < one.end
        for one in fact.spans
        for other in known.spans
    )


def _corrected(facts: Sequence[Fact], messages: Sequence[Item]) -> list[Fact]:
    """Make a correction valid from now on: an earlier day in its text must not put it in the past."""
    given = {message.id for message in messages if FEEDBACK in message.tags}
    return [
        replace(fact, valid_from=fact.said_at)
        if fact.valid_from is not None and fact.valid_to is None and given.issuperset(span.item for span in fact.spans)
        else fact
        for fact in facts
    ]


def _ordered(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    return tuple(sorted(facts, key=lambda fact: fact.valid_from or fact.valid_to or fact.said_at))
