"""A graph index on Neo4j that is switched on and off, or that only some processes of a ledger keep."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings, Neo4jSettings
from memos.memcube.ledger import outbox
from memos.memcube.ledger.graph import LedgerGraph
from tests.fakes import WordEmbedder
from tests.support.servers.installation import on_servers, opened
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer


def neo4j_of(server: Neo4jServer) -> Neo4jSettings:
    return Neo4jSettings(url=server.url, password=SecretStr(server.password))


def test_neo4j_catches_up_with_all_that_happened_without_it(tmp_path: Path, neo4j_server: Neo4jServer) -> None:
    without = Settings(home=tmp_path, index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    with_neo4j = without.model_copy(update={"neo4j": neo4j_of(neo4j_server)})
    with MemOS.open(settings=without, embedder=WordEmbedder()) as memos:
        early = memos.add(["one tea", "two tea", "three tea"], conversation="c").item_ids
    with MemOS.open(settings=with_neo4j, embedder=WordEmbedder()) as memos:
        memos.maintenance.catch_up()
        assert memos.maintenance.verify().differences == ()
        assert memos.maintenance.verify().checked["graph"] == 3
        assert set(memos._installation.graph.adjacent(["default"], early[1], 9)) == {early[0], early[2]}
        memos.cubes.create("dropped")
        memos.add("of a cube that goes", cube="dropped")
    with MemOS.open(settings=without, embedder=WordEmbedder()) as memos:
        memos.erase(early[2])
        memos.cubes.drop("dropped")
        memos.update(early[0], "one coffee")
        late = memos.add("four tea", conversation="c").item_ids
        with memos.ledger.read() as connection:
            assert outbox.count(connection, "graph") == 0, "nobody would take them out"
    with MemOS.open(settings=with_neo4j, embedder=WordEmbedder()) as memos:
        memos.maintenance.catch_up()
        report = memos.maintenance.verify()
        assert report.differences == ()
        assert report.checked["graph"] == 3
        there, here = memos._installation.graph, LedgerGraph(memos.ledger)
        for item in (*early, *late):
            assert set(there.adjacent(["default"], item, 9)) == set(here.adjacent(["default"], item, 9))


def test_a_process_without_neo4j_tells_those_that_have_it_of_its_changes(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    with on_servers(tmp_path, postgres_server, neo4j_server) as settings:
        alone = settings.model_copy(update={"neo4j": Neo4jSettings()})
        with opened(settings) as keeper, opened(alone) as other:
            item, gone = other.add(["one", "two"], conversation="c").item_ids
            assert other.search("one").missing_arms == ()
            other.erase(gone)
            keeper.maintenance.catch_up()
            keeper.maintenance.finish_erasures()
            assert keeper.maintenance.verify().differences == ()
            assert [stamp.item for stamp in keeper._installation.graph.scan("default")] == [item]  # type: ignore[attr-defined]
        with opened(alone) as other:  # nobody keeps it any more
            other.add("three", conversation="c")
            with other.ledger.read() as connection:
                assert outbox.count(connection, "graph") == 0
        with opened(settings) as keeper:
            keeper.maintenance.catch_up()
            assert keeper.maintenance.verify().checked["graph"] == 2
            assert keeper.maintenance.verify().checked["graph"] == 2
            assert keeper.maintenance.verify().differences == ()
