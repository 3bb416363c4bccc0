"""Fusion of scaled scores and context assembly, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.ports import ScoredPoint
from memos.core.tokens import estimate_tokens
from memos.search.rank import fuse


def arm(*scores: tuple[str, float]) -> list[ScoredPoint]:
    return sorted((ScoredPoint(key, score) for key, score in scores), key=lambda candidate: -candidate.score)


def test_scores_are_means_of_scaled_scores() -> None:
    fused = fuse({"turn_bm25": arm(("a", 9.0), ("b", 4.5)), "window_bm25": arm(("b", 7.0))})
    assert [(entry.version_key, entry.score) for entry in fused] == [
        ("b", pytest.approx((0.5 + 1) / 2)),
        ("a", pytest.approx(1 / 2)),
    ]


def test_the_arms_shares_add_up_to_the_score() -> None:
    for entry in fuse({"turn": arm(("a", 0.9), ("b", 0.7), ("c", 0.1)), "turn_bm25": arm(("b", 7.0), ("c", 1.0))}):
        assert entry.score == pytest.approx(sum(vote[3] for vote in entry.votes))


def test_a_vector_arm_counts_from_its_fiftieth_score() -> None:
    scores = [(f"i{place:03}", 0.9 - 0.01 * place) for place in range(60)]
    fused = {entry.version_key: entry.score for entry in fuse({"turn": arm(*scores)})}
    assert fused["i000"] == pytest.approx(1.0)
    assert fused["i049"] == pytest.approx(0.05)
    assert 0 < fused["i059"] < fused["i050"] < 0.05
    halfway = (0.9 - 0.01 * 24 - (0.9 - 0.49)) / 0.49
    assert fused["i024"] == pytest.approx(0.05 + 0.95 * halfway)


def test_the_only_memory_of_a_cube_is_found() -> None:
    [entry] = fuse({"turn": arm(("a", 0.1)), "window": arm(("a", 0.1))})
    assert entry.score == 1.0


def test_words_that_match_little_have_less_to_say() -> None:
    arms = {"turn": arm(("a", 0.9), ("b", 0.1)), "turn_bm25": arm(("b", 2.0), ("a", 1.9))}
    assert fuse(arms, terms=1)[0].votes[1][3] == pytest.approx(1.9 / 2.0 / 2)
    weak = {entry.version_key: {vote[0]: vote[3] for vote in entry.votes} for entry in fuse(arms, terms=2)}
    assert weak["b"]["turn_bm25"] == pytest.approx(0.5 / 2)
    least = {entry.version_key: {vote[0]: vote[3] for vote in entry.votes} for entry in fuse(arms, terms=50)}
    assert least["b"]["turn_bm25"] == pytest.approx(0.3 / 2)
    assert least["a"]["turn"] == weak["a"]["turn"]


def test_arms_that_found_nothing_take_no_part() -> None:
    [entry] = fuse({"turn": arm(("a", 0.4)), "turn_bm25": []})
    assert entry.score == 1.0


def test_a_score_of_zero_or_less_is_no_vote() -> None:
    assert fuse({"turn_bm25": arm(("a", 0.0), ("b", -1.0))}) == []


def test_an_arm_votes_once_for_each_item_with_its_best_chunk() -> None:
    [first, second] = fuse({"turn": arm(("a", 0.2), ("b", 0.5), ("a", 0.9))})
    assert (first.version_key, first.votes[0][:3]) == ("a", ("turn", 1, 0.9))
    assert second.votes[0][1] == 2


def test_equal_scores_share_a_rank() -> None:
    fused = fuse({"turn": arm(("b", 1.0), ("a", 1.0), ("c", 0.5))})
    assert [(entry.version_key, entry.votes[0][1]) for entry in fused] == [("a", 1), ("b", 1), ("c", 3)]


@given(
    st.dictionaries(
        st.sampled_from(["turn", "window", "turn_bm25", "window_bm25"]),
        st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-1, 1e6, allow_subnormal=False))),
    )
)
def test_scores_stay_between_zero_and_one_and_in_order(raw: dict[str, list[tuple[str, float]]]) -> None:
    fused = fuse({name: arm(*scores) for name, scores in raw.items()})
    found = [entry.score for entry in fused]
    assert found == sorted(found, reverse=True)
    assert all(0 < score <= 1 + 1e-9 for score in found)
    positive = {key for scores in raw.values() for key, score in scores if score > 0}
    assert {entry.version_key for entry in fused} == positive


def test_tokens_are_estimated_on_the_high_side() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("four chars in english text") == 7
    assert estimate_tokens("我对花生过敏") == 6
