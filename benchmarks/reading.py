"""What reading finds and costs: `python -m benchmarks.reading --parts labelled junk speed`, `--data` for LoCoMo.

Parts: `labelled` precision and recall without a model on messages written for it (benchmarks/labelled_messages.json),
`junk` how much of what is stored states nothing lasting, `speed` messages a second, `locomo` how much of the evidence
of a LoCoMo file is a source of a fact, `calls` what a language model is asked for each hundred messages of it, `model`
how well the configured model reads labelled messages, `profile` how much of what stories leave is out of date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import reading_calls, reading_locomo, reading_model, reading_profile, reading_quality
from benchmarks.report import Report, output_parser, run

PARTS: Mapping[str, Callable[[argparse.Namespace], Report]] = {
    "labelled": reading_quality.measure_labelled,
    "junk": reading_quality.measure_junk,
    "speed": reading_quality.measure_speed,
    "locomo": reading_locomo.measure,
    "calls": reading_calls.measure,
    "model": reading_model.measure,
    "profile": reading_profile.measure,
}


def measure(arguments: argparse.Namespace) -> Report:
    """Run the parts one after the other; their figures stand side by side, `n` by part."""
    reports = {name: PARTS[name](arguments) for name in arguments.parts}
    figures: dict[str, Any] = {"n": {name: report.figures["n"] for name, report in reports.items()}}
    for report in reports.values():
        figures |= {name: figure for name, figure in report.figures.items() if name != "n"}
    return Report(figures, tables=[table for report in reports.values() for table in report.tables])


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments."""
    parser = output_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS)[:3], help="only these")
    parser.add_argument("--data", type=Path, metavar="FILE", help="a LoCoMo file, for what reads its sessions")
    reading_quality.add_arguments(parser)
    reading_locomo.add_arguments(parser)
    reading_calls.add_arguments(parser)
    reading_model.add_arguments(parser)
    reading_profile.add_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("reading", parse(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
