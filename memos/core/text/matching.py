"""Says whether two short texts state the same: shared words, equal numbers, names and negations. Pure.

Cosines alone cannot: "I have two cats" and "I have three cats" are nearly one direction (docs/log.md).
"""

from __future__ import annotations

import re
import unicodedata

from memos.core.text.entities import entities

_DASHES = re.compile(r"(?<=\w)[-‐‑‒–](?=\w)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_HAN = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|stopped|quit|avoid\w*|hate\w*|dislike\w*|"
    r"refuse\w*|former|formerly|ex|used to|no longer)\b|\w*n['’]t\b|不|没|别|无|讨厌|以前|曾经",
    re.IGNORECASE,
)
_INTENTION = re.compile(
    r"\b(?:want\w*|would like|['’]d like|plan(?:s|ning|ned)?|hop(?:e|es|ing)|wish\w*|going to|gonna|will|might|may|"
    r"dream\w*|thinking of|considering)\b|['’]ll\b|想|打算|希望|计划",
    re.IGNORECASE,
)
_IS = re.compile(r"\b(?:am|is|are)\b|['’](?:m|re)\b", re.IGNORECASE)
_WAS = re.compile(r"\b(?:was|were|had been)\b", re.IGNORECASE)
_COUNTED = """
zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_NUMBERS = {word: str(number) for number, word in zip((0, *range(2, 21)), _COUNTED.split(), strict=True)}
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")
# Words that carry no content between two statements of a fact.
_EMPTY = frozenset(
    """
    a an the i i'm i've i'd i'll me my mine we our us am is are was were be been being do does did have has had it its
    it's one all to of in on at by for from with and or that this so just really very also too quite now still currently
    actually well oh yes yeah you know think guess would will can could there here as about
    """.split()  # noqa: SIM905 - quoting each word says less
)


def plain(value: str | None) -> str:
    """Return a value as values are compared: "Saint-Denis" is "Saint Denis", however its letters are encoded."""
    composed = unicodedata.normalize("NFKC", value or "").casefold().replace("’", "'")
    return " ".join(_DASHES.sub(" ", composed).split()).strip(" .,!?'\"")


def words(text: str) -> frozenset[str]:
    """Return the content words of a text, folded, endings taken off; of Chinese and Japanese the characters."""
    found: set[str] = set()
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    for word in _WORD.findall(folded):
        if _HAN.search(word):
            found.update(word)
        elif word not in _EMPTY and not _NEGATION.fullmatch(word):
            found.add(_NUMBERS.get(word, _stem(word)))
    return frozenset(found)


def _stem(word: str) -> str:
    """Take off the endings that two statements of one fact differ by most: "moved", "moving", "moves"."""
    if word.endswith(("ied", "ies")):
        return f"{word[:-3]}y"
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard index of two sets of words, 0 when both are empty."""
    either = len(one | other)
    return len(one & other) / either if either else 0.0


def covered(one: frozenset[str], other: frozenset[str]) -> float:
    """Return which part of the smaller set's words the larger one has: below 1 each says something of its own."""
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def contradicts(one: str, other: str) -> bool:
    """Say that two texts cannot be the same statement.

    They have another number, another name, only one denies or intends, or one tells what is and the other what was.
    """
    if _numbers(one) != _numbers(other):
        return True
    if any(bool(sign.search(one)) != bool(sign.search(other)) for sign in (_NEGATION, _INTENTION)):
        return True
    if (_IS.search(one) and _only_was(other)) or (_IS.search(other) and _only_was(one)):
        return True
    names, others = _names(one), _names(other)
    # One may leave a name out that the other says; each with a name of its own are two statements.
    return bool(names - others) and bool(others - names)


def _only_was(text: str) -> bool:
    return _WAS.search(text) is not None and _IS.search(text) is None


def _numbers(text: str) -> frozenset[str]:
    counted = {number for word, number in zip("一二三四五六七八九", "123456789", strict=True) if word in text}
    return frozenset(word for word in words(text) if word.isdigit()) | frozenset(_DIGITS.findall(text)) | counted


def _names(text: str) -> frozenset[str]:
    return frozenset(plain(name) for name in entities(unicodedata.normalize("NFC", text)))
