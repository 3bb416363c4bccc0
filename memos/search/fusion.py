"""Joins the ranked lists of the recall arms into one by their scaled scores. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

FLOOR_RANK = 50
"""A vector arm's score at this rank counts as nothing: cosines say how much better, not how good."""

_LEAST = 0.05
"""What the last of a vector arm's list still counts, so that a small cube's only memory is found."""

TERM_ARMS = frozenset({"turn_bm25", "window_bm25", "unindexed_terms"})
"""Arms whose scores start at zero for what shares no word with the question."""


class Candidate(NamedTuple):
    """One recalled version of one item, with what an arm thought of it."""

    version_key: str
    score: float


Vote = tuple[str, int, float, float]
"""What one arm said of a candidate: arm, 1-based rank, its own score, what that gave of the fused score."""


class Fused(NamedTuple):
    """One candidate with its fused score and every arm's vote."""

    version_key: str
    score: float
    votes: tuple[Vote, ...]


def fuse(arms: Mapping[str, Sequence[Candidate]]) -> list[Fused]:
    """Return candidates by the mean of their scaled scores over the arms that found anything, best first.

    Each arm is scaled so that its best is 1 and its floor 0: the floor of a term arm is 0, of a vector arm its
    score at `FLOOR_RANK`. An arm comes best first; it votes only with positive scores, and once for each candidate.
    Source: relative score fusion, as in Bruch et al., "An Analysis of Fusion Functions for Hybrid Retrieval",
    ACM TOIS 2023, whose convex combination beats reciprocal ranks; measured here in docs/log.md.
    """
    voting = [name for name, candidates in arms.items() if candidates and candidates[0].score > 0]
    votes: dict[str, list[Vote]] = {}
    for name in voting:
        found = _distinct(arms[name])
        best = found[0].score
        floor = 0.0 if name in TERM_ARMS else found[min(len(found), FLOOR_RANK) - 1].score
        # Above the floor a score counts `base + slope * score`, below it (vector arms only) `below * score`.
        slope = 1 / (best * len(voting)) if name in TERM_ARMS else (1 - _LEAST) / max(best - floor, 1e-9) / len(voting)
        base = 0.0 if name in TERM_ARMS else _LEAST / len(voting) - slope * floor
        if best <= floor:
            slope, base = 0.0, 1 / len(voting)
        below = _LEAST / len(voting) / floor if floor else 0.0
        rank, previous = 0, float("inf")
        for place, (key, score) in enumerate(found, start=1):
            if score < previous:
                rank, previous = place, score
            gave = base + slope * score if score >= floor else below * score
            votes.setdefault(key, []).append((name, rank, score, gave))
    order = sorted((-sum([vote[3] for vote in mine]), key) for key, mine in votes.items())
    return [Fused(key, -score, tuple(votes[key])) for score, key in order]


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the positive ones, each version once with its best chunk; candidates come best first."""
    seen: set[str] = set()
    found = []
    for candidate in candidates:
        if candidate.score > 0 and candidate.version_key not in seen:
            seen.add(candidate.version_key)
            found.append(candidate)
    return found
