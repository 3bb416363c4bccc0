"""Times adds and searches of an open installation, in turns with the embedder; knows no program and no store.

`search_over_embed` compares a search with embedding its question, `add_over_embed` an add with embedding, in one batch,
the very texts the add embedded.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.dialogues import Dialogues
from benchmarks.report import progress
from benchmarks.volumes import Volume
from memos import MemOS
from memos.core.ports import Embedder, Vector
from memos.core.types import Fingerprint

TOP_K = 10
_WARM_UP = 10  # one warm-up for so many timed
_BLOCK = b"\0" * 4096


class Overheard:
    """An embedder that passes everything on and keeps the document texts it was asked for."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.texts: list[str] = []

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the embedder behind."""
        return self.embedder.fingerprint

    @property
    def max_tokens(self) -> int:
        """Tokens one piece may have."""
        return self.embedder.max_tokens

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of the embedder behind."""
        self.texts.extend(texts)
        return self.embedder.embed_documents(texts)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of the embedder behind."""
        return self.embedder.embed_query(text)

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        """Return the spans of the embedder behind."""
        return self.embedder.split(text, max_tokens)


@dataclass(slots=True)
class Samples:
    """Milliseconds of everything timed at one size."""

    search: list[float] = field(default_factory=list)
    embed: list[float] = field(default_factory=list)
    add: list[float] = field(default_factory=list)
    batch: list[float] = field(default_factory=list)
    fsync: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Return percentiles in milliseconds and the ratios of medians."""
        taken = {"search": self.search, "embed": self.embed, "add": self.add, "batch": self.batch, "fsync": self.fsync}
        figures: dict[str, Any] = {
            f"{name}_p{percent}_ms": round(float(np.percentile(values, percent)), 3)
            for name, values in taken.items()
            for percent in (50, 95, 99)
        }
        figures["search_stages_p50_ms"] = {name: round(float(np.median(v)), 3) for name, v in self.stages.items()}
        figures["search_over_embed"] = round(figures["search_p50_ms"] / figures["embed_p50_ms"], 3)
        figures["add_over_embed"] = round(figures["add_p50_ms"] / figures["batch_p50_ms"], 3)
        worse = max(figures["search_p99_ms"] / figures["search_p50_ms"], figures["add_p99_ms"] / figures["add_p50_ms"])
        return figures | {"p99_over_p50": round(worse, 3)}


@dataclass(slots=True)
class Measured:
    """One open installation and what was timed of it."""

    memos: MemOS
    overheard: Overheard
    samples: Samples = field(default_factory=Samples)


def time_searches(
    every: Sequence[Measured], volume: Volume, dialogues: Dialogues, embedder: Embedder, count: int,
    *, requests: bool = False,
) -> None:  # fmt: skip
    """Ask each installation the same questions, or requests, in turns; time embedding them, first as often as last."""
    names = volume.names
    for number in progress(range(-(count // _WARM_UP), count), f"searching {volume.memories:,}, cubes: {volume.cubes}"):
        question, cube = dialogues.question(request=requests), names[number // 2 % len(names)]
        for one in _turn(every, number // 2):
            before = _timed(embedder.embed_query, question) if number % 2 else None
            started = time.perf_counter()
            result = one.memos.search(question, cubes=[cube], top_k=TOP_K)
            search_ms = _since(started)
            if result.missing_arms:
                raise RuntimeError(
                    f"The vector index was down in a search (missing: {', '.join(result.missing_arms)})."
                )
            embed_ms = _timed(embedder.embed_query, question) if before is None else before
            if number >= 0:
                one.samples.search.append(search_ms)
                one.samples.embed.append(embed_ms)
                for stage, spent in result.timings_ms.items():
                    one.samples.stages.setdefault(stage, []).append(spent)


def time_adds(every: Sequence[Measured], volume: Volume, dialogues: Dialogues, count: int) -> None:
    """Add the same to each installation, in turns; time that, embedding it in one batch, and a block on the disk."""
    names = volume.names
    with (every[0].memos.home / "fsync-probe").open("wb", buffering=0) as probe:
        for number in progress(
            range(-(count // _WARM_UP), count), f"adding to {volume.memories:,}, cubes: {volume.cubes}"
        ):
            exchange, cube = dialogues.messages(2), names[number % len(names)]
            for one in _turn(every, number):
                add_ms, batch_ms = _add(one, exchange, cube)
                fsync_ms = _timed(_write_durably, probe)
                if number >= 0:
                    one.samples.add.append(add_ms)
                    one.samples.batch.append(batch_ms)
                    one.samples.fsync.append(fsync_ms)


def _add(one: Measured, exchange: list[dict[str, Any]], cube: str) -> tuple[float, float]:
    """Return the milliseconds of one add and of embedding what it embedded."""
    one.overheard.texts.clear()
    started = time.perf_counter()
    receipt = one.memos.add(exchange, cube=cube, conversation="measured")
    add_ms = _since(started)
    if not receipt.indexed:
        raise RuntimeError("An add was not searchable when it returned; the machine is too busy to measure.")
    return add_ms, _timed(one.overheard.embedder.embed_documents, list(one.overheard.texts))


def _turn(every: Sequence[Measured], number: int) -> Sequence[Measured]:
    """Return the installations in another order each time, so that none is always first."""
    return every if number % 2 else every[::-1]


def _timed(call: Callable[[Any], object], argument: Any) -> float:
    started = time.perf_counter()
    call(argument)
    return _since(started)


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _write_durably(file: io.FileIO) -> None:
    file.write(_BLOCK)
    os.fsync(file.fileno())
