"""Estimate the probability that a hit answers the question, from what a search knows of it and of the others.

Pure. Two logistic models over the best candidates: one of a hit, one of whether memory answers the question at all.
Fitted with folds over conversations on answerable and unanswerable questions; the mix, the reliability curve and
thresholds are in docs/reference/benchmarks/relevance.md. The cosines are MiniLM's: with another embedder the words
decide, and the numbers are not calibrated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter, mul
from typing import NamedTuple

from memos.core.text.claims import terms_of, words_of
from memos.core.text.instructions import instructs
from memos.core.text.languages import has_other_script, is_function_word, language_of
from memos.core.text.preferences import states_preference
from memos.core.types import RELEVANT, Arm, Role
from memos.memcube.ledger.entities import fold
from memos.memcube.ledger.timeline import LIKELY
from memos.memcube.standing import Replacement
from memos.search.question import Question
from memos.search.rank import TERM_ARMS, Ranked, asks, tells_nothing

_POOL = 20  # best candidates that are looked at
_FAR = 0.25  # cosine of what no vector arm recalled
_COSINES = frozenset({Arm.TURN.value, Arm.WINDOW.value, Arm.STANDING.value})
_TURN = Arm.TURN.value
_DATED = Arm.DATED.value
_STANDING = Arm.STANDING.value
_LIFTING = frozenset({_STANDING, Arm.OF_SELF.value})  # what they find holds on, whatever the question's words are
_WINDOW_WORDS = Arm.WINDOW_BM25.value
_MOST_TERM_SCORE = 4.0
_READ_CHARS = 600

# Weights in the order in which `_of_pool` and then `hit_features` give their features: for a question in English, and
# for one in another language, whose cosines are higher and tell less. Made by scripts/relevance/fit.py.
_ANSWERABLE = {
    "best_cosine": (8.192, 6.819),
    "third_cosine": (3.908, 2.074),
    "best_turn_terms": (-0.789, 0.332),
    "best_window_terms": (0.082, 0.880),
    "best_sum": (0.801, 0.477),
    "words_found": (-0.533, 1.235),
    "words_in_one": (1.186, 2.826),
    "words_missing": (-0.189, -0.351),
    "words": (1.097, 1.501),
    "terms": (-0.205, -0.204),
    "candidates": (-1.736, -1.558),
    "second_score": (-0.037, -0.081),
    "fifth_score": (-0.348, 0.451),
    "tenth_score": (-1.932, -1.866),
    "first_asks": (-1.489, -1.492),
    "some_lifted": (-1.334, -1.334),
    "median_cosine": (-5.401, -6.556),
    "request_cosine": (7.366, 7.366),
    "first_weighed": (1.465, 2.053),
    "most_weighed": (2.271, 1.788),
    "first_next": (-5.179, -4.442),
    "first_session": (-4.375, -1.520),
    "dated": (-2.885, -2.979),
    "dated_missing": (2.360, 2.267),
    "best_dated": (-0.136, -0.136),
    "dated_cosine": (14.984, 14.984),
    "bias": (-0.197, -1.096),
}
_HIT = {
    "best_cosine": (2.403, 1.909),
    "third_cosine": (0.558, -0.075),
    "best_turn_terms": (0.118, 0.766),
    "best_window_terms": (-0.080, -0.139),
    "best_sum": (0.016, -0.060),
    "words_found": (1.441, 2.849),
    "words_in_one": (0.676, 2.870),
    "words_missing": (0.082, -0.128),
    "words": (0.036, 0.491),
    "terms": (0.080, -0.020),
    "candidates": (-0.859, -0.859),
    "second_score": (-2.129, -1.904),
    "fifth_score": (-1.253, -0.026),
    "tenth_score": (-1.215, -0.378),
    "first_asks": (-0.012, -0.021),
    "some_lifted": (-0.063, -0.063),
    "median_cosine": (-1.194, -2.278),
    "request_cosine": (1.279, 1.279),
    "first_weighed": (-0.342, -0.329),
    "most_weighed": (-1.113, -4.273),
    "first_next": (-0.259, 0.174),
    "first_session": (0.127, 2.328),
    "dated": (1.320, 1.204),
    "dated_missing": (-1.848, -1.964),
    "best_dated": (-2.273, -2.273),
    "dated_cosine": (0.697, 0.697),
    "cosine": (1.686, 1.686),
    "turn_terms": (-0.309, -0.309),
    "window_terms": (0.335, 0.335),
    "words_covered": (0.630, 0.630),
    "score": (5.392, 5.392),
    "place": (-0.181, -0.181),
    "asks": (-3.888, -3.888),
    "assistant": (-1.754, -1.754),
    "lifted": (-0.094, -0.094),
    "answers": (0.281, 0.281),
    "next": (-2.428, -2.428),
    "session": (-1.360, -1.360),
    "weighed": (2.219, 2.219),
    "of_then": (2.192, 2.192),
    "bias": (-4.545, -5.774),
}

# Evidence is often spread over several hits, of which the lesser ones look like any other, and the best hit of a
# question without an answer looks like evidence. So the probability that there is an answer bounds the relevance of all
# hits: from below by this share of it, and from above by the same share until it is likely enough, then by a steep
# power of it. What stands, such as a preference, is found whatever the question's words are, and has no upper bound.
_SHARE = 0.15
_LIKELY_ENOUGH = RELEVANT / _SHARE
_STEEP = 6
_TELLS_NOTHING = 0.05  # of an acknowledgement or a system message
_REPLACED = 0.95  # of what another candidate surely replaces, of the relevance of that one at most

# For other languages than English: elided articles ("l'"), and interrogative words.
_ELIDED = re.compile(r"\b\w{1,5}['’](?=\w{3})|-")
_ASKS = words_of("""
    welch welche welcher welches welchem welchen wess wessen wohin woher wofür wogegen womit worauf woran wozu viel
    viele wieviel heißt heiß adónde cuánto cuánta cuántos cuántas combien lequel laquelle quels quelles quoi dove quanti
    quante quanto cosa che
    """)
_ASKS_HAN = re.compile("[哪什么谁几吗呢怎]")


class Weights(NamedTuple):
    """Weights of the two models, whether there is an answer and whether a hit is one, for English and for the rest."""

    answerable: Mapping[str, tuple[float, float]]
    hit: Mapping[str, tuple[float, float]]


WEIGHTS = Weights(_ANSWERABLE, _HIT)


class _Evidence(NamedTuple):
    """Scores and words of a candidate that its relevance is computed from.

    `cosine` is the best one. `turn_terms` and `window_terms` are the BM25 of the message and of its window, per term
    of the question. `dated` is the score by the time that the question names, None outside it. `covered` says which of
    the question's words are in its `text`, without case. `arms` are those that found it.
    """

    cosine: float
    turn_terms: float
    window_terms: float
    dated: float | None
    text: str
    covered: list[bool]
    arms: frozenset[str]


class Relevance:
    """The relevance of the candidates of one search, each from 0 to 1.

    Args:
       ranked: The candidates, best first.
       question: The question.
       terms: The number of terms that the term arms searched for.
       replaced: Which candidates replace which.
       weights: Other weights than those of the package, for `scripts/relevance/fit.py`.
    """

    def __init__(
        self,
        ranked: Sequence[Ranked],
        question: Question,
        terms: int,
        replaced: Sequence[Replacement] = (),
        weights: Weights = WEIGHTS,
    ) -> None:
        ranked = _as_before_succession(ranked)
        first = ranked[:_POOL]
        speakers = {entry.item.speaker.casefold() for entry in first}
        # A word of a merged name: who is told of under another name has none of it.
        speakers |= {word for each in question.merged for name in each.every for word in fold(name).split()}
        words = [term for term in dict.fromkeys(_asked_terms(question.text)) if not _names(term, speakers)]
        best = max((entry.score for entry in first), default=0.0)
        self._best = best if best > 0 else 1.0
        self._by_term = max(1, terms)
        self._words = words
        self._evidence: dict[str, _Evidence] = {}
        self._is_request = question.is_request
        count = len(first) + 1
        evidence = [self._evidence_of(entry) for entry in first]
        # A word that few of the candidates have tells more.
        covering = [sum(of_one) for of_one in zip(*[each.covered for each in evidence], strict=True)]
        self._weights = [math.log(count / (number + 0.5)) for number in covering] or [0.0] * len(words)
        self._total = sum(self._weights)
        self._places = {entry.item.id: place for place, entry in enumerate(ranked)}
        self._entries = {entry.item.id: entry for entry in ranked}
        self._newer = [each for each in replaced if {each.older, each.newer} <= self._places.keys()]
        self._spans = question.spans
        self.is_foreign = has_other_script(question.text) or language_of(question.text) != "english"
        answerable = [pair[self.is_foreign] for pair in weights.answerable.values()]
        of_hit = [pair[self.is_foreign] for pair in weights.hit.values()]
        self.pool_features = self._of_pool(first, evidence)
        self._answerable = _logistic(_dot(answerable, self.pool_features) + answerable[-1])
        # The same for all hits.
        self._of_all = _dot(of_hit, self.pool_features) + of_hit[-1]
        self._of_each = of_hit[len(self.pool_features) : -1]
        # Many alike are near each other and none stands out, but each has all that was asked for.
        stems = [word.removesuffix("s") for word in words]
        if len(words) > 1 and any(all(stem in each.text for stem in stems) for each in evidence):
            self._answerable = max(self._answerable, _LIKELY_ENOUGH * 1.05)
        self._most = _SHARE * self._answerable * max(1.0, self._answerable / _LIKELY_ENOUGH) ** _STEEP

    def of(self, entry: Ranked) -> float:
        """Return the relevance of a candidate: at least that of what it replaces, at most of what replaced it."""
        entry = self._entries.get(entry.item.id, entry)
        own = self._alone(entry)
        for each in self._newer:
            if each.newer == entry.item.id:
                own = max(own, each.confidence * self._alone(self._entries[each.older]))
        for each in self._newer:
            if each.older == entry.item.id and each.confidence >= LIKELY:
                newer = max(self._alone(self._entries[each.newer]), each.confidence * self._alone(entry))
                own = min(own, newer * (1 - each.confidence * (1 - _REPLACED)))
        return own

    def _alone(self, entry: Ranked) -> float:
        own = _logistic(self._of_all + _dot(self._of_each, self.hit_features(entry)))
        found = own + (1 - own) * _SHARE * self._answerable
        if not self._stands(entry):
            found = min(found, self._most)
        return found * _TELLS_NOTHING if tells_nothing(entry.item) else found

    def _of_pool(self, first: Sequence[Ranked], evidence: Sequence[_Evidence]) -> list[float]:
        telling = [each for entry, each in zip(first, evidence, strict=True) if not tells_nothing(entry.item)]
        telling = telling or [_Evidence(_FAR, 0.0, 0.0, None, "", [False] * len(self._words), frozenset())]
        cosines = sorted([each.cosine for each in telling], reverse=True)
        count = len(self._words)
        turns = [score for entry in first for arm, _, score, _ in entry.votes if arm == _TURN] or [_FAR]
        found = sum(map(any, zip(*[each.covered for each in telling], strict=True)))
        weighed = [self._weighed(each) for each in evidence] or [0.0]
        return [
            cosines[0],
            cosines[min(2, len(cosines) - 1)],
            max([each.turn_terms for each in telling]),
            max([each.window_terms for each in telling]),
            max([2.7 * each.cosine + 0.6 * each.turn_terms + 0.6 * each.window_terms for each in telling]),
            found / count if count else 0.5,
            max([sum(each.covered) for each in telling]) / count if count else 0.5,
            float(count - found),
            math.log1p(count),
            math.log1p(self._by_term),
            math.log1p(len(first)),
            *(max(0.0, first[min(place, len(first) - 1)].score / self._best) if first else 0.0 for place in (1, 4, 9)),
            asks(first[0].item) if first else 0.0,
            float(any(each.arms & _LIFTING for each in evidence[:10])),
            sorted(turns)[len(turns) // 2],
            cosines[0] if self._is_request else 0.0,
            weighed[0],
            max(weighed),
            self._boost(first[0], "next") if first else 0.0,
            self._boost(first[0], "session") if first else 0.0,
            *self._of_time(evidence),
        ]

    def _of_time(self, evidence: Sequence[_Evidence]) -> list[float]:
        """Return whether the question names a time, whether no candidate is of it, and the best of those that are."""
        if not self._spans:
            return [0.0, 0.0, 0.0, 0.0]
        found = [(each.dated, each.cosine) for each in evidence if each.dated is not None]
        best = max((score for score, _ in found), default=0.0)
        return [1.0, float(not found), best, max((cosine for _, cosine in found), default=0.0)]

    def hit_features(self, entry: Ranked) -> list[float]:
        """Return what the second model sees of a candidate, beside `pool_features`."""
        item = entry.item
        evidence = self._evidence_of(entry)
        return [
            evidence.cosine,
            evidence.turn_terms,
            evidence.window_terms,
            sum(evidence.covered) / len(self._words) if self._words else 0.5,
            max(0.0, min(1.3, entry.score / self._best)),
            math.log1p(self._places.get(item.id, _POOL)),
            asks(item),
            float(item.role == Role.ASSISTANT),
            float(bool(evidence.arms & _LIFTING)),
            float("answers" in [name for name, _ in entry.boosts]),
            self._boost(entry, "next"),
            self._boost(entry, "session"),
            self._weighed(evidence),
            evidence.dated or 0.0,
        ]

    def _evidence_of(self, entry: Ranked) -> _Evidence:
        known = self._evidence.get(entry.item.id)
        if known is not None:
            return known
        cosine = own = window = 0.0
        dated = None
        for arm, _, score, _ in entry.votes:
            if arm in _COSINES:
                cosine = max(cosine, score)
            elif arm == _WINDOW_WORDS:
                window = score / self._by_term
            elif arm in TERM_ARMS:
                own = max(own, score / self._by_term)
            elif arm == _DATED and dated is None:
                dated = score
        text = entry.item.memory[:_READ_CHARS].casefold()
        known = self._evidence[entry.item.id] = _Evidence(
            cosine or _FAR,
            min(own, _MOST_TERM_SCORE),
            min(window, _MOST_TERM_SCORE),
            dated,
            text,
            [word in text for word in self._words],
            frozenset([vote[0] for vote in entry.votes]),
        )
        return known

    def _stands(self, entry: Ranked) -> bool:
        if _STANDING in self._evidence_of(entry).arms:
            return True
        text = entry.item.memory
        return self._is_request and entry.item.role == Role.USER and (states_preference(text) or instructs(text))

    def _boost(self, entry: Ranked, wanted: str) -> float:
        for name, gave in entry.boosts:
            if name == wanted:
                return gave / self._best
        return 0.0

    def _weighed(self, evidence: _Evidence) -> float:
        """Return the share of the question's words that a candidate has, rare ones weighing more."""
        if not self._total:
            return 0.5
        return sum(compress(self._weights, evidence.covered)) / self._total


