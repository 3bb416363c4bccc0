"""Starts a server with an empty store and times its first answers: `python -m benchmarks.start`.

From the command to the first answer of `/health`, of `/ready`, and of a search with the key that the start printed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import httpx2
from rich.table import Table

from benchmarks.report import Report, output_parser, positive, run

_WHAT = ("health", "ready", "search")


def one(folder: str) -> dict[str, float]:
    """Return the seconds from the command to each first answer."""
    command = [sys.executable, "-m", "memos", "serve", "--port", "0", "--log-level", "error", "--data-dir", folder]
    began, found = time.perf_counter(), {}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "500"}
    )
    try:
        assert server.stdout is not None
        url, key = (server.stdout.readline().split()[-1] for _ in range(2))
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            for what in ("health", "ready"):
                client.get(f"/{what}").raise_for_status()
                found[what] = time.perf_counter() - began
            client.post("/api/v1/search", json={"query": "Where does Maria live?"}).raise_for_status()
            found["search"] = time.perf_counter() - began
    finally:
        server.terminate()
        server.wait(60)
    return found


def measure(starts: int) -> list[dict[str, float]]:
    """Return what each of so many starts took, in seconds; each has a new folder."""
    found = []
    for _ in range(starts):
        with tempfile.TemporaryDirectory(prefix="memos-start-") as folder:
            found.append(one(folder))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = output_parser(__doc__)
    parser.add_argument("--starts", type=positive, default=7, help="how often a server is started")
    return run("start", parser.parse_args(argv), lambda arguments: _report(measure(arguments.starts)))


def _report(found: Sequence[dict[str, float]]) -> Report:
    table = Table("first answer", "median s", "least s", "most s")
    figures: dict[str, Any] = {"starts": len(found)}
    for what in _WHAT:
        times = [each[what] for each in found]
        told = {"median_s": statistics.median(times), "least_s": min(times), "most_s": max(times)}
        figures[what] = {name: round(value, 2) for name, value in told.items()}
        table.add_row(what, *(f"{value:.2f}" for value in told.values()))
    return Report(figures, tables=[table])


if __name__ == "__main__":
    sys.exit(main())
