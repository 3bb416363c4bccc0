"""Both clients against a server that misbehaves: what is sent again and what never, limits of time, strange answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memos.api.values import Loaded
from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    ConnectionLost,
    InvalidInput,
    LimitReached,
    MemosError,
    NotFound,
    PermissionDenied,
)
from tests.api.client.conftest import Open
from tests.api.client.flaky import CUT, SILENT, Flaky, Step, answer

ADDED = {"code": 0, "message": "ok", "data": {"success": True, "task_id": "t1", "status": "running"}}
FOUND = {"code": 0, "message": "ok", "data": {"memory_detail_list": [{"id": "m1", "memory_value": "tea"}], "more": 1}}
DONE = {"code": 0, "message": "ok", "data": {"success": True}}
TASK = {
    "id": "t1", "kind": "read", "cube": "c", "state": "running", "ended": False, "created_at": "2026-11-22T00:00:00Z",
    "attempts": 1, "not_before": "2026-11-22T00:00:00Z",
}  # fmt: skip
HELLO = [{"role": "user", "content": "hello"}]
QUICK = {"pause_s": 0.001}


def test_an_add_is_repeated_with_the_same_key_and_request_id(flaky: Flaky, opened: Open) -> None:
    flaky.plays(CUT, answer(503, {"code": 50000, "message": "later"}), answer(200, ADDED))
    added = opened(flaky.url, **QUICK).add_message(HELLO, user_id="ana")
    assert (added.success, added.task_id, added.data.task_id, added.status) == (True, "t1", "t1", "running")
    assert [request.path for request in flaky.requests] == ["/api/openmem/v1/add/message"] * 3
    assert len({request.headers["idempotency-key"] for request in flaky.requests}) == 1
    assert len({request.headers["x-request-id"] for request in flaky.requests}) == 1
    assert flaky.requests[0].headers["authorization"] == "Bearer mst_test"
    assert flaky.requests[0].json == {
        "messages": HELLO, "user_id": "ana", "allow_public": False, "async_mode": True
    }  # fmt: skip


def test_two_adds_have_two_keys_and_a_given_one_is_kept(flaky: Flaky, opened: Open) -> None:
    receipt = {"cube": "c", "conversation": None, "item_ids": ["m1"], "duplicates": [], "indexed": True}
    flaky.plays(*[answer(200, ADDED)] * 2, *[answer(201, receipt)] * 2)
    client = opened(flaky.url)
    for _ in range(2):
        client.add_message(HELLO, user_id="ana")
    for key in (None, "mine"):
        client.memories.add("hello", idempotency_key=key)
    keys = [request.headers["idempotency-key"] for request in flaky.requests]
    assert len(set(keys)) == 4
    assert keys[3] == "mine"


@pytest.mark.parametrize(
    "failing", [CUT, answer(503, {}), answer(429, {}), answer(504, {})], ids=["cut", "503", "429", "504"]
)
def test_what_changes_something_without_a_key_is_sent_once(flaky: Flaky, opened: Open, failing: Step) -> None:
    flaky.plays(failing, answer(200, DONE))
    with pytest.raises((BackendUnavailable, LimitReached)):
        opened(flaky.url, **QUICK).delete_memory(memory_ids=["m1"])
    assert len(flaky.requests) == 1


def test_reads_are_repeated_until_the_retries_are_used_up(flaky: Flaky, opened: Open) -> None:
    flaky.plays(CUT, CUT, answer(200, FOUND))
    assert opened(flaky.url, **QUICK).search_memory("tea", user_id="ana").memories[0].memory_value == "tea"
    flaky.plays(CUT, CUT, answer(200, FOUND))
    with pytest.raises(ConnectionLost) as lost:
        opened(flaky.url, retries=1, **QUICK).search_memory("tea", user_id="ana")
    assert lost.value.request_id == flaky.requests[0].headers["x-request-id"]
    assert len(flaky.requests) == 2
    flaky.plays(CUT, answer(200, FOUND))
    with pytest.raises(ConnectionLost):
        opened(flaky.url).using(retries=0).search_memory("tea", user_id="ana")
    assert len(flaky.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"code": 40000, "message": "query: is empty"}, InvalidInput), (401, {}, PermissionDenied),
        (403, {"code": 40306, "message": "no"}, PermissionDenied), (404, {"code": 40307, "message": "no"}, NotFound),
        (409, {"error": {"code": "conflict", "message": "no"}}, Conflict), (500, b"<html>", BackendUnavailable),
        (302, b"", BackendUnavailable), (418, b"[1]", MemosError),
    ],
)  # fmt: skip
def test_what_would_fare_the_same_is_not_repeated(
    flaky: Flaky, opened: Open, status: int, body: object, kind: type[MemosError]
) -> None:
    flaky.plays(answer(status, body, X_Request_Id="r-7", Location="http://192.0.2.1/"), answer(200, FOUND))
    with pytest.raises(kind) as told:
        opened(flaky.url, retries=0 if status == 500 else 2).search_memory("tea", user_id="ana")
    assert (told.value.status, told.value.request_id) == (status, "r-7")
    assert len(flaky.requests) == 1


def test_the_server_says_how_long_to_wait(flaky: Flaky, opened: Open) -> None:
    client = opened(flaky.url, most_pause_s=1.0, **QUICK)
    flaky.plays(answer(429, {}, Retry_After="0"), answer(200, FOUND))
    assert client.search_memory("tea", user_id="ana").memories
    flaky.plays(answer(429, {}, Retry_After="3600"), answer(200, FOUND))
    with pytest.raises(LimitReached) as told:
        client.search_memory("tea", user_id="ana")
    assert told.value.retry_after_s == 3600
    assert told.value.status == 429
    assert len(flaky.requests) == 1


def test_a_silent_server_is_waited_for_as_long_as_the_call_says(flaky: Flaky, opened: Open) -> None:
    flaky.plays(SILENT)
    client = opened(flaky.url, retries=0)
    with pytest.raises(BackendTimeout, match="timeout_s"):
        client.using(timeout_s=0.05).search_memory("tea", user_id="ana")


def test_nobody_listening_is_told_with_what_to_do(opened: Open) -> None:
    with Flaky() as gone:
        url = gone.url
    with pytest.raises(BackendUnavailable, match="memos serve"):
        opened(url, **QUICK).search_memory("tea", user_id="ana")


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"code": 0}', b'{"code": "0", "message": "", "data": {}}', b'{"code": 0, "data": 5}',
     b'\xff\xfe', b"[" * 100_000],
)  # fmt: skip
def test_an_answer_of_something_else_is_no_answer(flaky: Flaky, opened: Open, body: bytes) -> None:
    flaky.plays(answer(200, body))
    with pytest.raises(BackendUnavailable, match="base_url") as told:
        opened(flaky.url).add_message(HELLO, user_id="ana")
    assert told.value.permanent
    assert len(flaky.requests) == 1


def test_an_error_in_an_envelope_of_success_is_an_error(flaky: Flaky, opened: Open) -> None:
    flaky.plays(answer(200, {"code": 50131, "message": "No such task: 'x'.", "data": None}))
    with pytest.raises(NotFound) as told:
        opened(flaky.url).get_task_status("x")
    assert (told.value.what, told.value.name) == ("task", "x")


@pytest.mark.parametrize("data", [{"status": "completed"}, [{"status": "completed"}]])
def test_a_status_is_read_as_one_and_as_a_list_of_one(flaky: Flaky, opened: Open, data: object) -> None:
    flaky.plays(answer(200, {"code": 0, "message": "ok", "data": data}))
    status = opened(flaky.url).get_task_status("t1")
    assert status.data.status == status.data[0].status == status.messages[0].status == "completed"
    assert [entry.task_id for entry in status.data] == ["t1"]
    assert len(status.data) == 1


def test_files_are_sent_as_a_form_and_again_from_their_beginning(flaky: Flaky, opened: Open, tmp_path: Path) -> None:
    (tmp_path / "ä.txt").write_bytes(b"first")
    (tmp_path / "b.pdf").write_bytes(b"\x00second")
    flaky.plays(answer(200, {"code": 0, "message": "ok", "data": [{"id": "f1"}]}))
    added = opened(flaky.url).add_knowledgebase_file_form("kb 1", [str(tmp_path / "ä.txt"), str(tmp_path / "b.pdf")])
    assert added.memories == [{"id": "f1"}]
    (sent,) = flaky.requests
    assert sent.path.endswith("add/knowledgebase-file?knowledgebase_id=kb+1") or "kb%201" in sent.path
    assert b"first" in sent.body
    assert b"\x00second" in sent.body
    assert b'name="file"' in sent.body
    assert b"application/pdf" in sent.body


def test_a_streamed_chat_gives_each_piece_and_its_refusal_comes_at_once(flaky: Flaky, opened: Open) -> None:
    events = b': begun\n\ndata: {"type": "text", "data": "Te"}\n\ndata: {"type": "text",\ndata:  "data": "a"}\n\n'
    flaky.plays(answer(200, events, Content_Type="text/event-stream"))
    client = opened(flaky.url, **QUICK)
    assert list(client.chat("ana", "c1", "What?", stream=True)) == [
        '{"type": "text", "data": "Te"}', '{"type": "text",\n "data": "a"}'
    ]  # fmt: skip
    assert flaky.requests[0].json["stream"] is True
    flaky.plays(answer(503, {"code": 50000, "message": "No language model is configured."}))
    with pytest.raises(BackendUnavailable, match="language model"):
        client.chat("ana", "c1", "What?", stream=True)
    assert len(flaky.requests) == 1


def test_a_stream_that_breaks_says_so(flaky: Flaky, opened: Open) -> None:
    flaky.plays(answer(200, b"data: 1\n\n", length=1_000, Content_Type="text/event-stream"))
    pieces = iter(opened(flaky.url).chat("ana", "c1", "What?", stream=True))
    assert next(pieces) == "1"
    with pytest.raises(ConnectionLost):
        next(pieces)


def test_waiting_for_a_task_goes_on_until_it_has_ended_or_the_time_is_over(flaky: Flaky, opened: Open) -> None:
    client = opened(flaky.url, **QUICK)
    flaky.plays(answer(200, TASK), CUT, answer(200, {**TASK, "ended": True, "state": "done"}))
    assert client.tasks.wait("t1").state == "done"
    assert [request.path for request in flaky.requests] == ["/api/v1/tasks/t1/wait?timeout_s=20.0"] * 3
    flaky.plays(answer(200, TASK))
    with pytest.raises(BackendTimeout, match="t1"):
        client.tasks.wait("t1", timeout_s=0)
    for wrong in (-1, "1", 10**400, float("nan")):
        with pytest.raises(InvalidInput, match="timeout_s"):
            client.tasks.wait("t1", timeout_s=wrong)


def test_what_ends_a_stream_early_is_raised_as_it_is(flaky: Flaky, opened: Open) -> None:
    gone = {"code": "not_found", "message": "No such task: 't1'."}
    lines = [": begun", "event: task", f"data: {json.dumps(TASK)}", "", ": alive", "event: error"]
    events = "\n".join([*lines, f"data: {json.dumps(gone)}", "", ""]).encode()
    flaky.plays(CUT, answer(200, events, Content_Type="text/event-stream; charset=utf-8"))
    followed = iter(opened(flaky.url, **QUICK).tasks.follow("t1"))
    assert next(followed).state == "running"
    with pytest.raises(NotFound, match="t1") as told:
        next(followed)
    assert told.value.request_id == flaky.requests[1].headers["x-request-id"]
    flaky.plays(answer(200, b"<html>", Content_Type="text/html"))
    with pytest.raises(BackendUnavailable):
        next(iter(opened(flaky.url).tasks.follow("t1")))


def test_a_dump_appears_whole_or_not_at_all(flaky: Flaky, opened: Open, tmp_path: Path) -> None:
    client, target = opened(flaky.url, **QUICK), tmp_path / "team.memcube"
    flaky.plays(answer(200, b"PK whole", length=100), CUT, answer(200, b"PK whole"))
    assert client.cubes.dump("team a/b", target, passphrase="Schlüssel") == target
    assert target.read_bytes() == b"PK whole"
    assert [request.path for request in flaky.requests] == [
        "/api/v1/cubes/team%20a%2Fb/dump?vectors=true&kv=false&adapters=false"
    ] * 3
    sealed = flaky.requests[0].headers["x-memos-passphrase"]
    assert sealed.encode("latin-1").decode() == "Schlüssel"
    flaky.plays(answer(200, b"PK half", length=100))
    with pytest.raises(ConnectionLost):
        client.using(retries=0).cubes.dump("team", tmp_path / "other")
    flaky.plays(answer(404, {"error": {"code": "not_found", "message": "No such cube: 'team'."}}))
    with pytest.raises(NotFound):
        client.cubes.dump("team", tmp_path / "other")
    with pytest.raises(Conflict):
        client.cubes.dump("team", target)
    assert [path.name for path in tmp_path.iterdir()] == ["team.memcube"]


def test_a_file_is_sent_in_pieces_and_only_once(flaky: Flaky, opened: Open, tmp_path: Path) -> None:
    source = tmp_path / "team.memcube"
    source.write_bytes(bytes(range(256)) * 1_000)
    counts = {name: 0 for name, field in Loaded.model_fields.items() if field.annotation is int}
    left = {"differing": [], "left_out": [], "kv_left_out": None, "adapters_left_out": None}
    flaky.plays(answer(201, {**counts, **left, "cube": "two", "merged": False, "trusted": True, "items": 3}))
    client = opened(flaky.url, **QUICK)
    assert client.cubes.load(source, cube="two", trust=True).items == 3
    (sent,) = flaky.requests
    assert sent.path == "/api/v1/cubes/load?cube=two&merge=false&trust=true&restore_erased=false"
    assert sent.body == source.read_bytes()
    assert sent.headers["content-type"] == "application/octet-stream"
    flaky.plays(CUT)
    with pytest.raises(BackendUnavailable):
        client.cubes.load(source)
    assert len(flaky.requests) == 1
    for wrong in (tmp_path / "none", tmp_path, "\x00"):
        with pytest.raises(InvalidInput, match="file"):
            client.cubes.load(wrong)
    for passphrase in ("", " x", "a\nb", "\ud800", "x" * 2_000):
        with pytest.raises(InvalidInput, match="passphrase"):
            client.cubes.load(source, passphrase=passphrase)
