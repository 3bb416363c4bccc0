"""Find traits without a model: in statements, preferences, and interests by the words somebody uses.

A trait is a fact of type profile, with subject and dimension in its key; `may_replace` decides which source wins.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from memos.core.text.instructions import reads_like_instruction
from memos.core.text.statements import key_of
from memos.core.types import Fact, Item, ItemType, Role, Span, Status, Trust
from memos.memcube.profiles.template import Dimension, Template, value_for


class Sentiment(StrEnum):
    LIKES = "likes"
    DISLIKES = "dislikes"
    MENTIONS = "talks about it"
    AWAY = "away"
    """It is denied, over or somebody's refusal: no sign of an interest, and none of a dislike."""


class Clause(NamedTuple):
    """Characters `start` to `end` of a text and how they lean; `sentence` is where their sentence starts and ends."""

    start: int
    end: int
    leaning: Sentiment
    sentence: tuple[int, int]


_NOT = r"(?:(?:do|does|did|would|wo|am|is|are)(?: not|n['’]t)|['’]m not|not|never)(?: really| particularly| at all)?"
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:\.(?=\w)[^.!?。！？\n]*)*[.!?。！？]*")
_CLAUSE = re.compile(r"(?:(?!\b(?:but|however|although|though|whereas)\b|但是?|不过|可是)[^,;，；])+", re.IGNORECASE)
_DISLIKES = re.compile(
    rf"\b(?:hat(?:e|ed|ing)|dislik(?:e|ed|ing)|loath(?:e|ing)|avoid(?:ing)?|can(?:not|['’]?t| not) stand"
    rf"|{_NOT} (?:like|enjoy|love|care (?:for|about)|a (?:big )?fan|into|interested|keen)|bores? me|sick of)\b"
    r"|不(?:太|怎么|大|再|是很)?(?:喜欢|爱|感兴趣)|讨厌|没(?:有)?兴趣|反感",
    re.IGNORECASE,
)
_AWAY = re.compile(
    rf"\b(?:{_NOT}|no longer|used to|stopped|gave up|given up|quit|sold|without)\b|不再|从不|从来不|没有|以前|放弃|戒",
    re.IGNORECASE,
)
_LIKING = re.compile(
    r"\b(?:lov(?:e|ed|ing)|like|enjoy(?:ed|ing)?|prefer|adore|fan of|favou?rite|passionate|keen on|into|crazy about"
    r"|interested in|obsessed)\b|喜欢|喜爱|热爱|爱好|最爱|着迷|感兴趣",
    re.IGNORECASE,
)


def clauses(text: str) -> Iterator[Clause]:
    """Yield the clauses of a text; one that leans nowhere leans as the one before it in its sentence."""
    for sentence in _SENTENCE.finditer(text):
        leaning = Sentiment.MENTIONS
        for part in _CLAUSE.finditer(text, sentence.start(), sentence.end()):
            leaning = _leaning(part.group(0)) or leaning
            yield Clause(part.start(), part.end(), leaning, sentence.span())


def _leaning(text: str) -> Sentiment | None:
    if _DISLIKES.search(text):
        return Sentiment.DISLIKES
    if _AWAY.search(text):
        return Sentiment.AWAY
    return Sentiment.LIKES if _LIKING.search(text) else None


READER = "profile/1"
STATIC = "static"
"""The tag of a trait that the operator gave."""

TRAIT = "profile:"
"""Prefix of the attribute of traits, and of no other fact's."""

# What somebody wants an assistant to do; a template's own groups may have other names, and say other things.
_WISHES = "assistant."
_SCAN_CHARS = 4_000
_LEAST_MESSAGES = 2
_TOLD = frozenset({ItemType.USER, ItemType.PREFERENCE, ItemType.INSTRUCTION})
_LIKES = "likes:"
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def trait_key(subject: str, dimension: str) -> str:
    return key_of(subject, TRAIT + dimension)


def dimension_of(key: str | None) -> str | None:
    name = (key or "").rpartition("|")[2]
    return name.removeprefix(TRAIT) if name.startswith(TRAIT) else None


