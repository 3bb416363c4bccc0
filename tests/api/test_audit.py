"""The audit: events of cubes, sign-ins and changes to users and keys, in one list that is read page by page."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from starlette.testclient import TestClient

from memos.memcube.ledger.schema import events
from tests.api.conftest import Server


def entries(server: Server, who: str, **query: Any) -> list[dict[str, Any]]:
    answer = server.http.get("/api/v1/audit", headers=server.headers(who), params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def test_one_list_tells_of_memories_shares_keys_and_sign_ins(server: Server) -> None:
    server.memos.add("I live in Rome.", cube="ana", actor="ana")
    server.memos.sharing.grant("ana", "ben", "reader", actor="ana")
    made = server.memos.keys.create("ana", "laptop", actor="ana")
    TestClient(server.http.app, follow_redirects=False).post("/console/sign-in", data={"key": made.secret})
    server.memos.keys.revoke(made.key.id, actor="ana")
    found = entries(server, "ana", by="ana")  # the background moves memories meanwhile
    kinds = [each["kind"] for each in found]
    assert kinds[:4] == ["key-revoke", "sign-in", "key-create", "share"]
    assert found[2]["body"]["key"] == made.key.id
    assert found[3]["body"] == {"identity": "ben", "role": "reader"}
    assert made.secret not in str(found)
    assert "Rome" not in str(found)
    shares = entries(server, "ana", kind="share")
    assert [each["cube"] for each in shares] == ["ana"]
    assert {each["actor"] for each in entries(server, "admin", by="ana")} == {"ana"}


def test_pages_of_one_entry_are_the_whole_list(server: Server) -> None:
    server.memos.add([{"role": "user", "content": f"number {n}"} for n in range(5)], cube="ben", actor="ben")
    whole = entries(server, "admin", limit=1000)
    seen: list[dict[str, Any]] = []
    while page := entries(server, "admin", limit=3, **({"before": seen[-1]["id"]} if seen else {})):
        seen += page
    assert seen == whole
    assert sorted((each["at"] for each in whole), reverse=True) == [each["at"] for each in whole]


def test_others_see_only_what_is_theirs(server: Server) -> None:
    server.memos.keys.create("ben", "phone", actor="ben")
    for each in entries(server, "ana", limit=1000):
        assert "ana" in (each["actor"], each["subject"], each["cube"])
    answer = server.http.get("/api/v1/audit?cube=ben", headers=server.headers("ana"))
    assert answer.status_code == 404
    assert server.http.get("/api/v1/audit/verify?cube=ben", headers=server.headers("ana")).status_code == 404
    wrong = server.http.get("/api/v1/audit?before=x", headers=server.headers("ana"))
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "before")


def test_a_changed_event_breaks_the_chain(server: Server) -> None:
    server.memos.cubes.create("chain", actor="ana")
    server.memos.add("something", cube="chain", actor="ana")
    where = "/api/v1/audit/verify?cube=chain"
    assert server.http.get(where, headers=server.headers("ana")).json()["intact"] is True
    with server.memos.ledger.write() as connection:
        connection.execute(sa.update(events).where(events.c.cube_id == "chain", events.c.seq == 1).values(body="{}x"))
    report = server.http.get(where, headers=server.headers("ana")).json()
    assert (report["intact"], report["problem"]) == (False, "the body of event 1 was changed")


def test_a_key_says_what_it_used_today(server: Server) -> None:
    made = server.memos.keys.create("ana", "limited", limits={"items_per_day": 10})
    http, mine = server.http, {"Authorization": f"Bearer {made.secret}"}
    http.post("/api/v1/memories", json={"messages": "I have a dog."}, headers=mine)
    usage = http.get(f"/api/v1/keys/{made.key.id}/usage", headers=mine).json()
    assert (usage["items"], usage["limits"]["items_per_day"]) == (1, 10)
    assert http.get(f"/api/v1/keys/{made.key.id}/usage", headers=server.headers("ben")).status_code == 404
    everyone = http.get("/api/v1/keys?everyone=true", headers=server.headers("admin")).json()
    assert made.key.id in {each["id"] for each in everyone}
    assert http.get("/api/v1/keys?everyone=true", headers=server.headers("ana")).status_code == 403
