"""The check for GPU machines, on the CPU with tiny models: every step runs, so that there it is only a run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from benchmarks.gpu_check.page import page
from benchmarks.gpu_check.steps import FAILED, OK, SKIPPED, Run, Skip, Step
from tests.support import tiny_models  # noqa: F401 - skips without the extra `local`, and keeps PyTorch to one thread

check = pytest.importorskip("benchmarks.gpu_check.__main__", reason="needs the extra `local`: make setup-local")


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks transformers so
def test_every_step_on_models_passes(tmp_path: Path) -> None:
    """The parts on a whole installation are tested in tests/models; `--tiny` without `--parts` runs them, too."""
    out = tmp_path / "out"
    assert check.main(["--tiny", "--cpu", "--parts", "kv", "training", "--out", str(out)]) == 0
    told = json.loads((out / "gpu-check.json").read_text())
    steps = {step["name"]: step for step in told["steps"]}
    assert {step["status"] for step in steps.values()} == {OK}
    for dtype in ("bfloat16", "float16"):
        figures = steps[f"tiny qwen: exactness in {dtype}"]["figures"]
        assert figures["all_bits_equal"] is True
        assert [case["tokens"] for case in figures["cases"]] == [77, 168]
    first = steps["tiny qwen: time to the first token"]["figures"]["prefixes"]["128"]
    assert min(first[f"{tier}_s"] for tier in ("cold", "device", "host", "disk")) > 0
    assert steps["tiny qwen: batches"]["figures"]["requests"]["2"]["answers_the_same"] == 2
    assert "time to the first token" in (out / "gpu-check.md").read_text()


def test_a_step_that_fails_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path, 60, page)

    def broken(_: Step) -> None:
        raise MemoryError("no room")

    def absent(_: Step) -> None:
        raise Skip("there is none")

    def wrong(step: Step) -> dict[str, int]:
        step.check("one and one are three", 1 + 1 == 3)
        return {"counted": 2}

    for name, work in (("broken", broken), ("absent", absent), ("wrong", wrong)):
        run.step(name, 20, work)
    assert [step.status for step in run.steps] == [FAILED, SKIPPED, FAILED]
    told = json.loads((tmp_path / "gpu-check.json").read_text())
    assert told["status"] == FAILED
    assert [step["reason"] for step in told["steps"]] == [
        "MemoryError: no room",
        "there is none",
        "one and one are three",
    ]
    assert told["steps"][2]["figures"] == {"counted": 2}


def test_what_no_time_is_left_for_is_skipped_and_said(tmp_path: Path) -> None:
    run = Run(tmp_path, 30, page)

    def long(step: Step) -> None:
        assert step.has_time("short", 5)
        assert not step.has_time("long", 500)

    assert run.step("long", 20, long).left_out == ["long: needs about 500 s, 20 s of budget left"]
    run.ends_at = time.monotonic() + 1
    late = run.step("late", 20, long)
    assert (late.status, late.reason) == (SKIPPED, "the time of the run is spent")
    run.ends_at += 60
    assert run.status == SKIPPED
