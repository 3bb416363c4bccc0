"""One durable `add` and one `search` at several sizes: `python -m benchmarks.latency --memories 1000 10000 100000`.

An add is an exchange of two messages, committed and searchable when it returns; a search is the ten best of one cube,
hydrated. The ratios compare with MiniLM itself, timed in turns with them: `search_over_embed` with embedding the
question, `add_over_embed` with embedding, in one batch, the very texts the add embedded. `growth` is search p50 at
the largest size over that at the smallest, `p99_over_p50` the worse of searches and adds. The headline is the worst
over layouts and sizes; `bytes_per_memory` is taken at the largest size. The store is filled with word vectors, since
MiniLM would take half an hour; what is timed is embedded by MiniLM.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import BadData
from benchmarks.dialogues import Dialogues
from benchmarks.report import Report, figures_table, output_parser, positive, progress, run
from benchmarks.volumes import (
    BagOfWords,
    Volume,
    build_graphs,
    bytes_on_disk,
    cold_start,
    fill,
    forget_peak,
    peak_rss_mib,
)  # fmt: skip
from memos import MemOS
from memos.backends.minilm import MiniLmEmbedder
from memos.model import Fingerprint
from memos.ports import Embedder, Vector
from memos.settings import Settings

TOP_K = 10
LAYOUTS = {"one-cube": False, "many-cubes": True}
SHOWN = (
    "search_p50_ms", "search_p95_ms", "search_p99_ms", "embed_p50_ms", "search_over_embed",
    "add_p50_ms", "add_p95_ms", "add_p99_ms", "batch_p50_ms", "add_over_embed", "fsync_p50_ms", "bytes_per_memory",
)  # fmt: skip
_WARM_UP = 10  # one warm-up for so many timed
_BLOCK = b"\0" * 4096


class Overheard:
    """An embedder that passes everything on and keeps the document texts it was asked for."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.texts: list[str] = []

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the embedder behind."""
        return self.embedder.fingerprint

    @property
    def max_tokens(self) -> int:
        """Tokens one piece may have."""
        return self.embedder.max_tokens

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of the embedder behind."""
        self.texts.extend(texts)
        return self.embedder.embed_documents(texts)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of the embedder behind."""
        return self.embedder.embed_query(text)

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        """Return the spans of the embedder behind."""
        return self.embedder.split(text, max_tokens)


@dataclass(slots=True)
class Samples:
    """Milliseconds of everything timed at one size."""

    search: list[float] = field(default_factory=list)
    embed: list[float] = field(default_factory=list)
    add: list[float] = field(default_factory=list)
    batch: list[float] = field(default_factory=list)
    fsync: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Return percentiles in milliseconds and the ratios of medians."""
        taken = {"search": self.search, "embed": self.embed, "add": self.add, "batch": self.batch, "fsync": self.fsync}
        figures: dict[str, Any] = {
            f"{name}_p{percent}_ms": round(float(np.percentile(values, percent)), 3)
            for name, values in taken.items()
            for percent in (50, 95, 99)
        }
        figures["search_stages_p50_ms"] = {name: round(float(np.median(v)), 3) for name, v in self.stages.items()}
        figures["search_over_embed"] = round(figures["search_p50_ms"] / figures["embed_p50_ms"], 3)
        figures["add_over_embed"] = round(figures["add_p50_ms"] / figures["batch_p50_ms"], 3)
        worse = max(figures["search_p99_ms"] / figures["search_p50_ms"], figures["add_p99_ms"] / figures["add_p50_ms"])
        return figures | {"p99_over_p50": round(worse, 3)}


def measure(arguments: argparse.Namespace) -> Report:
    """Fill and time each layout at each size."""
    if arguments.folder is not None and not arguments.folder.is_dir():
        raise BadData(arguments.folder, "is not a folder; --folder wants one that exists")
    embedder = MiniLmEmbedder(threads=Settings().embed.threads)
    layouts = list(LAYOUTS) if arguments.layout == "both" else [arguments.layout]
    by_layout: dict[str, dict[str, Any]] = {layout: {} for layout in layouts}
    for layout in layouts:
        for memories in sorted(set(arguments.memories)):
            volume = Volume(memories, min(arguments.cubes, memories) if LAYOUTS[layout] else 1)
            with tempfile.TemporaryDirectory(prefix="memstrata-bench-", dir=arguments.folder) as folder:
                by_layout[layout][str(memories)] = measure_volume(Path(folder), volume, embedder, arguments)
    if arguments.plot is not None:
        plot(arguments.plot, by_layout)
    tables = [
        figures_table(f"{layout}, by number of memories", list(sizes), _turned(sizes))
        for layout, sizes in by_layout.items()
    ]
    counts = {"n": arguments.searches, "n_adds": arguments.adds, "cubes": arguments.cubes}
    return Report({**headline(by_layout), **counts, "by_layout": by_layout}, tables=tables)


