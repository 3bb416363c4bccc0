"""Put the newest first of long messages that answer a question alike.

A long message says many things, so that relations are judged between short ones alone (`memos.memcube.relations`). Of
each long message, the sentence with most of the question's words stands for it; whether the newer of two such sentences
replaces the older is judged when it is asked for, by six features. Weights by `scripts/long_messages/fit.py`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from memos.core.text.caches import cached_by_text
from memos.core.text.claims import read_claim, terms_of
from memos.core.text.sentences import sentences, without_pasted_text
from memos.core.types import ItemType, Role
from memos.memcube.relations import MOST_WORDS
from memos.search.question import Intent, Question
from memos.search.rank import Ranked

_SHORTEST = 10  # words of the other message of a pair
_READ = 2_000  # characters of a message
_LEAST_COVERED = 0.2  # share of the question's words, weighted by rarity, that one of both sentences has

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
    r"\bbetween\b|\bhow long did\b|\bhow (?:did|has|have)\b|\bhow many (?:days|weeks|months)\b", re.I
)

# In the order of `features`: newer minus older coverage, lower coverage, shared words, word of change, "never" after a
# yes-or-no question, new number after a question for a value; and the bias.
WEIGHTS = (0.48, 4.42, 5.5, 1.51, 4.64, 3.71, -6.94)

_JUST_BEFORE = 1e-6


class Said(NamedTuple):
    """The place of the sentence of a message that says most of what is asked, and its share of the question's words."""

    message: str
    place: int
    covered: float

    @property
    def sentence(self) -> str:
        return next(iter(_sentences(self.message)[self.place :]), "")


def newest_of_long(order: list[Ranked], question: Question, considered: int) -> list[Ranked]:
    """Return the candidates, best first, with the newer of two long messages in the place of the older one.

    Only the first `considered` change places.
    """
    if not wants_newest(question):
        return order
    first = order[:considered]
    said = sentences_for(question.text, [entry.item.memory for entry in first])
    told = [place for place, entry in enumerate(first) if _is_told(entry)]
    told.sort(key=lambda place: (first[place].item.said_at or 0, first[place].item.id))

    def replaced(older: int, newer: int) -> bool:
        was, now = first[older], first[newer]
        return (
            was.item.speaker == now.item.speaker
            and (has_no_relations(was) or has_no_relations(now))
            and log_odds(question.text, said[older], said[newer]) > 0
        )

    places = newest_places(told, replaced)
    head = sorted(range(len(first)), key=lambda place: (places.get(place, float(place)), place))
    return [*(order[place] for place in head), *order[considered:]]


def newest_places(told: Sequence[int], replaced: Callable[[int, int], bool]) -> dict[int, float]:
    """Return the new places of candidates, each newer one just before the first of the older ones that it replaces.

    Args:
        told: Places of the candidates, in the order in which they were said.
        replaced: Whether the candidate at the first place is replaced by the one at the second.
    """
    places = {place: float(place) for place in told}
    for number, older in enumerate(told):
        for newer in told[number + 1 :]:
            if places[newer] >= places[older] and replaced(older, newer):
                places[newer] = places[older] - _JUST_BEFORE
    return places


def wants_newest(question: Question) -> bool:
    """Return False for a question about before, a time, an order or two moments, and for a request."""
    other = {Intent.FORMER, Intent.ORDER, Intent.FIRST} & question.intents
    return not (other or question.of_then or question.is_request or _TWO_TIMES.search(question.text))


def has_no_relations(entry: Ranked) -> bool:
    """Return True for a message that is too long for relations to be judged."""
    return read_claim(entry.item.memory).count > MOST_WORDS


def log_odds(question: str, older: Said, newer: Said, weights: Sequence[float] = WEIGHTS) -> float:
    """Return the log odds that the newer of two sentences replaces the older one as an answer."""
    if max(older.covered, newer.covered) < _LEAST_COVERED:
        return -math.inf
    return math.fsum(w * x for w, x in zip(weights, [*features(question, older, newer), 1.0], strict=True))


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
    shared = [_shared_by_sentence(message, asked) for message in messages]
    found = Counter(term for each in shared for term in frozenset().union(*each))
    weight = {term: math.log(1 + len(messages) / (0.5 + found[term])) for term in asked}
    total = math.fsum(weight.values()) or 1.0
    best = []
    for message, each in zip(messages, shared, strict=True):
        covered = [math.fsum(weight[term] for term in terms) / total for terms in each]
        most = max(covered, default=0.0)
        best.append(Said(message, covered.index(most) if covered else 0, most))
    return best


def _shared_by_sentence(message: str, asked: frozenset[str]) -> list[frozenset[str]]:
    """Return which of the stems that are asked for each sentence has; nothing for a message without any of them."""
    low = message[:_READ].casefold()
    return [_shared(each, asked) for each in _sentences(message)] if any(term in low for term in asked) else []


def _shared(sentence: str, asked: frozenset[str]) -> frozenset[str]:
    """Return which of the stems that are asked for a sentence has."""
    low = sentence.casefold()
    if not any(term in low for term in asked):  # a stem is the beginning of a word
        return frozenset()
    return frozenset(terms_of(sentence)) & asked


@cached_by_text(maxsize=4096)
def _sentences(message: str) -> tuple[str, ...]:
    """Return the sentences of a message without what is pasted in it, such as code."""
    text = without_pasted_text(message[:_READ])
    return tuple(text[start:end] for start, end in sentences(text))


def _is_told(entry: Ranked) -> bool:
    item = entry.item
    return item.type == ItemType.MESSAGE and item.role == Role.USER and read_claim(item.memory).count > _SHORTEST
