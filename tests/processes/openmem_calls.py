"""Calls every method of the unmodified `MemOSClient`; run by the Python of its own environment, never by pytest.

Arguments: the server's URL, an admin's key, a user's key. Whatever is not as it should be ends it with an error.
"""

from __future__ import annotations

import base64
import inspect
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import requests

from memos.api.client import MemOSClient  # type: ignore[attr-defined]

URL, ADMIN, ANA = sys.argv[1:4]
SAID = [
    {"role": "user", "content": "I live in Lyon and I like green tea.", "chat_time": "2025-03-01T10:00:00Z"},
    {"role": "assistant", "content": "I will remember the green tea."},
]
TOOLS = [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"temperature": 3}'},
    {"role": "assistant", "content": "It is 3 degrees in Oslo."},
]


def refused(status: int, code: int, call: Callable[..., Any], *given: Any, **named: Any) -> None:
    """Check that the client raises, and that what it raises has the protocol's code."""
    try:
        answer = call(*given, **named)
    except requests.HTTPError as error:
        told = error.response.json()
        assert (error.response.status_code, told["code"]) == (status, code), (call.__name__, told)
        assert told["message"]
        assert told["data"] is None
    else:
        raise AssertionError(f"{call.__name__} answered {answer}")


def refused_by_the_client(call: Callable[..., Any], *given: Any, **named: Any) -> None:
    """Check that the client itself refuses a call."""
    try:
        call(*given, **named)
    except ValueError:
        return
    raise AssertionError(call.__name__)


