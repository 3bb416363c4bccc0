"""The embedded vector index under kills, damage, rewriting and optimising."""

from __future__ import annotations

import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import qdrant_edge

from benchmarks.edge_optimise import Phase, Probe, points
from memos.backends import child
from memos.backends.child import with_huge_pages
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.qdrant.embedded import QdrantEdgeIndex, wipe
from memos.backends.qdrant.embedded_process import config
from memos.core.ports import ArmQuery, VectorPoint, VectorSearch
from memos.core.types import Arm
from memos.errors import BackendUnavailable, IntegrityError
from tests.support import forks

DIMENSION = 8
BM25 = QdrantBm25()
ONES = np.ones(DIMENSION, dtype=np.float32)


def point(number: int, tag: str = "plain") -> VectorPoint:
    payload: dict[str, Any] = {
        "cube": "a", "item": f"item-{number}", "version": 1, "revision": 1, "recorded_from": 1, "chunk": 0,
        "tags": [tag], "info": {},
    }  # fmt: skip
    terms = BM25.encode_document("word")
    return VectorPoint(str(uuid.UUID(int=number + 1)), payload, ONES, ONES, terms, terms)


def found(index: QdrantEdgeIndex) -> set[str]:
    [hits] = index.search(VectorSearch(("a",), (ArmQuery(Arm.TURN, ONES),), 5_000))
    return {hit.item for hit in hits}


def child_of(index: QdrantEdgeIndex) -> psutil.Process:
    assert index._child is not None
    return psutil.Process(index._child._process.pid)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def index(folder: Path) -> Iterator[QdrantEdgeIndex]:
    opened = QdrantEdgeIndex.open(folder, DIMENSION)
    yield opened
    opened.close()


def test_what_fails_while_the_engine_works_leaves_its_answer_to_no_other_call(index: QdrantEdgeIndex) -> None:
    index.upsert([point(1)])

    def fails() -> None:
        raise OSError("the ledger's disk")

    with pytest.raises(OSError, match="the ledger's disk"):
        index.search(VectorSearch(("a",), (ArmQuery(Arm.TURN, ONES),), 10), fails)
    assert index.cubes() == ["a"]
    assert found(index) == {"item-1"}
    assert index.restart_count == 0


def test_what_is_done_meanwhile_is_done_before_the_answer_is_read(index: QdrantEdgeIndex) -> None:
    index.upsert([point(1)])
    done: list[str] = []
    [hits] = index.search(VectorSearch(("a",), (ArmQuery(Arm.TURN, ONES),), 10), lambda: done.append("once"))
    assert [hit.item for hit in hits] == ["item-1"]
    assert done == ["once"]


