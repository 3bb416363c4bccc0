"""Says of each clause of a text whether its speaker likes what it names, dislikes it or has left it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple


class Leaning(StrEnum):
    """How a speaker stands to what a clause names; the value of an interest that was found without a model."""

    LIKES = "likes"
    DISLIKES = "dislikes"
    MENTIONS = "talks about it"
    AWAY = "away"
    """It is denied, over or somebody's refusal: no sign of an interest, and none of a dislike."""


class Clause(NamedTuple):
    """Characters `start` to `end` of a text and how they lean; `sentence` is where their sentence starts and ends."""

    start: int
    end: int
    leaning: Leaning
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
_LIKES = re.compile(
    r"\b(?:lov(?:e|ed|ing)|like|enjoy(?:ed|ing)?|prefer|adore|fan of|favou?rite|passionate|keen on|into|crazy about"
    r"|interested in|obsessed)\b|喜欢|喜爱|热爱|爱好|最爱|着迷|感兴趣",
    re.IGNORECASE,
)


def clauses(text: str) -> Iterator[Clause]:
    """Yield the clauses of a text; one that leans nowhere leans as the one before it in its sentence."""
    for sentence in _SENTENCE.finditer(text):
        leaning = Leaning.MENTIONS
        for part in _CLAUSE.finditer(text, sentence.start(), sentence.end()):
            leaning = _leaning(part.group(0)) or leaning
            yield Clause(part.start(), part.end(), leaning, sentence.span())


def _leaning(text: str) -> Leaning | None:
    if _DISLIKES.search(text):
        return Leaning.DISLIKES
    if _AWAY.search(text):
        return Leaning.AWAY
    return Leaning.LIKES if _LIKES.search(text) else None
