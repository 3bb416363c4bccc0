"""Reciprocal rank fusion of recall arms. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memos.model import ArmScore

RRF_K = 20
"""Rank offset. Source: Cormack et al., SIGIR 2009 use 60 for lists of 1,000; short lists of a cube want less."""


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


def fuse(arms: Mapping[str, Sequence[Candidate]], k: int = RRF_K) -> list[Fused]:
    """Return candidates by the sum of 1 / (k + rank) over the arms, best first.

    An arm votes only with positive scores, and once for each candidate (its best chunk); equal scores share a rank.
    """
    votes: dict[str, list[ArmScore]] = {}
    for name, candidates in arms.items():
        best: dict[str, float] = {}
        for candidate in candidates:
            if candidate.score > 0 and candidate.score > best.get(candidate.version_key, 0.0):
                best[candidate.version_key] = candidate.score
        rank, previous = 0, float("inf")
        for place, (key, score) in enumerate(sorted(best.items(), key=lambda pair: (-pair[1], pair[0])), start=1):
            if score < previous:
                rank, previous = place, score
            votes.setdefault(key, []).append(ArmScore(name, rank, score))
    fused = [Fused(key, sum(1 / (k + vote.rank) for vote in arm), tuple(arm)) for key, arm in votes.items()]
    return sorted(fused, key=lambda entry: (-entry.score, entry.version_key))
