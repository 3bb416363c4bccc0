"""Words of other programs in bodies and queries of `/api/v1`, and their one place in its document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memos.core.aliases import ALIASES
from tests.api.conftest import Server


def ask(server: Server, method: str, path: str, body: Any = None, **query: Any) -> Any:
    """Return what an admin is answered."""
    headers = server.headers("admin")
    return server.http.request(method, f"/api/v1{path}", json=body, params=query, headers=headers).json()


@pytest.mark.parametrize(
    ("alias", "ours"),
    [
        ({"user_id": "ana"}, {"user": "ana"}),
        ({"agent_id": "ana", "user": None}, {"user": "ana"}),
        ({"conversation_id": "work"}, {"conversation": "work"}),
        ({"cubes": ["ana"]}, {"cube": "ana"}),
        ({"run_id": "r1", "thread_id": "work"}, {"conversation": "work", "info": {"run_id": "r1"}}),
        ({"metadata": {"colour": "red"}}, {"info": {"colour": "red"}}),
        ({"infer": True}, {"mode": "fine"}),
    ],
)
def test_a_body_takes_them(server: Server, alias: dict[str, Any], ours: dict[str, Any]) -> None:
    def stored(body: dict[str, Any]) -> tuple[object, ...]:
        receipt = ask(server, "POST", "/memories", {"messages": "The bakery closes at noon.", **body})
        found = ask(server, "GET", f"/memories/{receipt['item_ids'][0]}")
        return found["cube"], found["conversation"], found["info"], receipt["task"] is None

    assert stored(alias) == stored(ours)


def test_ids_and_numbers_of_hits_are_taken_under_other_names(server: Server) -> None:
    item = ask(server, "POST", "/memories", {"messages": "I live in Lyon.", "user_id": "ben"})["item_ids"][0]
    for where in ({}, {"cube": "ben"}, {"cubes": "ben"}):
        found = ask(server, "POST", "/search", {"query": "Lyon", "limit": 1, "user_id": "ben", **where})
        assert [hit["item"]["id"] for hit in found["hits"]] == [item]
    why = {"query": "Lyon", "memory_id": item, "user_id": "ben"}
    assert ask(server, "POST", "/search/why-not", why)["item_id"] == item
    told = {"text": "No, in Bergen.", "ids": [item], "timestamp": "2026-01-03T00:00:00Z", "user_id": "ben"}
    assert ask(server, "POST", "/feedback", told)["related"] == [item]
    assert ask(server, "PATCH", f"/memories/{item}", {"metadata": {"a": 1}})["info"] == {"a": 1}
    assert ask(server, "POST", "/memories/delete", {"memory_id": item}) == {"item_ids": [item]}


@pytest.mark.parametrize(
    ("path", "alias", "ours"),
    [
        ("/memories", {"user_id": "ana", "limit": 2}, {"user": "ana", "limit": 2}),
        ("/tasks", {"agent_id": "ana", "state": ["done", "dead"]}, {"user": "ana", "state": ["done", "dead"]}),
        ("/working-memory", {"session_id": "wörk & home"}, {"conversation": "wörk & home"}),
        ("/memories", {"user_id": "ana", "user": "ana", "offset": 0}, {"user": "ana"}),
        ("/tasks", {"cubes": "ana"}, {"cube": "ana"}),
    ],
)
def test_a_query_takes_them(server: Server, path: str, alias: dict[str, Any], ours: dict[str, Any]) -> None:
    server.memos.tasks.wait()  # or one would be done between both requests
    assert ask(server, "GET", path, **alias) == ask(server, "GET", path, **ours)


@pytest.mark.parametrize(
    ("method", "path", "query", "message"),
    [
        ("GET", "/memories", {"userid": "ana"}, "userid: unknown field; did you mean `user`?"),
        ("GET", "/memories", {"limt": 1, "user_id": "ana"}, "limt: unknown field; did you mean `limit`?"),
        ("GET", "/tasks", {"cubes": ["ana", "ben"]}, "cubes: unknown field; here it is `cube`"),
        ("GET", "/tasks", {"cube_id": "ana"}, "cube_id: unknown field; here it is `cube`"),
        ("GET", "/memories", {"conversation_id": "work"}, "conversation_id: unknown field; known are"),
        ("GET", "/memories", {"": "x"}, ": unknown field; known are"),
        ("GET", "/memories/none/history", {"zzzz": ["1", "2"]}, "zzzz: unknown field; known are `cube`, `user`"),
        ("DELETE", "/memories/none", {"reasn": "old"}, "reasn: unknown field; did you mean `reason`?"),
        ("POST", "/search", {"user_id": "ana"}, "user_id: unknown field of the query; give it in the body"),
    ],
)
def test_an_unknown_parameter_is_refused_with_what_was_meant(
    server: Server, method: str, path: str, query: dict[str, Any], message: str
) -> None:
    body = {"query": "x"} if method == "POST" else None
    error = ask(server, method, path, body, **query)["error"]
    assert (error["code"], error["field"]) == ("invalid_input", message.partition(":")[0])
    assert error["message"].startswith(message)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            lambda server: ask(server, "POST", "/search", {"query": "x", "user": "a", "user_id": "b"}),
            ("user_id", "`user`"),
        ),
        (lambda server: ask(server, "GET", "/memories", user="ana", user_id="ben"), ("user_id", "`user`")),
        (
            lambda server: ask(server, "POST", "/memories", {"messages": "x", "infer": "yes"}),
            ("infer", "true or false"),
        ),
    ],
)
def test_two_words_with_different_values_are_refused(server: Server, answer: Any, words: tuple[str, ...]) -> None:
    error = answer(server)["error"]
    assert (error["code"], error["field"]) == ("invalid_input", words[0])
    assert all(word in error["message"] for word in words)


def test_the_document_tells_them_once(server: Server) -> None:
    document = server.http.get("/api/v1/openapi.json").json()
    assert all(f"`{alias}`" in document["info"]["description"] for alias in ALIASES)
    assert "session_id" not in json.dumps({**document, "info": {}})