def _as_before_succession(ranked: Sequence[Ranked]) -> Sequence[Ranked]:
    """Return the candidates with their scores from before succession."""
    given = [sum([gave for name, gave in entry.boosts if name == "succession"]) for entry in ranked]
    if not any(given):
        return ranked
    found = [
        entry._replace(score=entry.score - gave) if gave else entry for entry, gave in zip(ranked, given, strict=True)
    ]
    return sorted(found, key=attrgetter("score"), reverse=True)


def _asked_terms(text: str) -> Iterable[str]:
    """Yield the terms of a question that an answer may contain, cut to stems in other languages than English."""
    if has_other_script(text):
        yield from (term for term in terms_of(text) if not _ASKS_HAN.search(term))
        return
    language = language_of(text)
    if language == "english":
        yield from terms_of(text)
        return
    for term in terms_of(_ELIDED.sub(" ", text)):
        if term not in _ASKS and not is_function_word(term, language):
            yield term[: max(3, min(len(term) - 1, 6))] if len(term) > 3 else term


def _names(term: str, speakers: Collection[str]) -> bool:
    return any(speaker.startswith(term) for speaker in speakers)


def _dot(weights: Sequence[float], features: Sequence[float]) -> float:
    """Return the dot product of the features with the first of the weights."""
    total: float = sum(map(mul, weights, features))
    return total


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))
