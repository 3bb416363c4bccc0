"""An installation that grows, and is asked the same questions at each size; knows no data set and no figure of quality.

It is filled with the real embedder through `MemOS.add`. Questions are asked of a copy of its closed files, so that what
they make hot is not there at the next size; graphs are built, and background tasks done, before they are asked.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Session
from benchmarks.report import progress
from benchmarks.servers import embedded
from benchmarks.stores import add_sessions, ask
from benchmarks.volumes import build_graphs, bytes_on_disk
from memos import MemOS
from memos.core.ports import Embedder, Vector
from memos.core.settings import TaskSettings
from memos.core.types import Fingerprint, SearchResult

TIMED_TOP_K = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, its cube, and when it is asked."""

    cube: str
    text: str
    at: datetime | None


@dataclass(slots=True)
class Answers:
    """What each question found, and milliseconds of asking it again and of embedding it."""

    found: list[SearchResult] = field(default_factory=list)
    search: list[float] = field(default_factory=list)
    embed: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)

    def times(self) -> dict[str, Any]:
        """Return percentiles in milliseconds."""
        taken = {"search": self.search, "embed": self.embed}
        times: dict[str, Any] = {
            f"{name}_p{percent}_ms": round(float(np.percentile(values, percent)), 3)
            for name, values in taken.items()
            for percent in (50, 95)
        }
        times["search_over_embed"] = round(times["search_p50_ms"] / times["embed_p50_ms"], 3)
        return times | {"stages_p50_ms": {name: round(float(np.median(v)), 3) for name, v in self.stages.items()}}


class Remembering:
    """An embedder that embeds the first texts it is given once, for all installations; questions always."""

    def __init__(self, embedder: Embedder, capacity: int) -> None:
        self._embedder, self._capacity = embedder, capacity
        self._known: dict[str, Vector] = {}

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the embedder behind."""
        return self._embedder.fingerprint

    @property
    def max_tokens(self) -> int:
        """Tokens one piece may have."""
        return self._embedder.max_tokens

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return `(len(texts), dimension)` unit vectors; only unknown texts are embedded."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        made = dict(zip(missing, self._embedder.embed_documents(missing), strict=True)) if missing else {}
        for text in missing[: max(0, self._capacity - len(self._known))]:
            self._known[text] = made[text].copy()
        return np.stack([made[text] if text in made else self._known[text] for text in texts])

    def embed_query(self, text: str) -> Vector:
        """Return the vector of the embedder behind."""
        return self._embedder.embed_query(text)

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        """Return the spans of the embedder behind."""
        return self._embedder.split(text, max_tokens)


class Growing:
    """An installation in a folder, filled step by step; `workers` None leaves background tasks as they are."""

    def __init__(self, folder: Path, embedder: Embedder, workers: int | None) -> None:
        self._folder, self._embedder = folder, embedder
        self._settings = embedded(folder / "home")
        if workers is not None:
            self._settings = self._settings.model_copy(update={"tasks": TaskSettings(workers=workers)})
        self.memories = 0
        self._cubes: set[str] = set()
        self._took = {"fill_s": 0.0, "tasks_s": 0.0, "graphs_s": 0.0}

    def grow(self, sessions: Sequence[tuple[str, Session]], what: str) -> None:
        """Add sessions to the cubes named with them, wait for background tasks, and build graphs if they are due."""
        with MemOS.open(settings=self._settings, embedder=self._embedder) as memos:
            with self._timed("fill_s"):
                for cube, session in progress(sessions, f"adding {what}"):
                    if cube not in self._cubes:
                        memos.cubes.create(cube)
                        self._cubes.add(cube)
                    add_sessions(memos, cube, [session])
                    self.memories += len(session.messages)
            with self._timed("tasks_s"):
                self._wait(memos)
        with self._timed("graphs_s"):
            build_graphs(self._settings, self._embedder)

    def asked(self, questions: Sequence[Asked], top_k: int, what: str) -> Answers:
        """Ask all of a copy: once for what is found, then again for the time."""
        settings = self._settings.model_copy(update={"home": self._folder / "asked"})
        shutil.copytree(self._settings.home, settings.home)
        try:
            answers = Answers()
            with MemOS.open(settings=settings, embedder=self._embedder) as memos:
                for question in progress(questions, f"asking {what}"):
                    answers.found.append(ask(memos, question.cube, question.text, asked=question.at, top_k=top_k))
                self._wait(memos)
                memos.embedder.forget()  # or the questions' vectors would be known
                for number, question in enumerate(progress(questions, f"timing {what}")):
                    self._time(memos, question, answers, first=bool(number % 2))
            return answers
        finally:
            shutil.rmtree(settings.home)

    def figures(self) -> dict[str, Any]:
        """Return what it holds, and the seconds that all growing took until now."""
        used = sum(bytes_on_disk(self._settings.home).values())
        took = {name: round(seconds, 1) for name, seconds in self._took.items()}
        return {
            "memories": self.memories,
            "cubes": len(self._cubes),
            "bytes_per_memory": round(used / self.memories),
            **took,
        }

    def _time(self, memos: MemOS, question: Asked, answers: Answers, *, first: bool) -> None:
        before = self._embedding(question.text) if first else None
        started = time.perf_counter()
        found = ask(memos, question.cube, question.text, asked=question.at, top_k=TIMED_TOP_K)
        answers.search.append((time.perf_counter() - started) * 1000)
        answers.embed.append(self._embedding(question.text) if before is None else before)
        for stage, spent in found.timings_ms.items():
            answers.stages.setdefault(stage, []).append(spent)

    def _embedding(self, text: str) -> float:
        started = time.perf_counter()
        self._embedder.embed_query(text)
        return (time.perf_counter() - started) * 1000

    def _wait(self, memos: MemOS) -> None:
        if self._settings.tasks.workers:
            memos.tasks.wait()

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._took[what] += time.perf_counter() - started


class Tap:
    """Sessions from an endless supply, so many messages at a time; one that is cut goes on with the next."""

    def __init__(self, sessions: Iterable[Session]) -> None:
        self._sessions = iter(sessions)
        self._rest: Session | None = None

    def messages(self, count: int) -> list[Session]:
        """Return the next sessions, of exactly so many messages together."""
        taken: list[Session] = []
        while count:
            session = self._rest or next(self._sessions)
            head, rest = session.messages[:count], session.messages[count:]
            self._rest = Session(session.name, rest) if rest else None
            taken.append(Session(session.name, head))
            count -= len(head)
        return taken