def ended(client: MemOSClient, task: str) -> str:
    """Return how a task ended."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        answer = client.get_task_status(task_id=task)
        assert answer.data.task_id == task
        assert answer.messages[0].status == answer.data.status
        if answer.data.status != "running":
            return answer.data.status
        time.sleep(0.1)
    raise AssertionError("the task does not end")


def messages(client: MemOSClient) -> None:
    """Add messages, follow them, look at them."""
    added = client.add_message(messages=SAID, user_id="ana", conversation_id="talk", tags=["drinks"], info={"n": 7})
    assert (added.code, added.success, added.status) == (0, True, "running")
    again = client.add_message(messages=SAID, user_id="ana", conversation_id="talk", tags=["drinks"], info={"n": 7})
    assert again.task_id == added.task_id
    found = client.search_memory(query="green tea", user_id="ana")
    assert "green tea" in found.memories[0].memory_value
    assert ended(client, added.task_id) == "completed"
    seen = client.get_message(user_id="ana", conversation_id="talk")
    assert [(one.role, one.content) for one in seen.messages] == [(one["role"], one["content"]) for one in SAID]
    assert seen.messages[0].create_time == 1740823200000
    last = client.get_message(user_id="ana", conversation_id="talk", message_limit_number=1)
    assert [one.role for one in last.messages] == ["assistant"]
    waited = client.add_message(messages=TOOLS, user_id="ana", conversation_id="tools", async_mode=False)
    assert waited.status == "completed"
    fed = client.add_feedback(user_id="ana", conversation_id="talk", feedback_content="No, I live in Oslo now.")
    assert fed.success
    assert ended(client, fed.task_id) == "completed"
    both = client.add_message(messages=[{"role": "user", "content": "The cat is called Mo."}], user_id=["ben", "cleo"])
    for user in ("ben", "cleo"):
        assert client.search_memory(query="cat", user_id=user).memories[0].info["user_id"] == user
    assert both.success
    client.add_message(messages=[{"role": "user", "content": "Answer briefly."}], agent_id="bot")
    assert "briefly" in client.search_memory(query="briefly", agent_id="bot").memories[0].memory_value
    refused_by_the_client(client.add_message, messages=[], user_id="ana")
    refused_by_the_client(client.get_message, user_id="ana")
    refused(400, 40000, client.add_message, messages=[{"role": "king", "content": "x"}], user_id="ana")
    refused(400, 40000, client.add_message, messages=SAID, user_id=7)
    refused(413, 40305, client.add_message, messages=[{"role": "user", "content": "word " * 20_000}], user_id="ana")
    refused(400, 40000, client.get_message, user_id="ana", conversation_id="talk", message_limit_number=51)
    refused(404, 50131, client.get_task_status, task_id="no-such-task")
    refused(400, 40000, client.add_feedback, user_id="ana", feedback_content="x", feedback_time="yesterday?")


def memories(client: MemOSClient) -> None:
    """Search, page, look, change, delete."""
    found = client.search_memory(
        query="what do I like to drink, tea?",
        user_id="ana",
        include_tool_memory=True,
        include_skill=True,
        relativity=0.01,
    )
    assert any("green tea" in one.preference for one in found.preferences)
    assert found.preferences[0].preference_type == "explicit_preference"
    assert found.data.preference_note
    assert found.data.skill_detail_list == []
    assert isinstance(found.data.profile_detail_list, list)
    assert isinstance(found.data.event_detail_list, list)
    assert 0 <= found.memories[0].relativity <= 1
    tools = client.search_memory(query="weather in Oslo", user_id="ana", include_tool_memory=True).tool_memories
    assert tools[0].tool_type == "ToolTrajectoryMemory"
    assert tools[0].tool_used_status[0]["used_tool"] == "weather"
    assert not client.search_memory(query="tea", user_id="ana", include_preference=False).preferences
    chosen = client.search_memory(
        query="tea", user_id="ana", filter={"and": [{"tags": {"contains": "drinks"}}, {"n": 7}]}
    )
    assert {tuple(one.tags) for one in chosen.memories} == {("drinks",)}
    assert (
        client.search_memory(query="tea", user_id="ana", filter={"user": {"n": 8}, "public": {"n": 8}}).memories == []
    )
    assert client.search_memory(query="tea", user_id="nobody-yet").memories == []
    assert len(client.search_memory(query="tea", user_id="ana", memory_limit_number=1).memories) == 1
    page = client.get_memory(user_id="ana", page=1, size=3)
    assert (page.data.size, page.data.current) == (3, 1)
    assert page.data.pages == -(-page.data.total // 3)
    seen = set()
    for number in range(1, page.data.pages + 1):
        data = client.get_memory(user_id="ana", page=number, size=3).data
        for name, value in data.model_dump().items():
            seen |= {one["id"] for one in value or ()} if name.endswith("_detail_list") and name[0] != "e" else set()
    assert len(seen) == page.data.total
    assert client.get_memory(user_id="ana", include_preference=False).preferences == []
    tea = chosen.memories[0]
    one = client.get_memory_by_id(tea.id)
    assert one["data"]["memory_value"] == tea.memory_value
    assert one["data"]["sources"][0]["content"]
    changed = client.update_memory(memory_id=tea.id, content="I like black tea.", title="Tea")["data"]
    assert (changed["memory_value"], changed["memory_key"], changed["info"]["n"]) == ("I like black tea.", "Tea", 7)
    assert client.update_memory(memory_id=tea.id, status="archived")["data"]["status"] == "archived"
    assert client.delete_memory(memory_ids=[tea.id]).success
    assert client.delete_memory(memory_ids=[tea.id]).success  # sent again, since the first answer was lost
    refused(404, 40307, client.get_memory_by_id, tea.id)
    assert client.delete_memory(filter={"n": 7}).success
    assert client.delete_memory(user_id="cleo", memory_type="UserMemory").success
    assert client.get_memory(user_id="cleo").data.total > 0
    assert client.delete_memory(["cleo"]).success
    assert client.get_memory(user_id="cleo").data.total == 0
    assert client.delete_memory(agent_id="bot").success
    refused_by_the_client(client.delete_memory)
    refused_by_the_client(client.delete_memory, user_id="ana", agent_id="bot")
    refused_by_the_client(client.search_memory, query="x", user_id="a", agent_id="b")
    refused_by_the_client(client.get_memory, user_id="ana", size=51)
    refused_by_the_client(client.update_memory, memory_id="x")
    refused(400, 40000, client.search_memory, query="x", user_id="ana", filter={"tags": {"near": 1}})
    refused(400, 40000, client.search_memory, query="x", user_id="ana", memory_limit_number=26)
    refused(400, 40000, client.search_memory, query="x", user_id="ana", relativity=2)
    refused(404, 50120, client.search_memory, query="x", user_id="ana", knowledgebase_ids=["none"])
    refused(400, 40000, client.get_memory, user_id="ana", page=0)
    refused(404, 40307, client.get_memory_by_id, "a/b c?")
    refused(404, 40307, client.update_memory, memory_id="none", content="x")
    refused(404, 40307, client.delete_memory, memory_ids=["none"])
    refused(400, 40002, client.delete_memory, filter={})


def files(client: MemOSClient) -> None:
    """Make a knowledge base, fill it both ways, ask it, empty it."""
    base = client.create_knowledgebase("Animals", "what lives where").knowledgebase_id
    text = base64.b64encode(b"# Otters\n\nThe otter sleeps in a holt by the river.").decode()
    added = client.add_knowledgebase_file_json(base, [{"name": "otters.md", "content": text}])
    assert added.memories[0]["name"] == "otters.md"
    path = Path("foxes.txt")
    path.write_text("A fox lives in a den.")
    form = client.add_knowledgebase_file_form(base, [str(path)], type="file")
    assert form.memories[0]["status"] in ("PROCESSING", "AVAILABLE")
    ids = [added.memories[0]["id"], form.memories[0]["id"]]
    until = time.monotonic() + 60
    while {one.status for one in client.get_knowledgebase_file(file_ids=ids).files} != {"AVAILABLE"}:
        assert time.monotonic() < until
        time.sleep(0.1)
    listed = client.get_knowledgebase_file(knowledgebase_id=base, page=1, page_size=1)
    assert (listed.data.total, len(listed.files), listed.data.page_size) == (2, 1, 1)
    for bases in ([base], ["all"]):
        found = client.search_memory(query="Where does the otter sleep?", user_id="ben", knowledgebase_ids=bases)
        assert "holt" in found.memories[0].memory_value
    assert client.delete_knowledgebase_file(file_ids=[ids[0]]).success
    assert [one.id for one in client.get_knowledgebase_file(knowledgebase_id=base).files] == ids[1:]
    refused(400, 40000, client.add_knowledgebase_file_json, base, [{"name": "a", "content": "http://127.0.0.1/a"}])
    refused(400, 40000, client.add_knowledgebase_file_json, base, [{"name": "a", "content": "no base64!"}])
    refused(
        400, 40000, client.add_knowledgebase_file_json, base, [{"name": f"{n}", "content": text} for n in range(21)]
    )
    refused(404, 50120, client.add_knowledgebase_file_form, "none", [str(path)])
    refused(404, 50120, client.get_knowledgebase_file, file_ids=["none"])
    refused(404, 50120, client.delete_knowledgebase_file, file_ids=["none"])
    assert client.delete_knowledgebase(base).success
    refused(404, 50120, client.delete_knowledgebase, base)
    refused_by_the_client(client.create_knowledgebase, "")
    refused_by_the_client(client.get_knowledgebase_file)


def lookups(client: MemOSClient) -> None:
    """Extract and rerank: nothing is stored."""
    before = client.get_memory(user_id="ben").data.total
    got = client.extract_memory(SAID)["data"]
    assert any("Lyon" in one["memory_value"] for one in got["memory_detail_list"])
    assert "green tea" in got["preference_detail_list"][0]["preference"]
    assert client.extract_memory(SAID, extraction_types=["preference"])["data"]["memory_detail_list"] == []
    assert client.get_memory(user_id="ben").data.total == before
    best = client.rerank("green tea", ["The bus is late.", "Green tea is a drink."], top_n=1)["data"]["results"]
    assert [(one["index"], one["document"]["text"]) for one in best] == [(1, "Green tea is a drink.")]
    assert 0 <= best[0]["relevance_score"] <= 1
    refused(400, 40000, client.extract_memory, SAID, extraction_types=["dreams"])
    refused(413, 40305, client.extract_memory, [{"role": "user", "content": "word " * 9_000}])
    refused(400, 40000, client.rerank, "x", ["a", 7])
    refused_by_the_client(client.rerank, "x", ["a"], top_n=0)


def profiles(client: MemOSClient) -> None:
    """Bind, edit, delete a profile."""
    bound = [{"profile_template_id": "standard", "user_id": "ben"}]
    assert client.bind_profile_template(bound)["data"]["success"]
    assert client.edit_profile("standard", user_id="ben", metadata={"life.name": "Ben"})["data"]["success"]
    found = client.search_memory(query="Name: Ben", user_id="ben", include_memory_view=["profile"])
    assert [one.profile_value for one in found.data.profile_detail_list] == ["Ben"]
    assert found.memories == []
    assert client.edit_profile("standard", user_id="ben", remove_fields=["life.name"])["data"]["success"]
    refused(404, 40307, client.edit_profile, "standard", user_id="ben", remove_fields=["life.name"])
    assert client.delete_profile("standard", user_id="ben")["data"]["success"]
    refused(400, 40000, client.edit_profile, "standard", user_id="ben", metadata={"life.shoes": "red"})
    refused(404, 40307, client.bind_profile_template, [{"profile_template_id": "mine", "user_id": "ben"}])
    refused(400, 40000, client.bind_profile_template, bound * 21)
    refused_by_the_client(client.edit_profile, "standard", user_id="ben")
    refused_by_the_client(client.delete_profile, "standard")


def public(client: MemOSClient) -> None:
    """What is public is found by everybody, and has its own filter."""
    client.add_message(messages=[{"role": "user", "content": "The office is shut."}], user_id="dan", allow_public=True)
    found = client.search_memory(query="office", user_id="ben").memories
    assert (found[0].memory_value, found[0].info["user_id"]) == ("The office is shut.", "dan")
    chosen = client.search_memory(query="office", user_id="ben", filter={"public": {"user_id": "eve"}}).memories
    assert "The office is shut." not in {one.memory_value for one in chosen}


def keys(admin: MemOSClient) -> None:
    """What another's key may not do, and a wrong key nothing."""
    ana = MemOSClient(api_key=ANA, base_url=URL)
    wrong = MemOSClient(api_key="mst_wrong", base_url=URL)
    refused(401, 40132, wrong.get_memory, user_id="ana")
    assert ana.get_memory(user_id="ana").data.total > 0
    other = admin.search_memory(query="cat", user_id="ben").memories[0].id
    refused(403, 40132, ana.search_memory, query="cat", user_id="ben")
    refused(403, 40132, ana.add_message, messages=SAID, user_id="ben")
    refused(403, 40132, ana.get_memory, user_id="who is that")
    refused(404, 40307, ana.get_memory_by_id, other)
    refused(404, 40307, ana.delete_memory, memory_ids=[other])
    refused(403, 40306, ana.delete_memory, user_id="ben")
    refused(404, 40307, ana.update_memory, memory_id=other, content="x")


