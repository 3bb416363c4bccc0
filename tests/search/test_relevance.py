"""Relevance: between 0 and 1, rising with what the arms found, the same whatever the rest of a search looks like."""

from __future__ import annotations

import pytest

from memos.memcube.ledger.items import Brief
from memos.search.hits import relevance
from memos.search.rank import Ranked, Vote


def entry(**scores: float) -> Ranked:
    votes: tuple[Vote, ...] = tuple((arm, 1, score, 0.1) for arm, score in scores.items())
    brief = Brief(
        "a", 1, "c", "text", 4, "message", "active", "Ann", "user",
        None, None, None, None, None, None, False, False, None,
    )  # fmt: skip
    return Ranked(brief, 1.0, votes, ())


def test_relevance_rises_with_cosine_and_with_terms() -> None:
    low = relevance(entry(turn=0.2), 4)
    near = relevance(entry(turn=0.2, window=0.7), 4)
    both = relevance(entry(turn=0.2, window=0.7, turn_bm25=16.0, window_bm25=14.0), 4)
    assert 0 < low < near < both < 1
    assert low < 0.15
    assert both > 0.9


def test_terms_count_by_the_length_of_the_question() -> None:
    short, long = relevance(entry(turn=0.4, turn_bm25=8.0), 2), relevance(entry(turn=0.4, turn_bm25=8.0), 12)
    assert short > long


@pytest.mark.parametrize("scores", [{}, {"graph": 1.0}, {"turn_bm25": 3.0}])
def test_without_a_vector_arm_it_is_that_of_a_usual_distractor(scores: dict[str, float]) -> None:
    assert 0 < relevance(entry(**scores), 0) < 0.8
