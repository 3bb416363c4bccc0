"""What a reranker is shown, how its scores are checked, and what they do to the order of candidates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memos.core.clock import to_micros
from memos.errors import ModelError
from memos.memcube.ledger.items import Brief
from memos.search.rank import Ranked
from memos.search.rerank import ARM, apply_scores, candidate_text, checked_scores

DAY = to_micros(datetime(2023, 5, 8, 13, tzinfo=UTC))


def brief(item: str = "a", memory: str = "I moved to Lyon", said_at: int | None = DAY, speaker: str = "Ann") -> Brief:
    return Brief(
        item, 1, "c", memory, len(memory), "message", "active", speaker, "user", "k", 0, 0, said_at, None, None, False,
        False, None,
    )  # fmt: skip


def ranked(**scores: float) -> list[Ranked]:
    return [Ranked(brief(item), score, (("turn", 1, score, score),), ()) for item, score in scores.items()]


def order(entries: list[Ranked]) -> list[str]:
    return [entry.item.id for entry in entries]


def test_a_candidate_is_shown_with_its_day_after_what_was_said_before_it() -> None:
    before = [brief("x", "Where did you go?", speaker="Bob"), brief("y", "z" * 500, speaker="Bob")]
    asked, long, said = candidate_text(brief(), before).split("\n")
    assert (asked, said) == ("Bob: Where did you go?", "[2023-05-08 Mon] Ann: I moved to Lyon")
    assert long == "…" + "z" * 200


def test_what_has_no_day_is_shown_without_one() -> None:
    assert candidate_text(brief(said_at=None), []) == "Ann: I moved to Lyon"
    assert candidate_text(brief(said_at=None)._replace(valid_from=DAY), []) == "[2023-05-08 Mon] Ann: I moved to Lyon"


def test_the_best_gets_the_weight_and_the_last_nothing() -> None:
    found = apply_scores(ranked(a=1.0, b=0.8, c=0.6, d=0.5), {"a": -3.0, "b": 5.0, "c": 1.0}, 0.5)
    assert order(found) == ["b", "a", "c", "d"]
    assert [entry.score for entry in found] == pytest.approx([1.3, 1.0, 0.85, 0.5])
    assert found[0].votes[-1] == (ARM, 1, 5.0, 0.5)
    assert [vote[:3] for entry in found for vote in entry.votes if vote[0] == ARM] == [
        (ARM, 1, 5.0), (ARM, 3, -3.0), (ARM, 2, 1.0),
    ]  # fmt: skip
    for entry in found:
        assert entry.score == pytest.approx(sum(gave for *_, gave in entry.votes))


def test_what_has_equal_scores_keeps_its_order() -> None:
    found = apply_scores(ranked(a=1.0, b=0.8, c=0.6), {"a": 2.0, "b": 2.0}, 1.0)
    assert order(found) == ["a", "b", "c"]
    assert [entry.votes[-1][1] for entry in found[:2]] == [1, 1]
    assert apply_scores(ranked(a=1.0), {"a": -7.0}, 1.0)[0].score == 2.0


def test_nothing_scored_changes_nothing() -> None:
    assert apply_scores(ranked(a=1.0, b=0.5), {}, 1.0) == ranked(a=1.0, b=0.5)
    assert apply_scores([], {}, 1.0) == []


def test_the_largest_numbers_there_are_stay_numbers() -> None:
    found = apply_scores(ranked(a=1.0, b=0.5), {"a": -1.7e308, "b": 1.7e308}, 1.0)
    assert [entry.score for entry in found] == pytest.approx([1.5, 1.0])


@pytest.mark.parametrize("scores", [[], [1.0], [1.0, 2.0, 3.0], [1.0, float("nan")], [float("-inf"), 0.0]])
def test_scores_that_are_none_are_refused(scores: list[float]) -> None:
    with pytest.raises(ModelError, match="reranker m"):
        checked_scores(scores, 2, "m")
    assert checked_scores([1, 2], 2, "m") == [1.0, 2.0]
