"""The routes of `/api/openmem/v1` without a client: what is stored once, limits, wrong types, two tenants."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from httpx2 import Response
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.api.openmem.messages import ChatBody, same
from memos.core.settings import IndexSettings, LimitSettings, ServerSettings, TaskSettings
from memos.memcube.ledger import schema
from tests.api.conftest import Server
from tests.fakes import FixedClock, WordEmbedder
from tests.support.scripted_chat import ScriptedChat

ROOT = "/api/openmem/v1"
OTTER = [{"role": "user", "content": "The otter sleeps in a holt."}]


def post(server: Server, path: str, who: str = "admin", **body: Any) -> Response:
    headers = {"Authorization": f"Token {getattr(server, who)}"}
    return server.http.post(f"{ROOT}/{path}", json=body, headers=headers)


def data(server: Server, path: str, who: str = "admin", **body: Any) -> Any:
    answer = post(server, path, who, **body)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["code"], told["message"]) == (0, "ok")
    return told["data"]


def memories(server: Server, user: str, who: str = "admin") -> list[str]:
    found = data(server, "get/memory", who, user_id=user, size=50)["memory_detail_list"]
    return [one["memory_value"] for one in found]


def test_identical_adds_at_once_store_once_and_get_the_same_receipt(server: Server) -> None:
    said = [{"role": "user", "content": f"Sentence {n} of a long story."} for n in range(5)]
    with ThreadPoolExecutor(8) as threads:
        sent = [threads.submit(data, server, "add/message", user_id="twice", messages=said) for _ in range(8)]
        tasks = {answer.result()["task_id"] for answer in sent}
    assert len(tasks) == 1
    assert len([text for text in memories(server, "twice") if text.startswith("Sentence")]) == 5
    other = data(server, "add/message", user_id="twice", messages=said, tags=["another request"])
    assert other["task_id"] not in tasks


def test_identical_feedback_at_once_is_stored_once(server: Server) -> None:
    with ThreadPoolExecutor(4) as threads:
        told = {"user_id": "fed", "feedback_content": "No, the meeting is on Friday."}
        sent = [threads.submit(data, server, "add/feedback", **told) for _ in range(4)]
        assert len({answer.result()["task_id"] for answer in sent}) == 1
    assert len(server.memos.memories.list(cube="fed", filter={"type": "message"})) == 1


def test_two_callers_with_one_body_are_two_requests(server: Server) -> None:
    mine = data(server, "add/message", "ana", user_id="ana", messages=OTTER)
    admins = data(server, "add/message", "admin", user_id="ana", messages=OTTER)
    assert mine["task_id"] != admins["task_id"]
    assert memories(server, "ana", "ana").count(OTTER[0]["content"]) == 2


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[tuple[Server, FixedClock]]:
    clock = FixedClock()
    settings = Settings(
        index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000),
        server=ServerSettings(fetch_files=True),
    )  # fmt: skip
    with (
        MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), clock=clock) as memos,
        TestClient(create_app(memos, local_token="local")) as http,
    ):
        yield Server(memos, http, "local", "", ""), clock


def test_after_a_minute_or_an_erasure_the_same_body_is_new(clocked: tuple[Server, FixedClock]) -> None:
    server, clock = clocked
    first = data(server, "add/message", user_id="owner", messages=OTTER)["task_id"]
    clock.advance(timedelta(seconds=30))
    assert data(server, "add/message", user_id="owner", messages=OTTER)["task_id"] == first
    clock.advance(timedelta(seconds=61))
    second = data(server, "add/message", user_id="owner", messages=OTTER)["task_id"]
    assert second != first
    assert len(server.memos.memories.list(filter={"type": "message"})) == 2
    assert data(server, "get/status", task_id=first)[0]["task_id"] == first
    server.memos.erase(server.memos.memories.list(filter={"type": "message"})[-1].id)
    with server.memos.ledger.read() as connection:
        assert connection.scalars(sa.select(schema.submissions.c.digest)).all() == [None, None]
    assert data(server, "add/message", user_id="owner", messages=OTTER)["task_id"] != second
    # The operator of this one allows fetching: private addresses are refused even so.
    base = data(server, "create/knowledgebase", knowledgebase_name="Web")["id"]
    file = {"name": "a.txt", "content": "http://127.0.0.1:9/a.txt"}
    refused = post(server, "add/knowledgebase-file", knowledgebase_id=base, file=[file])
    assert (refused.status_code, refused.json()["code"]) == (400, 40000)
    assert "private address" in refused.json()["message"]


def test_what_broke_off_goes_on_where_it_was(server: Server) -> None:
    body = {"user_id": ["left", "right"], "messages": OTTER}
    first = data(server, "add/message", **body)["task_id"]
    with server.memos.ledger.write() as connection:  # as when the process ended before it answered
        connection.execute(sa.update(schema.submissions).where(schema.submissions.c.id == first).values(answer=None))
    assert data(server, "get/status", task_id=first)[0]["status"] == "running"
    assert data(server, "add/message", **body)["task_id"] == first
    assert [memories(server, user).count(OTTER[0]["content"]) for user in ("left", "right")] == [1, 1]


def test_what_is_added_can_be_found_at_once_and_is_read_finely(server: Server) -> None:
    said = [{"role": "user", "content": "I live in Turin."}]
    added = data(server, "add/message", user_id="tess", messages=said, conversation_id="c")
    assert (
        "Turin" in data(server, "search/memory", query="Turin", user_id="tess")["memory_detail_list"][0]["memory_value"]
    )
    server.memos.tasks.wait(timeout_s=60)
    [status] = data(server, "get/status", task_id=added["task_id"])
    assert status["status"] == "completed"
    found = data(server, "get/memory", user_id="tess")
    assert {"UserMemory", "WorkingMemory"} == {one["memory_type"] for one in found["memory_detail_list"]}
    assert found["profile_detail_list"]
    assert found["total"] == sum(
        len(found[name]) for name in found if name.endswith("_list") and name != "event_detail_list"
    )


def test_a_file_of_a_message_is_kept_read_and_found(server: Server) -> None:
    text = base64.b64encode(b"# Foxes\n\nThe fox lives in a den.").decode()
    part = {"type": "file", "file": {"filename": "foxes.md", "file_data": text}}
    said = [{"role": "user", "content": [{"type": "text", "text": "Read this."}, part]}]
    data(server, "add/message", user_id="filer", messages=said)
    [kept] = server.memos.documents.list(cube="filer")
    server.memos.documents.wait(kept.id, 60)
    found = data(server, "search/memory", query="Where does the fox live?", user_id="filer")["memory_detail_list"]
    assert any("den" in one["memory_value"] for one in found)
    part["file"]["file_data"] = "https://example.org/foxes.md"
    refused = post(server, "add/message", user_id="filer", messages=said)
    assert (refused.status_code, refused.json()["code"]) == (400, 40000)
    assert "MEMOS_SERVER__FETCH_FILES" in refused.json()["message"]


WRONG = [
    ("add/message", {"messages": OTTER}, 400, 40002),
    ("add/message", {"user_id": "u"}, 400, 40002),
    ("add/message", {"user_id": "u", "messages": []}, 400, 40002),
    ("add/message", {"user_id": [], "messages": OTTER}, 400, 40002),
    ("add/message", {"user_id": [""], "messages": OTTER}, 400, 40002),
    ("add/message", {"user_id": 7, "messages": OTTER}, 400, 40000),
    ("add/message", {"user_id": "u", "messages": "\ud800"}, 400, 40000),
    ("add/message", {"user_id": "u\0", "messages": OTTER}, 400, 40000),
    ("add/message", {"user_id": "u", "messages": OTTER, "tags": "x"}, 400, 40000),
    ("add/message", {"user_id": "u", "messages": OTTER, "info": {"a": {"b": 2**60}}}, 400, 40000),
    ("add/message", {"user_id": "u", "messages": OTTER, "info": {"a": float("nan")}}, 400, 40000),
    ("add/message", {"user_id": "u", "messages": OTTER, "allow_knowledgebase_ids": ["none"]}, 404, 50120),
    ("add/message", {"user_id": "u", "messages": [{"role": "user", "content": "w" * 80_004}]}, 413, 40305),
    ("search/memory", {"user_id": "u"}, 400, 40002),
    ("search/memory", {"query": "x"}, 400, 40002),
    ("search/memory", {"query": "x", "user_id": "u", "agent_id": "a"}, 400, 40000),
    ("search/memory", {"query": 1, "user_id": "u"}, 400, 40000),
    ("search/memory", {"query": "w" * 16_004, "user_id": "u"}, 413, 40305),
    ("search/memory", {"query": "x", "user_id": "u", "memory_limit_number": 26}, 400, 40000),
    ("search/memory", {"query": "x", "user_id": "u", "memory_limit_number": "6"}, 400, 40000),
    ("search/memory", {"query": "x", "user_id": "u", "memory_limit_number": 10**400}, 400, 40000),
    ("search/memory", {"query": "x", "user_id": "u", "relativity": float("nan")}, 400, 40000),
    ("search/memory", {"query": "x", "user_id": "u", "relativity": 1.5}, 400, 40000),
    ("search/memory", {"query": "x", "user_id": "ana", "filter": {"user": {"tags": {"near": 1}}}}, 400, 40000),
    ("search/memory", {"query": "x", "user_id": "u", "include_memory_view": ["dreams"]}, 400, 40000),
    ("search/memory", {"query": "x", "user_id": "u", "knowledgebase_ids": ["none"]}, 404, 50120),
    ("search/memory", {"query": "x", "user_id": "u", "knowledgebase_ids": ["ana"]}, 404, 50120),
    ("get/memory", {"user_id": "u", "size": 51}, 400, 40000),
    ("get/memory", {"user_id": "u", "page": 0}, 400, 40000),
    ("get/message", {"user_id": "u", "conversation_id": "c", "message_limit_number": 51}, 400, 40000),
    ("get/status", {}, 400, 40002),
    ("get/status", {"task_id": "\ud800"}, 400, 40000),
    ("get/status", {"task_id": "none"}, 404, 50131),
    ("update/memory", {"memory_id": "none", "content": "x"}, 404, 40307),
    ("update/memory", {"memory_id": "none"}, 400, 40002),
    ("update/memory", {"memory_id": "none", "status": "asleep"}, 400, 40000),
    ("delete/memory", {}, 400, 40002),
    ("delete/memory", {"filter": {}}, 400, 40002),
    ("delete/memory", {"user_id": "u", "memory_ids": ["x"]}, 400, 40000),
    ("delete/memory", {"user_id": "ana", "fliter": {"a": 1}}, 400, 40000),
    ("delete/memory", {"user_id": "ana", "memory_type": "dream"}, 400, 40000),
    ("delete/memory", {"memory_ids": ["none"]}, 404, 40307),
    ("add/feedback", {"user_id": "u"}, 400, 40002),
    ("create/knowledgebase", {"knowledgebase_name": " "}, 400, 40002),
    ("create/knowledgebase", {"knowledgebase_name": "\ud800"}, 400, 40000),
    ("add/knowledgebase-file", {"knowledgebase_id": "k", "file": []}, 400, 40002),
    ("add/knowledgebase-file", {"knowledgebase_id": "k", "file": [{"name": "a"}]}, 400, 40002),
    ("add/knowledgebase-file", {"knowledgebase_id": "k", "file": 7}, 400, 40000),
    ("get/knowledgebase-file", {"file_ids": ["x"], "knowledgebase_id": "k"}, 400, 40000),
    ("download/knowledgebase-file", {"file_id": "none"}, 404, 50120),
    ("extract/memory", {"messages": []}, 400, 40002),
    ("rerank", {"query": "x", "documents": []}, 400, 40002),
    ("rerank", {"query": "x", "documents": ["a"] * 501}, 400, 40000),
    ("bind/profile_template", {"bind_list": [{"profile_template_id": "none", "user_id": "ana"}]}, 404, 40307),
    ("edit/profile", {"profile_template_id": "standard", "user_id": "ana", "metadata": {"life.name": []}}, 400, 40000),
    ("chat", {"user_id": "u", "conversation_id": "c"}, 400, 40002),
    ("chat", {"user_id": "u", "query": "x"}, 400, 40002),
    ("chat", {"query": "x", "conversation_id": "c"}, 400, 40002),
    ("chat", {"query": "x", "conversation_id": "c", "user_id": "u", "memory_limit_number": 26}, 400, 40000),
    ("chat", {"query": "x", "conversation_id": "c", "user_id": "u"}, 503, 50000),
    ("no/such/route", {}, 404, 40000),
]


@pytest.mark.parametrize(("path", "body", "status", "code"), WRONG, ids=lambda value: f"{value!s:.40}")
def test_what_is_wrong_is_refused_with_its_code(
    server: Server, path: str, body: dict[str, Any], status: int, code: int
) -> None:
    headers = {**server.headers("admin"), "Content-Type": "application/json"}
    answer = server.http.post(f"{ROOT}/{path}", content=json.dumps(body), headers=headers)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (status, code), told
    assert told["message"]
    assert told["data"] is None


def test_without_a_key_or_with_a_wrong_one_the_code_says_which(server: Server) -> None:
    body = {"user_id": "ana"}
    assert server.http.post(f"{ROOT}/get/memory", json=body).json()["code"] == 40130
    wrong = server.http.post(f"{ROOT}/get/memory", json=body, headers={"Authorization": "Token mst_wrong"})
    assert (wrong.status_code, wrong.json()["code"]) == (401, 40132)


def test_a_key_that_used_up_its_limit_gets_the_protocols_code_and_when_to_come_back(server: Server) -> None:
    made = server.memos.keys.create("ana", "small", limits={"items_per_day": 0})
    body = {"user_id": "ana", "messages": [{"role": "user", "content": "too much"}]}
    refused = server.http.post(f"{ROOT}/add/message", json=body, headers={"Authorization": f"Token {made.secret}"})
    assert (refused.status_code, refused.json()["code"]) == (429, 40309)
    assert int(refused.headers["Retry-After"]) > 0


def test_every_field_without_effect_is_named_in_the_documents(server: Server) -> None:
    document = server.http.get(f"{ROOT}/openapi.json").json()
    fields = {
        name
        for shape in document["components"]["schemas"].values()
        for name, field in shape.get("properties", {}).items()
        if "has no effect" in field.get("description", "")
    }
    assert {"conversation_id", "source", "allow_memory_view", "model", "preference_limit_number"} <= fields
    told = (Path(__file__).parents[2] / "docs/reference/openmem.md").read_text(encoding="utf-8")
    assert [name for name in fields if f"`{name}`" not in told.partition("Accepted without effect")[2]] == []


def test_nothing_of_another_tenants_appears_anywhere(server: Server) -> None:
    secret = [{"role": "user", "content": "The safe opens with seven walruses."}]
    task = data(server, "add/message", "ana", user_id="ana", messages=secret, conversation_id="safe")["task_id"]
    base = data(server, "create/knowledgebase", "ana", knowledgebase_name="Walruses")["id"]
    text = base64.b64encode(b"All walruses know the way.").decode()
    sent = {"knowledgebase_id": base, "file": [{"name": "w.txt", "content": text}]}
    file = data(server, "add/knowledgebase-file", "ana", **sent)[0]["id"]
    item = data(server, "search/memory", "ana", query="walruses", user_id="ana")["memory_detail_list"][0]["id"]
    foreign: list[tuple[str, dict[str, Any], int]] = [
        ("add/message", {"user_id": "ana", "messages": OTTER}, 40132),
        ("add/message", {"user_id": ["ben", "ana"], "messages": OTTER}, 40132),
        ("add/message", {"user_id": "ben", "messages": OTTER, "allow_knowledgebase_ids": [base]}, 50120),
        ("add/message", {"user_id": "ben", "messages": OTTER, "allow_public": True}, 40000),
        ("add/feedback", {"user_id": "ana", "feedback_content": "No walruses."}, 40132),
        ("search/memory", {"user_id": "ana", "query": "walruses"}, 40132),
        ("search/memory", {"user_id": "ben", "query": "walruses", "knowledgebase_ids": [base]}, 50120),
        ("chat", {"user_id": "ana", "conversation_id": "safe", "query": "walruses"}, 40132),
        ("chat", {"user_id": "ben", "conversation_id": "c", "query": "x", "knowledgebase_ids": [base]}, 50120),
        ("get/memory", {"user_id": "ana"}, 40132),
        ("get/message", {"user_id": "ana", "conversation_id": "safe"}, 40132),
        ("get/status", {"task_id": task}, 50131),
        ("update/memory", {"memory_id": item, "content": "x"}, 40307),
        ("update/memory", {"memory_id": item, "status": "deleted"}, 40307),
        ("delete/memory", {"memory_ids": [item]}, 40307),
        ("delete/memory", {"user_id": "ana"}, 40306),
        ("delete/memory", {"agent_id": "ana"}, 40306),
        ("delete/knowledgebase", {"knowledgebase_id": base}, 50120),
        ("add/knowledgebase-file", sent, 50120),
        ("get/knowledgebase-file", {"file_ids": [file]}, 50120),
        ("get/knowledgebase-file", {"knowledgebase_id": base}, 50120),
        ("delete/knowledgebase-file", {"file_ids": [file]}, 50120),
        ("download/knowledgebase-file", {"file_id": file}, 50120),
        ("bind/profile_template", {"bind_list": [{"profile_template_id": "standard", "user_id": "ana"}]}, 40132),
        ("edit/profile", {"profile_template_id": "standard", "user_id": "ana", "metadata": {"life.name": "X"}}, 40132),
        ("delete/profile", {"profile_template_id": "standard", "user_id": "ana"}, 40132),
    ]
    for path, body, code in foreign:
        answer = post(server, path, "ben", **body)
        assert answer.json()["code"] == code, (path, answer.text)
        assert "walruses" not in answer.text.lower()
        assert answer.status_code in (400, 403, 404)
    assert server.http.get(f"{ROOT}/get/memory/{item}", headers=server.headers("ben")).json()["code"] == 40307
    data(server, "delete/memory", "ben", filter={"conversation_id": "safe"})
    seen = json.dumps(data(server, "search/memory", "ben", query="walruses", user_id="ben", knowledgebase_ids=["all"]))
    assert "walruses" not in seen
    assert memories(server, "ana", "ana").count(secret[0]["content"]) == 1
    for agent in ("who is that", "ana"):
        told = post(server, "search/memory", "ben", query="x", agent_id=agent).json()["message"]
        assert told == post(server, "search/memory", "ben", query="x", user_id=agent).json()["message"]


def test_files_come_as_a_form_too_and_go_back_as_they_came(server: Server) -> None:
    base = data(server, "create/knowledgebase", knowledgebase_name="Forms")["id"]
    again = data(server, "create/knowledgebase", knowledgebase_name="Forms")["id"]
    assert base == again
    headers = server.headers("admin")
    parts = [("file", (f"n{n}.txt", f"number {n}".encode(), "text/plain")) for n in range(21)]
    url = f"{ROOT}/add/knowledgebase-file?knowledgebase_id={base}"
    assert server.http.post(url, files=parts, headers=headers).json()["code"] == 40000
    assert server.http.post(url, files=[("other", parts[0][1])], headers=headers).json()["code"] == 40002
    assert server.http.post(f"{ROOT}/add/knowledgebase-file", files=parts[:1], headers=headers).json()["code"] == 40002
    kept = server.http.post(url, files=parts[:20], headers=headers).json()["data"]
    assert [one["name"] for one in kept] == [f"n{n}.txt" for n in range(20)]
    answer = post(server, "download/knowledgebase-file", file_id=kept[7]["id"])
    assert answer.content == b"number 7"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    listed = data(server, "get/knowledgebase-file", knowledgebase_id=base, page=3, page_size=8)
    assert (len(listed["file_detail_list"]), listed["total"]) == (4, 20)
    data(server, "delete/knowledgebase-file", file_ids=[one["id"] for one in kept[:19]])
    assert data(server, "get/knowledgebase-file", knowledgebase_id=base)["total"] == 1
    assert server.memos.settings.limits.file_bytes == 100 * 1024 * 1024
    data(server, "delete/knowledgebase", knowledgebase_id=base)
    assert post(server, "get/knowledgebase-file", knowledgebase_id=base).json()["code"] == 50120


def test_an_agent_acts_for_its_user_and_stores_apart(server: Server) -> None:
    server.memos.users.create("ana-bot", kind="agent", acts_for="ana")
    data(server, "add/message", "ana", agent_id="ana-bot", messages=[{"role": "user", "content": "Bots like oil."}])
    found = data(server, "search/memory", "ana", query="oil", agent_id="ana-bot")["memory_detail_list"]
    assert found[0]["info"] == {"agent_id": "ana-bot"}
    both = {"user_id": "ana", "agent_id": "ana-bot", "messages": [{"role": "user", "content": "Ana likes olives."}]}
    data(server, "add/message", "ana", **both)
    chosen = data(server, "get/memory", "ana", user_id="ana", filter={"agent_id": "ana-bot"})["memory_detail_list"]
    assert [one["memory_value"] for one in chosen] == ["Ana likes olives."]
    assert post(server, "search/memory", "ben", query="oil", agent_id="ana-bot").json()["code"] == 40132


def test_a_template_is_bound_by_name_once_somebody_has_it(server: Server) -> None:
    dimension = {"id": "pets.cat", "name": "Cat", "about": "The name of their cat."}
    template = {"groups": [{"id": "pets", "name": "Pets", "dimensions": [dimension]}]}
    for user in ("carl", "clea"):
        data(server, "add/message", user_id=user, messages=OTTER)
    bound = {"profile_template_id": "Pets", "user_id": "carl"}
    assert post(server, "bind/profile_template", bind_list=[bound]).json()["code"] == 40307
    data(server, "bind/profile_template", bind_list=[{**bound, "template": template}])
    data(server, "bind/profile_template", bind_list=[{**bound, "user_id": "clea"}])
    data(server, "edit/profile", profile_template_id="Pets", user_id="clea", metadata={"pets.cat": "Mo"})
    assert server.memos.profiles.get("clea", "user").traits[0].value == "Mo"
    # All or nothing.
    wrong = {"pets.cat": "Jo", "pets.dog": "Rex"}
    refused = post(server, "edit/profile", profile_template_id="Pets", user_id="clea", metadata=wrong)
    assert refused.json()["code"] == 40000
    assert server.memos.profiles.get("clea", "user").traits[0].value == "Mo"
    assert post(server, "delete/profile", profile_template_id="standard", user_id="clea").json()["code"] == 40307
    data(server, "delete/profile", profile_template_id="Pets", user_id="clea")
    assert server.memos.profiles.get("clea", "user").traits == ()
    assert post(server, "bind/profile_template", "ben", bind_list=[{**bound, "user_id": "ben"}]).json()["code"] == 40307


def test_the_same_question_asked_while_it_is_answered_gets_that_answer(tmp_path: Path) -> None:
    settings = Settings(
        index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000), tasks=TaskSettings(workers=0)
    )
    model = ScriptedChat(["In a den."])
    body = {"user_id": "owner", "conversation_id": "c", "query": "Where does the otter sleep?"}
    with (
        MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), chat_model=model) as memos,
        TestClient(create_app(memos, local_token="local")) as http,
        ThreadPoolExecutor(1) as threads,
    ):
        server = Server(memos, http, "local", "", "")
        first = memos.submissions.take("owner", same("chat", ChatBody(**body)), ["default"])  # it is being answered
        second = threads.submit(data, server, "chat", **body)
        [item] = memos.add({"role": "assistant", "content": "In a holt."}).item_ids
        memos.submissions.answered(first, {"items": [item]})
        assert second.result() == {"response": "In a holt."}
        assert model.requests == []
        # One that is answered is over: the same words are a new question, and stored with its own answer.
        body["query"] = "And the fox?"
        assert data(server, "chat", **body) == {"response": "In a den."}
        with memos.ledger.read() as connection:
            digests = connection.scalars(sa.select(schema.submissions.c.digest)).all()
        assert (len(digests), digests.count(None)) == (2, 1)
        assert [item.memory for item in memos.memories.list()][-2:] == ["And the fox?", "In a den."]
