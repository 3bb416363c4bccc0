"""Joins the ranked lists of the recall arms into one by their scaled scores. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from memos.core.ports import ScoredPoint

FLOOR_RANK = 50
"""A vector arm's score at this rank counts as nothing: cosines say how much better, not how good."""

_LEAST = 0.05
"""What the last of a vector arm's list still counts, so that a small cube's only memory is found."""

_TELLING = 2.0
"""BM25 a term from which the words say all they can: a usual LoCoMo question's best has 2.8, a PrefEval one's 1.4."""

_LEAST_SAY = 0.3

TERM_ARMS = frozenset({"turn_bm25", "window_bm25", "unindexed_terms"})
"""Arms whose scores start at zero for what shares no word with the question."""


Vote = tuple[str, int, float, float]
"""What one arm said of a candidate: arm, 1-based rank, its own score, what that gave of the fused score."""


class Fused(NamedTuple):
    """One candidate with its fused score and every arm's vote."""

    version_key: str
    score: float
    votes: tuple[Vote, ...]


def fuse(arms: Mapping[str, Sequence[ScoredPoint]], terms: int = 1) -> list[Fused]:
    """Return candidates by the mean of their scaled scores over the arms that found anything, best first.

    Each arm is scaled so that its best is 1 and its floor 0: the floor of a term arm is 0, of a vector arm its
    score at `FLOOR_RANK`. When even the best matches few of the question's `terms`, the term arms' say shrinks with
    it. An arm comes best first; it votes only with positive scores, and once for each candidate.
    Source: relative score fusion, as in Bruch et al., "An Analysis of Fusion Functions for Hybrid Retrieval",
    ACM TOIS 2023, whose convex combination beats reciprocal ranks; measured here in docs/log.md.
    """
    voting = [name for name, candidates in arms.items() if candidates and candidates[0].score > 0]
    say = _say_of_terms(arms, terms)
    votes: dict[str, list[Vote]] = {}
    totals: dict[str, float] = {}
    for name in voting:
        found = _distinct(arms[name])
        gives = _scale_of(name, found, (say if name in TERM_ARMS else 1.0) / len(voting)).gives
        rank, previous = 0, float("inf")
        for place, (key, score) in enumerate(found, start=1):
            if score < previous:
                rank, previous = place, score
            gave = gives(score)
            if key in totals:
                totals[key] += gave
                votes[key].append((name, rank, score, gave))
            else:
                totals[key] = gave
                votes[key] = [(name, rank, score, gave)]
    order = sorted([(-score, key) for key, score in totals.items()])
    return [Fused(key, -score, tuple(votes[key])) for score, key in order]


class _Scale(NamedTuple):
    """From the floor on, a score gives `base` and its share of the `width` up to the best times `span`."""

    floor: float
    width: float
    base: float
    span: float

    def gives(self, score: float) -> float:
        if score < self.floor:
            return self.base * (score / self.floor)
        # Divided first: the scores may be the smallest numbers there are.
        return self.base + self.span * ((score - self.floor) / self.width if self.width else 1.0)


def _scale_of(name: str, found: Sequence[ScoredPoint], weight: float) -> _Scale:
    """Return what makes an arm's best give `weight` and its floor nothing, or the least that counts."""
    best = found[0].score
    if name in TERM_ARMS:
        return _Scale(0.0, best, 0.0, weight)
    floor = found[min(len(found), FLOOR_RANK) - 1].score
    return _Scale(floor, best - floor, _LEAST * weight, weight * (1 - _LEAST))


def _say_of_terms(arms: Mapping[str, Sequence[ScoredPoint]], terms: int) -> float:
    """Return from 0.3 to 1 how much the words of a question have to say: by the best BM25 score for each of them."""
    by_words = arms.get("turn_bm25")
    if not by_words:
        return 1.0
    return min(1.0, max(_LEAST_SAY, by_words[0].score / max(1, terms) / _TELLING))


def _distinct(candidates: Sequence[ScoredPoint]) -> Sequence[ScoredPoint]:
    """Return the positive ones, each version once with its best chunk; candidates come best first."""
    if candidates[-1].score > 0 and len({point.key for point in candidates}) == len(candidates):
        return candidates
    best: dict[str, ScoredPoint] = {}
    for point in candidates:
        if point.score > 0:
            best.setdefault(point.key, point)
    return list(best.values())
