"""`/api/v1`, resource by resource: what is asked is done, and told back in its shape."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest

from memos.memcube.ledger import relations
from memos.memcube.ledger import schema as t
from tests.api.conftest import Server

ROOT = "/api/v1"


class Asking:
    """Requests of one person."""

    def __init__(self, server: Server, who: str) -> None:
        self._http = server.http
        self._headers = server.headers(who)

    def __call__(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **query: Any
    ) -> httpx2.Response:
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        return self._http.request(method, ROOT + path, json=body, params=query, headers=headers)

    def ok(self, method: str, path: str, body: Any = None, *, key: str | None = None, **query: Any) -> Any:
        """Return what is answered, which must be no error."""
        answer = self(method, path, body, key=key, **query)
        assert answer.is_success, f"{answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


@pytest.fixture(scope="module")
def ana(server: Server) -> Asking:
    return Asking(server, "ana")


@pytest.fixture(scope="module")
def ben(server: Server) -> Asking:
    return Asking(server, "ben")


@pytest.fixture(scope="module")
def admin(server: Server) -> Asking:
    return Asking(server, "admin")


def test_a_memory_lives_through_its_versions(ana: Asking) -> None:
    item = ana.ok("POST", "/memories", {"messages": "The cat is called Momo", "tags": ["pets"]})["item_ids"][0]
    changed = ana.ok("PATCH", f"/memories/{item}", {"memory": "The cat is called Mimi", "expected_version": 1})
    assert (changed["version"], changed["memory"], changed["tags"]) == (2, "The cat is called Mimi", ["pets"])
    late = ana("PATCH", f"/memories/{item}", {"memory": "The cat is called Mumu", "expected_version": 1})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "conflict")
    assert [one["version"] for one in ana.ok("GET", f"/memories/{item}/history")] == [1, 2]
    assert ana.ok("GET", f"/memories/{item}/sources")[0]["passage"] == "The cat is called Momo"
    assert ana.ok("POST", f"/memories/{item}/rollback", {"to_version": 1})["memory"] == "The cat is called Momo"
    assert ana.ok("DELETE", f"/memories/{item}") == {"item_ids": [item]}
    assert ana("GET", f"/memories/{item}").status_code == 404
    assert ana.ok("POST", f"/memories/{item}/rollback", {})["status"] == "active"
    receipt = ana.ok("POST", "/memories/erase", {"item_ids": [item]})
    assert ana.ok("GET", f"/erasures/{receipt['id']}")["state"] == "purged"
    assert ana("GET", f"/memories/{item}/history").status_code == 404


def test_what_is_no_route_is_told_in_the_shape_of_every_error(ana: Asking) -> None:
    for path in ("/nothing", "/memories/a%0Ab", "/../../nothing"):
        answer = ana("GET", path)
        assert (answer.status_code, set(answer.json()["error"]) >= {"code", "message"}) == (404, True), path


def test_memories_are_listed_by_filter_and_page(ana: Asking) -> None:
    for number in range(3):
        ana.ok("POST", "/memories", {"messages": f"listed {number}", "tags": ["listed"]})
    wanted = '{"tags": {"contains": "listed"}}'
    found = ana.ok("GET", "/memories", filter=wanted, limit=2, offset=1)
    assert [item["memory"] for item in found] == ["listed 1", "listed 2"]
    for wrong in ("{", "[]", "1" + "0" * 5000, "[" * 15_000, '{"tags": {"zz": 1}}', '{"a b": 1}'):
        answer = ana("GET", "/memories", filter=wrong)
        assert (answer.status_code, answer.json()["error"]["field"][:6]) == (400, "filter"), wrong
    gone = ana.ok("POST", "/memories/delete", {"item_ids": [item["id"] for item in found]})
    assert len(gone["item_ids"]) == 2
    assert len(ana.ok("GET", "/memories", filter=wanted)) == 1


def test_a_search_explains_itself_and_feedback_corrects_it(ana: Asking) -> None:
    item = ana.ok("POST", "/memories", {"messages": "I live in Paris", "conversation": "c1"})["item_ids"][0]
    found = ana.ok("POST", "/search", {"query": "Where do I live?", "explain": True, "token_budget": 200})
    assert found["hits"][0]["item"]["id"] == item
    assert found["hits"][0]["arms"]
    assert "Paris" in found["context"]
    assert ana.ok("POST", "/search/why-not", {"query": "Paris", "item": item})["stage"] == "found"
    assert ana.ok("POST", "/search", {"query": "Where do I live?", "min_relevance": 1})["hits"] == []
    why = {"query": "Paris", "item": item, "min_relevance": 1}
    assert ana.ok("POST", "/search/why-not", why)["stage"] == "relevance"
    for wrong in (True, "0.5", -1, 1.01, None):
        refused = ana("POST", "/search", {"query": "x", "min_relevance": wrong})
        assert (refused.status_code, refused.json()["error"]["field"]) == (400, "min_relevance"), wrong
    body = {"text": "no, I live in Lyon", "item_ids": [item]}
    receipt = ana.ok("POST", "/feedback", body, key="f1")
    again = ana.ok("POST", "/feedback", body, key="f1")
    assert {**again, "indexed": True} == receipt
    assert again["related"] == [item]
    assert ana("POST", "/feedback", {**body, "text": "no"}, key="f1").status_code == 409
    ana.ok("POST", "/memories/used", {"item_ids": [item], "confirmed": True})
    ana.ok("PUT", f"/memories/{receipt['item_id']}/pin")
    assert ana.ok("GET", "/working-memory", conversation="c1")["items"][0]["id"] == receipt["item_id"]
    ana.ok("DELETE", f"/memories/{receipt['item_id']}/pin")
    assert isinstance(ana.ok("GET", f"/memories/{item}/extractions"), list)


def test_a_cube_is_made_shared_and_dropped(ana: Asking, ben: Asking) -> None:
    body = {"id": "team/plans", "description": "What we plan"}
    made = ana.ok("POST", "/cubes", body, key="c1")
    assert ana.ok("POST", "/cubes", body, key="c1") == made
    assert ana("POST", "/cubes", {"id": "other"}, key="c1").status_code == 409
    assert ana("POST", "/cubes", body).status_code == 409
    assert ben("GET", "/cubes/team%2Fplans").status_code == 404
    ana.ok("PUT", "/cubes/team%2Fplans/grants/ben", {"role": "reader"})
    assert ben.ok("GET", "/cubes/team%2Fplans")["description"] == "What we plan"
    assert ben("POST", "/memories", {"messages": "x", "cube": "team/plans"}).status_code == 403
    assert ben("GET", "/cubes/team%2Fplans/grants").status_code == 403
    assert [grant["identity"] for grant in ana.ok("GET", "/cubes/team%2Fplans/grants")] == ["ben"]
    ana.ok("PATCH", "/cubes/team%2Fplans", {"description": "Plans"})
    assert ana.ok("GET", "/cubes/team%2Fplans/stats")["cubes"][0]["cube"] == "team/plans"
    assert ana.ok("POST", "/cubes/team%2Fplans/verify", {})["clean"] is True
    assert ana.ok("DELETE", "/cubes/team%2Fplans/grants/ben") == {"revoked": True}
    assert ben("GET", "/cubes/team%2Fplans").status_code == 404
    assert ana.ok("DELETE", "/cubes/team%2Fplans")["cube"] == "team/plans"
    assert "team/plans" not in [cube["id"] for cube in ana.ok("GET", "/cubes")]


def test_users_groups_and_keys_are_for_admins_and_a_secret_is_told_once(
    server: Server, admin: Asking, ana: Asking
) -> None:
    agent = {"id": "ana-bot", "kind": "agent", "acts_for": "ana"}
    made = admin.ok("POST", "/users", agent, key="u1")
    assert admin.ok("POST", "/users", agent, key="u1") == made
    assert ana("POST", "/users", {"id": "eve"}).status_code == 403
    assert ana.ok("GET", "/users/ana-bot")["acts_for"] == "ana"
    admin.ok("POST", "/users", {"id": "crew", "kind": "group"})
    admin.ok("PUT", "/groups/crew/members/ben")
    assert admin.ok("GET", "/groups/crew/members") == {"group": "crew", "members": ["ben"]}
    admin.ok("DELETE", "/groups/crew/members/ben")
    assert admin.ok("PATCH", "/users/ana-bot", {"enabled": False})["disabled"] is True
    new = {"name": "laptop", "rights": ["read"]}
    key = ana.ok("POST", "/keys", new, key="k1")
    again = ana.ok("POST", "/keys", new, key="k1")
    assert (again["key"], again["secret"]) == (key["key"], None)
    with server.memos.ledger.read() as connection:
        assert key["secret"] not in str(connection.execute(t.repeats.select()).all())
    mine = {"Authorization": f"Bearer {key['secret']}"}
    assert server.http.get(f"{ROOT}/me", headers=mine).json()["rights"] == ["read"]
    refused = server.http.post(f"{ROOT}/keys", json={"name": "stronger"}, headers=mine)
    assert refused.status_code == 403  # a key makes none that may do more
    assert server.http.post(f"{ROOT}/memories", json={"messages": "x"}, headers=mine).status_code == 403
    assert key["key"]["id"] in [one["id"] for one in ana.ok("GET", "/keys")]
    assert ana.ok("DELETE", f"/keys/{key['key']['id']}")["revoked_at"] is not None
    assert server.http.get(f"{ROOT}/me", headers=mine).status_code == 401


def test_a_reader_of_a_cube_has_no_say_in_its_tasks(server: Server, ana: Asking, ben: Asking) -> None:
    ana.ok("POST", "/cubes", {"id": "watched"})
    ana.ok("PUT", "/cubes/watched/grants/ben", {"role": "reader"})
    ana.ok("POST", "/memories", {"messages": "something", "cube": "watched", "mode": "fine"})
    server.memos.tasks.wait(timeout_s=60)
    task = ben.ok("GET", "/tasks", cube="watched")[0]
    assert ben("POST", f"/tasks/{task['id']}/retry").status_code == 403
    assert ben("POST", f"/tasks/{task['id']}/cancel").status_code == 403
    assert ana("POST", f"/tasks/{task['id']}/cancel").status_code == 409  # it ended
    assert ana.ok("GET", "/tasks/counts", cube="watched").keys() <= {"done"}


def test_documents_come_as_json_or_form_and_go_back_as_they_came(server: Server, ana: Asking) -> None:
    ana.ok("POST", "/knowledge-bases", {"id": "manuals"}, key="b1")
    data = b"# Pump\n\nTurn the red valve first."
    body = {"name": "pump.md", "content": base64.b64encode(data).decode(), "cube": "manuals"}
    made = ana.ok("POST", "/documents", body, key="d1")
    assert ana.ok("POST", "/documents", body, key="d1")["id"] == made["id"]
    read = ana.ok("GET", f"/documents/{made['id']}/wait", timeout_s=60)
    assert read["state"] == "available"
    back = ana("GET", f"/documents/{made['id']}/content")
    assert back.content == data
    assert "attachment" in back.headers["Content-Disposition"]
    assert "valve" in ana.ok("GET", f"/documents/{made['id']}/markdown")["text"]
    assert ana.ok("POST", "/search", {"query": "valve", "cubes": ["manuals"]})["hits"]
    form = {"file": ("späth 'x'.md", b"# Another one")}
    sent = server.http.post(
        f"{ROOT}/documents/upload", files=form, data={"cube": "manuals"}, headers=server.headers("ana")
    )
    assert (sent.status_code, sent.json()["name"]) == (201, "späth 'x'.md")
    assert ana("GET", f"/documents/{sent.json()['id']}/content").content == b"# Another one"
    assert sum(ana.ok("GET", "/knowledge-bases/manuals")["files"].values()) == 2
    assert ana.ok("DELETE", f"/documents/{made['id']}")["state"] == "deleted"
    assert len(ana.ok("GET", "/documents", cube="manuals")) == 1
    assert ana.ok("POST", f"/documents/{made['id']}/erase")["item_ids"]
    for wrong in ("%%%", "YQ", "é"):
        answer = ana("POST", "/documents", {**body, "content": wrong})
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "content")
    assert ana.ok("DELETE", "/knowledge-bases/manuals")["cube"] == "manuals"


def test_profile_tools_rules_and_review_are_reached(ana: Asking) -> None:
    template = ana.ok("GET", "/profile/template")
    dimension = template["groups"][0]["dimensions"][0]["id"]
    kind = template["groups"][0]["dimensions"][0]["kind"]
    value = "high" if kind == "level" else "something"
    given = {"dimension": dimension, "value": value, "subject": "Ana"}
    assert ana.ok("PUT", "/profile/static", given)["static"] is True
    assert ana.ok("GET", "/profile")["groups"][0]["traits"][0]["value"] == value
    assert ana.ok("GET", "/profile/subjects") == ["Ana"]
    assert len(ana.ok("GET", "/profile/history", dimension=dimension)) == 1
    assert ana.ok("GET", "/profile/diff", since="2020-01-01")["added"]
    assert ana.ok("GET", "/profile/diff", since="0")["added"]
    assert value in ana.ok("GET", "/profile/text")["text"]
    ana.ok("DELETE", "/profile/static", dimension=dimension)
    own = {
        "name": "own",
        "groups": [{"id": "g", "name": "G", "dimensions": [{"id": "g.a", "name": "A", "about": "a"}]}],
    }
    assert ana.ok("PUT", "/profile/template", {"template": own})["name"] == "own"
    assert ana("PUT", "/profile/template", {"template": "/etc/passwd"}).status_code == 400
    assert ana.ok("DELETE", "/profile/template")["name"] == "standard"

    tool = {
        "type": "function",
        "function": {"name": "weather", "description": "Tells", "parameters": {"type": "object"}},
    }
    made = ana.ok("POST", "/tools", {"tools": [tool]}, key="t1")
    assert ana.ok("POST", "/tools", {"tools": [tool]}, key="t1") == made
    assert ana.ok("GET", "/tools")[0]["schema"] == made["item_ids"][0]
    assert ana.ok("GET", "/tools/weather/calls") == []
    assert ana.ok("POST", "/tools/weather/called", {"arguments": {}}) is None

    rule = ana.ok("POST", "/retention/rules", {"action": "archive", "tags": ["old"], "age_days": 1}, key="r1")
    assert ana.ok("POST", "/retention/rules", {"action": "archive", "tags": ["old"], "age_days": 1}, key="r1") == rule
    assert [one["id"] for one in ana.ok("GET", "/retention/rules")] == [rule["id"]]
    assert [effect["rule"]["id"] for effect in ana.ok("GET", "/retention/preview")] == [rule["id"]]
    assert ana.ok("POST", "/retention/run", {}) == []
    assert ana.ok("DELETE", f"/retention/rules/{rule['id']}") == rule

    ana.ok("PATCH", f"/memories/{made['item_ids'][0]}", {"status": "pending"})
    [waiting] = ana.ok("GET", "/review")
    assert ana.ok("POST", f"/review/{waiting['item']['id']}/approve", {})["status"] == "active"
    assert ana("POST", f"/review/{waiting['item']['id']}/reject").status_code == 409


def test_a_person_decides_which_statement_replaces_which(server: Server, ana: Asking, ben: Asking) -> None:
    texts = "The yak sleeps", "Rain fell on Porto"  # two that no rule relates
    old, new = (ana.ok("POST", "/memories", {"messages": text})["item_ids"][0] for text in texts)
    with server.memos.ledger.write() as connection:
        relations.suppose(connection, "ana", new, old, 0.5, server.memos.clock.now())
    [doubtful] = ana.ok("GET", "/review/relations")
    assert (doubtful["newer"], doubtful["older"], doubtful["confidence"]) == (new, old, 0.5)
    asked = {"newer": new, "older": old, "holds": True}
    assert ben("POST", "/review/relations/decide", asked).status_code == 404
    [decided] = ana.ok("POST", "/review/relations/decide", asked)
    assert (decided["kind"], decided["confidence"], decided["decided_by"]) == ("UPDATES", 1.0, "ana")
    assert ana.ok("GET", "/review/relations") == []
    assert ana.ok("GET", f"/memories/{old}/relations") == [decided]
    assert ana.ok("GET", f"/memories/{old}/history")[-1]["relations"] == [decided]
    wrong = ana("POST", "/review/relations/decide", {**asked, "older": new})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "older")


def test_the_background_is_begun_and_told(server: Server, ana: Asking) -> None:
    ana.ok("POST", "/memories", {"messages": ["I like tea", "So do I"], "conversation": "tea"})
    for path in ("/analyse", "/consolidate"):
        ana.ok("POST", path, {})
    assert ana("POST", "/reflect", {}).status_code == 400  # there is no model
    tasks = ana.ok("POST", "/read-finely", {"conversation": "tea"})["tasks"]
    done = ana.ok("GET", f"/tasks/{tasks[0]}/wait", timeout_s=60)
    assert (done["ended"], done["state"]) == (True, "done")
    server.memos.tasks.wait(timeout_s=60)
    for segment in ana.ok("GET", "/segments"):
        ana.ok("PUT", f"/segments/{segment['id']}/pin")
        ana.ok("DELETE", f"/segments/{segment['id']}/pin")
        ana.ok("POST", f"/segments/{segment['id']}/move", {"tier": "mid"})
    assert ana("POST", "/segments/none/move", {"tier": "mid"}).status_code == 404
    kinds = {event["kind"] for event in ana.ok("GET", "/events")}
    assert "add" in kinds
    server.memos.tasks.wait(timeout_s=60)
