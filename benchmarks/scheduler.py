"""What the scheduler decides and costs: `python -m benchmarks.scheduler --data locomo_dev.json`.

Parts, all unless --parts names some: `heat` simulates which memories stay at hand (benchmarks/heat_simulation.py),
`tasks` times the task queue (benchmarks/task_rates.py), `sweep` counts what finding the segments that must move costs
(benchmarks/sweep_cost.py), `duplicates` which pairs of facts are taken for one (benchmarks/fact_pairs.py),
`model` what a language model is asked (benchmarks/model_calls.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import fact_pairs, heat_simulation, model_calls, sweep_cost, task_rates
from benchmarks.report import Report, output_parser, run

PARTS: Mapping[str, Callable[[argparse.Namespace], Report]] = {
    "heat": heat_simulation.measure,
    "tasks": task_rates.measure,
    "sweep": sweep_cost.measure,
    "duplicates": fact_pairs.measure,
    "model": model_calls.measure,
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
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="only these")
    heat_simulation.add_arguments(parser)
    task_rates.add_arguments(parser)
    sweep_cost.add_arguments(parser)
    fact_pairs.add_arguments(parser)
    model_calls.add_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("scheduler", parse(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
