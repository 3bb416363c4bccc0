"""What every benchmark program shares: its arguments, progress bar, table, files and closing line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.data import BadData
from benchmarks.machine import machine

SEED = 5
BAD_DATA = 2
_TABLE_WIDTH = 120

_T = TypeVar("_T")
_SCREEN = Console(stderr=True)


class CannotRun(Exception):
    """The machine lacks what was asked for; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found: `figures` close it, `rows` are one for each question, `tables` are printed."""

    figures: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def data_parser(doc: str | None, data: str) -> argparse.ArgumentParser:
    """Return the arguments that every benchmark over a data file takes."""
    parser = output_parser(doc)
    parser.add_argument("--data", type=Path, required=True, metavar="PATH", help=data)
    parser.add_argument("--per-question", type=Path, metavar="FILE", help="write one line of JSON a question")
    parser.add_argument("--limit", type=positive, metavar="N", help="a quick version: only the first N questions")
    return parser


def output_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return the arguments that every benchmark takes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the closing line's JSON here, too")
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed of everything random (default {SEED})")
    return parser


def positive(text: str) -> int:
    """Read a number of at least 1, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def progress(entries: Sequence[_T], what: str) -> Iterable[_T]:
    """Yield the entries under a progress bar on standard error."""
    return track(entries, description=what, console=_SCREEN)


def run(name: str, arguments: argparse.Namespace, measure: Callable[[argparse.Namespace], Report]) -> int:
    """Measure, print tables and the closing line, write the files; what cannot be read or run is exit code 2."""
    try:
        _check_writable(arguments)
        report = measure(arguments)
    except (BadData, CannotRun) as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_DATA
    closing = {"benchmark": name, **report.figures, "seed": arguments.seed, **machine()}
    screen = Console(width=max(_TABLE_WIDTH, Console().width))
    for table in report.tables:
        screen.print(table)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(closing, indent=2) + "\n", encoding="utf-8")
    rows = getattr(arguments, "per_question", None)
    if rows is not None:
        rows.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in report.rows), encoding="utf-8")
    print(json.dumps(closing))
    return 0


def figures_table(title: str, names: Sequence[str], rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a table with one line for each of `rows`: ours first, then the floors."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for label, figures in rows.items():
        table.add_row(label, *(_shown(figures.get(name)) for name in names))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "–" if value is None else str(value)


def _check_writable(arguments: argparse.Namespace) -> None:
    """Refuse a file that cannot be written now, instead of after an hour."""
    for name in ("out", "per_question", "plot"):
        path = getattr(arguments, name, None)
        if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
            raise BadData(path, "cannot be written: give a file in a folder that exists")
