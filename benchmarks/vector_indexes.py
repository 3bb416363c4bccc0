"""The vector index in PostgreSQL against the embedded Qdrant: `python -m benchmarks.vector_indexes --points 100000`.

Both hold the same made points of one cube and answer the same searches of six arms, in turns, so that what else the
machine does slows both. PostgreSQL is started for it, with its files on disk and with pgvector. Recall is that of the
turns' vectors, against all compared; words are compared with the embedded Qdrant's, which reads all of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.pgvector.index import PgVectorIndex
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.core.ports import ArmQuery, ScoredPoint, VectorIndex, VectorPoint, VectorSearch
from memos.core.types import Arm
from tests.support.servers.postgres_server import PostgresServer

DIMENSION, BATCH, SEED, LIMIT = 384, 256, 5, 50
TOPICS, VOCABULARY, NOISE = 500, 30_000, 0.04
# The most frequent words of a language are stop words, which no index has.
STOP_WORDS = 50
SPEAKERS = ("Caroline", "Melanie")
DENSE = (Arm.TURN, Arm.WINDOW, Arm.STANDING, Arm.OF_SELF)


class Made:
    """Points around topics, with words as frequent as those of a language: the n-th has a share of 1 in n."""

    def __init__(self, count: int) -> None:
        self._random = np.random.default_rng(SEED)
        centres = self._random.normal(size=(TOPICS, DIMENSION))
        near = centres[self._random.integers(0, TOPICS, count)] / np.sqrt(DIMENSION)
        turns = near + NOISE * self._random.normal(size=near.shape)
        self.turns = (turns / np.linalg.norm(turns, axis=1, keepdims=True)).astype(np.float32)
        shares = 1 / np.arange(1 + STOP_WORDS, VOCABULARY + STOP_WORDS + 1)
        self._shares = shares / shares.sum()
        self.texts = [self._text(int(size)) for size in self._random.integers(6, 20, count)]
        self.standing = self._random.choice([0, 1, 2], count, p=[0.75, 0.05, 0.2])
        self._bm25 = QdrantBm25()

    def _text(self, words: int) -> str:
        said = self._random.choice(VOCABULARY, words, p=self._shares)
        return f"{self._random.choice(SPEAKERS)}: " + " ".join(f"wo{word:x}" for word in said)

    def points(self) -> Iterator[VectorPoint]:
        """Yield a point for each text, with those before it in its window."""
        for place, text in enumerate(self.texts):
            before = self.texts[max(0, place - 2) : place]
            window = self.turns[max(0, place - 2) : place + 1].mean(axis=0)
            payload: dict[str, Any] = {
                "cube": "c",
                "item": f"i{place}",
                "chunk": 0,
                "version": 1,
                "revision": 1,
                "recorded_from": place,
                "live": 1,
                "standing": int(self.standing[place]),
                "type": "message",
                "status": "active",
                "said_at": place * 1_000_000,
                "info": {},
            }
            yield VectorPoint(
                id=str(uuid.UUID(int=place + 1)),
                payload=payload,
                turn=self.turns[place],
                window=window.astype(np.float32),
                turn_terms=self._bm25.encode_document(text),
                window_terms=self._bm25.encode_document("\n".join([*before, text])),
            )

    def searches(self, count: int) -> Iterator[VectorSearch]:
        """Yield searches near a point, for some of its words and its speaker's name."""
        for place in self._random.integers(0, len(self.texts), count):
            words = self.texts[place].split()
            asked = [*self._random.choice(words[1:], min(4, len(words) - 1), replace=False), words[0]]
            terms = self._bm25.encode_query(" ".join(asked))
            vector = self.turns[place] + NOISE * self._random.normal(size=DIMENSION).astype(np.float32)
            unit = (vector / np.linalg.norm(vector)).astype(np.float32)
            arms = [*(ArmQuery(arm, unit) for arm in DENSE)]
            arms += [ArmQuery(arm, terms) for arm in (Arm.TURN_BM25, Arm.WINDOW_BM25)]
            yield VectorSearch(("c",), tuple(arms), LIMIT, live=True)


