"""Unusual strings in every field of every route, on servers: after everything is erased, none of them has any."""

from __future__ import annotations

from pathlib import Path

import pytest
from qdrant_client import QdrantClient
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.memcube.scan import Scan, Texts
from tests.api.test_remnants import MARK, Walk
from tests.support.servers.installation import on_servers, opened
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer


def _in_rows(memos: MemOS, home: Path) -> Scan:
    """Look into the rows of PostgreSQL and the files of the folder; every string begins with the same letters."""
    found = Scan(Texts([MARK]))
    with memos.ledger.read() as connection:
        found.ledger(connection)
    found.folder(home)
    return found


def _in_qdrant(settings: Settings) -> tuple[int, int]:
    """Return how many points there are, and how many have one of the strings."""
    key = None if settings.qdrant.api_key is None else settings.qdrant.api_key.get_secret_value()
    client = QdrantClient(url=settings.qdrant.url, api_key=key, check_compatibility=False)
    points = []
    for collection in client.get_collections().collections:
        offset = None
        while True:
            some, offset = client.scroll(collection.name, limit=1_000, offset=offset, with_payload=True)
            points += [point.payload or {} for point in some]
            if offset is None:
                break
    client.close()
    # One point keeps how far the index has come.
    return sum("mark" not in payload for payload in points), sum(MARK in str(payload) for payload in points)


def _in_neo4j(settings: Settings) -> int:
    """Return how many nodes and relationships have one of the strings."""
    import neo4j  # noqa: PLC0415 - an extra, which the other tests do without

    there, password = settings.neo4j, settings.neo4j.password
    assert there.url is not None and password is not None
    count = 0
    with neo4j.GraphDatabase.driver(there.url, auth=("neo4j", password.get_secret_value())) as driver:
        for pattern in ("(x)", "()-[x]->()"):
            for record in driver.execute_query(f"MATCH {pattern} RETURN properties(x) AS told").records:
                count += MARK in str(record["told"])
    return count


@pytest.mark.heavy
def test_no_string_of_any_field_of_any_route_is_left_on_any_server(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    with (
        on_servers(tmp_path / "home", postgres_server, neo4j_server) as settings,
        opened(settings) as memos,
    ):
        app = create_app(memos, local_token="local-token")
        with TestClient(app, raise_server_exceptions=False) as http:
            walk = Walk(memos, http)
            walk.run()
        memos.maintenance.catch_up()
        assert walk.stored > 200
        assert len(_in_rows(memos, settings.home).traces) > 40  # columns
        assert _in_qdrant(settings)[0] > 100
        assert _in_neo4j(settings) > 0
        for identity in memos.users.list(limit=10_000):
            preview = memos.subjects.preview(identity.id)
            memos.subjects.forget(identity.id, expected=preview.goes, wait=False)
        for cube in memos.cubes.list():
            memos.cubes.drop(cube.id)
        left = _in_rows(memos, settings.home)
        assert {(trace.place, trace.encoding) for trace in left.traces.values()} == set()
        assert not left.unread
        assert _in_qdrant(settings) == (0, 0)
        assert _in_neo4j(settings) == 0
