"""Loads a server over HTTP: 70 % searches and 30 % adds by 1, 8, 32 and 128 clients at once, then a soak by 32.

First it measures what all that costs beside the embeddings: how many the machine makes a second, on all processors and
one text at a time, what share of that searches by 8 clients and a mix by 32 reach, and how often one client's search
takes as long as embedding its question; the processor time of each kind of request, and the memory of every process.
`--shares-only` ends there.

Clients pause as agents do between two turns, for an exponential time with the mean `--pause-s`; then the same without
pauses, where each asks as soon as it was answered, so that n of them wait n times as long as one
(docs/reference/benchmarks/http.md). The
soak has no pauses. The server is a process of its own with its defaults; the clients share the machine with it.
Errors are answers of 400 and more, and requests that got none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
from rich.table import Table

from benchmarks.dialogues import Dialogues
from benchmarks.report import Report, output_parser, positive, run
from benchmarks.shares import measure_shares, tables, texts_of_adds
from benchmarks.volumes import BagOfWords, Volume, build_graphs, fill
from memos import MemOS
from memos.api.serving import first_key
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.settings import Settings

_SEARCH_SHARE = 0.7
_QUESTIONS = 2_000
_ADDS_HEARD = 40
_TIMEOUT_S = 120.0
_SAMPLES = 30
_MIB = 2**20


@dataclass(slots=True)
class Load:
    """What the clients of one round saw: milliseconds of each answer, and what went wrong."""

    search_ms: list[float] = field(default_factory=list)
    add_ms: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def figures(self, seconds: float) -> dict[str, Any]:
        """Return rates and percentiles."""
        found: dict[str, Any] = {
            "requests": len(self.search_ms) + len(self.add_ms),
            "errors": sum(self.errors.values()),
        }
        found["requests_per_s"] = round(found["requests"] / seconds, 1)
        for name, times in (("search", self.search_ms), ("add", self.add_ms)):
            p50, p99 = np.percentile(times, [50, 99]) if times else (0.0, 0.0)
            found |= {f"{name}_p50_ms": round(float(p50), 1), f"{name}_p99_ms": round(float(p99), 1)}
        return found | ({"kinds_of_errors": self.errors} if self.errors else {})


class Clients:
    """Asks a server what people would: questions never asked before, and things to remember."""

    def __init__(self, url: str, key: str, cubes: Sequence[str], seed: int) -> None:
        self._url, self._cubes = url, cubes
        self._headers = {"Authorization": f"Bearer {key}"}
        dialogues = Dialogues(seed + 1)
        self._questions = [dialogues.question() for _ in range(_QUESTIONS)]
        self._said = dialogues.messages(_QUESTIONS)
        self._random = np.random.default_rng(seed)

    async def load(self, count: int, seconds: float, pause_s: float = 0.0, share: float = _SEARCH_SHARE) -> Load:
        """Return what so many clients saw, each asking its next thing a mean `pause_s` after it was answered.

        Of what they ask, `share` are searches, the rest are adds.
        """
        seen, until = Load(), time.perf_counter() + seconds
        limits = httpx2.Limits(max_connections=count, max_keepalive_connections=count)
        async with httpx2.AsyncClient(
            base_url=self._url, headers=self._headers, timeout=_TIMEOUT_S, limits=limits, trust_env=False
        ) as http:
            await asyncio.gather(*(self._client(http, seen, until, pause_s, share) for _ in range(count)))
        return seen

    def http(self) -> httpx2.Client:
        """Return one client for requests that are counted one by one."""
        return httpx2.Client(base_url=self._url, headers=self._headers, timeout=_TIMEOUT_S, trust_env=False)

    def question(self) -> str:
        """Return a question never asked before."""
        place = int(self._random.integers(_QUESTIONS))
        return f"{self._questions[place]} {self._random.integers(10**9)}"

    async def _client(self, http: httpx2.AsyncClient, seen: Load, until: float, pause_s: float, share: float) -> None:
        while True:
            pause = float(self._random.exponential(pause_s)) if pause_s else 0.0
            if time.perf_counter() + pause >= until:
                return
            await asyncio.sleep(pause)
            searches = bool(self._random.random() < share)
            path, body = self.next(searches=searches)
            began = time.perf_counter()
            try:
                answer = await http.post(path, json=body)
                problem = "" if answer.status_code < 400 else str(answer.status_code)
            except httpx2.TransportError as error:
                problem = type(error).__name__
            if problem:
                seen.errors[problem] = seen.errors.get(problem, 0) + 1
            else:
                (seen.search_ms if searches else seen.add_ms).append((time.perf_counter() - began) * 1000)

    def next(self, *, searches: bool) -> tuple[str, dict[str, Any]]:
        """Return the path and the body of the next request."""
        cube = self._cubes[int(self._random.integers(len(self._cubes)))]
        if searches:
            return "/api/v1/search", {"query": self.question(), "cubes": [cube]}
        place = int(self._random.integers(_QUESTIONS))
        said = {"role": "user", "content": f"{self._said[place]['content']} {self._random.integers(10**9)}"}
        return "/api/v1/memories", {"messages": [said], "cube": cube, "conversation": f"live-{place % 50}"}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as the arguments say; return the exit code."""
    parser = output_parser(__doc__)
    parser.add_argument("--memories", type=positive, default=20_000, help="memories stored before (default 20,000)")
    parser.add_argument("--cubes", type=positive, default=20, help="cubes they are in (default 20)")
    parser.add_argument("--share-seconds", type=positive, default=20, help="seconds of a round of shares (default 20)")
    parser.add_argument("--shares-only", action="store_true", help="leave out pauses, other clients and the soak")
    parser.add_argument("--clients", type=positive, nargs="+", default=[1, 8, 32, 128], help="clients at once")
    parser.add_argument("--seconds", type=positive, default=60, help="seconds of each round (default 60)")
    parser.add_argument("--alone-seconds", type=int, default=240, help="least seconds of the first round (default 240)")
    parser.add_argument("--pause-s", type=float, default=5, help="mean pause of a client before it asks (default 5)")
    parser.add_argument("--busy-seconds", type=int, default=20, help="seconds of a round without pauses (default 20)")
    parser.add_argument("--soak-clients", type=positive, default=32, help="clients of the soak (default 32)")
    parser.add_argument("--soak-seconds", type=int, default=600, help="seconds of the soak, 0 for none (default 600)")
    return run("http", parser.parse_args(argv), measure)


