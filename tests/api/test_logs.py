"""What the server logs and traces: each request by its route, an error by its type; never a key or a memory's text."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient

from memos.api import observability as logs
from memos.api import serving
from memos.api.app import create_app
from memos.api.tracing import Tracing
from memos.errors import BackendUnavailable, ModelError
from tests.api.conftest import Server

WORD = "Quetzalcoatlus"
PASSWORD = "sk-live-9f8e7d6c5b4a39281706f5e4d3c2b1a0"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream, root = io.StringIO(), logging.getLogger()
    before = root.level
    handler = logs.to_stream("info", stream)
    yield stream
    logging.captureWarnings(capture=False)
    root.removeHandler(handler)
    root.setLevel(before)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def breaking(server: Server) -> TestClient:
    """Return an application that also has routes which fail in ways ordinary ones must not."""
    app = create_app(server.memos, local_token="local-token")
    inner = next(route.app for route in app.routes if getattr(route, "path", "") == "/api/v1")

    def fail(error: Exception) -> Any:
        def route() -> None:
            try:
                raise ValueError(f"{WORD} {PASSWORD}")
            except ValueError as cause:
                raise error from cause

        return route

    for name, error in {
        "bug": RuntimeError(f"{WORD} {PASSWORD}"), "store": BackendUnavailable("The store is away."),
        "model": ModelError("No answer."), "deep": RecursionError(WORD),
    }.items():  # fmt: skip
        inner.add_api_route(f"/broken/{name}", fail(error))
    return TestClient(app, raise_server_exceptions=False)


def test_a_session_with_errors_of_every_kind_leaves_no_key_and_no_text_in_the_log(
    server: Server, log: io.StringIO
) -> None:
    http, mine = breaking(server), server.headers("ana")
    said = f"{WORD} likes tea, password {PASSWORD}"
    item = http.post("/api/v1/memories", json={"messages": said, "info": {"w": WORD}}, headers=mine).json()["item_ids"][
        0
    ]
    statuses = {
        http.post("/api/v1/search", json={"query": said, "cubes": ["ana"], "user": "ana"}, headers=mine).status_code,
        http.post("/api/v1/search", json={"query": said, "top_k": WORD}, headers=mine).status_code,
        http.post("/api/v1/search", json={"query": said, "filter": {WORD: {WORD: 1}}}, headers=mine).status_code,
        http.post("/api/v1/search", content=said.encode(), headers=mine).status_code,
        http.post("/api/v1/search", json={"query": said}, headers={"Authorization": f"Bearer {PASSWORD}"}).status_code,
        http.post("/api/v1/search", json={"query": said, "user": "ben"}, headers=mine).status_code,
        http.get(f"/api/v1/memories/{WORD}", headers=mine).status_code,
        http.get(f"/{WORD}?q={PASSWORD}", headers=mine).status_code,
        http.delete(f"/api/v1/memories?x={WORD}", headers=mine).status_code,
        *(http.get(f"/api/v1/broken/{name}", headers=mine).status_code for name in ("bug", "store", "model", "deep")),
    }
    assert statuses == {200, 400, 401, 403, 404, 405, 500, 502, 503}
    told = log.getvalue()
    for secret in (WORD, PASSWORD, item, server.ana, server.admin, "mst_", "local-token"):
        assert secret not in told
    entries = lines(log)
    requests = [entry for entry in entries if entry["logger"] == "memos.requests"]
    assert {entry["status"] for entry in requests} == {201, *statuses}
    assert {entry["route"] for entry in requests} >= {"/api/v1/memories", "/api/v1/memories/{item}", "none"}
    broken = [entry for entry in entries if entry["message"] == "request failed"]
    assert [entry["error"]["type"] for entry in broken] == ["builtins.RuntimeError", "builtins.RecursionError"]
    assert broken[0]["error"]["cause"] == "builtins.ValueError"
    assert any("test_logs.py" in place for place in broken[0]["error"]["where"])


def test_a_request_is_known_by_its_id_in_the_answer_and_in_every_line(server: Server, log: io.StringIO) -> None:
    breaking(server).get("/api/v1/broken/bug", headers={**server.headers("ana"), "X-Request-Id": "trace-me-7"})
    assert {entry["request_id"] for entry in lines(log) if entry["logger"].startswith("memos.")} == {"trace-me-7"}


def test_at_debug_what_an_error_says_is_told_too(log: io.StringIO) -> None:
    record = logging.makeLogRecord({"msg": "x", "odd": {1, 2}, "exc_info": (ValueError, ValueError("why\n"), None)})
    assert "says" not in json.loads(logs.JsonLines().format(record))["error"]
    told = logs.JsonLines(quotes=True).format(record)
    assert json.loads(told)["error"]["says"] == "why\n"
    assert "\n" not in told


def test_a_terminal_gets_lines_for_people_and_no_control_characters() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    root, before = logging.getLogger(), logging.getLogger().level
    handler = logs.to_stream("info", Terminal())
    try:
        made = {"name": "memos.requests", "msg": "request", "levelname": "INFO", "route": "/\x1b[31m\n", "status": 404}
        told = handler.format(logging.makeLogRecord(made))
        assert re.fullmatch(r"\d\d:\d\d:\d\d request route=/ \[31m  status=404", told)
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        logging.captureWarnings(capture=False)


def test_a_request_is_a_span_with_its_stages_below_it(server: Server) -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(SimpleSpanProcessor(exporter))
    http = TestClient(create_app(server.memos, tracing=tracing), raise_server_exceptions=False)
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    http.post(
        "/api/v1/search", json={"query": WORD}, headers={**server.headers("ana"), "traceparent": parent}
    ).raise_for_status()
    http.post("/api/v1/search", json={"query": WORD}, headers={"traceparent": "\x7f" * 30})
    spans = exporter.get_finished_spans()

    def named(name: str) -> list[ReadableSpan]:
        return [span for span in spans if span.name == name]

    request, refused = named("POST /api/v1/search")[0], named("POST /api/v1")[0]
    assert request.parent is not None
    assert f"{request.context.trace_id:032x}" == "ab" * 16
    assert refused.attributes is not None
    assert refused.attributes["http.response.status_code"] == 401
    [search] = named("memos.search")
    [embed] = named("memos.search.embed")
    assert search.parent is not None
    assert search.parent.span_id == request.context.span_id
    assert embed.parent is not None
    assert embed.parent.span_id == search.context.span_id
    assert WORD not in "".join(span.to_json() for span in spans)
    tracing.close()


def test_traces_are_sent_where_the_usual_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with serving._tracing() as tracing:
        assert tracing is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with serving._tracing() as tracing:
        assert tracing is not None


def test_without_an_exporter_nothing_of_it_is_imported() -> None:
    code = (
        "import memos.api.serving, sys; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