def interest_confidence(messages: int) -> float:
    """Return how sure an interest is that so many messages show: 0.55 of two, nearing 0.9."""
    return 0.9 - 0.5 * 0.7 ** (max(messages, 1) - 1)


def trait(subject: str, dimension: Dimension, value: str, found: Fact) -> Fact:
    one_line = " ".join(subject.split())
    return replace(
        found,
        type=ItemType.PROFILE,
        memory=f"{one_line} - {dimension.name}: {value}",
        subject=subject,
        key=trait_key(subject, dimension.id),
        value=value,
    )


def may_replace(old: Item, new: Fact) -> bool:
    """Return True if a trait may replace an older one of its key: not the operator's, and not by a mere mention."""
    if old.type is not ItemType.PROFILE or new.type is not ItemType.PROFILE or old.key != new.key:
        return False
    return not is_static(old) and new.value != Sentiment.MENTIONS


def is_static(item: Item) -> bool:
    return STATIC in item.tags and item.status is Status.ACTIVE and item.valid_to is None


def orders_from_untrusted(fact: Fact) -> bool:
    """Return True if an untrusted source tells the assistant what to do, so that a person must review it."""
    if fact.trust is not Trust.UNTRUSTED:
        return False
    wish = (dimension_of(fact.key) or "").startswith(_WISHES)
    return wish or fact.type is ItemType.INSTRUCTION or reads_like_instruction(fact.memory)


def told_of_another(fact: Fact, speakers: Collection[str]) -> bool:
    """Return True if untrusted sources, said by `speakers`, tell what somebody else is or likes."""
    if fact.trust is not Trust.UNTRUSTED or fact.type not in (ItemType.USER, ItemType.PREFERENCE):
        return False
    return fact.subject.casefold() not in {speaker.casefold() for speaker in speakers}


def find_traits(messages: Sequence[Item], facts: Sequence[Fact], template: Template) -> list[Fact]:
    """Return what messages and the facts read from them say in the dimensions of a template, each trait once.

    An interest takes two messages of its subject, or one preference; nothing that is denied counts for it.
    """
    texts = {message.id: message.memory for message in messages}
    # What waits for review shows nothing yet: of the order "answer in Klingon" the trait would be in use at once.
    speakers = {message.id: message.speaker for message in messages}
    told = [
        fact
        for fact in facts
        if not orders_from_untrusted(fact)
        and not told_of_another(fact, {speakers[span.item] for span in fact.spans if span.item in speakers})
    ]
    found = [*_stated(told, template), *_preferred(told, texts, template), *_mentioned(messages, template)]
    return _joined(found)


def _stated(facts: Sequence[Fact], template: Template) -> Iterator[Fact]:
    for fact in facts:
        if fact.type not in _TOLD or fact.key is None or fact.value is None:
            continue
        dimension = template.by_attribute.get(fact.key.removeprefix(key_of(fact.subject, "")))
        value = None if dimension is None else value_for(dimension, fact.value)
        if dimension is not None and value is not None:
            yield trait(fact.subject, dimension, value, replace(fact, reader=READER, tags=()))


def _preferred(facts: Sequence[Fact], texts: dict[str, str], template: Template) -> Iterator[Fact]:
    for fact in facts:
        # One that is over says that there was an interest, not that there is one.
        if fact.type is not ItemType.PREFERENCE or fact.valid_to is not None:
            continue
        thing = (fact.key or "").removeprefix(key_of(fact.subject, _LIKES))
        for span in fact.spans:
            if fact.value in ("yes", "no") and thing != fact.key:  # the reader says already what is liked
                text = f"I {'like' if fact.value == 'yes' else 'hate'} {thing}"
            else:
                text = texts.get(span.item, "")[span.start : span.end]
            for dimension, leaning, _ in _interests(text, template):
                if leaning in (Sentiment.LIKES, Sentiment.DISLIKES):
                    told = replace(fact, reader=READER, spans=(span,), tags=())
                    yield trait(fact.subject, dimension, leaning.value, told)


