"""Compare a server with its embedder; both are measured in turns, so that a busy machine slows both."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from rich.table import Table

from benchmarks.report import CannotRun
from benchmarks.timing import Overheard
from memos import MemOS
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.settings import Settings

if TYPE_CHECKING:
    from benchmarks.http import Clients

_MIB = 2**20
_REQUESTS_PER_S = {"/health": 50, "/api/v1/me": 50, "search": 10, "add": 5}
_STARTS = 3

GOALS = {
    "search_p50_by_embedding": "<= 2.2",
    "searches_by_limit": ">= 0.60",
    "mix_by_limit": ">= 0.40",
    "mix_p99_by_p50": "<= 8",
    "me_cpu_ms": "<= 1.0",
    "rss_mib": "<= 350",
    "help_cpu_s": "<= 0.30",
    "search_command_cpu_s": "<= 0.6",
}
"""Goals on two cores, embedded, with 20,000 memories."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Embeddings a second on all processors, of questions and of the texts of adds, one text at a time."""

    question_ms: float
    questions_per_s: float
    adds_per_s: float

    def mix_per_s(self, searches: float) -> float:
        """Return how many requests a second could be embedded, of which so large a share are searches."""
        return 1 / (searches / self.questions_per_s + (1 - searches) / self.adds_per_s)


class Embedding:
    """Embeds the questions and the texts of adds that clients send, as a server would if it did nothing else."""

    def __init__(self, clients: Clients, heard: Sequence[Sequence[str]]) -> None:
        self._embedder = MiniLmEmbedder(threads=1)
        self._next = clients.question
        self._heard = heard
        self._workers = os.cpu_count() or 1
        self._measured: list[Embeddings] = []

    def measure(self, seconds: float) -> None:
        """Measure for about so long; `mean` is over all times."""
        each = seconds / 3
        alone = self._times(each, self._question)
        with ThreadPoolExecutor(self._workers) as pool:
            questions = sum(map(len, pool.map(lambda _: self._times(each, self._question), range(self._workers))))
            adds = sum(map(len, pool.map(lambda _: self._times(each, self._add), range(self._workers))))
        self._measured.append(Embeddings(float(np.median(alone)) * 1000, questions / each, adds / each))

    def mean(self, latest: int) -> Embeddings:
        """Return the mean of the latest measurements."""
        kept = self._measured[-latest:]
        return Embeddings(*(float(np.mean([getattr(one, name) for one in kept])) for name in Embeddings.__slots__))

    def _question(self, _: int) -> None:
        self._embedder.embed_query(self._next())

    def _add(self, number: int) -> None:
        self._embedder.embed_documents(self._heard[number % len(self._heard)])

    @staticmethod
    def _times(seconds: float, work: Callable[[int], None]) -> list[float]:
        taken: list[float] = []
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            work(len(taken))
            taken.append(time.perf_counter() - began)
        return taken


