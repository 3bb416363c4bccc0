"""Records over REST: any id, in the query or the body, and what is answered to what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.api.conftest import Server
from tests.support.ledgers import ODD

IDS = ["users/ana/prefs/colour", "/", "..", "a/../b", "//x//", "%2F?&#=+", ODD, "é" * 512]


def ask(server: Server, method: str, path: str, body: Any = None, **query: Any) -> Any:
    answer = server.http.request(
        method, f"/api/v1{path}", json=body, params=query or None, headers=server.headers("ana")
    )
    return answer.status_code, answer.json()


@pytest.mark.parametrize("id_", IDS, ids=range(len(IDS)))
def test_any_id_is_put_got_and_deleted(server: Server, id_: str) -> None:
    body = {"memory": "It is blue.", "info": {"deep": {"er": [1, None]}}, "tags": ["t"]}
    status, made = ask(server, "PUT", "/record", body, id=id_)
    assert (status, made["record_id"], made["version"], made["info"]) == (200, id_, 1, body["info"])
    assert (made["cube"], made["type"], made["expires_at"]) == ("ana", "record", None)
    assert ask(server, "GET", "/record", id=id_) == (200, made)
    assert ask(server, "POST", "/records/get", {"ids": [id_, "missing"]}) == (200, [made])
    changed = {"memory": "It is red.", "expected_version": 1, "ttl_s": 3_600}
    status, second = ask(server, "PUT", "/record", changed, id=id_)
    assert (status, second["version"]) == (200, 2)
    assert datetime.fromisoformat(second["expires_at"]) > datetime.now(UTC)
    status, told = ask(server, "PUT", "/record", changed, id=id_)
    assert (status, told["error"]["code"]) == (409, "conflict")
    assert [each["version"] for each in ask(server, "GET", "/record/history", id=id_)[1]] == [1, 2]
    assert ask(server, "GET", "/records", prefix=id_, filter='{"deep.er": 1}') == (200, [])
    assert [each["id"] for each in ask(server, "GET", "/records", prefix=id_)[1]] == [made["id"]]
    found = ask(server, "POST", "/records/search", {"query": "what is red?", "prefix": id_})[1]["hits"]
    assert [hit["item"]["record_id"] for hit in found] == [id_]
    assert ask(server, "DELETE", "/record", id=id_, reason="enough") == (200, {"item_ids": [made["id"]]})
    status, told = ask(server, "GET", "/record", id=id_)
    assert (status, told["error"]["code"]) == (404, "not_found")
    assert "GET /api/v1/records" in told["error"]["message"]


def test_several_at_once_and_prefixes(server: Server) -> None:
    many = [{"id": f"shop/{n}/name", "memory": f"shop number {n}", "tags": ["s"]} for n in range(3)]
    status, made = ask(server, "POST", "/records/put", {"records": many})
    assert (status, [each["record_id"] for each in made]) == (200, [each["id"] for each in many])
    told = ask(server, "GET", "/records/prefixes", prefix="shop/", depth=1, limit=2)
    assert told == (200, [{"prefix": f"shop/{n}/", "records": 1} for n in range(2)])
    assert [one["prefix"] for one in ask(server, "GET", "/records/prefixes", prefix="shop/", after="shop/1/")[1]] == [
        "shop/2/"
    ]
    assert len(ask(server, "GET", "/records", prefix="shop/", limit=2, offset=1)[1]) == 2
    assert len(ask(server, "GET", "/records", prefix="shop/", after="shop/1/name")[1]) == 1
    gone = ask(server, "POST", "/records/delete", {"ids": ["shop/0/name", "none"]})
    assert gone == (200, {"item_ids": [made[0]["id"]]})


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "/record?id=", {"memory": "x"}, "id"),
        ("PUT", "/record", {"memory": "x"}, "id"),
        ("PUT", "/record?id=k", {}, "memory"),
        ("PUT", "/record?id=k", {"memory": "x", "ttl_s": -1}, "ttl_s"),
        ("PUT", "/record?id=k", {"memory": "x", "meta": {}}, "meta"),
        ("PUT", f"/record?id={'x' * 513}", {"memory": "x"}, "id"),
        ("POST", "/records/put", {"records": [{"id": "k", "memory": " "}]}, "records[0].memory"),
        ("POST", "/records/put", {"records": [{"id": "k", "memory": "x", "idd": 1}]}, "records.0.idd"),
        ("POST", "/records/get", {"ids": "k"}, "ids"),
        ("GET", "/records?filter=[]", None, "filter"),
        ("GET", "/records/prefixes?depth=0", None, "depth"),
    ],
)
def test_what_is_wrong_is_named(server: Server, method: str, path: str, body: Any, field: str) -> None:
    status, told = ask(server, method, path, body)
    assert (status, told["error"]["field"]) == (400, field), told


def test_add_and_update_take_a_time_to_live(server: Server) -> None:
    status, made = ask(server, "POST", "/memories", {"messages": "I am in Rome.", "ttl_s": 3_600})
    [item] = made["item_ids"]
    end = ask(server, "GET", f"/memories/{item}")[1]["expires_at"]
    assert datetime.fromisoformat(end) > datetime.now(UTC)
    assert ask(server, "PATCH", f"/memories/{item}", {"tags": ["x"]})[1]["expires_at"] == end
    assert ask(server, "PATCH", f"/memories/{item}", {"ttl_s": None})[1]["expires_at"] is None
    status, told = ask(server, "POST", "/memories", {"messages": "x", "ttl_s": 0})
    assert (status, told["error"]["field"]) == (400, "ttl_s")
