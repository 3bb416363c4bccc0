"""Search latency while the vector index builds its graphs: `python -m benchmarks.edge_optimise --points 100000`.

Before, during and after an optimisation a thread searches one cube and another ticks every
millisecond; the ticker's longest gap is how long anything held the interpreter lock.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.progress import track

from benchmarks.machine import machine
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.core.ports import ArmQuery, VectorPoint, VectorSearch
from memos.core.types import Arm

DIMENSION = 384
BATCH = 256
SEED = 5
WORDS = [f"word{number}" for number in range(5_000)]


@dataclass
class Phase:
    """What was seen in one phase, in milliseconds."""

    searches: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return median, 99th percentile and maximum of the searches, and the longest gap of the ticker."""
        p50, p99 = np.percentile(self.searches, [50, 99])
        return {
            "searches": len(self.searches),
            "p50_ms": round(float(p50), 2),
            "p99_ms": round(float(p99), 2),
            "max_ms": round(max(self.searches), 2),
            "longest_gap_ms": round(max(self.gaps), 2),
        }


class Probe:
    """Searches and ticks in the background; `phase` says where the figures go."""

    def __init__(self, index: QdrantEdgeIndex) -> None:
        self.phase = Phase()
        self._index = index
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._search), threading.Thread(target=self._tick)]

    def __enter__(self) -> Probe:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _search(self) -> None:
        generator, bm25 = np.random.default_rng(SEED + 1), QdrantBm25()
        while not self._stop.wait(0.002):
            dense = generator.normal(size=DIMENSION).astype(np.float32)
            terms = bm25.encode_query(" ".join(generator.choice(WORDS, 4)))
            arms = [ArmQuery(Arm.TURN, dense), ArmQuery(Arm.WINDOW, dense)]
            arms += [ArmQuery(Arm.TURN_BM25, terms), ArmQuery(Arm.WINDOW_BM25, terms)]
            phase, started = self.phase, time.perf_counter()
            self._index.search(VectorSearch(("cube0",), tuple(arms), 50))
            phase.searches.append((time.perf_counter() - started) * 1000)

    def _tick(self) -> None:
        last = time.perf_counter()
        while not self._stop.wait(0.001):
            now = time.perf_counter()
            self.phase.gaps.append((now - last) * 1000)
            last = now


def points(start: int, count: int, cubes: int) -> list[VectorPoint]:
    """Return synthetic points, the same for the same place."""
    generator, bm25 = np.random.default_rng(SEED + start), QdrantBm25()
    vectors = generator.normal(size=(count, DIMENSION)).astype(np.float32)
    made = []
    for row, number in enumerate(range(start, start + count)):
        terms = bm25.encode_document(" ".join(generator.choice(WORDS, 20)))
        payload = {"cube": f"cube{number % cubes}", "item": f"item{number}", "version": 1, "revision": 1}
        payload |= {"recorded_from": number, "info": {}, "chunk": 0, "type": "message", "status": "active"}
        made.append(VectorPoint(str(uuid.UUID(int=number + 1)), payload, vectors[row], vectors[row], terms, terms))
    return made


def run(folder: Path, total: int, cubes: int) -> dict[str, object]:
    """Fill, measure, optimise under measurement, measure again."""
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    for start in track(range(0, total, BATCH), description="filling"):
        index.upsert(points(start, min(BATCH, total - start), cubes))
    index.flush(1)
    phases = {name: Phase() for name in ("before", "during", "after")}
    with Probe(index) as probe:
        probe.phase = phases["before"]
        time.sleep(5)
        probe.phase = phases["during"]
        started = time.perf_counter()
        index.optimise(lambda stage: print(f"{stage} at {time.perf_counter() - started:.1f} s"))
        took = time.perf_counter() - started
        probe.phase = phases["after"]
        time.sleep(5)
    index.close()
    figures = {name: phase.summary() for name, phase in phases.items()}
    return {"points": total, "cubes": cubes, "optimise_s": round(took, 1), **figures}


def main() -> None:
    """Parse arguments, run, print the closing line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--cubes", type=int, help="default: one for each 1,000 points")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cubes = arguments.cubes or max(1, arguments.points // 1_000)
        result = run(Path(folder) / "index", arguments.points, cubes)
    print(json.dumps({"benchmark": "edge_optimise", "seed": SEED, **machine(), **result}))


if __name__ == "__main__":
    main()
