"""The program that measures activation memory, on a model of a few thousand weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import activation
from benchmarks.kv_traces import by_relevance, cached_token_rate, pinned_first, saved_by, saved_by_ours
from tests.support import tiny_models  # skips without the extra `local`


def test_it_tells_of_exactness_times_and_what_the_disk_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny_models.saved(tmp_path / "m"))
    arguments = ["--parts", "exact", "ttft", "--model", model, "--prefixes", "128", "--runs", "2", "--splits", "3"]
    assert activation.main(arguments) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["bitwise_equal"] is True
    assert figures["max_logit_diff"] < 1e-4
    row = figures["ttft_ms"]["128"]
    assert row["host"] > 0
    assert row["disk_load"] > 0
    assert figures["ttft_speedup"] == {"128": row["speedup_host"]}


def test_it_tells_how_much_more_is_answered_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_models.saved(tmp_path / "m"))
    assert activation.main(["--parts", "batch", "--requests", "1", "3", "--runs", "1", "--model", model]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["batch"]
    assert {size: row["answers_the_same"] for size, row in told.items()} == {"1": 1, "3": 3}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks transformers so
def test_experiments_say_how_near_they_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_models.saved(tmp_path / "model"))
    arguments = ["--parts", "eight-bits", "elsewhere", "trained", "--prompts", "3", "--model", model]
    assert activation.main(arguments) == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    near, elsewhere, trained = told["eight_bits"], told["elsewhere"], told["trained"]
    assert 0.25 < near["bytes_of_exact"] < 0.6
    assert near["divergence_max"] < elsewhere["moved"]["divergence_mean"] <= elsewhere["moved"]["divergence_max"]
    assert elsewhere["moved"] != elsewhere["as_they_are"]
    assert trained["tokens"]["trained"] < trained["tokens"]["text"]
    assert trained["before"] != trained["after"]


def test_a_model_that_cannot_be_cut_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_models.saved(tmp_path / "m", "state"))
    assert activation.main(["--parts", "exact", "--model", model]) == 2
    assert "cannot be truncated" in capsys.readouterr().err


def test_pinned_first_is_found_again_and_relevance_order_is_not() -> None:
    ours, theirs = (cached_token_rate(layout, 5, turns=150) for layout in (pinned_first, by_relevance))
    assert ours > 0.6
    assert theirs < 0.2


def test_every_policy_saves_all_with_room_for_all_and_nothing_with_none() -> None:
    trace = [(float(second), [f"{second % 3}-{place}" for place in range(4)]) for second in range(30)]
    everything = 27 / 30
    for saved in (saved_by_ours(trace, 12), *(saved_by(policy, trace, 12) for policy in ("LRU", "LFU", "GDSF"))):
        assert saved == pytest.approx(everything)
    assert saved_by_ours(trace, 0) == 0
