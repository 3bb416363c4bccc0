"""Run the check: `python -m benchmarks.gpu_check --out FOLDER`, with `--tiny` in seconds, on a CPU too.

The exit status is 0 if every step passed, 1 if one failed, 3 if none failed and one was left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_check import adapters, kv, machine, models
from benchmarks.gpu_check.page import page
from benchmarks.gpu_check.steps import EXIT, OK, Run, Skip, Step
from memos.backends.local.loading import ready

_LIMIT_S = 450.0
PARTS = ("kv", "installation", "training")


@dataclass(frozen=True)
class Plan:
    """What is measured with one model, and how long each step may take, in seconds."""

    shape: str
    lengths: tuple[int, ...]
    prefixes: tuple[int, ...]
    build_s: float
    exact_s: float
    ttft_s: float
    half: bool = False
    batches: bool = False
    eviction: bool = False


_LONG = (1024, 2048, 4096, 8192, 16_384, 32_768)
_SMALL = Plan("1.5b", (700, 1500, 5000), _LONG, 30, 25, 35, half=True, batches=True, eviction=True)
_MIDDLE = Plan("8b", (700, 1500, 5000), _LONG, 40, 25, 60, half=True, batches=True)
_LARGE = Plan("32b", (1500,), _LONG, 60, 25, 100)
_TINY = (
    Plan("tiny qwen", (70, 150), (128, 192), 30, 60, 60, half=True, batches=True, eviction=True),
    Plan("tiny llama", (150,), (128,), 30, 60, 60),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all steps; return the exit status."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the report (default: $OUT, or ./gpu-check-report)")
    parser.add_argument("--tiny", action="store_true", help="tiny models, in seconds, on a CPU too")
    parser.add_argument("--minutes", type=float, default=_LIMIT_S / 60, help="most minutes (default 7.5)")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to run (default all)")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    out = arguments.out or Path(os.environ.get("OUT") or "gpu-check-report")
    out.mkdir(parents=True, exist_ok=True)
    work = arguments.work or Path(tempfile.mkdtemp(prefix="gpu-check-"))
    if arguments.tiny:
        torch.set_num_threads(1)  # more only wait for one another
    device = "cuda" if torch.cuda.is_available() and not arguments.cpu else "cpu"
    if device == "cpu" and not arguments.tiny:
        parser.error("PyTorch sees no GPU here; give --tiny to run with tiny models on the CPU")
    try:
        with Run(out, 60 * arguments.minutes, page) as run:
            return EXIT[_Check(run, device, work, tiny=arguments.tiny).all(arguments.parts)]
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _Check:
    def __init__(self, run: Run, device: str, work: Path, *, tiny: bool) -> None:
        self._run, self._device, self._work, self._tiny = run, device, work, tiny
        self._bench: kv.Bench | None = None
        self._limits: dict[str, float] = {}

    def all(self, parts: Collection[str] = PARTS) -> str:
        """Run every step of these parts, the small and the essential first; return the worst status."""
        self._run.facts["hardware"] = machine.hardware()
        limits = self._run.step("limits of the machine", 40, self._measured_limits)
        self._limits = limits.figures if limits.status == OK else {}
        first, *others = _TINY if self._tiny else (_SMALL, _MIDDLE, _LARGE)
        if "kv" in parts:
            self._of_model(first)
            self._drop()
        self._of_installation(first, parts)
        for plan in others if "kv" in parts else ():
            self._of_model(plan)
            self._drop()
        return self._run.status

    def _measured_limits(self, step: Step) -> dict[str, Any]:
        found = machine.limits(step, self._device, self._work, tiny=self._tiny)
        models.free(self._device)
        return found

    def _of_model(self, plan: Plan) -> None:
        name = plan.shape
        self._run.step(f"{name}: build", plan.build_s, lambda _: self._build(plan, torch.bfloat16))
        self._on_bench(
            f"{name}: exactness in bfloat16", plan.exact_s, lambda step, bench: kv.exactness(step, bench, plan.lengths)
        )
        # As much on disk as is written and read in some seconds.
        disk_most = 2**30 if not self._tiny else 2**26
        runs = 2 if self._tiny else 3
        self._on_bench(
            f"{name}: time to the first token",
            plan.ttft_s,
            lambda step, bench: kv.ttft(step, bench, plan.prefixes, runs, self._limits, disk_most),
        )
        if plan.batches:
            sizes, prefix, answer = ((1, 2), 150, 4) if self._tiny else ((1, 2, 4, 8), 2100, 48)
            self._on_bench(f"{name}: batches", 40, lambda step, bench: kv.batches(step, bench, sizes, prefix, answer))
        if plan.eviction:
            prompts, blocks = (12, 2) if self._tiny else (80, 2)
            self._on_bench(
                f"{name}: eviction under pressure", 30, lambda step, bench: kv.eviction(step, bench, prompts, blocks)
            )
            if self._device == "cuda":
                self._on_bench(f"{name}: a full GPU", 15, lambda step, bench: kv.full_gpu(step, bench, 20_000))
        if plan.half:
            self._run.step(f"{name}: convert to float16", 20, lambda _: self._convert(plan))
            self._on_bench(
                f"{name}: exactness in float16",
                plan.exact_s,
                lambda step, bench: kv.exactness(step, bench, plan.lengths[:2]),
            )

    def _of_installation(self, plan: Plan, parts: Collection[str]) -> None:
        if not {"installation", "training"} & set(parts):
            return
        home = adapters.Home(self._work / "home", self._work / "model", self._tiny)

        def write(_: Step) -> None:
            dtype = torch.bfloat16 if self._device == "cuda" else torch.float32
            models.saved(plan.shape, dtype, self._device, home.model)
            models.free(self._device)

        def needing_model(work: Callable[[Step, adapters.Home], dict[str, Any]]) -> Callable[[Step], dict[str, Any]]:
            def checked(step: Step) -> dict[str, Any]:
                if not (home.model / "tokenizer.json").exists():
                    raise Skip("its model was not written")
                try:
                    return work(step, home)
                finally:
                    models.free(self._device)

            return checked

        name = plan.shape
        self._run.step(f"{name}: write the model", 60, write)
        if "installation" in parts:
            self._run.step(f"{name}: prefixes of an installation", 60, needing_model(adapters.prefixes))
            self._run.step(f"{name}: adapter", 150, needing_model(adapters.adapters))
            self._run.step(f"{name}: swapping adapters", 30, needing_model(adapters.swaps))
        if "training" in parts:
            self._run.step(f"{name}: resuming a training", 40, needing_model(adapters.checkpoints))
        shutil.rmtree(home.model, ignore_errors=True)

    def _build(self, plan: Plan, dtype: torch.dtype) -> dict[str, Any]:
        if self._device == "cuda":
            model = models.SHAPES[plan.shape][2]
            needed = 2 * (12 * model["hidden_size"] * model["intermediate_size"] * model["num_hidden_layers"]) // 3
            free = torch.cuda.mem_get_info()[0]
            if needed + 2**33 > free:
                raise Skip(f"it needs about {(needed + 2**33) / 2**30:.0f} GiB, {free / 2**30:.0f} are free")
        loaded = models.prepared(plan.shape, models.random_model(plan.shape, dtype, self._device))
        self._bench = kv.Bench(loaded, self._work)
        told = {"parameters": models.parameters(loaded.model), "chunk_tokens": self._bench.step_tokens}
        told |= {"unusable": loaded.unusable, "unbatched": loaded.unbatched}
        if loaded.unusable is not None:
            raise RuntimeError(f"KV cannot be reused: {loaded.unusable}")
        if loaded.unbatched is not None:
            raise RuntimeError(f"requests cannot be batched: {loaded.unbatched}")
        return told

    def _convert(self, plan: Plan) -> dict[str, Any]:
        if self._bench is None:
            raise Skip("the model was not built")
        loaded = self._bench.loaded
        made = ready(loaded.name, loaded.model.to(torch.float16), loaded.tokenizer, f"random {plan.shape}")
        self._bench = kv.Bench(made, self._work)
        return {"dtype": made.dtype, "unusable": made.unusable, "unbatched": made.unbatched}

    def _on_bench(self, name: str, budget_s: float, work: Callable[[Step, kv.Bench], dict[str, Any]]) -> None:
        def checked(step: Step) -> dict[str, Any]:
            if self._bench is None:
                raise Skip("the model was not built")
            try:
                return work(step, self._bench)
            finally:
                models.free(self._device)

        self._run.step(name, budget_s, checked)

    def _drop(self) -> None:
        self._bench = None
        models.free(self._device)


if __name__ == "__main__":
    raise SystemExit(main())
