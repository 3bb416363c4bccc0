"""Routes with which a person reviews, keeps documents and follows background work."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Server
from tests.api.test_v1 import Asking


@pytest.fixture(scope="module")
def ana(server: Server) -> Asking:
    return Asking(server, "ana")


@pytest.fixture(scope="module")
def ben(server: Server) -> Asking:
    return Asking(server, "ben")


def cube_of(ana: Asking, name: str) -> str:
    ana.ok("POST", "/cubes", {"id": name})
    return name


def add(ana: Asking, cube: str, text: str, *, pending: bool = False) -> str:
    item: str = ana.ok("POST", "/memories", {"messages": text, "cube": cube})["item_ids"][0]
    if pending:
        ana.ok("PATCH", f"/memories/{item}", {"status": "pending", "reason": "marked by hand"})
    return item


def status_of(ana: Asking, item: str) -> str:
    status: str = ana.ok("GET", f"/memories/{item}")["status"]
    return status


def test_what_awaits_review_is_counted(ana: Asking, ben: Asking) -> None:
    cube = cube_of(ana, "counted")
    add(ana, cube, "Wire the funds.", pending=True)
    add(ana, cube, "The kettle is blue.")
    assert ana.ok("GET", "/review/counts", cube=cube) == {"pending": 1, "relations": 0, "most": 1000}
    assert ben("GET", "/review/counts", cube=cube).status_code == 404


def test_two_memories_that_say_the_same_become_one_and_two_again(ana: Asking, ben: Asking) -> None:
    cube = cube_of(ana, "merged")
    kept, other = add(ana, cube, "The kettle is blue.", pending=True), add(ana, cube, "Our kettle is blue.")
    assert ben("POST", f"/review/{other}/merge", {"into": kept}).status_code == 404
    stays = ana.ok("POST", f"/review/{other}/merge", {"into": kept, "expected_version": 1})
    assert (stays["id"], stays["status"]) == (kept, "active")
    gone = ana.ok("GET", f"/memories/{other}")
    assert (gone["status"], gone["superseded_by"]) == ("superseded", kept)
    found = ana.ok("POST", "/search", {"query": "What colour is the kettle?", "cubes": [cube]})
    assert [hit["item"]["id"] for hit in found["hits"]] == [kept]
    assert ana("POST", f"/review/{other}/merge", {"into": kept}).status_code == 409
    assert ana("POST", f"/review/{kept}/merge", {"into": kept}).json()["error"]["field"] == "into"
    for item in (other, kept):
        ana.ok("POST", f"/memories/{item}/rollback", {})
    assert (status_of(ana, kept), status_of(ana, other)) == ("pending", "active")


def test_a_decision_is_taken_back_and_waits_again(ana: Asking) -> None:
    cube = cube_of(ana, "reopened")
    older, newer = add(ana, cube, "The rent is 900 euros."), add(ana, cube, "The rent is 980 euros.")
    pair = {"newer": newer, "older": older}
    assert ana("POST", "/review/relations/reopen", pair).status_code == 404
    ana.ok("POST", "/review/relations/decide", {**pair, "holds": True})
    assert ana.ok("GET", "/review/relations", cube=cube) == []
    [again] = ana.ok("POST", "/review/relations/reopen", pair)
    assert (again["decided_by"], again["confidence"]) == ("feedback", 0.5)
    assert ana.ok("GET", "/review/relations", cube=cube) == [again]
    assert ana.ok("GET", "/review/counts", cube=cube)["relations"] == 1
    ana.ok("POST", f"/review/{newer}/merge", {"into": older})
    [settled] = ana.ok("GET", f"/memories/{older}/relations")
    assert (settled["kind"], settled["decided_by"]) == ("SAME", "ana")
    assert ana.ok("GET", "/review/relations", cube=cube) == []


def upload(ana: Asking, cube: str, name: str, text: str) -> dict[str, Any]:
    headers = ana._headers
    data = {"cube": cube}
    answer = ana._http.post("/api/v1/documents/upload", headers=headers, data=data, files={"file": (name, text)})
    assert answer.status_code == 201, answer.text
    file: dict[str, Any] = ana.ok("GET", f"/documents/{answer.json()['id']}/wait")
    return file


LONG = "\n\n".join(f"# Part {number}\n\nThe valve {number} opens at {number} bar. " * 3 for number in range(4))


def test_documents_are_listed_page_by_page(ana: Asking, ben: Asking) -> None:
    cube = cube_of(ana, "shelf")
    made = [upload(ana, cube, f"{number}.md", f"# Number {number}")["id"] for number in range(3)]
    assert [file["id"] for file in ana.ok("GET", "/documents", cube=cube)] == made[::-1]
    assert [file["id"] for file in ana.ok("GET", "/documents", cube=cube, limit=2)] == [made[2], made[1]]
    assert [file["id"] for file in ana.ok("GET", "/documents", cube=cube, limit=2, after=made[1])] == [made[0]]
    assert ana.ok("GET", "/documents", cube=cube, state="failed") == []
    assert ben("GET", "/documents", after=made[1]).status_code == 404


def test_passages_of_a_document_are_its_text(ana: Asking, ben: Asking) -> None:
    file = upload(ana, cube_of(ana, "passages"), "valves.md", LONG)
    path = f"/documents/{file['id']}/passages"
    found = ana.ok("GET", path)
    assert "".join(each["text"] for each in found) == LONG
    assert [each["number"] for each in found] == list(range(1, len(found) + 1))
    assert found[-1]["path"] == ["Part 3"]
    assert ana.ok("GET", path, start=found[0]["end"], limit=1) == [found[1]]
    assert ana.ok("GET", path, page=7) == []
    ana.ok("DELETE", f"/memories/{found[0]['item']}")
    assert ana.ok("GET", path, limit=1)[0]["text"] == ""
    assert ben("GET", path).status_code == 404


def test_a_document_is_read_again_even_after_its_deletion(ana: Asking, ben: Asking) -> None:
    file = upload(ana, cube_of(ana, "again"), "valves.md", LONG)
    assert ben("POST", f"/documents/{file['id']}/read-again").status_code == 404
    new = ana.ok("POST", f"/documents/{file['id']}/read-again")
    read = ana.ok("GET", f"/documents/{new['id']}/wait")
    assert (read["state"], read["name"], read["sha256"]) == ("available", "valves.md", file["sha256"])
    assert ana.ok("GET", f"/documents/{file['id']}")["replaced_by"] == new["id"]
    ana.ok("DELETE", f"/documents/{new['id']}")
    assert ana.ok("GET", f"/documents/{new['id']}/passages") == []
    third = ana.ok("POST", f"/documents/{new['id']}/read-again")
    assert ana.ok("GET", f"/documents/{third['id']}/wait")["state"] == "available"
    ana.ok("POST", f"/documents/{third['id']}/erase")
    assert ana("POST", f"/documents/{third['id']}/read-again").status_code == 404


def test_what_could_not_be_read_is_replaced_by_another_try(ana: Asking) -> None:
    file = upload(ana, cube_of(ana, "broken"), "broken.pdf", "%PDF-1.7 and nothing else")
    assert file["state"] == "failed"
    new = ana.ok("POST", f"/documents/{file['id']}/read-again")
    assert ana.ok("GET", f"/documents/{new['id']}/wait")["state"] == "failed"
    assert ana.ok("GET", f"/documents/{file['id']}")["state"] == "deleted"


def test_work_and_events_of_one_thing_are_told(ana: Asking, ben: Asking) -> None:
    cube = cube_of(ana, "followed")
    file = upload(ana, cube, "valves.md", LONG)
    said = ana.ok("POST", "/memories", {"messages": ["I live in Oslo."], "cube": cube, "mode": "fine"})
    item = said["item_ids"][0]
    ana.ok("PATCH", f"/memories/{item}", {"memory": "I live in Rome."})
    assert [task["kind"] for task in ana.ok("GET", "/tasks", about=file["id"])] == ["file"]
    assert said["task"] in {task["id"] for task in ana.ok("GET", "/tasks", cube=cube)}
    assert ben.ok("GET", "/tasks", about=file["id"]) == []
    kinds = [event["kind"] for event in ana.ok("GET", "/events", cube=cube, item=item)]
    assert kinds[:2] == ["add", "update"]
    assert [event["kind"] for event in ana.ok("GET", "/events", cube=cube, item=file["id"])] == ["file", "file"]
    newest = ana.ok("GET", "/events", cube=cube, newest="true", limit=2)
    assert newest[0]["seq"] == newest[1]["seq"] + 1
    older = ana.ok("GET", "/events", cube=cube, newest="true", limit=1, before=newest[1]["seq"])
    assert older[0]["seq"] == newest[1]["seq"] - 1
    assert ben("GET", "/events", cube=cube, item=item).status_code == 404


def test_work_on_a_conversation_is_work_on_its_messages(ana: Asking) -> None:
    cube = cube_of(ana, "talked")
    talk = [{"role": "user", "content": "I live in Oslo."}, {"role": "assistant", "content": "Noted."}]
    said = ana.ok("POST", "/memories", {"messages": talk, "cube": cube, "mode": "fine", "conversation": "c"})
    ana.ok("GET", f"/tasks/{said['task']}/wait")
    told = {task["id"] for task in ana.ok("GET", "/tasks", about=said["item_ids"][1])}
    assert said["task"] in told
