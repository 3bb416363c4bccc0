"""`/product`: what programs speak that were written for a self-hosted MemOS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import Server

NAMES = ("text_mem", "pref_mem", "tool_mem", "skill_mem")


def post(server: Server, path: str, body: Any, who: str = "admin", status: int = 200) -> Any:
    """Return what a route answers, in whose envelope nothing may be missing."""
    answer = server.http.post(f"/product/{path}", json=body, headers=server.headers(who))
    told = answer.json()
    assert answer.status_code == status, told
    assert set(told) >= {"code", "message", "data"}
    assert told["code"] == status
    return told["data"] if status == 200 else told


def test_what_is_added_is_searched_listed_and_looked_at(server: Server) -> None:
    body = {
        "user_id": "pia", "session_id": "monday", "async_mode": "sync", "custom_tags": ["travel"], "info": {"trip": 7},
        "messages": [{"role": "user", "content": "I prefer night trains to flights.", "chat_time": "2025-03-01"}],
    }  # fmt: skip
    [added] = [each for each in post(server, "add", body) if each["memory_type"] == "LongTermMemory"]
    assert added["cube_id"] == "pia"
    assert "night trains" in added["memory"]
    found = post(server, "search", {"query": "night trains", "user_id": "pia", "relativity": 0})
    assert set(found) == {*NAMES, "act_mem", "para_mem", "pref_string", "pref_note"}
    [bucket] = found["text_mem"]
    assert bucket["cube_id"] == "pia"
    assert bucket["total_nodes"] == len(bucket["memories"]) == 1
    memory = bucket["memories"][0]
    assert memory["id"] == added["memory_id"]
    assert memory["metadata"]["tags"] == ["travel"]
    assert memory["metadata"]["trip"] == 7
    assert memory["metadata"]["session_id"] == "monday"
    assert 0 <= memory["metadata"]["relativity"] <= 1
    unsaid = post(server, "search", {"query": "How does she like to go abroad?", "user_id": "pia"})
    assert unsaid["text_mem"][0]["total_nodes"] == 1
    assert post(server, "search", {"query": "night trains", "user_id": "pia", "relativity": 1})["text_mem"] == [
        {"cube_id": "pia", "memories": [], "total_nodes": 0}
    ]
    listed = post(server, "get_memory", {"mem_cube_id": "pia", "user_id": "pia"})
    assert [each["id"] for each in listed["text_mem"][0]["memories"]] == [added["memory_id"]]
    one = server.http.get(f"/product/get_memory/{added['memory_id']}", headers=server.headers("admin")).json()["data"]
    assert one["memory"] == added["memory"]
    by_ids = post(server, "get_memory_by_ids", [added["memory_id"]])
    assert by_ids["memories"][0]["id"] == added["memory_id"]
    every = post(server, "get_all", {"user_id": "pia", "memory_type": "text_mem"})
    assert every[0]["memories"][0]["nodes"][0]["id"] == added["memory_id"]
    assert every[0]["memory_statistics"] == {"LongTermMemory": 1}


def test_fields_of_a_search_without_effect_are_taken_and_named_in_the_documents(server: Server) -> None:
    said = [{"role": "user", "content": text} for text in ("The ibis wades.", "The ibis wades.", "The stork nests.")]
    post(server, "add", {"user_id": "xia", "session_id": "s", "messages": said, "async_mode": "sync"})
    body = {"user_id": "xia", "query": "What does the ibis do?", "reference_time": "2025-03-01"}
    found = post(server, "search", body)
    assert found["text_mem"][0]["memories"]
    named = (Path(__file__).parents[2] / "docs/reference/product.md").read_text(encoding="utf-8")
    for field, value in {
        "dedup": "no", "mode": "fine", "session_id": "another", "search_memory_type": "UserMemory",
        "source": "x", "chat_history": [{"role": "user", "content": "storks?"}], "neighbor_discovery": True,
    }.items():  # fmt: skip
        assert post(server, "search", body | {field: value}) == found, field
        assert f"`{field}`" in named.partition("Accepted without effect")[2]


def test_in_the_background_a_client_follows_its_own_task_id(server: Server) -> None:
    body = {"user_id": "quinn", "task_id": "mine-1", "messages": "I live in Oslo. I prefer tea to coffee."}
    first = post(server, "add", body)
    assert post(server, "add", body)[0]["memory_id"] == first[0]["memory_id"]
    server.memos.tasks.wait(cubes=["quinn"], timeout_s=60)
    headers = server.headers("admin")

    def asked(**parameters: str) -> Any:
        return server.http.get("/product/scheduler/status", params=parameters, headers=headers)

    assert asked(user_id="quinn", task_id="mine-1").json()["data"] == [{"task_id": "mine-1", "status": "completed"}]
    assert asked(user_id="quinn", task_id="nobody's").status_code == 404
    assert {each["status"] for each in asked(user_id="quinn").json()["data"]} <= {"completed", "waiting", "in_progress"}
    told = server.http.post("/product/scheduler/wait", params={"user_name": "quinn"}, headers=headers).json()["data"]
    assert told == {"status": "idle", "timed_out": False, "running_tasks": 0}
    stream = server.http.get("/product/scheduler/wait/stream", params={"user_name": "quinn"}, headers=headers)
    assert '"running_tasks": 0' in stream.text
    left = server.http.get("/product/scheduler/task_queue_status", params={"user_id": "quinn"}, headers=headers)
    assert left.json()["data"]["remaining_tasks_count"] == 0
    found = post(server, "search", {"query": "what to drink", "user_id": "quinn", "relativity": 0})
    assert "tea" in found["pref_string"]
    assert found["pref_note"]


def test_in_sync_and_finely_the_answer_has_what_was_read_out_of_the_words(server: Server) -> None:
    body = {"user_id": "uma", "messages": "I live in Oslo. I prefer tea to coffee.", "async_mode": "sync"}
    rough = post(server, "add", body | {"user_id": "ulf"})
    assert "PreferenceMemory" not in {each["memory_type"] for each in rough}
    fine = post(server, "add", body | {"mode": "fine"})
    [preference] = [each for each in fine if each["memory_type"] == "PreferenceMemory"]
    assert "tea" in preference["memory"]
    listed = post(server, "get_memory", {"mem_cube_id": "uma"})["pref_mem"][0]["memories"]
    assert [each["id"] for each in listed] == [preference["memory_id"]]


def test_all_of_a_users_memories_are_listed_or_what_a_query_finds_first(server: Server) -> None:
    for text in ("The otter swims.", "The falcon flies."):
        post(server, "add", {"user_id": "vic", "messages": text, "async_mode": "sync"})
    for query, first in (("otter", "The otter swims."), ("falcon", "The falcon flies.")):
        [found] = post(server, "get_all", {"user_id": "vic", "memory_type": "text_mem", "search_query": query})
        assert found["cube_id"] == "vic"
        assert found["memories"][0]["nodes"][0]["memory"] == first
    post(server, "get_all", {"user_id": "vic", "search_query": "otter", "memory_type": "nothing"}, status=400)


def test_a_correction_supersedes_and_says_what(server: Server) -> None:
    said = [{"role": "user", "name": "Rae", "content": "I live in Paris."}]
    post(server, "add", {"user_id": "rae", "messages": said, "async_mode": "sync"})
    body = {"user_id": "rae", "feedback_content": "No, I live in Lyon.", "history": [], "corrected_answer": True}
    [made] = post(server, "feedback", body)
    assert made["record"]["add"][0]["text"] == "No, I live in Lyon."
    assert [change["origin_memory"] for change in made["record"]["update"]] == ["I live in Paris."]
    again = {"user_id": "rae", "messages": "No, I live in Bern.", "is_feedback": True}
    assert post(server, "add", again)[0]["memory"] == "No, I live in Bern."


def test_deleting_takes_exactly_one_way_to_say_what(server: Server) -> None:
    ids = [
        post(server, "add", {"user_id": "sue", "session_id": "s", "messages": text, "async_mode": "sync"})[0]
        for text in ("one apple", "two pears", "three plums")
    ]
    assert post(server, "delete_memory", {"memory_ids": [ids[0]["memory_id"]]}) == {"status": "success"}
    post(server, "delete_memory", {"user_id": "sue", "filter": {"memory": {"like": "pears"}}})
    listed = post(server, "get_memory", {"mem_cube_id": "sue"})["text_mem"][0]["memories"]
    assert [each["memory"] for each in listed] == ["three plums"]
    for body in ({}, {"memory_ids": ["x"], "file_ids": ["y"]}, {"memory_ids": ["x"], "user_id": "sue"}):
        assert post(server, "delete_memory", body, status=400)["field"] == "memory_ids"
    post(server, "delete_memory", {"user_id": "sue", "session_id": "s"})
    assert post(server, "get_memory", {"mem_cube_id": "sue"})["text_mem"][0]["memories"] == []


def test_files_are_deleted_by_their_ids_with_what_was_read_of_them(server: Server) -> None:
    post(server, "add", {"user_id": "wim", "messages": "about files", "async_mode": "sync"})
    gone, kept = (
        server.memos.documents.add((f"{name}.md", f"# {name}\n\nThe {name} is heavy.".encode()), cube="wim").id
        for name in ("anvil", "boulder")
    )
    server.memos.tasks.wait(cubes=["wim"], timeout_s=60)
    post(server, "delete_memory", {"file_ids": [gone]}, "ben", status=404)
    assert post(server, "delete_memory", {"file_ids": [gone]}) == {"status": "success"}
    assert [each.id for each in server.memos.documents.list(cube="wim")] == [kept]
    shown = str(post(server, "get_memory", {"mem_cube_id": "wim"}))
    assert "The boulder is heavy." in shown
    assert "anvil" not in shown
    post(server, "delete_memory", {"file_ids": ["none"]}, status=404)


def test_cubes_are_made_found_again_and_shared_between_users(server: Server) -> None:
    made = post(server, "create_cube", {"cube_name": "Team", "owner_id": "tom", "cube_id": "team"})
    assert made == {"cube_id": "team", "cube_name": "Team", "owner_id": "tom"}
    assert post(server, "register_cube", {"user_id": "tom", "mem_cube_id": "team"})["cube_id"] == "team"
    assert post(server, "create_cube", {"cube_name": "Team", "owner_id": "tom", "cube_id": "team"}, status=409)
    body = {"user_id": "tom", "writable_cube_ids": ["team", "tom"], "messages": "Nadia leads it.", "async_mode": "sync"}
    assert {each["cube_id"] for each in post(server, "add", body)} == {"team", "tom"}
    asked = {"query": "Nadia", "user_id": "tom", "readable_cube_ids": ["team", "tom"], "relativity": 0}
    assert [each["total_nodes"] for each in post(server, "search", asked)["text_mem"]] in ([1, 0], [0, 1], [1, 1])
    questions = post(server, "suggestions", {"user_id": "tom"})["query"]
    assert "What was said about Nadia?" in questions
    assert server.http.get("/product/health").json()["status"] == "healthy"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("search", {"query": "x"}), ("search", {"user_id": "ana"}), ("search", {"query": "", "user_id": "ana"}),
        ("search", {"query": "x", "user_id": "ana", "top_k": 0}),
        ("search", {"query": "x", "user_id": "ana", "relativity": "a"}),
        ("search", {"query": "x", "user_id": "ana", "relativity": 2}),
        ("chat/complete", {"query": "x", "user_id": "ana", "relativity": -1}),
        ("search", {"query": "x", "user_id": "ana", "dedup": "yes"}),
        ("search", {"query": "x", "user_id": "ana", "filter": {"a": {"zz": 1}}}),
        ("search", {"query": "x", "user_id": "ana", "internet_search": True}),
        ("search", {"query": "x", "user_id": "a\0"}),
        ("add", {"user_id": "ana", "messages": []}), ("add", {"user_id": "ana", "messages": 1}),
        ("add", {"user_id": "ana", "messages": "x", "async_mode": "soon"}),
        ("add", {"user_id": "ana", "messages": [1], "is_feedback": True}),
        ("get_memory", {}), ("get_memory_by_ids", {"ids": []}), ("feedback", {"user_id": "ana"}),
        ("get_all", {"user_id": "ana", "memory_type": "what"}), ("get_all", {"user_id": 7}),
    ],
)  # fmt: skip
def test_wrong_requests_are_400_and_say_what(server: Server, path: str, body: Any) -> None:
    told = post(server, path, body, status=400)
    assert told["error"] == "invalid_input"
    assert told["field"]


def test_nobody_reaches_anothers_memories(server: Server) -> None:
    mine = post(server, "add", {"user_id": "ana", "messages": "my zebra secret", "async_mode": "sync"}, "ana")
    id_ = mine[0]["memory_id"]
    for path, body in (
        ("search", {"query": "zebra", "user_id": "ana"}),
        ("add", {"user_id": "ana", "messages": "x"}),
        ("get_all", {"user_id": "ana"}),
        ("feedback", {"user_id": "ana", "feedback_content": "no"}),
    ):
        assert "zebra" not in str(post(server, path, body, "ben", status=403))
    for path, body in (
        ("search", {"query": "zebra", "user_id": "ben", "readable_cube_ids": ["ana"]}),
        ("add", {"user_id": "ben", "messages": "x", "writable_cube_ids": ["ana"]}),
        ("get_memory", {"mem_cube_id": "ana"}),
        ("get_memory_by_ids", [id_]),
        ("delete_memory", {"memory_ids": [id_]}),
        ("feedback", {"user_id": "ben", "feedback_content": "no", "retrieved_memory_ids": [id_]}),
    ):
        assert "zebra" not in str(post(server, path, body, "ben", status=404))
    assert server.http.get(f"/product/get_memory/{id_}", headers=server.headers("ben")).status_code == 404
    counts = server.http.get("/product/scheduler/allstatus", headers=server.headers("ben")).json()["data"]
    assert sum(counts["scheduler_summary"].values()) == 0
