"""The vector index in PostgreSQL: graphs, several writers, what an erasure leaves, a server that goes away, moves."""

from __future__ import annotations

import uuid
from concurrent import futures
from pathlib import Path

import numpy as np
import psycopg
import pytest

from memos import MemOS, Settings
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.pgvector import index as pgvector
from memos.backends.pgvector import schema
from memos.backends.pgvector.index import PgVectorIndex
from memos.core.filters import Condition, Op
from memos.core.ports import ArmQuery, VectorPoint, VectorSearch
from memos.core.settings import IndexSettings, LimitSettings, QdrantSettings
from memos.core.types import Arm
from memos.errors import BackendUnavailable, IntegrityError, InvalidInput
from memos.kernel.relocation import migrate
from memos.memcube.installation import TABLES, VECTOR_TABLES
from tests.fakes import WordEmbedder
from tests.support.servers.postgres_server import PostgresServer, with_pgvector

DIMENSION = 16
BM25 = QdrantBm25()


def vector(number: int) -> np.ndarray:
    made = np.random.default_rng(number).normal(size=DIMENSION)
    return (made / np.linalg.norm(made)).astype(np.float32)


def point(number: int, cube: str = "a", revision: int = 1) -> VectorPoint:
    payload = {
        "cube": cube,
        "item": f"i{number}",
        "version": 1,
        "revision": revision,
        "recorded_from": 1,
        "live": 1,
        "standing": 2 if number % 4 == 0 else 0,
        "info": {"n": number},
    }
    terms = BM25.encode_document(f"common word{number}")
    return VectorPoint(str(uuid.UUID(int=number + 1)), payload, vector(number), vector(number + 1), terms, terms)


def found(index: PgVectorIndex, arm: Arm, query: object, count: int = 10, **options: object) -> list[str]:
    [points] = index.search(VectorSearch(("a",), (ArmQuery(arm, query),), count, live=True, **options))  # type: ignore[arg-type]
    return [point.item for point in points]


def database(url: str) -> str:
    return url.rpartition("/")[2]


