"""Installations of a given size for the latency benchmark: filled, with graphs built, measured as files and processes.

The fill need not embed for real: vectors of any kind cost the index the same.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.dialogues import Dialogues
from benchmarks.report import progress
from benchmarks.servers import allocated, environment
from memos import MemOS
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.core.ports import Embedder, Vector
from memos.core.settings import Settings
from memos.core.types import Fingerprint
from memos.kernel.maintenance import OPTIMISE_AFTER

_MESSAGES_PER_ADD = 500
_ROWS = 4_096
_WORD = re.compile(r"\w+")


class BagOfWords:
    """Another embedder's stand-in with its fingerprint: the normalised sum of a seeded vector for each word."""

    def __init__(self, embedder: Embedder, seed: int) -> None:
        self._embedder = embedder
        shape = (_ROWS, embedder.fingerprint.dimension)
        self._rows = np.random.default_rng(seed).normal(size=shape).astype(np.float32)

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the embedder it stands in for."""
        return self._embedder.fingerprint

    @property
    def max_tokens(self) -> int:
        """Tokens one piece may have."""
        return self._embedder.max_tokens

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return `(len(texts), dimension)` float32 unit vectors."""
        sums = np.zeros((len(texts), self.fingerprint.dimension), dtype=np.float32)
        for place, text in enumerate(texts):
            words = [zlib.crc32(word.encode()) % _ROWS for word in _WORD.findall(text.casefold())]
            sums[place] = self._rows[words or [0]].sum(axis=0)
        vectors: Vector = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return vectors

    def embed_query(self, text: str) -> Vector:
        """Return the `(dimension,)` unit vector of a question."""
        vector: Vector = self.embed_documents([text])[0]
        return vector

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        """Return the other embedder's spans."""
        return self._embedder.split(text, max_tokens)


@dataclass(frozen=True, slots=True)
class Volume:
    """How many memories an installation holds, in how many cubes."""

    memories: int
    cubes: int

    @property
    def names(self) -> list[str]:
        """The cubes' names."""
        return [f"cube-{number}" for number in range(self.cubes)]

    def batches(self, dialogues: Dialogues) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
        """Yield cube, conversation and messages, until there are as many as wanted."""
        for number, (cube, size) in enumerate(self.plan()):
            yield cube, f"conversation-{number}", dialogues.messages(size)

    def plan(self) -> list[tuple[str, int]]:
        """Return cube and number of messages for each add."""
        plan = []
        for place, cube in enumerate(self.names):
            left = self.memories * (place + 1) // self.cubes - self.memories * place // self.cubes
            while left:
                size = min(left, _MESSAGES_PER_ADD)
                plan.append((cube, size))
                left -= size
        return plan


def fill(settings: Settings, volume: Volume, dialogues: Dialogues, embedder: Embedder) -> float:
    """Add everything through `MemOS.add`, flushed when it returns; return the seconds it took."""
    started = time.perf_counter()
    with MemOS.open(settings=settings, embedder=embedder) as memos:
        for cube in volume.names:
            memos.cubes.create(cube)
        batches = volume.batches(dialogues)
        for _ in progress(volume.plan(), f"adding {volume.memories:,}, cubes: {volume.cubes}"):
            cube, conversation, messages = next(batches)
            while not memos.add(messages, cube=cube, conversation=conversation, idempotency_key=conversation).indexed:
                pass
    return time.perf_counter() - started


def build_graphs(settings: Settings, embedder: Embedder) -> float | None:
    """Do at once what the background would: return the seconds it took, or None when it would not build yet.

    Done on the closed installation with the index's own call, because `MemOS` has none that waits for it. A server
    builds when it likes.
    """
    if settings.qdrant.url is not None:
        return None
    started = time.perf_counter()
    if settings.encryption_key is not None:
        with MemOS.open(settings=settings, embedder=embedder) as memos:
            memos.maintenance.optimise()
        return time.perf_counter() - started
    [folder] = (settings.home / "vector").iterdir()  # one embedder, one space
    index = QdrantEdgeIndex.open(folder, embedder.fingerprint.dimension)
    try:
        if index.unoptimised() < max(OPTIMISE_AFTER, index.optimised() // 3):
            return None
        index.optimise()
    finally:
        index.close()
    return time.perf_counter() - started


def bytes_on_disk(home: Path) -> dict[str, int]:
    """Return allocated bytes by top-level entry, holes not counted."""
    return {path.name: allocated(path) for path in home.iterdir()}


def cold_start(settings: Settings, cube: str, repeats: int) -> dict[str, float]:
    """Return the median seconds from a process's start to its first hits, and of `MemOS.open` in it."""
    runs = []
    for _ in range(repeats):
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.cold_start", str(settings.home), cube],
            cwd=Path(__file__).parent.parent, env=environment(settings), capture_output=True, text=True, check=True,
        )  # fmt: skip
        said = json.loads(done.stdout)
        runs.append((said["answered_at"] - started, said["open_s"]))
    return {
        "first_hits_s": round(median(first for first, _open in runs), 3),
        "open_s": round(median(open_s for _first, open_s in runs), 3),
    }


def forget_peak() -> None:
    """Have this process's peak memory counted from now on; only Linux can."""
    switch = Path("/proc/self/clear_refs")
    if switch.exists():
        switch.write_text("5", encoding="ascii")


def peak_rss_mib() -> dict[str, float]:
    """Return the peak resident memory of this process and of its children that are alive; empty off Linux."""
    if not Path("/proc/self/status").exists():
        return {}
    own = _status("self")
    children = [status for path in Path("/proc").glob("[0-9]*") if (status := _status(path.name))["PPid"] == own["Pid"]]
    return {
        "process": round(own["VmHWM"] / 1024, 1),
        "children": round(sum(status["VmHWM"] for status in children) / 1024, 1),
    }


def _status(process: str) -> dict[str, int]:
    """Return a process's pid, parent and peak memory in KiB; zeros for one that has just ended."""
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = dict(re.findall(r"^(Pid|PPid|VmHWM):\s+(\d+)", text, re.MULTILINE))
    return {name: int(found.get(name, 0)) for name in ("Pid", "PPid", "VmHWM")}
