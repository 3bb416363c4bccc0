"""Reciprocal rank fusion and context assembly, by hand."""

from __future__ import annotations

import pytest

from memos.search.context import estimate_tokens
from memos.search.fusion import Candidate, fuse


def arm(*scores: tuple[str, float]) -> list[Candidate]:
    return [Candidate(key, score) for key, score in scores]


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    fused = fuse({"one": arm(("a", 0.9), ("b", 0.5)), "two": arm(("b", 7.0))}, k=20)
    assert [(entry.version_key, entry.score) for entry in fused] == [
        ("b", pytest.approx(1 / 22 + 1 / 21)),
        ("a", pytest.approx(1 / 21)),
    ]


def test_a_score_of_zero_or_less_is_no_vote() -> None:
    assert fuse({"one": arm(("a", 0.0), ("b", -1.0))}) == []


def test_an_arm_votes_once_for_each_item_with_its_best_chunk() -> None:
    [first, second] = fuse({"one": arm(("a", 0.2), ("b", 0.5), ("a", 0.9))}, k=1)
    assert (first.version_key, first.arms[0].score, first.arms[0].rank) == ("a", 0.9, 1)
    assert second.arms[0].rank == 2


def test_equal_scores_share_a_rank() -> None:
    fused = fuse({"one": arm(("b", 1.0), ("a", 1.0), ("c", 0.5))}, k=1)
    assert [(entry.version_key, entry.arms[0].rank) for entry in fused] == [("a", 1), ("b", 1), ("c", 3)]


def test_tokens_are_estimated_on_the_high_side() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("four chars in english text") == 7
    assert estimate_tokens("我对花生过敏") == 6
