"""Joins the ranked lists of the recall arms into one by their scaled scores. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memos.model import ArmScore

FLOOR_RANK = 50
"""A vector arm's score at this rank counts as nothing: cosines say how much better, not how good."""

_LEAST = 0.05
"""What the last of a vector arm's list still counts, so that a small cube's only memory is found."""

TERM_ARMS = frozenset({"turn_bm25", "window_bm25", "unindexed_terms"})
"""Arms whose scores start at zero for what shares no word with the question."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One recalled version of one item, with what an arm thought of it."""

    version_key: str
    score: float


@dataclass(frozen=True, slots=True)
class Fused:
    """One candidate with its fused score and every arm's vote."""

    version_key: str
    score: float
    arms: tuple[ArmScore, ...]


def fuse(arms: Mapping[str, Sequence[Candidate]]) -> list[Fused]:
    """Return candidates by the mean of their scaled scores over the arms that found anything, best first.

    Each arm is scaled so that its best is 1 and its floor 0: the floor of a term arm is 0, of a vector arm its
    score at `FLOOR_RANK`. An arm votes only with positive scores, and once for each candidate (its best chunk).
    Source: relative score fusion, as in Bruch et al., "An Analysis of Fusion Functions for Hybrid Retrieval",
    ACM TOIS 2023, whose convex combination beats reciprocal ranks; measured here in docs/log.md.
    """
    votes: dict[str, list[ArmScore]] = {}
    voting = 0
    for name, candidates in arms.items():
        ranked = _best_of_each(candidates)
        if not ranked:
            continue
        voting += 1
        best = ranked[0][1]
        floor = 0.0 if name in TERM_ARMS else ranked[min(len(ranked), FLOOR_RANK) - 1][1]
        rank, previous = 0, float("inf")
        for place, (key, score) in enumerate(ranked, start=1):
            if score < previous:
                rank, previous = place, score
            votes.setdefault(key, []).append(ArmScore(name, rank, score, _scaled(score, floor, best, name)))
    fused = [
        Fused(key, sum(vote.gave for vote in arm) / voting, tuple(_share(vote, voting) for vote in arm))
        for key, arm in votes.items()
    ]
    return sorted(fused, key=lambda entry: (-entry.score, entry.version_key))


def _best_of_each(candidates: Sequence[Candidate]) -> list[tuple[str, float]]:
    best: dict[str, float] = {}
    for candidate in candidates:
        if candidate.score > 0 and candidate.score > best.get(candidate.version_key, 0.0):
            best[candidate.version_key] = candidate.score
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))


def _scaled(score: float, floor: float, best: float, name: str) -> float:
    if name in TERM_ARMS:
        return score / best
    if best <= floor:
        return 1.0
    if score < floor:
        return _LEAST * score / floor
    return _LEAST + (1 - _LEAST) * (score - floor) / (best - floor)


def _share(vote: ArmScore, voting: int) -> ArmScore:
    return ArmScore(vote.arm, vote.rank, vote.score, vote.gave / voting)