def _mentioned(messages: Sequence[Item], template: Template) -> Iterator[Fact]:
    shown: dict[tuple[str, str], list[tuple[Item, Span]]] = {}
    for message in messages:
        if message.role is not Role.USER or message.type is not ItemType.MESSAGE:
            continue
        for dimension, leaning, (start, end) in _interests(message.memory, template):
            if leaning in (Sentiment.MENTIONS, Sentiment.LIKES):
                evidence = shown.setdefault((trait_key(message.speaker, dimension.id), dimension.id), [])
                # The same words again are not more evidence.
                if all(_folded(known.memory) != _folded(message.memory) for known, _ in evidence):
                    evidence.append((message, Span(message.id, start, end)))
    for (_, name), evidence in shown.items():
        if len(evidence) >= _LEAST_MESSAGES:
            yield _interest(template.by_id[name], evidence)


def _interest(dimension: Dimension, evidence: Sequence[tuple[Item, Span]]) -> Fact:
    times = [said_at(message) for message, _ in evidence]
    subject = evidence[0][0].speaker
    untrusted = any(is_untrusted(message) for message, _ in evidence)
    found = Fact(
        type=ItemType.PROFILE,
        memory="",
        spans=tuple(span for _, span in evidence),
        subject=subject,
        reader=READER,
        said_at=max(times),
        confidence=interest_confidence(len(evidence)),
        valid_from=min(times),
        trust=Trust.UNTRUSTED if untrusted else Trust.TRUSTED,
    )
    return trait(subject, dimension, Sentiment.MENTIONS.value, found)


def event_time(item: Item) -> datetime:
    return item.valid_from or said_at(item)


def said_at(message: Item) -> datetime:
    return message.said_at or message.created_at


def is_untrusted(message: Item) -> bool:
    return any(source.trust is Trust.UNTRUSTED for source in message.sources)


def _interests(text: str, template: Template) -> Iterator[tuple[Dimension, Sentiment, tuple[int, int]]]:
    seen: set[str] = set()
    lexicon = _lexicon(template)
    for clause in clauses(text[:_SCAN_CHARS]):
        for dimension, words in lexicon:
            if dimension.id not in seen and words.search(text, clause.start, clause.end):
                seen.add(dimension.id)
                start, end = clause.sentence
                start += len(text[start:end]) - len(text[start:end].lstrip())
                yield dimension, clause.leaning, (start, end)


@lru_cache(maxsize=64)
def _lexicon(template: Template) -> tuple[tuple[Dimension, re.Pattern[str]], ...]:
    return tuple((each, _pattern(each.words)) for each in template.dimensions() if each.words)


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    spaced = [re.escape(word) for word in words if not _HAN.search(word)]
    run = [re.escape(word) for word in words if _HAN.search(word)]  # written without spaces around words
    options = ([rf"(?<!\w)(?:{'|'.join(spaced)})(?:e?s)?(?!\w)"] if spaced else []) + run
    return re.compile("|".join(options), re.IGNORECASE)


def _joined(found: Sequence[Fact]) -> list[Fact]:
    by_value: dict[tuple[str | None, str, datetime | None], Fact] = {}
    for fact in found:
        name = (fact.key, _folded(fact.value or ""), fact.valid_to)
        known = by_value.get(name)
        if known is None:
            by_value[name] = fact
            continue
        by_value[name] = replace(
            known,
            spans=tuple(dict.fromkeys(known.spans + fact.spans)),
            confidence=max(known.confidence, fact.confidence),
            said_at=max(known.said_at, fact.said_at),
            valid_from=min((at for at in (known.valid_from, fact.valid_from) if at is not None), default=None),
            trust=Trust.UNTRUSTED if Trust.UNTRUSTED in (known.trust, fact.trust) else Trust.TRUSTED,
        )
    leaning = {fact.key for fact in by_value.values() if fact.value in (Sentiment.LIKES, Sentiment.DISLIKES)}
    return [fact for fact in by_value.values() if fact.value != Sentiment.MENTIONS or fact.key not in leaning]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
