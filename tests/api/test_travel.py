"""Cubes as files over HTTP: streamed out and in, owners only, sealed, damaged, hostile, too large."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from memos.api.v1 import cubes as cube_routes
from memos.memcube.dump import container as sealing
from tests.api.conftest import Server

SECRET = {"X-Memos-Passphrase": "grüne Wiese 1".encode()}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_LOG_N", 10)


@pytest.fixture(scope="module")
def dump(server: Server) -> bytes:
    """Ana's cube as a file."""
    for text in ("The heron lives in Hull", "I moved to Leeds"):
        server.http.post("/api/v1/memories", json={"messages": text}, headers=server.headers("ana"))
    answer = server.http.get("/api/v1/cubes/ana/dump", headers=server.headers("ana"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert 'filename="ana.memcube"' in answer.headers["content-disposition"]
    assert int(answer.headers["content-length"]) == len(answer.content)
    return answer.content


def test_a_dump_is_loaded_as_a_cube_of_whoever_sends_it(server: Server, dump: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(dump)) as archive:
        assert json.loads(archive.read("manifest.json"))["cube"]["id"] == "ana"
    url = "/api/v1/cubes/load"
    taken = server.http.post(url, content=dump, headers=server.headers("ben"))
    assert taken.status_code == 409
    done = server.http.post(f"{url}?cube=bens-copy", content=dump, headers=server.headers("ben"))
    assert done.status_code == 201, done.text
    assert (done.json()["items"], done.json()["trusted"], done.json()["skipped"]) == (2, False, 0)
    body = {"query": "heron", "cubes": ["bens-copy"]}
    hit = server.http.post("/api/v1/search", json=body, headers=server.headers("ben")).json()["hits"][0]
    assert hit["sources"][0]["trust"] == "untrusted"
    assert server.http.post("/api/v1/search", json=body, headers=server.headers("ana")).status_code == 404
    again = server.http.post(f"{url}?cube=bens-copy&merge=true", content=dump, headers=server.headers("ben"))
    assert (again.json()["items"], again.json()["skipped"]) == (0, 2)


def test_others_cubes_are_neither_dumped_nor_merged_into(server: Server, dump: bytes) -> None:
    headers = server.headers("ben")
    assert server.http.get("/api/v1/cubes/ana/dump", headers=headers).status_code == 404
    assert server.http.get("/api/v1/cubes/no-such/dump", headers=headers).status_code == 404
    assert server.http.get("/api/v1/cubes/ana/dump?user=ana", headers=headers).status_code == 403
    for query in ("cube=ana&merge=true", "cube=no-such&merge=true"):
        answer = server.http.post(f"/api/v1/cubes/load?{query}", content=dump, headers=headers)
        assert answer.status_code == 404
        assert "heron" not in answer.text
    assert server.http.get("/api/v1/cubes/ana/dump").status_code == 401
    assert server.http.post("/api/v1/cubes/load", content=dump).status_code == 401


def test_a_sealed_dump_needs_its_passphrase(server: Server) -> None:
    ana = server.headers("ana")
    sealed = server.http.get("/api/v1/cubes/ana/dump?vectors=false&adapters=true", headers={**ana, **SECRET}).content
    assert b"heron" not in sealed
    seen = server.http.post("/api/v1/cubes/inspect", content=sealed, headers={**ana, **SECRET})
    assert seen.status_code == 200, seen.text
    assert (seen.json()["cube"], seen.json()["sealed"], seen.json()["vectors"]) == ("ana", True, 0)
    assert seen.json()["adapters"] == 0
    for headers in (ana, {**ana, "X-Memos-Passphrase": b"something else"}, {**ana, "X-Memos-Passphrase": b"\xff" * 9}):
        answer = server.http.post("/api/v1/cubes/inspect", content=sealed, headers=headers)
        assert answer.status_code == 400
        assert "assphrase" in answer.json()["error"]["field"]


@pytest.mark.parametrize("body", [b"", b"{}", b"PK" * 5000, b"MEMCUBE-SEALED-1", b"\0" * 100_000])
def test_what_is_no_dump_is_refused(server: Server, body: bytes) -> None:
    for route in ("load", "inspect"):
        answer = server.http.post(f"/api/v1/cubes/{route}", content=body, headers=server.headers("ana"))
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] == "invalid_input"
    answer = server.http.post("/api/v1/cubes/load?merge=perhaps", content=body, headers=server.headers("ana"))
    assert answer.status_code == 400


def test_a_file_beyond_the_limit_is_refused_while_it_comes(
    server: Server, dump: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cube_routes, "DUMP_BYTES", 1024)
    answer = server.http.post("/api/v1/cubes/load", content=dump, headers=server.headers("ana"))
    assert answer.status_code == 413
    assert "limit of a file" in answer.json()["error"]["message"]


def test_a_damaged_file_loads_nothing(server: Server, dump: bytes) -> None:
    spoilt = bytearray(dump)
    spoilt[len(dump) // 3] ^= 0xFF
    url = "/api/v1/cubes/load?cube=spoilt"
    answer = server.http.post(url, content=bytes(spoilt), headers=server.headers("ana"))
    assert answer.status_code == 400
    assert "spoilt" not in {cube.id for cube in server.memos.cubes.list()}


def test_the_routes_are_documented(server: Server) -> None:
    paths = server.http.get("/api/v1/openapi.json").json()["paths"]
    assert "application/octet-stream" in paths["/cubes/load"]["post"]["requestBody"]["content"]
    assert {"/cubes/{cube}/dump", "/cubes/load", "/cubes/inspect"} <= paths.keys()
