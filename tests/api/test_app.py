"""What every request passes through: keys, errors, limits, request ids; and how the server starts and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Scope

from memos import MemOS, Settings
from memos.api import endpoint
from memos.api.app import create_app
from memos.api.observability import Metrics, RequestLog
from memos.api.serving import first_key
from memos.core.settings import IndexSettings, LimitSettings, ServerSettings
from tests.api.conftest import Server
from tests.fakes import WordEmbedder

BEARER = "Authorization"


def test_health_needs_no_key_and_tells_nothing(server: Server) -> None:
    assert server.http.get("/health").json()["status"] == "ok"
    assert server.http.get("/ready").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic abc", "Bearer mst_wrong", "Token \x00", "Bearer é"]
)
def test_without_a_key_that_opens_anything_the_answer_is_401(server: Server, header: str | None) -> None:
    headers = {} if header is None else {BEARER: header.encode("utf-8")}
    answer = server.http.post("/api/v1/search", json={"query": "x"}, headers=headers)
    assert answer.status_code == 401
    assert "WWW-Authenticate" in answer.headers
    assert answer.json()["error"]["code"] in {"unauthenticated", "permission_denied"}


def test_what_is_added_is_found_by_its_user_and_by_no_other(server: Server) -> None:
    added = server.http.post(
        "/api/v1/memories", json={"messages": "The otter lives in Oslo"}, headers=server.headers("ana")
    )
    assert added.status_code == 201
    item = added.json()["item_ids"][0]
    found = server.http.post("/api/v1/search", json={"query": "otter"}, headers=server.headers("ana")).json()
    assert found["hits"][0]["item"]["id"] == item
    assert server.http.get(f"/api/v1/memories/{item}", headers=server.headers("ben")).status_code == 404
    assert (
        server.http.post(
            "/api/v1/search", json={"query": "otter", "cubes": ["ana"]}, headers=server.headers("ben")
        ).status_code
        == 404
    )
    for user in ("ana", "nobody at all"):
        answer = server.http.post(
            "/api/v1/search", json={"query": "otter", "user": user}, headers=server.headers("ben")
        )
        assert answer.status_code == 403
        assert "otter" not in answer.text


def test_an_admin_acts_for_everyone_and_new_users_are_made(server: Server) -> None:
    body = {"messages": "I like Go", "user": "cleo"}
    assert server.http.post("/api/v1/memories", json=body, headers=server.headers("admin")).json()["cube"] == "cleo"
    assert server.memos.users.get("cleo").home == "cleo"
    body["user"] = "dora"
    assert server.http.post("/api/v1/memories", json=body, headers=server.headers("ana")).status_code == 403
    assert [user.id for user in server.memos.users.list() if user.id == "dora"] == []


def test_the_local_token_is_the_person_at_the_machine(server: Server) -> None:
    headers = {BEARER: "Bearer local-token"}
    added = server.http.post("/api/v1/memories", json={"messages": "local"}, headers=headers).json()
    assert added["cube"] == "default"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"), (b"", "body"), (b"[1]", "body"), (b'{"query": 1}', "query"), (b'{"query": "x", "no": 1}', "no"),
        (b'{"query": "x", "top_k": 1' + b"0" * 400 + b"}", "top_k"), (b'{"query": "\\ud800"}', "query"),
        (b'{"query": "x", "filter": {"a": {"zz": NaN}}}', "filter"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_refused_and_its_field_named(server: Server, body: bytes, field: str) -> None:
    headers = {**server.headers("ana"), "Content-Type": "application/json"}
    answer = server.http.post("/api/v1/search", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    told = answer.json()["error"]
    assert told["code"] == "invalid_input"
    assert field in told["field"] or field in told["message"]


@pytest.mark.parametrize("path", ["/docs", "/api/v1/nothing", "/openai/v1/embeddings"])
def test_an_unknown_route_is_not_found_and_the_api_documents_are_named(server: Server, path: str) -> None:
    answer = server.http.get(path, headers=server.headers("ana"))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "not_found")
    assert error["message"].startswith("No such route: ")
    assert f"{path}'" in error["message"]
    assert "/api/v1/openapi.json" in error["message"]


def test_a_body_is_refused_in_words_of_the_api(server: Server) -> None:
    def told(body: bytes, **headers: str) -> str:
        answer = server.http.post("/api/v1/search", content=body, headers=server.headers("ana") | headers)
        assert answer.status_code == 400
        return str(answer.json()["error"]["message"])

    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl sends with `-d` alone
    for headers in ({}, form):
        assert "Content-Type: application/json" in told(b'{"query": "x"}', **headers)
    json = {"Content-Type": "application/json"}
    for body, words in (
        (b"", "body: is required"),
        (b"{}", "query: is required"),
        (b"[]", "body: must be an object"),
        (b'"text"', "body: must be an object"),
        (b'{"query": 1}', "query: must be text"),
        (b'{"query": "x", "top_k": "many"}', "top_k: must be a whole number"),
        (b'{"query": "x", "cubes": 7}', "cubes: must be a list"),
        (b'{"query": "x", "explain": []}', "explain: must be true or false"),
        (b'{"query": "x", "filter": 7}', "filter: must be an object"),
    ):
        assert told(body, **json) == words


def test_a_search_at_the_memories_is_told_where_search_is(server: Server) -> None:
    answer = server.http.post("/api/v1/memories/search", json={"query": "x"}, headers=server.headers("ana"))
    assert answer.status_code == 405
    assert answer.json()["error"]["message"].endswith(". Search is POST /api/v1/search.")


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("DELETE", "/api/v1/search", "POST"), ("POST", "/health", "GET")]
)
def test_a_wrong_method_is_told_with_the_right_one(server: Server, method: str, path: str, allowed: str) -> None:
    answer = server.http.request(method, path, headers=server.headers("ana"))
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["error"] == {
        "code": "method_not_allowed",
        "message": f"This route does not take '{method}'; it takes {allowed}.",
    }


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("search", {"query": "x", "user_name": "ana"}, "user_name: unknown field; here it is `user`"),
        ("search", {"query": "x", "n_results": 3}, "n_results: unknown field; here it is `top_k`"),
        ("memories", {"message": "x"}, "message: unknown field; did you mean `messages`?"),
        ("memories", {"messages": "x", "memory_id": "i"}, "memory_id: unknown field; known are"),
        ("keys", {"name": "k", "limits": {"request_per_minute": 1}}, "did you mean `requests_per_minute`?"),
        ("users", {"id": "u", "zzzz": 1}, "zzzz: unknown field; known are `id`, `kind`, `name`, `acts_for`, `admin`"),
    ],
)
def test_an_unknown_field_is_refused_with_the_name_it_has_here(
    server: Server, path: str, body: dict[str, object], told: str
) -> None:
    answer = server.http.post(f"/api/v1/{path}", json=body, headers=server.headers("ana"))
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/mcp/", "/health/", "/metrics/"])
def test_nobody_is_sent_on_to_the_address_a_request_calls_the_server_by(server: Server, path: str) -> None:
    told = server.http.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
    assert told.status_code == 404
    assert "location" not in told.headers


def test_a_request_keeps_its_id_or_gets_one(server: Server) -> None:
    assert server.http.get("/health", headers={"X-Request-Id": "abc-1"}).headers["X-Request-Id"] == "abc-1"
    assert len(server.http.get("/health", headers={"X-Request-Id": "bad id\n"[:6]}).headers["X-Request-Id"]) > 10


@pytest.mark.heavy
def test_serving_prints_the_key_once_tells_tools_where_it_is_and_ends_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memos", "serve", "--port", "0", "--data-dir", str(tmp_path / "home")]
    for start in range(2):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            key = process.stdout.readline().split()[-1] if start == 0 else key  # noqa: F821 - from the first start
            assert process.stdout.readline().startswith(f"Console: {url}/console/sign-in?link=")
            found = endpoint.find(tmp_path / "home")
            assert found is not None
            assert found.url == url
            assert stat.S_IMODE((tmp_path / "home" / endpoint.FILE).stat().st_mode) == 0o600
            headers = {BEARER: f"Token {key}"}
            answer = httpx2.post(
                f"{url}/api/v1/memories", json={"messages": f"start {start}"}, headers=headers, timeout=60
            )
            assert answer.status_code == 201, answer.text
            assert httpx2.get(f"{url}/api/v1/openapi.json", timeout=60).json()["info"]["title"] == "hippocube"
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.communicate(timeout=60)[0]
        assert process.returncode == 0
        assert rest == ""
        assert endpoint.find(tmp_path / "home") is None
    assert json.dumps(key) not in (tmp_path / "home" / "ledger.db").read_bytes().decode("latin-1")


def test_a_body_that_is_too_large_is_refused_before_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 100_000
    for module in ("families", "mcp.http"):
        monkeypatch.setattr(f"memos.api.{module}.BODY_BYTES", limit)
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))

    def chunks() -> Iterator[bytes]:
        yield from [b"x" * 10_000] * 100

    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        app = create_app(memos, local_token="local-token")
        with TestClient(app, raise_server_exceptions=False) as http:
            headers = {BEARER: "Bearer local-token", "Content-Type": "application/json"}
            for path in (
                "/api/v1/search",
                "/product/add",
                "/api/openmem/v1/add/message",
                "/openai/v1/chat/completions",
            ):
                declared = http.post(path, content=b"x" * (limit + 1), headers=headers)
                assert (path, declared.status_code) == (path, 413)
                streamed = http.post(path, content=chunks(), headers=headers)
                assert (path, streamed.status_code) == (path, 413)
                assert "100,000" in declared.text
            form = {"file": ("a.md", b"x" * limit)}
            upload = http.post("/api/v1/documents/upload", files=form, headers={BEARER: "Bearer local-token"})
            assert upload.status_code == 413
            assert http.get("/api/v1/cubes", headers=headers).status_code == 200


ORIGIN = "https://pages.example"
ASKING = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": BEARER}


def test_pages_of_other_origins_may_not_ask_by_default(server: Server) -> None:
    for answer in (
        server.http.options("/api/v1/search", headers=ASKING),
        server.http.get("/health", headers={"Origin": ORIGIN}),
        server.http.post("/api/v1/search", json={"query": "x"}, headers={"Origin": ORIGIN, **server.headers("ana")}),
    ):
        assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_a_server_keeps_to_its_settings_and_says_what_it_cannot_do_now(tmp_path: Path) -> None:
    settings = Settings(
        limits=LimitSettings(min_free_bytes=10**18), server=ServerSettings(cors_origins=(ORIGIN,), new_users=False)
    )
    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        admin = first_key(memos)
        memos.users.create("ana")
    with (
        MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos,
        TestClient(create_app(memos, lazy=True), raise_server_exceptions=False) as http,
    ):
        headers = {BEARER: f"Bearer {admin}"}

        asked = http.options("/api/v1/search", headers=ASKING)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, ORIGIN)
        assert BEARER in asked.headers["access-control-allow-headers"]
        refused = http.options("/api/v1/search", headers=ASKING | {"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers

        # Nobody is made by being named; who is known is served, also while nothing can be stored.
        said = [{"role": "user", "content": "The disk is full."}]
        new: dict[str, Any] = {"user": "cleo", "user_id": "cleo", "messages": said, "query": "x"}
        for path, names in (
            ("/api/v1/search", ("query", "user")),
            ("/api/v1/memories", ("messages", "user")),
            ("/product/add", ("messages", "user_id")),
            ("/api/openmem/v1/add/message", ("messages", "user_id")),
        ):
            body = {name: new[name] for name in names}
            assert (path, http.post(path, json=body, headers=headers).status_code) == (path, 404)
        assert {user.id for user in memos.users.list(kind="user")} == {"admin", "ana"}
        known = http.post("/api/v1/search", json={"query": "x", "user": "ana"}, headers=headers)
        assert known.status_code == 200

        body = {"user_id": "ana", "messages": said}
        failed = http.post("/api/openmem/v1/add/message", json=body, headers=headers)
        assert (failed.status_code, failed.json()["code"]) == (503, 50143)

        assert http.get("/ready").status_code == 200
        memos.close()
        told = http.get("/ready")
        assert (told.status_code, told.json()["status"]) == (503, "unavailable")
        assert http.get("/health").status_code == 200


def test_streams_and_waits_end_when_the_server_is_about_to(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    asked = []

    def stopping() -> bool:
        asked.append(True)
        return True

    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        app = create_app(memos, local_token="local-token", stopping=stopping)
        with TestClient(app, raise_server_exceptions=False) as http:
            headers = {BEARER: "Bearer local-token"}
            told = http.get("/api/v1/events/stream?cube=default&timeout_s=30", headers=headers)
            assert told.status_code == 200
    assert len(asked) == 1


def test_a_request_that_a_stop_does_not_wait_for_any_longer_is_to_be_repeated(server: Server) -> None:
    sent: list[Message] = []

    async def forever(*_: object) -> None:
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def cancel() -> None:
        scope: Scope = {"type": "http", "method": "POST", "path": "/api/v1/memories", "headers": []}
        request = asyncio.create_task(RequestLog(forever, Metrics(server.memos))(scope, receive, send))
        await asyncio.sleep(0)
        request.cancel()  # as uvicorn does
        await request

    asyncio.run(cancel())
    assert sent[0]["status"] == 503
    assert "Idempotency-Key" in json.loads(sent[1]["body"])["error"]["message"]
