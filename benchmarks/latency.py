"""One durable `add` and one `search` at several sizes: `python -m benchmarks.latency --memories 1000 10000 100000`.

An add is an exchange of two messages, committed and searchable when it returns; a search is the ten best of one cube,
hydrated. The ratios compare with MiniLM itself, timed in turns with them: `search_over_embed` with embedding the
question, `add_over_embed` with embedding, in one batch, the very texts the add embedded. `growth` is search p50 at
the largest size over that at the smallest, `p99_over_p50` the worse of searches and adds. The headline is the worst
over layouts and sizes; `bytes_per_memory` is taken at the largest size. The store is filled with word vectors, since
MiniLM would take half an hour; what is timed is embedded by MiniLM.

`--requests` asks for advice instead ("Can you recommend ..."), which also looks for what users told of themselves.
`--backend servers` measures the same on PostgreSQL and Neo4j, started for it on loopback, and the Qdrant server that
QDRANT_URL names; `both` measures files and servers in turns, with the same texts, and prints the one over the other;
`encryption` does so with plain and encrypted files, `server-encryption` with plain and encrypted ledgers on servers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.data import BadData
from benchmarks.dialogues import Dialogues
from benchmarks.report import Report, figures_table, output_parser, positive, run
from benchmarks.servers import Servers, embedded, started
from benchmarks.timing import Measured, Overheard, time_adds, time_searches
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
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import Embedder
from memos.core.settings import Settings, TaskSettings

LAYOUTS = {"one-cube": False, "many-cubes": True}
BACKENDS = {
    "embedded": ("embedded",),
    "servers": ("servers",),
    "both": ("embedded", "servers"),
    "encryption": ("embedded", "encrypted"),
    "server-encryption": ("servers", "encrypted-servers"),
}
SHOWN = (
    "search_p50_ms", "search_p95_ms", "search_p99_ms", "embed_p50_ms", "search_over_embed",
    "add_p50_ms", "add_p95_ms", "add_p99_ms", "batch_p50_ms", "add_over_embed", "fsync_p50_ms", "bytes_per_memory",
)  # fmt: skip
COMPARED = ("search_p50_ms", "search_p95_ms", "search_p99_ms", "add_p50_ms", "add_p95_ms", "add_p99_ms")

_Sizes = dict[str, dict[str, Any]]


def measure(arguments: argparse.Namespace) -> Report:
    """Fill and time each layout at each size, on servers that live as long as this does where servers are asked for."""
    if arguments.folder is not None and not arguments.folder.is_dir():
        raise BadData(arguments.folder, "is not a folder; --folder wants one that exists")
    with started() if "servers" in "".join(BACKENDS[arguments.backend]) else nullcontext() as servers:
        return measure_on(servers, arguments)


def measure_on(servers: Servers | None, arguments: argparse.Namespace) -> Report:
    """Fill and time each layout at each size, on files and on the given servers, as the arguments ask."""
    embedder = MiniLmEmbedder(threads=Settings().embed.threads)
    layouts = list(LAYOUTS) if arguments.layout == "both" else [arguments.layout]
    backends = BACKENDS[arguments.backend]
    found: dict[str, dict[str, _Sizes]] = {backend: {layout: {} for layout in layouts} for backend in backends}
    for layout in layouts:
        for memories in sorted(set(arguments.memories)):
            volume = Volume(memories, min(arguments.cubes, memories) if LAYOUTS[layout] else 1)
            with ExitStack() as stack:
                places = {
                    backend: stack.enter_context(_place(servers, backend, arguments.folder)) for backend in backends
                }
                for backend, figures in measure_volume(places, servers, volume, embedder, arguments).items():
                    found[backend][layout][str(memories)] = figures
    return _report(found, {} if servers is None else servers.stores(), arguments)


def _report(
    found: Mapping[str, Mapping[str, _Sizes]], stores: Mapping[str, str], arguments: argparse.Namespace
) -> Report:
    """Return the figures of the first backend, and beside them those of the second."""
    (_, first), *others = found.items()
    if arguments.plot is not None:
        plot(arguments.plot, first)
    counts = {"n": arguments.searches, "n_adds": arguments.adds, "cubes": arguments.cubes}
    figures = {
        **headline(first),
        **counts,
        "requests": arguments.requests,
        "backend": arguments.backend,
        "by_layout": first,
    }
    tables = [table for backend, by_layout in found.items() for table in _tables(backend, by_layout)]
    for backend, theirs in others:
        over = compared(first, theirs)
        figures |= {backend: {**headline(theirs), "by_layout": theirs}, f"{backend}_over_embedded": over}
        tables += [
            figures_table(f"{layout}, {backend} over embedded", list(sizes), _by_figure(sizes, COMPARED))
            for layout, sizes in over.items()
        ]
    if stores:
        figures["stores"] = stores
        tables.append(figures_table("the servers", ["is"], {name: {"is": store} for name, store in stores.items()}))
    return Report(figures, tables=tables)


@contextmanager
def _place(servers: Servers | None, backend: str, folder: Path | None) -> Iterator[Settings]:
    """Yield the settings of a new installation, on files or on servers, that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="hippocube-bench-", dir=folder) as made:
        home = Path(made) / "home"
        if backend == "servers" and servers is not None:
            with servers.installation(home) as settings:
                yield settings
        elif backend.startswith("encrypted"):
            key = Path(made) / "key"
            key.write_bytes(os.urandom(32))
            plain = nullcontext(embedded(home)) if servers is None else servers.installation(home)
            with plain as settings:
                yield settings.model_copy(update={"encryption_key": f"file:{key}"})
        else:
            yield embedded(home)