def test_a_child_is_given_huge_pages_and_keeps_what_was_set_for_its_allocator() -> None:
    alone = with_huge_pages({"HOME": "/home/ann"})
    assert alone == {"HOME": "/home/ann", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    both = with_huge_pages({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"})["GLIBC_TUNABLES"]
    assert both == "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0"


def test_the_engine_runs_with_huge_pages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(child, "started", forks.start_anew)
    opened = QdrantEdgeIndex.open(folder, DIMENSION)
    try:
        assert child_of(opened).environ()["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    finally:
        opened.close()


def test_a_killed_engine_fails_one_call_comes_back_and_says_so(index: QdrantEdgeIndex) -> None:
    index.upsert([point(1)])
    index.flush(3)
    index.upsert([point(2)])
    before = index.restart_count
    child_of(index).send_signal(signal.SIGKILL)
    with pytest.raises(BackendUnavailable, match="restarted"):
        found(index)
    assert index.restart_count > before
    assert index.mark() == 3
    assert "item-1" in found(index)
    index.upsert([point(2)])
    assert found(index) == {"item-1", "item-2"}


@pytest.mark.heavy
def test_the_index_opens_to_its_last_flush_after_each_of_twenty_five_kills(folder: Path) -> None:
    flushed = 0
    for kill in range(25):
        index = QdrantEdgeIndex.open(folder, DIMENSION)
        assert index.mark() == kill
        assert {f"item-{n}" for n in range(flushed)} <= found(index)
        index.upsert([point(n) for n in range(flushed, flushed + 20)])
        flushed += 20
        index.flush(kill + 1)
        stop = threading.Timer(0.002 * (kill % 7), child_of(index).kill)
        stop.start()
        with pytest.raises(BackendUnavailable):
            for n in range(10_000, 10_400):
                index.upsert([point(n)])
            while True:
                found(index)
        stop.join()
        index.close()
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    assert {f"item-{n}" for n in range(flushed)} <= found(index)
    index.close()


ORPHAN = """
import sys, os, signal
from pathlib import Path
from tests.backends.test_qdrant_edge import *
index = QdrantEdgeIndex.open(Path(sys.argv[1]), DIMENSION)
index.upsert([point(1)]); index.flush(9); index.upsert([point(n) for n in range(2, 500)])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.heavy
def test_a_killed_parent_leaves_no_engine_in_the_way(folder: Path) -> None:
    assert subprocess.run([sys.executable, "-c", ORPHAN, str(folder)], check=False).returncode == -signal.SIGKILL
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    assert index.mark() == 9
    assert "item-1" in found(index)
    index.close()


BUILDER = """
import sys, time
from pathlib import Path
from memos.backends.child import lock_folder
folder = Path(sys.argv[1])
lock_folder(folder, "index")
print("locked", flush=True)
until = time.monotonic() + 1
while time.monotonic() < until:
    for number in range(200):
        (folder / "segments" / str(number)).mkdir(parents=True, exist_ok=True)
"""


@pytest.mark.heavy
def test_a_killed_parents_builder_has_its_folder_until_it_is_done(folder: Path) -> None:
    QdrantEdgeIndex.open(folder, DIMENSION).close()
    unfinished = folder / "gen-000002"
    with forks.Script(BUILDER, str(unfinished)) as builder:
        assert builder.stdout.readline() == "locked\n"
        index = QdrantEdgeIndex.open(folder, DIMENSION)
    assert not unfinished.exists()
    index.close()


def test_a_request_whose_parent_is_gone_is_not_carried_out() -> None:
    parent, its = socket.socketpair()
    Connection(parent.detach()).send_bytes(pickle.dumps(("open", ("folder",))))  # and closes it
    asked: list[str] = []
    child.serve(Connection(its.detach()), lambda method, _: asked.append(method))
    assert asked == []


def test_closing_ends_the_engine(folder: Path) -> None:
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    process = child_of(index)
    index.close()
    assert not process.is_running()
    with pytest.raises(BackendUnavailable, match="closed"):
        index.mark()


def test_a_shard_whose_making_was_cut_off_gets_its_payload_indexes(folder: Path) -> None:
    (folder / "gen-000001").mkdir(parents=True)
    shard = qdrant_edge.EdgeShard.create(str(folder / "gen-000001"), config(DIMENSION))
    shard.flush()
    shard.close()
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    index.upsert([point(1)])
    assert index.cubes() == ["a"]
    index.close()


def test_what_stands_has_graphs_of_its_own_as_a_cube_has(folder: Path) -> None:
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    made = [(n % 3, point(n)) for n in range(200)]
    index.upsert([replace(entry, payload={**entry.payload, "standing": stands}) for stands, entry in made])
    index.flush(1)
    index.close()
    shard = qdrant_edge.EdgeShard.load(str(folder / "gen-000001"))
    schema = shard.info().payload_schema
    graphs = [name for name, told in schema.items() if told.params.enable_hnsw is not False]
    assert sorted(graphs) == ["cube", "standing"]
    assert schema["standing"].points == 133, "what does not stand has no value, and no graph"
    shard.close()


def test_an_older_copy_brings_back_its_older_mark(folder: Path, tmp_path: Path) -> None:
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    index.flush(1)
    index.close()
    shutil.copytree(folder, tmp_path / "copy")
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    index.upsert([point(1)])
    index.flush(2)
    index.close()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    assert index.mark() == 1
    index.close()


def test_damaged_files_are_refused_and_a_wiped_folder_is_new(folder: Path) -> None:
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    index.upsert([point(n) for n in range(50)])
    index.flush(4)
    index.close()
    for path in folder.rglob("*.json"):
        path.write_text("{ not json")
    with pytest.raises(IntegrityError, match="cannot be read"):
        QdrantEdgeIndex.open(folder, DIMENSION)
    wipe(folder)
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    assert (index.mark(), found(index)) == (0, set())
    index.close()


def test_rewriting_leaves_no_byte_of_what_was_deleted(index: QdrantEdgeIndex, folder: Path) -> None:
    index.upsert([point(n, "kept-tag") for n in range(300)] + [point(1_000, "vanishing-tag-xyzzy")])
    index.flush(6)
    assert b"xyzzy" in _bytes(folder)
    index.prune({"item-1000": None})
    index.flush(7)
    index.rewrite()
    assert b"xyzzy" not in _bytes(folder)
    assert b"item-1000" not in _bytes(folder)
    assert found(index) == {f"item-{n}" for n in range(300)}
    assert index.mark() == 7
    assert len(list(folder.glob("gen-*"))) == 1


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_writes_during_a_rewrite_are_in_the_new_files(index: QdrantEdgeIndex, folder: Path) -> None:
    index.upsert([point(n) for n in range(1_500)])
    rewriting = threading.Thread(target=index.rewrite)
    rewriting.start()
    number = 2_000
    while rewriting.is_alive():
        index.upsert([point(number)])
        if number - 2_000 < 1_500:
            index.prune({f"item-{number - 2_000}": None})
        number += 1
    rewriting.join()
    expected = {f"item-{n}" for n in range(min(1_500, number - 2_000), 1_500)} | {
        f"item-{n}" for n in range(2_000, number)
    }
    assert number > 2_000
    assert {stamp.item for stamp in index.scan("a")} == expected
    index.flush(1)
    index.close()
    again = QdrantEdgeIndex.open(folder, DIMENSION)
    assert {stamp.item for stamp in again.scan("a")} == expected
    again.close()


@pytest.mark.heavy
def test_an_index_closed_during_a_build_keeps_its_old_files(folder: Path) -> None:
    index = QdrantEdgeIndex.open(folder, 384)
    for start in range(0, 6_000, 500):
        index.upsert(points(start, 500, cubes=1))
    index.flush(1)
    stages: list[str] = []
    outcome: list[BaseException] = []
    building = threading.Event()

    def on_progress(stage: str) -> None:
        stages.append(stage)
        if stage == "building":
            building.set()

    def build() -> None:
        try:
            index.optimise(on_progress)
        except BackendUnavailable as error:
            outcome.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    assert building.wait(30)
    index.close()
    thread.join()
    assert outcome or stages[-1] == "switching"
    again = QdrantEdgeIndex.open(folder, 384)
    assert again.mark() == 1
    assert sum(1 for _ in again.scan("cube0")) == 6_000
    assert len(list(folder.glob("gen-*"))) == 1
    again.close()


def test_a_stopped_build_changes_nothing_and_the_index_works_on(folder: Path) -> None:
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    index.upsert([point(n) for n in range(100)])
    index.stop_building()
    with pytest.raises(BackendUnavailable, match="the old one is kept"):
        index.optimise()
    assert len(found(index)) == 100
    assert len(list(folder.glob("gen-*"))) == 1
    index.close()


def test_what_was_not_optimised_is_known_after_reopening(folder: Path) -> None:
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    index.upsert([point(n) for n in range(100)])
    index.optimise()
    index.upsert([point(n) for n in range(100, 130)])
    index.flush(1)
    index.close()
    index = QdrantEdgeIndex.open(folder, DIMENSION)
    assert index.unoptimised() == 30
    index.close()


@pytest.mark.heavy
def test_searches_go_on_while_graphs_are_built(folder: Path) -> None:
    """In this process a build would hold every thread from its beginning to its end."""
    index = QdrantEdgeIndex.open(folder, 384)
    for start in range(0, 8_000, 500):
        index.upsert(points(start, 500, cubes=1))
    assert index.unoptimised() == 8_000
    with Probe(index) as probe:
        probe.phase = during = Phase()
        started = time.perf_counter()
        assert index.optimise()
        took_ms = (time.perf_counter() - started) * 1000
        probe.phase = Phase()
    assert index.unoptimised() == 0
    assert len(during.searches) >= 10
    assert max(during.gaps) < took_ms / 2
    assert sum(1 for _ in index.scan("cube0")) == 8_000
    index.close()


@pytest.mark.heavy
def test_a_built_graph_finds_what_exact_search_finds(folder: Path) -> None:
    """Vectors lie in groups, as those of texts do: a graph finds little in pure noise of 384 dimensions."""
    index = QdrantEdgeIndex.open(folder, 384)
    generator = np.random.default_rng(3)
    groups = generator.normal(size=(150, 384)).astype(np.float32)

    def near_groups(count: int) -> np.ndarray:
        return (
            groups[generator.integers(150, size=count)] + 0.7 * generator.normal(size=(count, 384)).astype(np.float32)
        ).astype(np.float32)

    for start in range(0, 10_000, 500):
        made = zip(points(start, 500, cubes=1), near_groups(500), strict=True)
        index.upsert([replace(entry, turn=vector, window=vector) for entry, vector in made])
    queries = near_groups(30)

    def best(query: np.ndarray) -> set[str]:
        [hits] = index.search(VectorSearch(("cube0",), (ArmQuery(Arm.TURN, query),), 10))
        return {hit.item for hit in hits}

    exact = [best(query) for query in queries]
    index.optimise()
    shared = sum(len(best(query) & expected) for query, expected in zip(queries, exact, strict=True))
    assert shared / 300 > 0.9
    index.close()
