"""What a user gets is the same whatever stands behind the ports: engines in files, servers, or some of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from memos import MemOS, Settings
from memos.backends.graph.neo4j import Neo4jGraph
from memos.core.settings import IndexSettings, LimitSettings, Neo4jSettings, QdrantSettings
from memos.errors import Conflict, NotFound
from tests.fakes import WordEmbedder
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.qdrant_rest import server_settings

Open = Callable[[], MemOS]
KINDS = {
    "embedded": (),
    "servers": ("postgres", "qdrant", "neo4j"),
    "only the ledger": ("postgres",),
    "only the indexes": ("qdrant", "neo4j"),
    "all but the graph": ("postgres", "qdrant"),
    "one server": ("postgres", "pgvector"),
}


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.heavy if servers else ()) for kind, servers in KINDS.items()]
)
def open_(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    parts = KINDS[request.param]
    with server_settings() as qdrant:
        postgres: PostgresServer | None = None
        neo4j: Neo4jServer | None = None
        if "postgres" in parts:
            postgres = request.getfixturevalue("one_server" if "pgvector" in parts else "postgres_server")
        if "neo4j" in parts:
            neo4j = request.getfixturevalue("neo4j_server")
        settings = Settings(
            home=tmp_path / "home",
            ledger_url=None if postgres is None else postgres.url(),
            qdrant=qdrant if "qdrant" in parts else QdrantSettings(),
            neo4j=Neo4jSettings()
            if neo4j is None
            else Neo4jSettings(url=neo4j.url, password=SecretStr(neo4j.password)),
            index=IndexSettings(wait_s=30, vectors="pgvector" if "pgvector" in parts else "qdrant"),
            limits=LimitSettings(min_free_bytes=1_000_000),
        )
        yield lambda: MemOS.open(settings=settings, embedder=WordEmbedder())


TALK = [
    {"role": "user", "name": "Caroline", "content": "I adopted a puppy called Bruno.", "message_id": "m1",
     "chat_time": "2023-05-08T10:00:00Z"},
    {"role": "assistant", "content": "What a lovely name for a puppy!", "message_id": "m2",
     "chat_time": "2023-05-08T10:01:00Z"},
    {"role": "user", "name": "Caroline", "content": "I live in Paris, 我对花生过敏 \u2028 🚀 عربي.", "message_id": "m3",
     "chat_time": "2023-05-08T10:02:00Z"},
]  # fmt: skip


def test_add_search_update_correct_delete_erase_verify(open_: Open) -> None:
    with open_() as memos:
        added = memos.add(TALK, conversation="c", tags=["pets"], info={"room": 7}, idempotency_key="k")
        assert added.indexed
        assert memos.add(TALK, conversation="c", tags=["pets"], info={"room": 7}, idempotency_key="k").replayed
        assert memos.add(TALK[:1], conversation="c").duplicates == added.item_ids[:1]
        puppy, name, home = added.item_ids
        found = memos.search("puppy Bruno")
        assert found.missing_arms == ()
        assert [hit.item.id for hit in found.hits][:2] == [puppy, name]
        assert found.hits[0].sources[0].passage == TALK[0]["content"]
        assert [hit.item.id for hit in memos.search("花生过敏", top_k=1).hits] == [home]
        # Of other people's cubes nothing is seen, whatever they hold.
        memos.cubes.create("other")
        memos.add("A puppy called Bruno lives here too.", cube="other")
        assert {hit.item.cube for hit in memos.search("puppy Bruno").hits} == {"default"}
        where = {"and": [{"memory": {"like": "PUPPY"}}, {"room": {"gte": 6.5}}, {"tags": {"contains": "pets"}}]}
        assert {item.id for item in memos.memories.list(filter=where)} == {puppy, name}
        assert {hit.item.id for hit in memos.search("a puppy", filter=where).hits} == {puppy, name}

        before = memos.get(home).updated_at
        memos.update(home, "I live in Lyon now.", expected_version=1)
        with pytest.raises(Conflict, match="version 2"):
            memos.update(home, "I live in Rome.", expected_version=1)
        assert memos.search("Lyon", top_k=1).hits[0].item.memory == "I live in Lyon now."
        assert memos.search("Paris", top_k=1, as_of=before).hits[0].item.version == 1
        corrected = memos.feedback("No, I live in Nice now.", speaker="Caroline")
        assert home in corrected.superseded
        memos.delete(name)
        assert name not in {hit.item.id for hit in memos.search("lovely name").hits}
        memos.memories.rollback(name, 1)
        assert name in {hit.item.id for hit in memos.search("lovely name").hits}

        receipt = memos.erase(puppy)
        assert receipt.state == "purged"
        assert puppy not in {hit.item.id for hit in memos.search("puppy Bruno").hits}
        with pytest.raises(NotFound, match=receipt.id):
            memos.get(puppy)
        report = memos.maintenance.verify()
        assert report.differences == ()
        assert report.checked["vector"] >= report.items
        assert report.checked.get("graph", report.items) == report.items
        assert memos.maintenance.reindex() == report.items
        hits = [hit.item.id for hit in memos.search("Caroline lives").hits]
    with open_() as again:
        assert again.maintenance.verify().differences == ()
        assert [hit.item.id for hit in again.search("Caroline lives").hits] == hits
        assert [version.reason for version in again.memories.history(home)][:2] == ["added", "updated"]
        gone = again.cubes.drop("other")
        assert gone.state == "purged"
        assert [cube.id for cube in again.cubes.list()] == ["default"]


def test_what_an_index_lost_is_found_and_mended(open_: Open) -> None:
    with open_() as memos:
        ids = memos.add(TALK, conversation="c").item_ids
        memos._installation.vector.prune({ids[0]: None})
        lost = {("vector", "missing", ids[0])}
        if isinstance(graph := memos._installation.graph, Neo4jGraph):
            graph.delete([ids[1]])
            lost.add(("graph", "missing", ids[1]))
        assert {(d.store, d.kind, d.subject) for d in memos.maintenance.verify().differences} == lost
        assert memos.maintenance.verify(repair=True).differences == ()
        assert memos.search("puppy Bruno", top_k=1).hits[0].item.id == ids[0]
