"""Both clients on `/api/openmem/v1` of a server that really listens: every method of the known client, two tenants."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from memos.api.client import AsyncMemOSClient
from memos.core.clock import new_id
from memos.errors import InvalidInput, NotFound, PermissionDenied
from tests.api.client.conftest import Listening, Open


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_what_is_added_is_found_changed_and_deleted(listening: Listening, opened: Open) -> None:
    client = opened(f"{listening.url}/api/openmem/v1", listening.ana)
    conversation = new_id()
    added = client.add_message(said(f"The owl {conversation} hunts at dusk."), "ana", conversation, tags=["birds"])
    assert added.success
    assert added.status in {"running", "completed"}
    status = client.get_task_status(added.task_id)
    assert status.data[0].status == status.data.status
    assert status.data.task_id == added.task_id
    found = client.search_memory(f"owl {conversation} dusk", "ana")
    memory = next(entry for entry in found.memories if conversation in entry.memory_value)
    assert memory.tags == ["birds"]
    assert client.get_message("ana", conversation).messages[0].role == "user"
    assert memory.id in {entry.id for entry in client.get_memory("ana", size=50).memories}
    assert client.get_memory("ana", size=1).data.total >= 1
    assert client.get_memory_by_id(memory.id)["data"]["memory_value"] == memory.memory_value
    assert client.update_memory(memory.id, title="Owl")["data"]["memory_key"] == "Owl"
    assert client.delete_memory(memory_ids=[memory.id]).success
    with pytest.raises(NotFound) as told:
        client.get_memory_by_id(memory.id)
    assert told.value.request_id
    assert told.value.status == 404


def test_an_equal_add_within_a_minute_is_one(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    messages, conversation = said(f"Say it twice {new_id()}."), new_id()
    first, second = (client.add_message(messages, "ana", conversation) for _ in range(2))
    assert first.task_id == second.task_id
    assert len(client.get_message("ana", conversation).messages) == 1


def test_feedback_is_stored(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    name = new_id()
    client.add_message(said(f"My dog {name} is called Rex."), "ana", name)
    assert client.add_feedback("ana", name, f"No, my dog {name} is called Max.").success
    assert any("Max" in entry.memory_value for entry in client.search_memory(f"dog {name}", "ana").memories)


def test_knowledge_bases_take_files_as_json_and_as_a_form(listening: Listening, opened: Open, tmp_path: Path) -> None:
    client = opened(listening.url, listening.ana)
    base = client.create_knowledgebase(f"manual {new_id()}", "of the mill").knowledgebase_id
    encoded = base64.b64encode(b"# Mill\n\nThe mill turns at noon.\n").decode()
    kept = client.add_knowledgebase_file_json(base, [{"name": "mill.md", "content": encoded}]).memories
    (tmp_path / "weir.md").write_text("# Weir\n\nThe weir opens at dawn.\n", encoding="utf-8")
    kept += client.add_knowledgebase_file_form(base, [str(tmp_path / "weir.md")]).memories
    listed = client.get_knowledgebase_file(knowledgebase_id=base)
    assert {entry.name for entry in listed.files} == {"mill.md", "weir.md"}
    assert listed.data.total == 2
    ids = [entry["id"] for entry in kept]
    assert {entry.id for entry in client.get_knowledgebase_file(file_ids=ids).files} == set(ids)
    assert client.delete_knowledgebase_file(ids[:1]).success
    assert client.delete_knowledgebase(base).success
    with pytest.raises(NotFound):
        client.get_knowledgebase_file(knowledgebase_id=base)


def test_what_stores_nothing(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    ranked = client.rerank("apple", ["pear tree", "apple pie"], top_n=1)["data"]["results"]
    assert [(entry["index"], entry["document"]["text"]) for entry in ranked] == [(1, "apple pie")]
    extracted = client.extract_memory(said("I work as a nurse in Ghent."), ["memory"])["data"]
    assert extracted["success"]
    assert extracted["preference_detail_list"] == []


def test_profiles_are_bound_edited_and_deleted(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    assert client.bind_profile_template([{"profile_template_id": "standard", "user_id": "ana"}])["data"]["success"]
    edited = client.edit_profile("standard", "ana", metadata={"life.residence": "Ghent"})
    assert edited["data"]["success"]
    assert client.delete_profile("standard", "ana")["data"]["success"]


def test_wrong_arguments_that_only_the_server_knows_are_told_by_name(listening: Listening, opened: Open) -> None:
    client = opened(listening.url, listening.ana)
    for call, field in (
        (lambda: client.search_memory("x", "ana", memory_limit_number=26), "memory_limit_number"),
        (lambda: client.search_memory("x", "ana", filter={"a": {"zz": 1}}), "zz"),
        (lambda: client.search_memory("x", "ana", relativity=2.0), "relativity"),
        (lambda: client.get_memory("ana", page=0), "page"),
        (lambda: client.add_message(said("\ud800"), "ana"), "messages"),
        (lambda: client.extract_memory(said("x"), ["dreams"]), "extraction_types"),
    ):
        with pytest.raises(InvalidInput) as told:
            call()
        assert field in str(told.value)
        assert told.value.status == 400


def test_nothing_of_another_tenant_is_told(listening: Listening, opened: Open) -> None:
    ana, ben = opened(listening.url, listening.ana), opened(listening.url, listening.ben)
    added = ana.add_message(said("The vault opens with seventeen."), "ana")
    item = ana.search_memory("vault", "ana").memories[0].id
    base = ana.create_knowledgebase(f"secret {new_id()}").knowledgebase_id
    calls = [
        lambda: ben.search_memory("vault", "ana"), lambda: ben.get_memory("ana"), lambda: ben.get_message("ana"),
        lambda: ben.get_memory_by_id(item), lambda: ben.update_memory(item, "x"), lambda: ben.delete_memory(["ana"]),
        lambda: ben.delete_memory(memory_ids=[item]), lambda: ben.add_message(said("x"), "ana"),
        lambda: ben.get_task_status(added.task_id), lambda: ben.add_feedback("ana", None, "no, it is three"),
        lambda: ben.get_knowledgebase_file(knowledgebase_id=base), lambda: ben.delete_knowledgebase(base),
        lambda: ben.search_memory("x", "ben", knowledgebase_ids=[base]),
        lambda: ben.edit_profile("standard", "ana", metadata={"life.name": "x"}),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises((NotFound, PermissionDenied)) as told:
            call()
        assert "seventeen" not in str(told.value)
    assert ben.search_memory("vault", "ben", knowledgebase_ids=["all"]).memories == []
    assert ana.get_memory_by_id(item)["data"]["id"] == item


def test_a_wrong_key_opens_nothing(listening: Listening, opened: Open) -> None:
    with pytest.raises(PermissionDenied) as told:
        opened(listening.url, "mst_wrong").search_memory("x", "ana")
    assert told.value.status == 401


def test_an_admin_adds_for_users_that_are_not_known_yet(listening: Listening, opened: Open) -> None:
    client, user = opened(listening.url, listening.admin), new_id()
    assert client.search_memory("anything", user).memories == []
    client.add_message(said("I keep bees."), user)
    assert client.search_memory("bees", user).memories[0].memory_value == "I keep bees."


def test_many_coroutines_add_and_search_at_once(listening: Listening) -> None:
    async def run() -> tuple[list[Any], list[Any]]:
        async with AsyncMemOSClient(listening.ana, listening.url) as client:
            adds = [client.add_message(said(f"Stone number {number}."), "ana", "stones") for number in range(20)]
            finds = [client.search_memory("stone", "ana") for _ in range(20)]
            done = await asyncio.gather(*adds, *finds)
            return done[:20], (await client.get_message("ana", "stones", message_limit_number=50)).messages

    added, messages = asyncio.run(run())
    assert len({answer.task_id for answer in added}) == len(messages) == 20
