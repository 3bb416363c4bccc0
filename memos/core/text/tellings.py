"""Finds what a sentence tells of its speaker, of the speaker's people, plans and past that lasts, by pattern. Pure.

Beside `statements`, which have a key: what is found here has none. English and Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import ModuleType

from memos.core.text import disclosures_chinese as telling_chinese
from memos.core.text import disclosures_english as telling_english

_SCAN_CHARS = 1_000
_HAN = re.compile(r"[\u4e00-\u9fff]")


class Kind(StrEnum):
    """What a telling is about."""

    SELF = "self"
    RELATION = "relation"
    EVENT = "event"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Telling:
    """The characters `start` to `end` of a sentence tell something of that kind."""

    kind: Kind
    start: int
    end: int


def _joined(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_KINDS = (Kind.SELF, Kind.RELATION, Kind.EVENT, Kind.PLAN)


@cache
def _patterns(words: ModuleType) -> Mapping[Kind, re.Pattern[str]]:
    """Return a language's pattern of each kind; making them takes a fifth of the time a short command has."""
    spoken = (words.SELF, words.RELATIONS, words.EVENTS, words.PLANS)
    return {kind: _joined(patterns) for kind, patterns in zip(_KINDS, spoken, strict=True)}


# Where a telling can begin; trying hundreds of alternatives at every letter takes eight times as long.
_STARTS = re.compile(
    r"\b(?:I['’]?(?:m|ve|d|ll)?|we|my|our|every|me)\b|\b(?-i:[A-Z])[\w'’\-]*(?= (?:is|and)\b)|^\W*", re.IGNORECASE
)
_HAN_ABOUT = re.compile(r"[我咱俺]|老家|家里|手机|电话|微信|邮箱|地址|号码|^(?:好消息是|对了|告诉你|刚|终于|已经|成功)")
# "I never had a dog", "I wasn't born here": what is not so is not told.
_DENIED = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bno longer|\bwish|\bas if|\blike|\bthan|\bwhen|\bpretend\w*|\bthink|\bthought)"
    r"\s*$",
    re.IGNORECASE,
)


def tellings(sentence: str) -> list[Telling]:
    """Return what a sentence tells that lasts, in order, no two at one place; only its first 1,000 characters count."""
    head = sentence[:_SCAN_CHARS]
    han = _HAN.search(head) is not None
    words = telling_chinese if han else telling_english
    if words.UNSETTLED.search(head) or (han and _HAN_ABOUT.search(head) is None):
        return []
    found = sorted(_in_chinese(head) if han else _in_english(head), key=lambda each: (each.start, -each.end))
    near = words.NEAR.search(head) is not None
    kept: list[Telling] = []
    for each in found:
        if (each.kind is not Kind.PLAN or not near) and (not kept or each.start >= kept[-1].end):
            kept.append(each)
    return kept


def _in_english(head: str) -> Iterator[Telling]:
    places = {0, *(match.start() for match in _STARTS.finditer(head))}
    for kind, pattern in _patterns(telling_english).items():
        for place in places:
            if (match := pattern.match(head, place)) is not None:
                yield from _told(kind, match)


def _in_chinese(head: str) -> Iterator[Telling]:
    for kind, pattern in _patterns(telling_chinese).items():
        for match in pattern.finditer(head):
            yield from _told(kind, match)


def _told(kind: Kind, match: re.Match[str]) -> Iterator[Telling]:
    if match.end() > match.start() and not _DENIED.search(match.string[: match.start()]):
        yield Telling(kind, match.start(), match.end())
