"""Of a statement that says several things, tell which of them a question asks, and which a newer statement changes.

"I live in Paris and work at Bosch." is not outdated by "I moved to Lyon." for who asks where I work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memos.core.text.caches import cached_by_text
from memos.core.text.frames import VERB_FORMS, Contrast, contrast_of, tells_the_same, verb_at, without_title_dots
from memos.core.text.matching import words

_CHARS = 600
_MOST = 12
_MOST_COMPARED = 6
_JOINT = re.compile(
    r"[.!?;,]+\s+|\n+|\s+[–—]\s+|\s+(?:and|but|while|und|aber|y|pero|et|mais)\s+|[，。；！？、]",
    re.IGNORECASE,
)
_NEW_VALUE = (Contrast.VALUE, Contrast.LIKELY)
_VERBS = words(" ".join(VERB_FORMS))
_NO_CHANGE = (Contrast.OTHER, Contrast.APART, Contrast.TOGETHER)


def concerns_another_clause(question: str, older: str, newer: str) -> bool:
    """Return True if a question asks one clause of `older`, and `newer` tells of another."""
    parts = clauses(older)
    if len(parts) < 2:
        return False
    asked = _most_alike(parts, _hints(question))
    return asked is not None and (told := _changed_by(parts, newer)) is not None and told != asked


def changes_a_clause(older: str, newer: str) -> bool:
    """Return True if one of several clauses of either statement gives an attribute another value.

    "Hi, I'm Ana, I work at Canva and love hiking." … "I started at Figma."
    """
    parts, told = clauses(older)[:_MOST_COMPARED], clauses(newer)[:_MOST_COMPARED]
    if len(parts) < 2 and len(told) < 2:
        return False
    return any(contrast_of(part, each) is Contrast.VALUE for part in parts for each in told)


def tells_it_of_others(older: str, newer: str) -> bool:
    """Return True if no clause of `older` tells of what `newer` does, or only of somebody else.

    "My friend is called Priya, she lives in Manchester." … "I moved to Manchester."
    """
    parts = clauses(older)[:_MOST_COMPARED]
    contrasts = [contrast_of(part, newer) for part in parts]
    if len(parts) < 2 or all(contrast in (Contrast.OTHER, Contrast.APART) for contrast in contrasts):
        return len(parts) > 1
    same = [each for part, each in zip(parts, contrasts, strict=True) if tells_the_same(part, newer)]
    return bool(same) and all(contrast is Contrast.OTHER for contrast in same)


@cached_by_text(maxsize=4096)
def clauses(text: str) -> tuple[str, ...]:
    """Return the clauses of a text, each with a subject where it takes that of the one before."""
    found: list[str] = []
    subject = ""
    for part in _JOINT.split(without_title_dots(text[:_CHARS]))[:_MOST]:
        said = part.strip()
        if not words(said):
            continue
        place = verb_at(said)
        if place == 0:
            said = f"{subject} {said}".strip()
        elif place is not None:
            subject = " ".join(said.split()[:place])
        found.append(said)
    return tuple(found)


def _changed_by(parts: Sequence[str], newer: str) -> int | None:
    """Return the place of the clause that a newer statement is about, None if it could be several."""
    contrasts = [contrast_of(part, newer) for part in parts]
    valued = [place for place, contrast in enumerate(contrasts) if contrast in _NEW_VALUE]
    if len(valued) == 1:
        return valued[0]
    told = _most_alike(parts, words(newer) - _VERBS)
    if told is not None:
        return told
    open_ = [place for place, contrast in enumerate(contrasts) if contrast not in _NO_CHANGE]
    return open_[0] if len(open_) == 1 else None


def _hints(text: str) -> frozenset[str]:
    """Return the content words of a text, and "from" and "old" for where somebody is from and an age."""
    more = {"from"} if _FROM.search(text) else set[str]()
    if _AGE.search(text):
        more.add("old")
    return words(text) | more


_FROM = re.compile(r"\b(?:from|aus|desde|viens)\b", re.IGNORECASE)
_AGE = re.compile(r"^\d{1,3}$|\b(?:how old|years old|my age|aged|wie alt|jahre alt)\b", re.IGNORECASE)


def _most_alike(parts: Sequence[str], sought: frozenset[str]) -> int | None:
    """Return the place of the clause that shares most words, None if no clause does more than all others."""
    shared = [len(_hints(part) & sought) for part in parts]
    most = max(shared)
    return shared.index(most) if most and shared.count(most) == 1 else None