def measure_volume(folder: Path, volume: Volume, embedder: Embedder, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return every figure of one installation."""
    home, dialogues = folder / "home", Dialogues(arguments.seed)
    filler = embedder if arguments.real_vectors else BagOfWords(embedder, arguments.seed)
    fill_s = fill(home, volume, dialogues, filler)
    graphs_s = build_graphs(home, embedder)
    sizes = bytes_on_disk(home)
    cold = cold_start(home, volume.names[0], arguments.cold_starts)
    del filler
    forget_peak()
    overheard = Overheard(embedder)
    with MemOS.open(home, embedder=overheard) as memos:
        samples = time_searches(memos, volume, dialogues, embedder, arguments.searches)
        time_adds(memos, volume, dialogues, overheard, samples, arguments.adds)
        peak = peak_rss_mib()
    return {
        **samples.figures(),
        "bytes_per_memory": round(sum(sizes.values()) / volume.memories),
        "bytes_on_disk": sizes,
        "cold_start": cold,
        "peak_rss_mib": peak,
        "fill_s": round(fill_s, 1),
        "graphs_s": None if graphs_s is None else round(graphs_s, 1),
    }


def time_searches(memos: MemOS, volume: Volume, dialogues: Dialogues, embedder: Embedder, count: int) -> Samples:
    """Time searches and embedding the same questions, in turns, each first as often as the other."""
    samples, names = Samples(), volume.names
    for number in progress(range(-(count // _WARM_UP), count), f"searching {volume.memories:,}, cubes: {volume.cubes}"):
        question, cube = dialogues.question(), names[number // 2 % len(names)]
        before = _timed(embedder.embed_query, question) if number % 2 else None
        started = time.perf_counter()
        result = memos.search(question, cubes=[cube], top_k=TOP_K)
        search_ms = _since(started)
        if result.missing_arms:
            raise RuntimeError(f"The vector index was down in a search (missing: {', '.join(result.missing_arms)}).")
        embed_ms = _timed(embedder.embed_query, question) if before is None else before
        if number >= 0:
            samples.search.append(search_ms)
            samples.embed.append(embed_ms)
            for stage, spent in result.timings_ms.items():
                samples.stages.setdefault(stage, []).append(spent)
    return samples


def time_adds(
    memos: MemOS, volume: Volume, dialogues: Dialogues, overheard: Overheard, samples: Samples, count: int
) -> None:
    """Time adds, the embedding of the same texts in one batch, and a block written durably, in turns."""
    names = volume.names
    with (memos.home / "fsync-probe").open("wb", buffering=0) as probe:
        for number in progress(
            range(-(count // _WARM_UP), count), f"adding to {volume.memories:,}, cubes: {volume.cubes}"
        ):
            exchange, cube = dialogues.messages(2), names[number % len(names)]
            overheard.texts.clear()
            started = time.perf_counter()
            receipt = memos.add(exchange, cube=cube, conversation="measured")
            add_ms = _since(started)
            if not receipt.indexed:
                raise RuntimeError("An add was not searchable when it returned; the machine is too busy to measure.")
            batch_ms = _timed(overheard.embedder.embed_documents, list(overheard.texts))
            fsync_ms = _timed(_write_durably, probe)
            if number >= 0:
                samples.add.append(add_ms)
                samples.batch.append(batch_ms)
                samples.fsync.append(fsync_ms)


def headline(by_layout: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the figures the targets are set for: the worst over layouts and sizes."""
    every = [figures for sizes in by_layout.values() for figures in sizes.values()]
    figures: dict[str, Any] = {
        name: max(entry[name] for entry in every) for name in ("search_over_embed", "add_over_embed", "p99_over_p50")
    }
    ends = [(min(sizes, key=int), max(sizes, key=int), sizes) for sizes in by_layout.values()]
    growths = [
        sizes[last]["search_p50_ms"] / sizes[first]["search_p50_ms"] for first, last, sizes in ends if first != last
    ]
    figures["growth"] = round(max(growths), 3) if growths else None
    figures["bytes_per_memory"] = max(sizes[last]["bytes_per_memory"] for _first, last, sizes in ends)
    return figures


def plot(path: Path, by_layout: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Draw medians over the number of memories."""
    from benchmarks.plots import lines  # noqa: PLC0415 - matplotlib is an optional extra

    series = {
        f"{what}, {layout}": ([int(size) for size in sizes], [sizes[size][f"{what}_p50_ms"] for size in sizes])
        for layout, sizes in by_layout.items()
        for what in ("search", "embed", "add", "batch")
    }
    lines(path, series, title="Latency by size", x="memories", y="p50, ms", log_x=True)


def _turned(sizes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the table with a line for each figure and a column for each size."""
    rows = {name: {size: figures[name] for size, figures in sizes.items()} for name in SHOWN}
    for stage in next(iter(sizes.values()))["search_stages_p50_ms"]:
        rows[f"search_stage_{stage}_p50_ms"] = {
            size: each["search_stages_p50_ms"][stage] for size, each in sizes.items()
        }
    rows["cold_start_s"] = {size: figures["cold_start"]["first_hits_s"] for size, figures in sizes.items()}
    rows["of_that_open_s"] = {size: figures["cold_start"]["open_s"] for size, figures in sizes.items()}
    return rows


def _timed(call: Callable[[Any], object], argument: Any) -> float:
    started = time.perf_counter()
    call(argument)
    return _since(started)


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _write_durably(file: io.FileIO) -> None:
    file.write(_BLOCK)
    os.fsync(file.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = output_parser(__doc__)
    parser.add_argument("--memories", type=positive, nargs="+", default=[1_000, 10_000, 100_000], metavar="N")
    parser.add_argument("--layout", choices=[*LAYOUTS, "both"], default="both")
    parser.add_argument("--cubes", type=positive, default=100, help="cubes of the layout many-cubes (default 100)")
    parser.add_argument("--searches", type=positive, default=500, help="timed searches at each size (default 500)")
    parser.add_argument("--adds", type=positive, default=200, help="timed adds at each size (default 200)")
    parser.add_argument("--cold-starts", type=positive, default=3, help="new processes timed at each size (default 3)")
    parser.add_argument("--real-vectors", action="store_true", help="embed the fill with MiniLM, too")
    parser.add_argument("--folder", type=Path, help="where to make the installations (default: the temporary folder)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw latency over size (extra `bench`)")
    return run("latency", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
