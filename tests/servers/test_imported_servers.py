"""Imports from the servers of other memory programs: Graphiti's graph on Neo4j, mem0's collection on Qdrant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from qdrant_client import QdrantClient, models

from memos import MemOS
from memos.errors import InvalidInput
from memos.kernel.importing import import_export
from memos.reader.importers.sources import ExportOptions
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.qdrant_rest import QdrantDouble

# As graphiti-core 0.31 writes them, without embeddings.
GRAPH = """
CREATE (a:Entity {uuid: 'n1', group_id: $group, name: 'Ana', summary: 'Ana keeps bees.', created_at: datetime()})
CREATE (b:Entity {uuid: 'n2', group_id: $group, name: 'Acme', summary: '', created_at: datetime()})
CREATE (:Episodic {uuid: 'e1', group_id: $group, name: 'talk', source: 'message', source_description: 'chat',
    content: 'Ana(user): I have left Acme.', valid_at: datetime('2026-01-05T10:00:00Z'), created_at: datetime()})
CREATE (a)-[:RELATES_TO {uuid: 'f1', group_id: $group, name: 'WORKS_AT', fact: 'Ana works at Acme',
    valid_at: datetime('2020-01-01T00:00:00Z'), invalid_at: datetime('2025-12-31T00:00:00Z'),
    expired_at: datetime(), created_at: datetime('2020-01-02T00:00:00Z')}]->(b)
CREATE (a)-[:RELATES_TO {uuid: 'f2', group_id: $group, name: 'KEEPS', fact: 'Ana keeps bees',
    valid_at: datetime('2022-01-01T00:00:00Z'), created_at: datetime('2022-01-02T00:00:00Z')}]->(b)
"""


@pytest.fixture
def graph(neo4j_server: Neo4jServer) -> Iterator[str]:
    import neo4j  # noqa: PLC0415 - an extra, which the other tests do without

    auth = ("neo4j", neo4j_server.password)
    with neo4j.GraphDatabase.driver(neo4j_server.url, auth=auth) as driver:
        driver.execute_query(GRAPH, group="ana", database_="neo4j")
        yield neo4j_server.url
        driver.execute_query("MATCH (n) WHERE n:Entity OR n:Episodic DETACH DELETE n", database_="neo4j")


def test_graphitis_graph_is_imported_with_the_times_of_its_facts(
    memos: MemOS, graph: str, neo4j_server: Neo4jServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_PASSWORD", "wrong")
    with pytest.raises(InvalidInput, match="refuses the name or the password; give them in NEO4J_USER"):
        import_export(memos, graph, cube="default")
    monkeypatch.setenv("NEO4J_PASSWORD", neo4j_server.password)
    done = import_export(memos, graph, cube="default", options=ExportOptions(collection="neo4j"))
    assert (done.format, done.added, done.bad, done.left_out) == ("zep", 4, (), 1)
    assert {item.memory for item in memos.memories.list()} == {
        "I have left Acme.", "Ana works at Acme", "Ana keeps bees", "Ana: Ana keeps bees.",
    }  # fmt: skip
    worked = {hit.item.memory for hit in memos.search("Where does Ana work?").hits}
    assert "Ana works at Acme" not in worked
    then = memos.search("Where does Ana work?", reference_time="2023-01-01T00:00:00Z").hits
    assert "Ana works at Acme" in {hit.item.memory for hit in then}
    again = import_export(memos, graph, cube="default")
    assert (again.added, again.updated, again.known) == (0, 0, 4)


def test_mem0s_collection_on_a_server_is_imported(memos: MemOS) -> None:
    with QdrantDouble() as server:
        client = QdrantClient(url=server.url, check_compatibility=False)
        client.create_collection("mem0", vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
        points = [
            models.PointStruct(id=n, vector=[1.0, 0.0], payload={"data": f"Saw bird {n}", "user_id": "ana"})
            for n in range(1, 301)
        ]
        client.upsert("mem0", points, wait=True)
        client.close()
        done = import_export(memos, server.url, cube="default")
        assert (done.format, done.added, done.bad) == ("mem0", 300, ())
        assert import_export(memos, server.url, cube="default").known == 300
        with pytest.raises(InvalidInput, match="collection: 'other' does not exist"):
            import_export(memos, server.url, cube="default", options=ExportOptions(collection="other"))