def measure(arguments: argparse.Namespace) -> Report:
    """Return latencies by number of clients, and the memory of the server's processes over the soak."""
    with tempfile.TemporaryDirectory(prefix="hippocube-http-") as folder:
        home = Path(folder) / "home"
        volume = Volume(arguments.memories, arguments.cubes)
        key = _prepare(home, volume, arguments.seed)
        said = Clients("", key, volume.names, arguments.seed + 1)
        heard = texts_of_adds(home, [said.next(searches=False)[1] for _ in range(_ADDS_HEARD)])
        with _server(home) as (url, process, start_s):
            clients = Clients(url, key, volume.names, arguments.seed)
            asyncio.run(clients.load(1, min(5.0, arguments.seconds)))  # warm
            shares = measure_shares(clients, process, home, heard, arguments.share_seconds)
            if arguments.shares_only:
                return Report({"start_s": round(start_s, 2), "shares": shares}, tables=tables(shares))
            paced = _rounds(clients, arguments.clients, arguments.seconds, arguments.pause_s, arguments.alone_seconds)
            busy = _rounds(clients, arguments.clients, arguments.busy_seconds, 0.0)
            soak = asyncio.run(_soak(clients, process, arguments)) if arguments.soak_seconds > 0 else None
    figures = {
        "n": {name: getattr(arguments, name) for name in ("memories", "cubes", "seconds", "pause_s", "busy_seconds")},
        "start_s": round(start_s, 2), "shares": shares, "with_pauses": paced, "without_pauses": busy, "soak": soak,
    }  # fmt: skip
    # One client alone is what others are measured by: one that asks as they do, and one that never pauses, for which
    # everything is still in the processor's caches.
    for name, rounds in (("single", paced), ("busy_single", busy)):
        single = next(iter(rounds.values()))["search_p50_ms"]
        for found in (*paced.values(), *busy.values()):
            found[f"search_p99_by_{name}_p50"] = round(found["search_p99_ms"] / single, 1) if single else None
    told = {f"with pauses of {arguments.pause_s:g} s in the mean": paced, "without pauses": busy}
    return Report(
        figures, tables=[*tables(shares), *(_table(name, rounds) for name, rounds in told.items()), *_soak_table(soak)]
    )


