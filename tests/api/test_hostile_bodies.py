"""Bodies made to exhaust a parser, a number, a pattern or a filter: each is refused or taken, and soon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.conftest import Server

FAMILIES = (
    "/api/v1/memories", "/api/v1/search", "/api/v1/keys", "/api/openmem/v1/add/message", "/product/search",
    "/openai/v1/chat/completions", "/openai/v1/responses", "/anthropic/v1/messages", "/hooks/claude-code",
    "/hooks/claude-code/messages", "/local/call",
)  # fmt: skip
BODIES = {
    "deep list": "[" * 100_000 + "]" * 100_000,
    "deep object": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "long number": '{"query": "x", "messages": "x", "top_k": ' + "9" * 5_000 + "}",
    "infinite number": '{"query": "x", "messages": "x", "info": {"a": 1e999}, "top_k": 1e999}',
    "no number": '{"query": "x", "messages": "x", "info": {"a": NaN}}',
    "half a character": '{"query": "\\ud800", "messages": "\\ud800"}',
    "no UTF-8": b'{"query": "\xff\xfe"}',
    "a text": '"x"',
    "nothing": "",
}
# Each repeated is the worst for some pattern that reads statements, secrets, times or names.
REPEATED = ("a", "1", "@", "(", "my ", "2024-", "http://", "https://a:b@", "sk-", "eyJ", "-----BEGIN ", "<", "no, ")
LONG = 30_000


def post(server: Server, path: str, body: Any) -> tuple[int, Any]:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    headers = {**server.headers("ana"), "Content-Type": "application/json"}
    answer = server.http.post(path, content=content, headers=headers)
    return answer.status_code, answer.json() if answer.content else None


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_no_program_sends_is_refused_by_every_family(server: Server, body: str | bytes) -> None:
    for path in FAMILIES:
        status, told = post(server, path, body)
        # Without a model a proxy says so first.
        assert 400 <= status < 500 or status == 503, (path, status, told)
        assert isinstance(told, dict)


def test_texts_that_are_the_worst_for_a_pattern_are_stored_and_searched(server: Server) -> None:
    for part in REPEATED:
        text = (part * LONG)[:LONG]
        assert post(server, "/api/v1/memories", {"messages": text})[0] == 201, part
        assert post(server, "/api/v1/search", {"query": text[:4_000]})[0] == 200, part


def test_filters_have_a_size_and_depth(server: Server) -> None:
    post(server, "/api/v1/memories", {"messages": "a" * 20_000})
    wide = {"or": [{"tags": {"contains": str(number)}} for number in range(5_000)]}
    deep = '{"query": "x", "filter": ' + '{"and": [' * 20_000 + "{}" + "]}" * 20_000 + "}"
    for body in ({"query": "x", "filter": wide}, deep):
        assert post(server, "/api/v1/search", body)[0] == 400
    many = {"query": "aaa", "filter": {"memory": {"like": "%a" * 15 + "b"}}}
    assert post(server, "/api/v1/search", many)[0] in (200, 400)


@pytest.mark.parametrize("field", [{"cubes": ["a"] * 100_000}, {"cubes": ["a" * 100_000]}, {"cubes": {"ana": 1}}])
def test_a_key_is_for_a_few_cubes_with_names(server: Server, field: dict[str, Any]) -> None:
    assert post(server, "/api/v1/keys", {"name": "x", **field})[0] in (400, 404)
