"""Every figure by an example computed by hand."""

from __future__ import annotations

import pytest

from benchmarks.beam import row_of as beam_row
from benchmarks.latency import headline
from benchmarks.locomo import row_of as locomo_row
from benchmarks.metrics import all_at, any_at, first_seen, fitting, frac_at, mean, ndcg_at, newest_first
from benchmarks.timing import Samples

RANKED = ["a", "b", "c", "d"]


def test_frac_any_and_all_look_at_the_first_k() -> None:
    assert frac_at(RANKED, ["b", "d"], 2) == 0.5
    assert frac_at(RANKED, ["b", "b", "d"], 2) == 0.5
    assert (any_at(RANKED, ["c"], 2), any_at(RANKED, ["c"], 3)) == (0, 1)
    assert (all_at(RANKED, ["a", "d"], 3), all_at(RANKED, ["a", "d"], 4)) == (0, 1)


def test_ndcg_is_longmemevals() -> None:
    # Gains 1 / max(1, log2(place)): places 1 and 2 count 1, place 3 counts 1 / 1.585, place 4 counts 1/2.
    assert ndcg_at(RANKED, ["a"], 5) == 1
    assert ndcg_at(RANKED, ["b"], 5) == 1
    assert ndcg_at(RANKED, ["d"], 5) == pytest.approx(0.5)
    assert ndcg_at(RANKED, ["c", "d"], 5) == pytest.approx((0.63093 + 0.5) / 2, abs=1e-5)
    assert ndcg_at(RANKED, ["d"], 3) == 0


def test_newest_first_wants_the_last_of_the_gold_before_all_others() -> None:
    assert newest_first(["new", "x", "old"], ["old", "new"]) == 1
    assert newest_first(["old", "new"], ["old", "new"]) == 0
    assert newest_first(["middle", "new", "old"], ["old", "middle", "new"]) == 0
    assert newest_first(["new"], ["old", "new"]) == 1
    assert newest_first(["x"], ["old", "new"]) == 0
    assert newest_first(["one"], ["one", "one"]) is None


def test_contexts_skip_what_is_too_long_and_go_on() -> None:
    assert fitting([400, 200, 90, 10, 1], 500) == [0, 2, 3]
    assert fitting([501], 500) == []


def test_means_leave_out_questions_without_the_figure() -> None:
    assert mean([{"x": 1.0, "y": None}, {"x": 0.0, "y": 0.5}]) == {"x": 0.5, "y": 0.5}
    assert first_seen(["b", "a", "b"]) == ["b", "a"]


def test_a_locomo_row() -> None:
    ranked = ["D2:1", "D2:2", "D1:4", "D3:1", "D4:1", "D5:9", "D6:1"]
    row = locomo_row(ranked, ["D1:4", "D6:1", "D6:2"], {500: ["D1:4"], 1000: []})
    assert row["dialog_frac@5"] == pytest.approx(1 / 3)
    assert row["dialog_frac@10"] == pytest.approx(2 / 3)
    # Sessions in order of first appearance: 2 1 3 4 5 6; gold sessions 1 and 6.
    assert [row[f"session_frac@{k}"] for k in (1, 3, 5, 10)] == [0, 0.5, 0.5, 1]
    assert [row[f"session_any@{k}"] for k in (1, 3, 5, 10)] == [0, 1, 1, 1]
    assert [row[f"session_all@{k}"] for k in (1, 3, 5, 10)] == [0, 0, 0, 1]
    assert [row[f"budget_frac@{budget}"] for budget in (500, 1000)] == pytest.approx([1 / 3, 0])


def test_only_two_sided_beam_questions_have_an_order() -> None:
    assert "newest_first" not in beam_row(["1"], ["1"], "summarization")
    row = beam_row(["9", "1"], ["1", "9"], "knowledge_update")
    assert (row["all@5"], row["newest_first"], row["frac@5"]) == (1, 1, 1)


def test_latency_ratios_are_of_medians_and_the_headline_is_the_worst() -> None:
    figures = Samples(
        search=[4.0, 4.0, 8.0], embed=[2.0] * 3, add=[30.0] * 3, batch=[20.0] * 3, fsync=[1.0] * 3,
        stages={"embed": [2.0, 2.0, 3.0]},
    ).figures()  # fmt: skip
    assert (figures["search_over_embed"], figures["add_over_embed"]) == (2.0, 1.5)
    assert figures["p99_over_p50"] == pytest.approx(7.92 / 4)
    assert figures["search_stages_p50_ms"] == {"embed": 2.0}
    larger = {**figures, "search_p50_ms": 6.0, "search_over_embed": 3.0, "bytes_per_memory": 70}
    first = {"900": {**figures, "bytes_per_memory": 99}, "1000": larger}
    found = headline({"one-cube": first, "many-cubes": {"900": {**figures, "bytes_per_memory": 80}}})
    assert found == {
        "search_over_embed": 3.0, "add_over_embed": 1.5, "p99_over_p50": 1.98, "growth": 1.5, "bytes_per_memory": 80,
    }  # fmt: skip