def measure_volume(
    places: Mapping[str, Settings],
    servers: Servers | None,
    volume: Volume,
    embedder: Embedder,
    arguments: argparse.Namespace,
) -> dict[str, dict[str, Any]]:
    """Return every figure of installations that hold the same, by backend; they are timed in turns."""
    figures = {}
    # Without background tasks: they are another program's work in the time of this one (benchmarks.scheduler).
    idle = TaskSettings(workers=0)
    places = {backend: settings.model_copy(update={"tasks": idle}) for backend, settings in places.items()}
    for backend, settings in places.items():
        dialogues = Dialogues(arguments.seed)
        filler = embedder if arguments.real_vectors else BagOfWords(embedder, arguments.seed)
        fill_s = fill(settings, volume, dialogues, filler)
        graphs_s = build_graphs(settings, embedder)
        sizes = bytes_on_disk(settings.home)
        if backend == "servers" and servers is not None:
            sizes["ledger"] = servers.ledger_bytes(settings)
        figures[backend] = {
            # Neo4j's files say nothing before it is stopped: benchmarks.capacity counts bytes on servers.
            "bytes_per_memory": None if backend.endswith("servers") else round(sum(sizes.values()) / volume.memories),
            "bytes_on_disk": sizes,
            "cold_start": cold_start(settings, volume.names[0], arguments.cold_starts),
            "fill_s": round(fill_s, 1),
            "graphs_s": None if graphs_s is None else round(graphs_s, 1),
        }
        del filler
    forget_peak()
    os.sync()  # the fill's pages, not yet on the disk, would be written while searches are timed
    with ExitStack() as stack:
        every = {}
        for backend, settings in places.items():
            overheard = Overheard(embedder)
            every[backend] = Measured(stack.enter_context(MemOS.open(settings=settings, embedder=overheard)), overheard)
        time_searches(
            list(every.values()), volume, dialogues, embedder, arguments.searches, requests=arguments.requests
        )
        time_adds(list(every.values()), volume, dialogues, arguments.adds)
        peak = peak_rss_mib() if len(every) == 1 else None
    return {
        backend: {**every[backend].samples.figures(), **found, "peak_rss_mib": peak}
        for backend, found in figures.items()
    }


def compared(ours: Mapping[str, _Sizes], theirs: Mapping[str, _Sizes]) -> dict[str, _Sizes]:
    """Return theirs over ours, by layout and size, for the figures that can be compared so."""
    return {
        layout: {
            size: {name: round(theirs[layout][size][name] / figures[name], 3) for name in COMPARED}
            for size, figures in sizes.items()
        }
        for layout, sizes in ours.items()
    }


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
    sizes_on_disk = [sizes[last]["bytes_per_memory"] for _first, last, sizes in ends]
    figures["bytes_per_memory"] = None if None in sizes_on_disk else max(sizes_on_disk)
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


def _tables(backend: str, by_layout: Mapping[str, _Sizes]) -> list[Table]:
    where = "" if backend == "embedded" else ", on servers"
    return [
        figures_table(f"{layout}{where}, by number of memories", list(sizes), _turned(sizes))
        for layout, sizes in by_layout.items()
    ]


def _by_figure(sizes: _Sizes, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {name: {size: figures[name] for size, figures in sizes.items()} for name in names}


def _turned(sizes: _Sizes) -> dict[str, dict[str, Any]]:
    """Return the table with a line for each figure and a column for each size."""
    rows = _by_figure(sizes, SHOWN)
    for stage in next(iter(sizes.values()))["search_stages_p50_ms"]:
        rows[f"search_stage_{stage}_p50_ms"] = {
            size: each["search_stages_p50_ms"][stage] for size, each in sizes.items()
        }
    rows["cold_start_s"] = {size: figures["cold_start"]["first_hits_s"] for size, figures in sizes.items()}
    rows["of_that_open_s"] = {size: figures["cold_start"]["open_s"] for size, figures in sizes.items()}
    return rows


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments."""
    parser = output_parser(__doc__)
    parser.add_argument("--memories", type=positive, nargs="+", default=[1_000, 10_000, 100_000], metavar="N")
    parser.add_argument(
        "--backend", choices=list(BACKENDS), default="embedded", help="where the stores are (default embedded)"
    )
    parser.add_argument("--layout", choices=[*LAYOUTS, "both"], default="both")
    parser.add_argument("--cubes", type=positive, default=100, help="cubes of the layout many-cubes (default 100)")
    parser.add_argument("--searches", type=positive, default=500, help="timed searches at each size (default 500)")
    parser.add_argument("--adds", type=positive, default=200, help="timed adds at each size (default 200)")
    parser.add_argument("--cold-starts", type=positive, default=3, help="new processes timed at each size (default 3)")
    parser.add_argument("--requests", action="store_true", help="ask for advice, which asks one arm more")
    parser.add_argument("--real-vectors", action="store_true", help="embed the fill with MiniLM, too")
    parser.add_argument("--folder", type=Path, help="where to make the installations (default: the temporary folder)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw latency over size (extra `bench`)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("latency", parse(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