def chat(client: MemOSClient) -> None:
    """Ask a server that has a model, in one piece and as a stream."""
    client.add_message(messages=SAID, user_id="ana", conversation_id="talk")
    asked = {"user_id": "ana", "conversation_id": "talk"}
    assert client.chat(query="What do I drink?", **asked).response == "You drink green tea."
    stored = client.get_message(**asked, message_limit_number=2).messages
    assert [one.content for one in stored] == ["What do I drink?", "You drink green tea."]
    events = [json.loads(event) for event in client.chat(query="What again?", stream=True, tags=["s"], **asked)]
    assert "".join(event["data"] for event in events if event["type"] == "text") == "You drink green tea."
    assert events[-1]["type"] == "end"
    assert client.get_message(**asked).messages[-1].content == "You drink green tea."
    before = client.get_memory(user_id="ana").data.total
    client.chat(query="And at night?", add_message_on_answer=False, knowledgebase_ids=["all"], **asked)
    assert client.get_memory(user_id="ana").data.total == before
    refused_by_the_client(client.chat, user_id="ana", conversation_id="talk", query="")
    refused(400, 40000, client.chat, query="x", temperature=9, **asked)
    refused(400, 40000, client.chat, query="x", memory_limit_number=26, **asked)
    refused(404, 50120, client.chat, query="x", knowledgebase_ids=["none"], **asked)
    refused(413, 40305, client.chat, query="word " * 4_000, **asked)


class Counted(MemOSClient):
    """Notes which methods were called."""

    called: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute, and note it."""
        Counted.called.add(name)
        return super().__getattribute__(name)


if __name__ == "__main__":
    if sys.argv[4:] == ["chat"]:
        chat(MemOSClient(api_key=ADMIN, base_url=URL))
        sys.exit()
    client = Counted(api_key=ADMIN, base_url=URL)
    for part in (messages, memories, files, lookups, profiles, public, keys):
        part(client)
        print("ok", part.__name__, flush=True)
    refused(503, 50000, client.chat, user_id="ana", conversation_id="talk", query="Hello?")
    public = {name for name, _ in inspect.getmembers(MemOSClient, inspect.isfunction) if not name.startswith("_")}
    assert public <= Counted.called, public - Counted.called
    print("every method was called:", len(public))
