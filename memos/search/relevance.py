"""Estimate the probability that a hit answers the question, from what a search knows of it and of the others.

Pure. Two logistic models over the best candidates: one of a hit, one of whether memory answers the question at all.
Fitted with folds over conversations on answerable and unanswerable questions; docs/benchmarks.md has the mix, the
reliability curve and thresholds. The cosines are MiniLM's: with another embedder the words decide, and the numbers are
not calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import compress
from operator import mul
from typing import NamedTuple

from memos.core.text.claims import terms_of
from memos.core.text.instructions import instructs
from memos.core.text.preferences import states_preference
from memos.core.types import RELEVANT, Arm, Role
from memos.search.question import Question
from memos.search.rank import TERM_ARMS, Ranked, asks, tells_nothing
from memos.search.succession import Replacement

_POOL = 20  # best candidates that are looked at
_FAR = 0.25  # cosine of what no vector arm recalled
_COSINES = frozenset({Arm.TURN.value, Arm.WINDOW.value, Arm.STANDING.value})
_TURN = Arm.TURN.value
_STANDING = frozenset({Arm.STANDING.value})
_LIFTING = _STANDING | {Arm.OF_SELF.value}  # what they find holds on, whatever the question's words are
_WINDOW_WORDS = Arm.WINDOW_BM25.value
_MOST_TERM_SCORE = 4.0
_READ_CHARS = 600

# Weights in the order in which `_of_pool` and then `_of_hit` give their features.
_ANSWERABLE = {
    "best_cosine": 8.476,
    "third_cosine": 3.391,
    "best_turn_terms": -0.754,
    "best_window_terms": 0.502,
    "best_sum": 0.431,
    "words_found": -0.293,
    "words_in_one": 1.852,
    "words_missing": -0.045,
    "words": 1.257,
    "terms": -0.071,
    "candidates": -1.537,
    "second_score": 0.436,
    "fifth_score": -0.548,
    "tenth_score": -1.624,
    "first_asks": -1.316,
    "some_lifted": -0.369,
    "median_cosine": -5.825,
    "request_cosine": 7.459,
    "first_weighed": 1.336,
    "most_weighed": 1.285,
    "first_next": -9.101,
    "first_session": -11.415,
    "bias": 0.236,
}
_HIT = {
    "best_cosine": 3.080,
    "third_cosine": 1.184,
    "best_turn_terms": 0.035,
    "best_window_terms": 0.088,
    "best_sum": -0.080,
    "words_found": 1.367,
    "words_in_one": 1.130,
    "words_missing": 0.150,
    "words": -0.135,
    "terms": 0.251,
    "candidates": -0.697,
    "second_score": -2.555,
    "fifth_score": -0.945,
    "tenth_score": -0.593,
    "first_asks": 0.311,
    "some_lifted": -1.024,
    "median_cosine": -1.036,
    "request_cosine": 3.972,
    "first_weighed": -0.168,
    "most_weighed": -1.218,
    "first_next": -1.247,
    "first_session": -2.387,
    "cosine": 0.646,
    "turn_terms": -0.217,
    "window_terms": 0.281,
    "words_covered": -0.365,
    "score": 6.779,
    "place": -0.352,
    "asks": -3.412,
    "assistant": -1.693,
    "lifted": 0.793,
    "answers": 0.220,
    "next": -5.296,
    "session": -5.027,
    "weighed": 2.263,
    "bias": -4.923,
}

_POOL_FEATURES = len(_ANSWERABLE) - 1
_ANSWERABLE_BY_POOL = list(_ANSWERABLE.values())[:-1]
_HIT_BY_POOL = list(_HIT.values())[:_POOL_FEATURES]
_HIT_BY_ITSELF = list(_HIT.values())[_POOL_FEATURES:-1]

# Evidence is often spread over several hits, of which the lesser ones look like any other, and the best hit of a
# question without an answer looks like evidence. So the probability that there is an answer bounds the relevance of all
# hits: from below by this share of it, and from above by the same share until it is likely enough, then by a steep
# power of it. What stands, such as a preference, is found whatever the question's words are, and has no upper bound.
_SHARE = 0.15
_LIKELY_ENOUGH = RELEVANT / _SHARE
_STEEP = 6
_TELLS_NOTHING = 0.05  # of an acknowledgement or a system message
_REPLACED = 0.95  # of what another candidate surely replaces, of the relevance of that one at most


class _Evidence(NamedTuple):
    """What the arms and the words say of a candidate.

    `cosine` is the best one, `turn_terms` and `window_terms` are the BM25 of the message and of its window for each
    term of the question, `covered` says which of the question's words are in its `text`, without case.
    """

    cosine: float
    turn_terms: float
    window_terms: float
    text: str
    covered: list[bool]


class Relevance:
    """The relevance of the candidates of one search, each from 0 to 1.

    Args:
       ranked: The candidates, best first.
       question: The question.
       terms: The number of terms that the term arms searched for.
       replaced: Which candidates replace which.
    """

    def __init__(
        self, ranked: Sequence[Ranked], question: Question, terms: int, replaced: Sequence[Replacement] = ()
    ) -> None:
        first = ranked[:_POOL]
        speakers = {entry.item.speaker.casefold() for entry in first}
        words = [term for term in dict.fromkeys(terms_of(question.text)) if not _names(term, speakers)]
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
        pool = self._of_pool(first, evidence)
        self._answerable = _logistic(_ANSWERABLE["bias"] + _weighted(_ANSWERABLE_BY_POOL, pool))
        self._hit_by_pool = _weighted(_HIT_BY_POOL, pool)
        # Many alike are near each other and none stands out, but each has all that was asked for.
        stems = [word.removesuffix("s") for word in words]
        if len(words) > 1 and any(all(stem in each.text for stem in stems) for each in evidence):
            self._answerable = max(self._answerable, _LIKELY_ENOUGH * 1.05)
        self._most = _SHARE * self._answerable * max(1.0, self._answerable / _LIKELY_ENOUGH) ** _STEEP

    def of(self, entry: Ranked) -> float:
        """Return the relevance of a candidate; what replaces another has that one's, and leaves it less."""
        own = self._alone(entry)
        for each in self._newer:
            if each.newer == entry.item.id:
                own = max(own, each.confidence * self._alone(self._entries[each.older]))
        for each in self._newer:
            if each.older == entry.item.id:
                newer = max(self._alone(self._entries[each.newer]), each.confidence * self._alone(entry))
                own = min(own, newer * (1 - each.confidence * (1 - _REPLACED)))
        return own

    def _alone(self, entry: Ranked) -> float:
        own = _logistic(_HIT["bias"] + _weighted(_HIT_BY_ITSELF, self._of_hit(entry), self._hit_by_pool))
        found = own + (1 - own) * _SHARE * self._answerable
        if not self._stands(entry):
            found = min(found, self._most)
        return found * _TELLS_NOTHING if tells_nothing(entry.item) else found

    def _of_pool(self, first: Sequence[Ranked], evidence: Sequence[_Evidence]) -> list[float]:
        telling = [each for entry, each in zip(first, evidence, strict=True) if not tells_nothing(entry.item)]
        telling = telling or [_Evidence(_FAR, 0.0, 0.0, "", [False] * len(self._words))]
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
            float(any(_has_vote(entry, _LIFTING) for entry in first[:10])),
            sorted(turns)[len(turns) // 2],
            cosines[0] if self._is_request else 0.0,
            weighed[0],
            max(weighed),
            self._boost(first[0], "next") if first else 0.0,
            self._boost(first[0], "session") if first else 0.0,
        ]

    def _of_hit(self, entry: Ranked) -> list[float]:
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
            float(_has_vote(entry, _LIFTING)),
            float("answers" in [name for name, _ in entry.boosts]),
            self._boost(entry, "next"),
            self._boost(entry, "session"),
            self._weighed(evidence),
        ]

    def _evidence_of(self, entry: Ranked) -> _Evidence:
        known = self._evidence.get(entry.item.id)
        if known is not None:
            return known
        cosine = own = window = 0.0
        for arm, _, score, _ in entry.votes:
            if arm in _COSINES:
                cosine = max(cosine, score)
            elif arm == _WINDOW_WORDS:
                window = score / self._by_term
            elif arm in TERM_ARMS:
                own = max(own, score / self._by_term)
        text = entry.item.memory[:_READ_CHARS].casefold()
        covered = [word in text for word in self._words]
        known = _Evidence(cosine or _FAR, min(own, _MOST_TERM_SCORE), min(window, _MOST_TERM_SCORE), text, covered)
        self._evidence[entry.item.id] = known
        return known

    def _stands(self, entry: Ranked) -> bool:
        if _has_vote(entry, _STANDING):
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


def _names(term: str, speakers: Collection[str]) -> bool:
    return any(speaker.startswith(term) for speaker in speakers)


def _has_vote(entry: Ranked, arms: frozenset[str]) -> bool:
    return not arms.isdisjoint([vote[0] for vote in entry.votes])


def _weighted(weights: Sequence[float], features: Sequence[float], start: float = 0.0) -> float:
    return sum(map(mul, weights, features), start)


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))
