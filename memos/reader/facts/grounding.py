"""Check a model's facts against the messages: quotes, numbers, addresses, names and dates.

A fact without a quote, or with a number or address of its own, is rejected; an unknown name or date is a doubt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from memos.core.text.matching import addresses, entities, find_passage, folded, numbers, shared_words, stems
from memos.core.text.times import time_expressions
from memos.core.types import Item, Role, Span, Trust


def said_at(item: Item) -> datetime:
    return item.said_at or item.created_at


def trust_of(items: Sequence[Item]) -> Trust:
    doubtful = any(source.trust is Trust.UNTRUSTED for item in items for source in item.sources)
    return Trust.UNTRUSTED if doubtful else Trust.TRUSTED


SHOWN_CHARS = 4_000
"""Characters of a message that a model is shown."""

NO_SUCH_NAME = "it names somebody or something that the messages do not name"
NO_SUCH_DATE = "its date is in none of the messages"

_NAME_CHARS = 80
_QUOTE_SIGNS = 4
_DAY = timedelta(days=1)
_ENDING = 2
_STEM = 4
# Below this share of common words a fact says something else than its quote.
_SHARED = 0.5


@dataclass(frozen=True)
class Shown:
    """The text a model was shown, to check its answer: `messages` are numbered from 1, `context` is not numbered."""

    messages: Sequence[Item]
    zone: ZoneInfo
    context: Sequence[Item] = ()

    # Worked out once, not for each of two hundred facts: a window may have a hundred thousand characters.

    @cached_property
    def doubtful(self) -> bool:
        return trust_of(self.everything) is Trust.UNTRUSTED

    @cached_property
    def only_pages_say(self) -> set[str]:
        pages = [each for each in self.everything if trust_of([each]) is Trust.UNTRUSTED]
        others = [f"{each.speaker} {subject_head(each)}" for each in self.everything if each not in pages]
        return set[str]().union(*(stems(subject_head(each)) for each in pages)).difference(*map(stems, others))

    @cached_property
    def everything(self) -> list[Item]:
        return [*self.context, *self.messages]

    @cached_property
    def words(self) -> str:
        return folded("\n".join(f"{each.speaker}\n{subject_head(each)}" for each in self.everything))

    @cached_property
    def numbers(self) -> set[str]:
        return {number for each in self.everything for number in numbers(subject_head(each), words=True)}

    @cached_property
    def times(self) -> list[tuple[datetime, datetime]]:
        return [
            (time.valid_from, time.valid_to)
            for each in self.everything
            for time in time_expressions(subject_head(each), said_at(each), self.zone)
        ]

    def numbered(self, number: int) -> Item | None:
        return self.messages[number - 1] if 1 <= number <= len(self.messages) else None


def subject_head(item: Item) -> str:
    return item.memory[:SHOWN_CHARS]


def quoted(quote: str, item: Item) -> Span | None:
    """Return the quoted passage of a message; a single word of a longer message is not enough."""
    text = subject_head(item)
    place = find_passage(quote, text)
    if place is None or (len(folded(quote)) < _QUOTE_SIGNS and folded(quote) != folded(text)):
        return None
    return Span(item.id, *place)


def subject_of(name: str, item: Item, shown: Shown) -> str | None:
    """Return the speaker, or a name that occurs in the messages; None for anybody else."""
    plain = " ".join(name.split())
    if not plain or len(plain) > _NAME_CHARS:
        return None
    for speaker in dict.fromkeys([item.speaker, *(each.speaker for each in shown.everything)]):
        if speaker.casefold() == plain.casefold():
            return speaker
    if plain.casefold() in (Role.USER, Role.ASSISTANT):
        speakers = list(dict.fromkeys(each.speaker for each in shown.everything if each.role == plain.casefold()))
        if item.speaker in speakers:
            return item.speaker
        return speakers[0] if len(speakers) == 1 else None
    if plain[0].islower() or not plain[0].isalpha():
        return None
    return plain if is_named(plain, shown.everything) else None


def is_named(name: str, items: Sequence[Item]) -> bool:
    named = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)" if name[:1].isascii() else re.escape(name))
    return any(named.search(subject_head(each)) or each.speaker.casefold() == name.casefold() for each in items)


def is_supported(text: str, item: Item, zone: ZoneInfo) -> bool:
    """Return True if a message, or its date, contains every number and address of a text."""
    if not addresses(text) <= addresses(subject_head(item)):
        return False
    wanted = numbers(text) - numbers(subject_head(item), words=True) - numbers(item.speaker)
    return not wanted or wanted <= _days(subject_head(item), said_at(item), zone)


def unknown_name(text: str, shown: Shown) -> bool:
    """Return True if a text has a name that no message contains; a capitalised first word does not count."""
    for name in entities(text):
        words = [word.removesuffix("'s").removesuffix("’s") for word in name.split()]
        if text.startswith(name):
            words = words[1:]
        if any(_stem(word) not in shown.words for word in words):
            return True
    return False


def _stem(word: str) -> str:
    signs = folded(word)
    return signs[: max(_STEM, len(signs) - _ENDING)]


def is_dated(moment: datetime, item: Item, shown: Shown) -> bool:
    """Return True if a message names the day or was said on it, or has its year or day number."""
    day = local(moment, shown.zone)
    own = local(said_at(item), shown.zone)
    if day is None or (own is not None and own.date() == day.date()):
        return True
    if str(day.day) in numbers(subject_head(item), words=True) or str(day.year) in shown.numbers:
        return True
    return any(since - moment <= _DAY and moment - until <= _DAY for since, until in shown.times)


def _days(text: str, at: datetime, zone: ZoneInfo) -> set[str]:
    moments = [at]
    for time in time_expressions(text, at, zone):
        moments += [time.valid_from, time.valid_to - _DAY]
    shown = [moment for each in moments if (moment := local(each, zone)) is not None]
    return {str(part) for each in shown for part in (each.year, each.month, each.day)}


def local(moment: datetime, zone: ZoneInfo) -> datetime | None:
    try:
        return moment.astimezone(zone)
    except OverflowError:  # the calendar's first or last hours, in a zone beyond them
        return None


def trust_in(text: str, span: Span, item: Item, shown: Shown, *, orders: bool = False) -> Trust:
    """Return the trust of a fact: the message's or, if a page may have instructed the model, the quote's."""
    # An instruction must not contain a word that only a page said.
    if orders and shown.only_pages_say & stems(text):
        return Trust.UNTRUSTED
    if shown.doubtful and shared_words(text, f"{item.memory[span.start : span.end]} {item.speaker}") < _SHARED:
        return Trust.UNTRUSTED
    return trust_of([item])
