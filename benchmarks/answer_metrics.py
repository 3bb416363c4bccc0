"""How near an answer comes to the gold: token F1, exact match, containment of facts, and whether it declines; pure.

Words are compared as SQuAD does (Rajpurkar et al., EMNLP 2016): lower case, no punctuation, no articles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ARTICLES = frozenset({"a", "an", "the"})
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        """
        of to in on at by for from with and or but is are was were be been do does did has have had i you he she they it
        we my your his her their its our me him them us this that these those there as so not no
        """,
    )
)
_WHAT = r"(?:specific |direct |enough |any )*(?:information|mention|record|memory|details?)"
_DECLINES = re.compile(
    rf"\b(?:do|does|did)(?: not|n['’]t) (?:know|remember|recall|mention|have {_WHAT})"
    rf"|\b(?:no|any|not enough) {_WHAT}\b"
    r"|\b(?:is|was|are|were)(?: not|n['’]t) (?:mentioned|specified|stated|provided|known|given)\b"
    r"|\b(?:not sure|unknown|unable to)\b|\b(?:cannot|can['’]t) (?:answer|determine|tell|provide)\b"
    r"|\bnothing (?:is|was) (?:said|known|remembered)\b",
    re.IGNORECASE,
)


def words_of(text: str) -> list[str]:
    """Return the words of a text, without articles."""
    return [word for word in _WORD.findall(text.casefold().replace("’", "'")) if word not in _ARTICLES]


def token_f1(answer: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over words, each counted as often as it occurs."""
    said, wanted = Counter(words_of(answer)), Counter(words_of(gold))
    shared = (said & wanted).total()
    return 2 * shared / (said.total() + wanted.total()) if shared else 0.0


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if both have the same words in the same order."""
    return float(words_of(answer) == words_of(gold))


def containment(answer: str, facts: Sequence[str], question: str = "") -> float | None:
    """Return how much of the facts' content words an answer contains, averaged over facts.

    Words that the question has too prove nothing, so they do not count; None if no fact has others.
    """
    said, asked = set(words_of(answer)), set(words_of(question))
    shares = []
    for fact in facts:
        wanted = {word for word in words_of(fact) if word not in _EMPTY} - asked
        if wanted:
            shares.append(len(wanted & said) / len(wanted))
    return sum(shares) / len(shares) if shares else None


def declines(answer: str) -> bool:
    """Return True if an answer says that it does not know."""
    return _DECLINES.search(answer) is not None