def _rounds(
    clients: Clients, counts: Sequence[int], seconds: float, pause_s: float, alone_s: float = 0.0
) -> dict[str, dict[str, Any]]:
    """Return the figures of each count; the first round lasts at least `alone_s`, or one client asks too little."""
    lasts = {count: max(seconds, alone_s if not place else 0.0) for place, count in enumerate(counts)}
    return {str(count): asyncio.run(clients.load(count, s, pause_s)).figures(s) for count, s in lasts.items()}


def _prepare(home: Path, volume: Volume, seed: int) -> str:
    settings, embedder = Settings(home=home), MiniLmEmbedder(threads=2)
    fill(settings, volume, Dialogues(seed), BagOfWords(embedder, seed))
    with MemOS.open(settings=settings, embedder=embedder) as memos:
        memos.tasks.wait()
        key = first_key(memos)
    build_graphs(settings, embedder)
    assert key is not None
    return key


@contextmanager
def _server(home: Path) -> Iterator[tuple[str, psutil.Process, float]]:
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "memos", "serve", "--port", "0", "--log-level", "error", "--data-dir", str(home)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        httpx2.get(f"{url}/health", timeout=_TIMEOUT_S, trust_env=False).raise_for_status()
        yield url, psutil.Process(process.pid), time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate(timeout=_TIMEOUT_S)


async def _soak(clients: Clients, process: psutil.Process, arguments: argparse.Namespace) -> dict[str, Any]:
    rss, ended = [_rss_mib(process)], asyncio.Event()

    async def sample() -> None:
        while not ended.is_set():
            await asyncio.sleep(max(0.5, arguments.soak_seconds / _SAMPLES))
            rss.append(_rss_mib(process))

    sampling = asyncio.create_task(sample())
    seen = await clients.load(arguments.soak_clients, arguments.soak_seconds)
    ended.set()
    await sampling
    third = len(rss) // 3 or 1
    return {
        "clients": arguments.soak_clients, "seconds": arguments.soak_seconds,
        **seen.figures(arguments.soak_seconds), "rss_mib": rss,
        "rss_second_third_mib": round(float(np.mean(rss[third : 2 * third] or rss)), 1),
        "rss_last_third_mib": round(float(np.mean(rss[2 * third :] or rss)), 1),
    }  # fmt: skip


def _rss_mib(process: psutil.Process) -> float:
    """Return the memory of the server and its children."""
    return round(sum(each.memory_info().rss for each in [process, *process.children(recursive=True)]) / _MIB, 1)


def _table(title: str, rounds: dict[str, dict[str, Any]]) -> Table:
    names = ("requests", "errors", "requests_per_s", "search_p50_ms", "search_p99_ms", "search_p99_by_single_p50",
             "search_p99_by_busy_single_p50", "add_p50_ms", "add_p99_ms")  # fmt: skip
    table = Table(title=f"clients at once, 70 % searches, 30 % adds, {title}", title_justify="left")
    for name in ("clients", *names):
        table.add_column(name.replace("_", " "), justify="right")
    for count, found in rounds.items():
        table.add_row(count, *(str(found[name]) for name in names))
    return table


def _soak_table(soak: dict[str, Any] | None) -> list[Table]:
    if soak is None:
        return []
    over = Table(title=f"soak: {soak['clients']} clients, {soak['seconds']} s", title_justify="left")
    kept = ("requests", "errors", "search_p99_ms", "rss_second_third_mib", "rss_last_third_mib")
    for name in kept:
        over.add_column(name.replace("_", " "), justify="right")
    over.add_row(*(str(soak[name]) for name in kept))
    return [over]


if __name__ == "__main__":
    raise SystemExit(main())