def on_postgres(home: Path, url: str) -> Settings:
    return Settings(
        home=home,
        ledger_url=url,
        index=IndexSettings(vectors="pgvector", wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
    )


def opened(settings: Settings) -> MemOS:
    return MemOS.open(settings=settings, embedder=WordEmbedder())


def test_graphs_find_what_comparing_all_finds(vector_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    index = PgVectorIndex.open(vector_server.url(), "graphs", DIMENSION)
    index.upsert([point(number) for number in range(800)])
    index.upsert([point(number, cube="b") for number in range(5_000, 5_200)])
    asked = [vector(number) + 0.1 * vector(number + 9_000) for number in range(0, 800, 40)]
    exact = [found(index, Arm.TURN, each) for each in asked]
    of_self = [found(index, Arm.OF_SELF, each) for each in asked]
    assert index.unoptimised() == 1_000
    other = PgVectorIndex.open(
        str(index._database._engine.url.render_as_string(hide_password=False)), "graphs", DIMENSION
    )
    with futures.ThreadPoolExecutor(2) as pool:
        built = list(pool.map(lambda each: each.optimise(), (index, other)))
    assert any(built), "one of the two builds"
    assert index.unoptimised() == other.unoptimised() == 0
    monkeypatch.setattr(pgvector, "_COMPARED", 0)
    monkeypatch.setattr(pgvector, "_COMPARED_FILTERED", 0)
    assert [found(other, Arm.OF_SELF, each) for each in asked] == of_self
    same = [len({*one} & {*two}) for one, two in zip(exact, (found(index, Arm.TURN, e) for e in asked), strict=True)]
    assert sum(same) >= 0.95 * 10 * len(same)
    rare = Condition("info.n", Op.IN, (7, 9))
    assert sorted(found(index, Arm.TURN, vector(9) + vector(7), filter=rare)) == ["i7", "i9"]
    assert found(index, Arm.TURN_BM25, BM25.encode_query("word77 common"), 1) == ["i77"]
    index.stop_building()
    assert not index.optimise()
    index.close()
    other.close()


def test_many_writers_of_the_same_points_leave_each_once(vector_server: PostgresServer) -> None:
    url = vector_server.url()
    with futures.ThreadPoolExecutor(4) as pool:
        indexes = list(pool.map(lambda _: PgVectorIndex.open(url, "writers", DIMENSION), range(4)))
        points = [[point(number, revision=turn) for number in range(60)] for turn in range(4)]
        list(pool.map(lambda each: each[0].upsert(each[1]), zip(indexes, points, strict=True)))
    stamps = list(indexes[0].scan("a"))
    assert len(stamps) == len({stamp.id for stamp in stamps}) == 60
    base = indexes[0]._base
    assert vector_server.sql(database(url), f"SELECT count(*) FROM {base}_terms") == "180"
    for index in indexes:
        index.close()


def test_an_erasure_leaves_no_row_and_every_table_is_registered(tmp_path: Path, one_server: PostgresServer) -> None:
    url = one_server.url()
    with opened(on_postgres(tmp_path, url)) as memos:
        kept, gone = memos.add(["The violin is in the attic.", "The harpsichord was sold."]).item_ids
        receipt = memos.erase(gone)
        assert receipt.stores["vector"] == "deleted"
        assert [hit.item.id for hit in memos.search("harpsichord violin").hits] == [kept]
        assert memos.maintenance.verify().differences == ()
    listed = one_server.sql(database(url), "SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split()
    [base] = {name.removesuffix("_points") for name in listed if name.endswith("_points")}
    ours = {each.name if "_" in each.name else f"{base}_{each.name}" for each in VECTOR_TABLES}
    assert set(listed) == {each.name for each in TABLES} | ours
    points = f"SELECT count(*) || ' ' || min(item) FROM {base}_points"
    assert one_server.sql(database(url), points) == f"1 {kept}"
    stray = f"SELECT count(*) FROM {base}_terms WHERE point NOT IN (SELECT no FROM {base}_points)"
    assert one_server.sql(database(url), stray) == "0"


def test_it_moves_to_postgresql_and_back(tmp_path: Path, one_server: PostgresServer) -> None:
    here = Settings(home=tmp_path / "here", limits=LimitSettings(min_free_bytes=1_000_000))
    with opened(here) as memos:
        ids = memos.add(["The violin is in the attic.", "The cello is in the hall."]).item_ids
        memos.update(ids[0], "The violin was sold.")
    there = on_postgres(tmp_path / "unused", one_server.url())
    assert migrate(here, there, embedder=WordEmbedder()).differences == ()
    with opened(there) as memos:
        assert memos.search("violin").hits[0].item.memory == "The violin was sold."
        with opened(there) as beside:  # a second process of the same memory
            beside.add("The flute is new.")
        assert memos.search("flute").hits[0].item.memory == "The flute is new."
    back = here.model_copy(update={"home": tmp_path / "back"})
    assert migrate(there, back, embedder=WordEmbedder()).differences == ()
    with opened(back) as memos:
        assert memos.search("flute").hits[0].item.memory == "The flute is new."


def test_a_server_that_goes_away_and_comes_back() -> None:
    with PostgresServer(programs=with_pgvector()) as server:
        index = PgVectorIndex.open(server.url(), "away", DIMENSION)
        index.upsert([point(number) for number in range(10)])
        server.stop(fast=False)
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            index.mark()
        server.start()
        assert len(list(index.scan("a"))) == 10
        index.close()
        with pytest.raises(BackendUnavailable, match="closed"):
            index.mark()


def test_it_opens_while_another_process_builds_graphs(
    vector_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = vector_server.url()
    PgVectorIndex.open(url, "space", DIMENSION).close()
    monkeypatch.setattr(schema, "TIMEOUT_S", 2)
    with psycopg.connect(url) as building:
        building.execute(f"LOCK {schema.tables_of('space')}_points IN SHARE UPDATE EXCLUSIVE MODE")
        PgVectorIndex.open(url, "space", DIMENSION).close()


def test_what_cannot_be_is_said(vector_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = vector_server.url()
    PgVectorIndex.open(url, "space", DIMENSION).close()
    with pytest.raises(IntegrityError, match="16 dimensions, but the embedder makes 12"):
        PgVectorIndex.open(url, "space", 12)
    with pytest.raises(InvalidInput, match="4,000 dimensions"):
        PgVectorIndex.open(url, "large", 4_001)
    monkeypatch.setattr(schema, "LEAST_VERSION", (9, 0))
    with pytest.raises(BackendUnavailable, match=r"update it to 9\.0"):
        PgVectorIndex.open(url, "space", DIMENSION)
    with pytest.raises(ValueError, match="set MEMOS_LEDGER_URL"):
        Settings(index=IndexSettings(vectors="pgvector"))
    with pytest.raises(ValueError, match="unset one of them"):
        Settings(
            ledger_url=url, index=IndexSettings(vectors="pgvector"), qdrant=QdrantSettings(url="http://127.0.0.1:6333")
        )


def test_former_spaces_are_dropped(vector_server: PostgresServer) -> None:
    url = vector_server.url()
    former, index = PgVectorIndex.open(url, "former", DIMENSION), PgVectorIndex.open(url, "new", 8)
    former.upsert([point(1)])
    assert index.remove_others() == ["former"]
    assert vector_server.sql(database(url), "SELECT count(*) FROM pg_tables WHERE tablename LIKE '%_points'") == "1"
    with pytest.raises(BackendUnavailable, match="restart hippocube, which rebuilds"):
        former.upsert([point(1)])
    former.close()
    index.close()
