"""Says whether two short texts state the same: shared words, equal numbers, names and negations. Pure.

Cosines alone cannot: "I have two cats" and "I have three cats" are nearly one direction (docs/log.md).
"""

from __future__ import annotations

import re

from memos.text.entities import entities

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_HAN = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|stopped|quit|avoid\w*|hate\w*|dislike\w*|"
    r"refuse\w*|former|formerly|ex|used to|no longer)\b|n['’]t\b|不|没|别|无|讨厌|以前|曾经",
    re.IGNORECASE,
)
_COUNTED = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_NUMBERS = {word: str(number) for number, word in enumerate(_COUNTED.split())}
# Words that carry no content between two statements of a fact.
_EMPTY = frozenset(
    """
    a an the i i'm i've i'd i'll me my mine we our us am is are was were be been being do does did have has had it its
    it's to of in on at by for from with and or that this so just really very also too quite now still currently
    actually well oh yes yeah you know think guess would will can could there here as about
    """.split()  # noqa: SIM905 - quoting each word says less
)


def words(text: str) -> frozenset[str]:
    """Return the content words of a text, folded, plural s taken off; of Chinese and Japanese pairs of characters."""
    found: set[str] = set()
    folded = text.casefold().replace("’", "'")
    for word in _WORD.findall(folded):
        if _HAN.search(word):
            found.update(word[place : place + 2] for place in range(max(1, len(word) - 1)))
        elif word not in _EMPTY:
            found.add(_NUMBERS.get(word, _stem(word)))
    return frozenset(found)


def _stem(word: str) -> str:
    """Take off the endings that two statements of one fact differ by most: "moved", "moving", "moves"."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard index of two sets of words, 0 when both are empty."""
    either = len(one | other)
    return len(one & other) / either if either else 0.0


def contradicts(one: str, other: str) -> bool:
    """Say that two texts cannot be the same statement: another number, another name, or only one of them denies."""
    if _numbers(one) != _numbers(other) or bool(_NEGATION.search(one)) != bool(_NEGATION.search(other)):
        return True
    names, others = _names(one), _names(other)
    # One may leave a name out that the other says; each with a name of its own are two statements.
    return bool(names - others) and bool(others - names)


def _numbers(text: str) -> frozenset[str]:
    return frozenset(word for word in words(text) if word.isdigit()) | frozenset(re.findall(r"\d+(?:[.,:]\d+)*", text))


def _names(text: str) -> frozenset[str]:
    return frozenset(name.casefold() for name in entities(text))
