"""How long the console's pages take with many memories: `python -m benchmarks.console --memories 100000`.

Fills one cube, serves it, and opens every page in headless Chromium (Debian's package `chromium`, or MEMOS_CHROMIUM):
the first page in a new browser with nothing cached, then each page `--repeats` times. A time is from the navigation to
the event `load`; `complete_ms` is until the parts that a page asks for after that are there too. `first_kb` is what the
first page transfers.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.dialogues import Dialogues
from benchmarks.report import CannotRun, Report, figures_table, output_parser, positive, run
from benchmarks.volumes import BagOfWords, Volume, fill
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.settings import Settings

CUBE = "cube-0"
QUESTION = "Where+does+Maria+live"
PAGES = {
    "start": "/",
    "ask": f"/ask?q={QUESTION}",
    "chat": "/chat",
    "memories": "/memories",
    "memories, searched": f"/memories?q={QUESTION}",
    "timeline": "/timeline",
    "timeline, between two days": "/timeline/difference",
    "people": "/people",
    "a person": "/people/Maria",
    "graph, 2,000 names": "/people/graph?limit=2000",
    "documents": "/documents",
    "review": "/review",
    "tiers": "/tiers",
    "tiers, presets": "/tiers/presets",
    "models": "/models",
    "work": "/work",
    "access": "/access",
    "data": "/data",
    "health": "/health",
}
_TIMED = "(() => { const [it] = performance.getEntriesByType('navigation'); return it.loadEventEnd; })()"
_COMPLETE = "performance.getEntriesByType('resource').reduce((last, it) => Math.max(last, it.responseEnd), 0)"
_BYTES = "performance.getEntries().filter(it => 'transferSize' in it).reduce((sum, it) => sum + it.transferSize, 0)"


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Serve a folder; yield the link that signs in to its console."""
    command = [sys.executable, "-m", "memos", "console", "--no-browser", "--port", "0", "--data-dir", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = next(match for line in server.stdout if (match := re.search(r"Console: (\S+)", line)))
            yield found[1]
        finally:
            server.terminate()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser."""
    program = os.environ.get("MEMOS_CHROMIUM") or shutil.which("chromium")
    if program is None:
        raise CannotRun("no chromium here: install Debian's package `chromium`, or set MEMOS_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def timed(page: Page, address: str) -> tuple[float, float]:
    """Open an address; return its time to the event `load`, and until every part is there, in milliseconds."""
    answer = page.goto(address)
    assert answer is not None
    assert answer.ok, f"{address}: {answer.status}"
    while not (ended := float(page.evaluate(_TIMED))):  # the event is being handled
        pass
    page.wait_for_load_state("networkidle")
    return ended, max(ended, float(page.evaluate(_COMPLETE)))


def measure(arguments: argparse.Namespace) -> Report:
    """Fill, serve and open every page."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=arguments.home or Path(folder))
        seconds = 0.0
        if not (settings.home / "ledger.db").exists():
            embedder = BagOfWords(MiniLmEmbedder(), arguments.seed)
            seconds = fill(settings, Volume(arguments.memories, 1), Dialogues(arguments.seed), embedder)
        with served(settings.home) as link, chromium() as browser:
            return _report(link, browser, arguments, seconds)


def _report(link: str, browser: Browser, arguments: argparse.Namespace, fill_s: float) -> Report:
    root = link.partition("/sign-in")[0]
    context = browser.new_context()
    context.route("**/*", lambda route: route.continue_())  # without a cache: each request is sent
    page = context.new_page()
    page.goto(link)
    page.wait_for_url("**/console/")
    first_ms, _ = timed(page, f"{root}/?cube={CUBE}")
    first_kb = float(page.evaluate(_BYTES)) / 1000
    context.unroute("**/*")
    times: dict[str, list[tuple[float, float]]] = {}
    for name, path in PAGES.items():
        address = f"{root}{path}{'&' if '?' in path else '?'}cube={CUBE}"
        times[name] = [timed(page, address) for _ in range(arguments.repeats)]
    rows: dict[str, dict[str, Any]] = {
        name: {
            "p50_ms": statistics.median(ended for ended, _ in each),
            "worst_ms": max(ended for ended, _ in each),
            "complete_ms": statistics.median(complete for _, complete in each),
        }
        for name, each in times.items()
    }
    figures = {
        "memories": arguments.memories,
        "fill_s": fill_s,
        "first_ms": first_ms,
        "first_kb": first_kb,
        "slowest_p50_ms": max(row["p50_ms"] for row in rows.values()),
        "worst_ms": max(row["worst_ms"] for row in rows.values()),
        "pages": rows,
    }
    title = f"Pages of the console, {arguments.memories:,} memories; first page {first_ms:.0f} ms, {first_kb:.0f} kB"
    return Report(figures, tables=[figures_table(title, ("p50_ms", "worst_ms", "complete_ms"), rows)])


if __name__ == "__main__":
    parser = output_parser(__doc__)
    parser.add_argument("--memories", type=positive, default=100_000, metavar="N", help="memories in the cube")
    parser.add_argument("--home", type=Path, metavar="DIR", help="fill this folder, or use what an earlier run filled")
    parser.add_argument("--repeats", type=positive, default=5, metavar="N", help="times that each page is opened")
    sys.exit(run("console", parser.parse_args(), measure))
