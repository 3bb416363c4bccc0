"""Receipts and requests of persons with PostgreSQL, Qdrant and Neo4j: signed by one key, and no row or node is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.errors import MemosError
from tests.fakes import WordEmbedder
from tests.kernel.test_subjects import ANA, BEN, IDS, of_ben, told
from tests.support.servers.installation import on_servers
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer


@pytest.fixture
def settings(tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer) -> Iterator[Settings]:
    with on_servers(tmp_path / "home", postgres_server, neo4j_server) as made:
        yield made


def test_a_user_is_forgotten_on_servers(settings: Settings) -> None:
    with MemOS.open(settings=settings, embedder=WordEmbedder()) as memos:
        told(memos)
        memos.maintenance.catch_up()
        erased = memos.erase(memos.memories.list(cube=BEN)[-1].id)
        goes = memos.subjects.preview(ANA, actor=ANA).goes
        done = memos.subjects.forget(ANA, expected=goes, actor=ANA)
        assert of_ben(memos) == ["Yesterday Ana Quillfeather was at the lake."]
        assert {receipt.public_key for receipt in (*done.receipts, erased)} == {erased.public_key}
        vectors = {form.after for receipt in done.receipts for form in receipt.forms if form.name == "vectors"}
        assert vectors == {0}
        check = memos.erasures.verify(done.receipts[0], texts=[*IDS, "pangolin", "giraffe", "numbat"])
        assert (check.passed, check.problems) == (True, ())
        assert [place.partition(" ")[0] for place in check.unreached] == ["files,", "files", "files"]
        assert memos.maintenance.verify().clean
        assert memos.audit.verify().intact
    with MemOS.open(settings=settings, embedder=WordEmbedder()) as memos:  # another process has the same key
        assert memos.erasures.verify(erased, scan=False).passed


def test_erasures_at_once_keep_one_chain(settings: Settings) -> None:
    with MemOS.open(settings=settings, embedder=WordEmbedder()) as memos:
        cubes = [f"cube-{number}" for number in range(4)]
        for cube in cubes:
            memos.cubes.create(cube)
        failed: list[MemosError] = []

        def erase(cube: str) -> None:
            try:
                for number in range(5):
                    memos.erase(memos.add(f"{cube} says {number}", cube=cube).item_ids[0], cube=cube, wait=False)
            except MemosError as error:
                failed.append(error)

        threads = [threading.Thread(target=erase, args=(cube,)) for cube in cubes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        report = memos.audit.verify()
        assert (report.intact, report.events) == (True, 20)
