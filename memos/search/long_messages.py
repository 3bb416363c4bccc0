"""Put the newest first of long messages that answer a question alike.

A long message says many things, so that relations are judged between short ones alone (`memos.memcube.relations`). Of
each long message, the sentence with most of the question's words stands for it; whether the newer of two such sentences
replaces the older is judged when it is asked for, by six features. Weights by `scripts/long_messages/fit.py`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from memos.core.text.caches import cached_by_text
from memos.core.text.claims import read_claim, terms_of
from memos.core.types import ItemType, Role
from memos.search.question import Intent, Question
from memos.search.rank import Ranked

LONG = 30  # words from which no relation of a message is judged
_SHORTEST = 10  # words of the other message of a pair
_READ = 2_000  # characters of a message
_LEAST_COVERED = 0.2  # share of the question's words, weighted by rarity, that one of both sentences has

_CODE = re.compile(r"```.*?(?:```|\Z)", re.S)
_BREAK = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
_NEVER = re.compile(r"\b(?:never|haven['’]t|hasn['’]t|not yet|nie|noch nicht|nunca|jamás)\b|从来?[没不]", re.I)
_WHETHER = re.compile(
    r"^\W*(?:have|has|had|did|do|does|am|is|are|was|were|habe?|hat|hast|bin|ist|sind|war)\b|[吗嗎]\W*$",
    re.I,
)
_WHICH = re.compile(
    r"^\W*(?:what|how (?:many|much|often|long|old|far|big)|when|which|where|who|was|wie ?viele?|wann|welche\w*|wo|wer|"
    r"qué|cuánt\w+|cuándo|cuál|dónde|quién)\b|多少|几|什么|哪|谁",
    re.I,
)
# A question about two moments wants what was said of both.
_TWO_TIMES = re.compile(
    r"\bbetween\b|\bhow long did\b|\bfirst\b|\border\b|\bhow (?:did|has|have)\b|\bhow many (?:days|weeks|months)\b",
    re.I,
)
_HELP = re.compile(r"^\W*(?:show|explain|how (?:can|should|do|would|could) i|how to)\b", re.I)

# In the order of `features`: newer minus older coverage, lower coverage, shared words, word of change, "never" after a
# yes-or-no question, new number after a question for a value.
_WEIGHTS = (0.5, 4.43, 5.51, 1.51, 4.64, 3.73)
_BIAS = -6.95


class Said(NamedTuple):
    """The sentence of a message that says most of what is asked, and its share of the question's words."""

    sentence: str
    covered: float


def newest_of_long(order: list[Ranked], question: Question, considered: int) -> list[Ranked]:
    """Return the candidates, best first, with the newer of two long messages in the place of the older one.

    Only among the first `considered`; a question about before, a time, an order, two moments or what to do changes
    nothing.
    """
    text = question.text
    if question.spans or question.is_request or {Intent.FORMER, Intent.ORDER, Intent.FIRST} & question.intents:
        return order
    told = [(place, entry) for place, entry in enumerate(order[:considered]) if _is_told(entry)]
    if wants_no_newest(text) or not any(_is_long(entry) for _, entry in told):
        return order
    said = sentences_for(text, [entry.item.memory for entry in order[:considered]])
    in_time = sorted(told, key=lambda each: (each[1].item.said_at or 0, each[1].item.id))
    places = {place: float(place) for place, _ in told}
    for number, (older, was) in enumerate(in_time):
        for newer, now in in_time[number + 1 :]:
            if places[newer] < places[older] or not (_is_long(was) or _is_long(now)):
                continue
            if was.item.speaker == now.item.speaker and replaces(text, said[older], said[newer]) > 0:
                places[newer] = places[older] - 1e-6
    if all(places[place] == place for place in places):
        return order
    head = sorted(range(min(considered, len(order))), key=lambda place: (places.get(place, float(place)), place))
    return [*(order[place] for place in head), *order[considered:]]


def wants_no_newest(question: str) -> bool:
    """Return True for a question about two moments, or about what to do."""
    return bool(_TWO_TIMES.search(question) or _HELP.search(question))


def replaces(question: str, older: Said, newer: Said) -> float:
    """Return the log odds that the newer of two sentences replaces the older one as an answer."""
    if max(older.covered, newer.covered) < _LEAST_COVERED:
        return -math.inf
    return _BIAS + math.fsum(w * x for w, x in zip(_WEIGHTS, features(question, older, newer), strict=True))


def features(question: str, older: Said, newer: Said) -> list[float]:
    """Return what two sentences tell of whether the newer replaces the older; the order is that of the weights."""
    old, new = read_claim(older.sentence), read_claim(newer.sentence)
    another = bool(old.numbers) and bool(new.numbers - old.numbers)
    return [
        newer.covered - older.covered,
        min(newer.covered, older.covered),
        len(old.terms & new.terms) / max(1, len(old.terms)),
        float(new.changes),
        float(bool(_NEVER.search(newer.sentence)) and bool(_WHETHER.search(question))),
        newer.covered if another and _WHICH.search(question) else 0.0,
    ]


def sentences_for(question: str, messages: Sequence[str]) -> list[Said]:
    """Return the sentence of each message that says most of a question, whose words weigh by their rarity here."""
    asked = frozenset(terms_of(question))
    split = [_sentences(message) for message in messages]
    shared = [[_shared(sentence, asked) for sentence in each] for each in split]
    found = Counter(term for each in shared for term in frozenset().union(*each))
    weight = {term: math.log(1 + len(messages) / (0.5 + found[term])) for term in asked}
    total = sum(weight.values()) or 1.0
    best = []
    for each, terms in zip(split, shared, strict=True):
        covered = [sum([weight[term] for term in one]) / total for one in terms]
        most = max(covered, default=0.0)
        best.append(Said(each[covered.index(most)] if each else "", most))
    return best


def _shared(sentence: str, asked: frozenset[str]) -> frozenset[str]:
    """Return which of the stems that are asked for a sentence has."""
    low = sentence.casefold()
    if not any(term in low for term in asked):  # a stem is the beginning of a word
        return frozenset()
    return frozenset(terms_of(sentence)) & asked


@cached_by_text(maxsize=1024)
def _sentences(message: str) -> tuple[str, ...]:
    """Return the sentences of a message without its code."""
    return tuple(part for part in _BREAK.split(_CODE.sub(" ", message[:_READ])) if part.strip())


def _is_told(entry: Ranked) -> bool:
    item = entry.item
    return item.type == ItemType.MESSAGE and item.role == Role.USER and read_claim(item.memory).count > _SHORTEST


def _is_long(entry: Ranked) -> bool:
    return read_claim(entry.item.memory).count > LONG