def _timed(ask: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return ask(), (time.perf_counter() - began) * 1000


def _same(one: list[ScoredPoint], other: list[ScoredPoint], count: int) -> float:
    """Return the share of the first `count` of one list that another has, equal scores counted as equal points."""
    if not one:
        return 1.0
    first = one[:count]
    least = first[-1].score - 1e-4
    theirs = {point.key for point in other if point.score >= least}
    return sum(point.key in theirs for point in first) / len(first)


def measure(points: int, searches: int) -> dict[str, Any]:
    """Return times, sizes and agreement of both."""
    made = Made(points)
    with tempfile.TemporaryDirectory(prefix="memos-indexes-") as folder, PostgresServer(fsync=True) as postgres:
        url = postgres.url()
        indexes: dict[str, Any] = {
            "qdrant_edge": QdrantEdgeIndex.open(Path(folder) / "index", DIMENSION),
            "pgvector": PgVectorIndex.open(url, "bench", DIMENSION),
        }
        told: dict[str, Any] = {name: {"write_s": 0.0} for name in indexes}
        batch: list[VectorPoint] = []
        for point in made.points():
            batch.append(point)
            if len(batch) == BATCH or point.payload["recorded_from"] == points - 1:
                for name, index in indexes.items():
                    told[name]["write_s"] += _timed(partial(index.upsert, batch))[1] / 1000
                batch = []
        for name, index in indexes.items():
            told[name]["build_s"] = _timed(index.optimise)[1] / 1000
        asked = list(made.searches(searches))
        # How often the common words are is counted at their first use in a process.
        first = [_timed(partial(indexes["pgvector"].search, search))[1] for search in asked]
        compared = _compared(indexes, made, asked)
        for name, index in indexes.items():
            told[name] |= compared.pop(name) | _arms(index, asked)
        told |= compared
        told["pgvector"]["first_search_p50_ms"] = round(float(np.median(first)), 2)
        sizes = "SELECT json_object_agg(relname, pg_relation_size(oid)) FROM pg_class WHERE relname LIKE 'vectors_%'"
        told["pgvector"]["bytes"] = json.loads(postgres.sql(url.rpartition("/")[2], sizes))
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        told["qdrant_edge"]["bytes"] = {"index": sum(path.stat().st_blocks * 512 for path in files)}
        for index in indexes.values():
            index.close()
        return told


def _compared(indexes: dict[str, VectorIndex], made: Made, searches: list[VectorSearch]) -> dict[str, Any]:
    times: dict[str, list[float]] = {name: [] for name in indexes}
    told: dict[str, Any] = {name: {} for name in indexes}
    recall: dict[str, list[float]] = {name: [] for name in indexes}
    words: list[float] = []
    for search in searches:
        found = {}
        for name, index in indexes.items():
            found[name], spent_ms = _timed(partial(index.search, search))
            times[name].append(spent_ms)
        vector = search.arms[0].query
        assert isinstance(vector, np.ndarray)
        nearest = {f"i{place}:1" for place in np.argsort(-(made.turns @ vector))[:10]}
        for name in indexes:
            recall[name].append(len(nearest & {point.key for point in found[name][0][:10]}) / 10)
        words += [_same(found["qdrant_edge"][arm], found["pgvector"][arm], 10) for arm in (4, 5)]
    for name in indexes:
        p50, p95 = np.percentile(times[name], [50, 95])
        told[name] = {
            "search_p50_ms": round(float(p50), 2),
            "search_p95_ms": round(float(p95), 2),
            "recall_at_10": round(float(np.mean(recall[name])), 4),
        }
    told["words_found_of_the_first_10"] = round(float(np.mean(words)), 4)
    for share in ("p50", "p95"):
        ratio = told["pgvector"][f"search_{share}_ms"] / told["qdrant_edge"][f"search_{share}_ms"]
        told[f"ratio_{share}"] = round(ratio, 2)
    return told


def _arms(index: VectorIndex, searches: list[VectorSearch]) -> dict[str, float]:
    told = {}
    for place, arm in enumerate(searches[0].arms):
        alone = [VectorSearch(s.cubes, (s.arms[place],), s.limit, live=True) for s in searches[:100]]
        spent = [_timed(partial(index.search, search))[1] for search in alone]
        told[f"{arm.arm.value}_p50_ms"] = round(float(np.median(spent)), 2)
    return told


def main() -> None:
    """Measure and print one JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--searches", type=int, default=200)
    asked = parser.parse_args()
    print(json.dumps({**measure(asked.points, asked.searches), "points": asked.points, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
