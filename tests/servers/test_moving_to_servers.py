"""An embedded installation moves to servers and back with its whole history, and is searched there as it was here."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.settings import LimitSettings
from memos.errors import BackendUnavailable
from memos.kernel.relocation import migrate
from tests.fakes import WordEmbedder
from tests.support.ledgers import ODD
from tests.support.servers.installation import on_servers, opened
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer


def embedded(home: Path) -> Settings:
    return Settings(home=home, limits=LimitSettings(min_free_bytes=1_000_000))


def told(memos: MemOS, ids: tuple[str, ...]) -> list[object]:
    """Return what an installation says of these items: their history, and the answers to a few questions."""
    answers = [[(hit.item.id, hit.item.version) for hit in memos.search(q).hits] for q in ("violin", "attic", ODD)]
    then = [hit.item.memory for hit in memos.search("violin", as_of=memos.memories.history(ids[0])[0].recorded_at).hits]
    return [*(memos.memories.history(item) for item in ids), answers, then, [cube.id for cube in memos.cubes.list()]]


def test_to_servers_and_back(tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer) -> None:
    here, back = embedded(tmp_path / "here"), embedded(tmp_path / "back")
    with opened(here) as memos:
        said = [{"role": "user", "content": text} for text in ("The violin is in the attic.", ODD, "Not this.")]
        ids = memos.add(said, conversation="c", idempotency_key="k").item_ids
        memos.update(ids[0], "The violin was sold.")
        memos.delete(ids[1])
        memos.memories.rollback(ids[1], 1)
        memos.erase(ids[2])
        memos.cubes.create("empty")
        before = told(memos, ids[:2])
    with on_servers(tmp_path / "unused", postgres_server, neo4j_server) as servers:
        moved = migrate(here, servers, embedder=WordEmbedder())
        assert moved.indexed
        assert moved.differences == ()
        with opened(servers) as there:
            assert told(there, ids[:2]) == before
            assert there.maintenance.verify().differences == ()
            replayed = there.add(said, conversation="c", idempotency_key="other")
            assert len(replayed.item_ids) == 3
            with pytest.raises(BackendUnavailable, match="a migration or an embedded index needs it alone"):
                migrate(servers, back, embedder=WordEmbedder())
            after = told(there, ids[:2])
        assert migrate(servers, back, embedder=WordEmbedder()).differences == ()
    with opened(back) as memos:
        assert told(memos, ids[:2]) == after
        assert memos.maintenance.verify().differences == ()
    assert not (tmp_path / "unused").exists()