def texts_of_adds(home: Path, bodies: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Return what each of some adds has embedded, in a folder that no server has open."""
    overheard, found = Overheard(MiniLmEmbedder()), []
    with MemOS.open(settings=Settings(home=home), embedder=overheard) as memos:
        for body in bodies:
            overheard.texts.clear()
            memos.add(**body)
            found.append(list(overheard.texts))
    if not all(found):
        raise CannotRun("An add embedded nothing; the machine is too busy to measure.")
    return found


def measure_shares(
    clients: Clients, process: psutil.Process, home: Path, heard: Sequence[Sequence[str]], seconds: float
) -> dict[str, Any]:
    """Return rates and latencies beside those of the embedder, processor time of each request, and memory."""
    embedding, found = Embedding(clients, heard), {}
    # First, while no background work is left over from the rounds.
    cpu = {name: _cpu_ms(clients, process, name, round(rate * seconds)) for name, rate in _REQUESTS_PER_S.items()}
    for name, count, searches in (("alone", 1, 1.0), ("searches", 8, 1.0), ("mix", 32, 0.7)):
        embedding.measure(seconds / 2)
        found[name] = asyncio.run(clients.load(count, seconds, share=searches)).figures(seconds)
        embedding.measure(seconds / 2)
        limit = embedding.mean(2)
        found[name] |= {
            "embedding_ms": round(limit.question_ms, 2),
            "limit_per_s": round(limit.mix_per_s(searches), 1),
            "by_limit": round(found[name]["requests_per_s"] / limit.mix_per_s(searches), 3),
        }
    limit, alone, mix = embedding.mean(6), found["alone"], found["mix"]
    memory = {f"{each.name()} {each.pid}": _rss_mib(each) for each in _processes(process)}
    command = ["search", "bees", "--data-dir", str(home)]
    return {
        "embeddings_per_s": round(limit.questions_per_s, 1),
        "adds_embedded_per_s": round(limit.adds_per_s, 1),
        "rounds": found,
        "search_p50_by_embedding": round(alone["search_p50_ms"] / alone["embedding_ms"], 2),
        "searches_by_limit": found["searches"]["by_limit"],
        "mix_by_limit": mix["by_limit"],
        "mix_p99_by_p50": round(max(_spread(mix, "search"), _spread(mix, "add")), 2),
        "cpu_ms": cpu,
        "me_cpu_ms": cpu["/api/v1/me"],
        "memory_mib": memory,
        "rss_mib": round(sum(memory.values()), 1),
        "help_cpu_s": _command_s(["--help"]),
        "search_command_cpu_s": _command_s(command),
    }


def _spread(figures: dict[str, Any], kind: str) -> float:
    median = figures[f"{kind}_p50_ms"]
    return float(figures[f"{kind}_p99_ms"] / median) if median else 0.0


def tables(shares: dict[str, Any]) -> list[Table]:
    """Return what was measured as tables."""
    rounds = Table(title="beside the embedder, on the same processors", title_justify="left")
    names = ("requests", "errors", "requests_per_s", "limit_per_s", "by_limit", "search_p50_ms", "embedding_ms")
    for name in ("round", *names):
        rounds.add_column(name.replace("_", " "), justify="right")
    for label, found in shares["rounds"].items():
        rounds.add_row(label, *(str(found[name]) for name in names))
    goals = Table(title="shares, processor time and memory", title_justify="left")
    for name in ("", "measured", "goal"):
        goals.add_column(name, justify="left" if not name else "right")
    goals.add_row("questions embedded a second, all processors", str(shares["embeddings_per_s"]), "")
    for name, value in shares["cpu_ms"].items():
        goals.add_row(f"processor time of {name}, ms", str(value), "")
    for name, value in shares["memory_mib"].items():
        goals.add_row(f"resident memory of {name}, MiB", str(value), "")
    for name, goal in GOALS.items():
        goals.add_row(name.replace("_", " "), str(shares[name]), goal)
    return [rounds, goals]


def _cpu_ms(clients: Clients, process: psutil.Process, name: str, count: int) -> float:
    """Return the processor time of the server and its children for one request, in milliseconds."""
    with clients.http() as http:

        def ask() -> None:
            if name.startswith("/"):
                answer = http.get(name)
            else:
                path, body = clients.next(searches=name == "search")
                answer = http.post(path, json=body)
            if answer.status_code >= 400:
                raise CannotRun(f"{name} was answered with {answer.status_code}.")

        for _ in range(max(5, count // 20)):
            ask()
        before = _cpu_s(process)
        for _ in range(count):
            ask()
        return round((_cpu_s(process) - before) * 1000 / count, 3)


def _processes(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _cpu_s(process: psutil.Process) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in _processes(process))


def _rss_mib(process: psutil.Process) -> float:
    return round(process.memory_info().rss / _MIB, 1)


def _command_s(arguments: Sequence[str]) -> float:
    """Return the least processor time of a command of some starts, in seconds."""
    taken = []
    for _ in range(_STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "memos", *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(min(taken), 3)
