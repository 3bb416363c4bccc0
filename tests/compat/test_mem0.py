"""Programs of mem0 over this storage: what its documentation shows, embedded and over a client of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.api.client import AsyncMemOSClient, MemOSClient
from memos.api.serving import first_key
from memos.compat.mem0 import AsyncMemory, Memory, MemoryNotFound, WrongValue
from memos.core.clock import new_id
from memos.core.settings import ChatSettings, Settings, TaskSettings
from memos.errors import MemosError
from tests.api.running import running
from tests.fakes import WordEmbedder

MOVIES = [
    {"role": "user", "content": "I want to see a film tonight. What do you advise?"},
    {"role": "assistant", "content": "Thrillers are exciting, how about one?"},
    {"role": "user", "content": "I do not like thrillers, but I love science fiction."},
    {"role": "assistant", "content": "Then I will advise science fiction in future."},
]
TASKS: list[tuple[str, dict[str, Any]]] = [
    ("Write the report.", {"category": "work", "priority": 8, "status": "open", "title": "Report of the meeting"}),
    ("Water the plants.", {"category": "home", "priority": 3, "status": "open", "tags": ["garden", "urgent"]}),
    ("Book the flight.", {"category": "travel", "priority": 9, "status": "completed"}),
    ("Call the bank.", {"category": "home", "priority": 5, "status": "archived", "archived": True}),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemOS, MemOSClient]]:
    settings = Settings(tasks=TaskSettings(workers=0))
    home = tmp_path_factory.mktemp("mem0")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        key = first_key(memos)
        with running(memos) as url, MemOSClient(key, url) as client:
            yield memos, client


@pytest.fixture(params=["embedded", "client"])
def memory(request: pytest.FixtureRequest, opened: tuple[MemOS, MemOSClient]) -> Memory:
    return Memory(memos=opened[request.param == "client"])


@pytest.fixture
def user() -> str:
    return f"alice-{new_id()}"


@pytest.fixture
def tasks(memory: Memory, user: str) -> dict[str, str]:
    """Add tasks of a user; return their ids by text."""
    return {
        text: memory.add(text, user_id=user, metadata=metadata, infer=False)["results"][0]["id"]
        for text, metadata in TASKS
    }


def texts(answer: dict[str, Any]) -> set[str]:
    return {result["memory"] for result in answer["results"]}


def test_the_quick_start_of_its_documentation(memory: Memory, user: str) -> None:
    added = memory.add(MOVIES, user_id=user, metadata={"category": "movies"})
    assert [(each["memory"], each["event"]) for each in added["results"]] == [(m["content"], "ADD") for m in MOVIES]
    whole = memory.get_all(filters={"user_id": user})
    assert texts(whole) == {message["content"] for message in MOVIES}
    id_ = added["results"][2]["id"]
    one = memory.get(id_)
    assert one is not None
    assert one["memory"] == "I do not like thrillers, but I love science fiction."
    assert one["metadata"] == {"category": "movies"}
    assert (one["user_id"], one["score"], len(one["hash"])) == (user, None, 32)
    assert datetime.fromisoformat(one["created_at"]).tzinfo is not None

    found = memory.search("Do I love science fiction?", filters={"user_id": user})
    assert found["results"][0]["id"] == id_
    assert 0.1 <= found["results"][0]["score"] <= 1

    assert memory.update(id_, text="I love India, it is my favourite country.") == {
        "message": "Memory updated successfully!"
    }
    memory.update(memory_id=id_, data="I love Italy.")
    assert memory.delete(memory_id=id_) == {"message": "Memory deleted successfully!"}
    history = memory.history(memory_id=id_)
    assert [(each["event"], each["old_memory"], each["new_memory"]) for each in history] == [
        ("ADD", None, MOVIES[2]["content"]),
        ("UPDATE", MOVIES[2]["content"], "I love India, it is my favourite country."),
        ("UPDATE", "I love India, it is my favourite country.", "I love Italy."),
        ("DELETE", "I love Italy.", None),
    ]
    assert [each["is_deleted"] for each in history] == [False, False, False, True]
    assert {each["memory_id"] for each in history} == {id_}
    assert memory.get(id_) is None
    assert memory.delete_all(user_id=user) == {"message": "Memories deleted successfully!"}
    assert memory.get_all(filters={"user_id": user}) == {"results": []}


def test_messages_that_are_not_inferred_are_told_with_who_said_them(memory: Memory, user: str) -> None:
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "Ann", "content": "I keep bees."},
        {"role": "assistant", "content": "How many?"},
        {"role": "user", "content": None},
    ]
    added = memory.add(said, user_id=user, infer=False)["results"]
    assert [(each["memory"], each["role"], each["actor_id"]) for each in added] == [
        ("I keep bees.", "user", "Ann"), ("How many?", "assistant", None),
    ]  # fmt: skip
    assert memory.get(added[0]["id"]) is not None
    assert texts(memory.get_all(filters={"user_id": user, "actor_id": "Ann"})) == {"I keep bees."}
    assert memory.add({"role": "user", "content": "One message."}, user_id=user)["results"][0]["event"] == "ADD"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"category": "home"}, {1, 3}),
        ({"priority": {"gt": 5}}, {0, 2}),
        ({"priority": {"gte": 5, "lt": 9}}, {0, 3}),
        ({"priority": {"lte": 3}}, {1}),
        ({"status": {"eq": "open"}, "archived": {"ne": True}}, {0, 1}),
        ({"category": {"in": ["work", "travel"]}, "status": {"nin": ["completed", "archived"]}}, {0}),
        ({"category": {"in": []}}, set()),
        ({"category": {"nin": []}}, {0, 1, 2, 3}),
        ({"title": {"contains": "meeting"}}, {0}),
        ({"title": {"icontains": "MEETING"}}, {0}),
        ({"tags": {"contains": "urgent"}}, {1}),
        ({"tags": "garden"}, {1}),
        ({"title": "*"}, {0}),
        ({"AND": [{"category": "home"}, {"priority": {"gte": 5}}]}, {3}),
        ({"OR": [{"category": "work"}, {"priority": {"gte": 9}}]}, {0, 2}),
        ({"NOT": [{"category": "home"}, {"status": "completed"}]}, {0}),
        ({"AND": [{"OR": [{"category": "work"}, {"category": "home"}]}, {"NOT": [{"status": "archived"}]}]}, {0, 1}),
        ({"metadata.category": "travel"}, {2}),
        ({"created_at": {"gte": "2020-01-01"}}, {0, 1, 2, 3}),
        ({"created_at": {"lt": "2020-01-01"}}, set()),
        ({"role": "assistant"}, set()),
    ],
    ids=range(21),
)
def test_filters_of_its_documentation(
    memory: Memory, user: str, tasks: dict[str, str], filters: dict[str, Any], expected: set[int]
) -> None:
    wanted = {TASKS[place][0] for place in expected}
    assert texts(memory.get_all(filters={"user_id": user, **filters})) == wanted
    assert (
        texts(memory.search("the report, plants, flight, bank", filters={"user_id": user, **filters}, threshold=0))
        == wanted
    )


def test_an_id_may_be_inside_of_and(memory: Memory, user: str, tasks: dict[str, str]) -> None:
    filters = {"AND": [{"user_id": user}, {"category": "work"}]}
    assert texts(memory.get_all(filters=filters)) == {"Write the report."}


def test_agents_and_runs_are_scopes_of_their_own(memory: Memory, user: str) -> None:
    agent, run = f"agent-{user}", f"run-{user}"
    memory.add("Ana keeps bees.", user_id=user, agent_id=agent, infer=False)
    memory.add("The hive is in the garden.", user_id=user, run_id=run, infer=False)
    memory.add("Bees like lavender.", agent_id=agent, infer=False)
    get = lambda **filters: texts(memory.get_all(filters=filters))  # noqa: E731
    assert get(user_id=user) == {"Ana keeps bees.", "The hive is in the garden."}
    assert get(user_id=user, agent_id=agent) == {"Ana keeps bees."}
    assert get(agent_id=agent) == {"Ana keeps bees.", "Bees like lavender."}
    assert get(run_id=run, user_id="*") == {"The hive is in the garden."}
    assert get(user_id=user, agent_id="*") == {"Ana keeps bees."}
    found = memory.search("What do bees like?", filters={"agent_id": agent}, top_k=1)
    assert texts(found) == {"Bees like lavender."}
    memory.delete_all(agent_id=agent)
    assert get(agent_id=agent) == set()
    assert get(user_id=user) == {"The hive is in the garden."}


def test_users_do_not_see_one_another_and_unknown_ones_have_nothing(memory: Memory, user: str) -> None:
    memory.add("I keep bees.", user_id=user)
    assert memory.search("bees", filters={"user_id": f"ben-{user}"}) == {"results": []}
    assert memory.get_all(filters={"user_id": f"ben-{user}"}) == {"results": []}
    memory.delete_all(user_id=f"ben-{user}")
    assert texts(memory.search("bees", filters={"user_id": user})) == {"I keep bees."}


def test_metadata_of_any_shape_comes_back_and_can_be_filtered_by_its_paths(memory: Memory, user: str) -> None:
    metadata = {"details": {"location": {"city": "Paris"}, "stars": 4}, "topics": ["ui", "tools"], "none": None}
    [added] = memory.add("I stayed in Paris.", user_id=user, metadata=metadata, infer=False)["results"]
    told = memory.get(added["id"])
    assert told is not None
    assert told["metadata"] == metadata
    for filters in ({"details.location.city": "Paris"}, {"metadata.details.stars": {"gte": 4}}, {"topics": "ui"}):
        assert len(memory.get_all(filters={"user_id": user, **filters})["results"]) == 1
    memory.update(added["id"], metadata={"topics": ["travel"], "user_id": "mallory"})
    told = memory.get(added["id"])
    assert told is not None
    assert told["metadata"] == {**metadata, "topics": ["travel"]}
    assert told["user_id"] == user


def test_what_has_expired_is_hidden_unless_it_is_asked_for(memory: Memory, user: str) -> None:
    now = datetime.now(UTC)
    past, future = ((now + timedelta(days=days)).date() for days in (-2, 2))
    [old] = memory.add("The shop is closed.", user_id=user, expiration_date=past.isoformat(), infer=False)["results"]
    memory.add("The shop is open.", user_id=user, expiration_date=future, infer=False)
    filters = {"user_id": user}
    assert texts(memory.get_all(filters=filters)) == {"The shop is open."}
    assert texts(memory.search("Is the shop open?", filters=filters, threshold=0)) == {"The shop is open."}
    assert len(memory.get_all(filters=filters, show_expired=True)["results"]) == 2
    assert len(memory.search("shop", filters=filters, show_expired=True, threshold=0)["results"]) == 2
    memory.update(old["id"], expiration_date=None)
    assert len(memory.get_all(filters=filters)["results"]) == 2
    memory.update(old["id"], expiration_date=past)
    assert memory.get(old["id"])["expiration_date"] == past.isoformat()  # type: ignore[index]


def test_a_time_and_a_day_of_reference_are_taken(memory: Memory, user: str) -> None:
    memory.add("I live in Lyon.", user_id=user, timestamp="2024-05-01T10:00:00Z", infer=False)
    found = memory.search("Where do I live?", filters={"user_id": user}, reference_date="2025-01-01", explain=True)
    assert set(found["results"][0]["score_details"]) == {"score", "relevance"}
    assert memory.search("Where do I live?", filters={"user_id": user}, top_k=0) == {"results": []}
    assert memory.search("Where do I live?", filters={"user_id": user}, threshold=1) == {"results": []}


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda m, u: m.add("x"), "user_id"),
        (lambda m, u: m.add("x", user_id=" "), "user_id"),
        (lambda m, u: m.add("x", user_id="a b"), "user_id"),
        (lambda m, u: m.add(7, user_id=u), "messages"),
        (lambda m, u: m.add("x", user_id=u, memory_type="other"), "memory_type"),
        (lambda m, u: m.add("x", user_id=u, expiration_date="tomorrow"), "expiration_date"),
        (lambda m, u: m.get_all(filters={}), "filters"),
        (lambda m, u: m.get_all(filters={"category": "work"}), "filters"),
        (lambda m, u: m.get_all(user_id=u), "user_id"),
        (lambda m, u: m.get_all(filters={"user_id": u}, top_k=-1), "top_k"),
        (lambda m, u: m.search(" ", filters={"user_id": u}), "query"),
        (lambda m, u: m.search("x", user_id=u), "user_id"),
        (lambda m, u: m.search("x", filters={"user_id": u}, threshold=2), "threshold"),
        (lambda m, u: m.search("x", filters={"user_id": u, "a": {"unknown": 1}}), "filters"),
        (lambda m, u: m.search("x", filters={"user_id": u, "day": {"gte": "2024-01-01"}}), "day"),
        (lambda m, u: m.search("x", filters={"user_id": u, "OR": []}), "OR"),
        (lambda m, u: m.update(u), "text"),
        (lambda m, u: m.delete_all(), "user_id"),
    ],
    ids=range(18),
)
def test_wrong_arguments_are_value_errors_that_name_them(memory: Memory, user: str, call: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        call(memory, user)
    assert isinstance(caught.value, WrongValue)
    assert isinstance(caught.value, MemosError)
    assert caught.value.field == named


def test_a_memory_that_is_not_there(memory: Memory) -> None:
    assert memory.get(new_id()) is None
    assert memory.history(new_id()) == []
    for call in (lambda: memory.delete(new_id()), lambda: memory.update(new_id(), text="x")):
        with pytest.raises(ValueError, match="No such memory") as caught:
            call()
        assert isinstance(caught.value, MemoryNotFound)
    with pytest.raises(TypeError, match="unexpected keyword argument 'limit'"):
        memory.get_all(filters={"user_id": "x"}, limit=3)


def test_a_reset_erases_what_was_added_here_and_nothing_else(tmp_path: Path) -> None:
    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        memory = Memory(memos=memos)
        memos.add("I keep bees.")
        for user in ("ana", "ben"):
            memory.add(f"{user} has a dog.", user_id=user)
        memory.add("A run.", run_id="r")
        memory.reset()
        memory.reset()
        left = [item.memory for cube in memos.cubes.list() for item in memos.memories.list(cube=cube.id)]
        assert left == ["I keep bees."]


def test_the_asynchronous_class_does_the_same(opened: tuple[MemOS, MemOSClient], user: str) -> None:
    async def run() -> None:
        async with AsyncMemory(memos=opened[0]) as memory:
            await memory.add(
                messages=[
                    {"role": "user", "content": "I'm travelling to SF"},
                    {"role": "assistant", "content": "Nice!"},
                ],
                user_id=user,
            )
            found = await memory.search(query="Where am I travelling?", filters={"user_id": user})
            id_ = found["results"][0]["id"]
            await memory.update(memory_id=id_, text="I'm travelling to Seattle")
            assert (await memory.get(memory_id=id_))["memory"] == "I'm travelling to Seattle"
            assert len(await memory.history(memory_id=id_)) == 2
            await memory.delete(memory_id=id_)
            await memory.delete_all(user_id=user)
            assert (await memory.get_all(filters={"user_id": user}))["results"] == []

    asyncio.run(run())


def test_what_it_opens_itself_it_closes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {
        "vector_store": {"provider": "qdrant", "config": {"host": "localhost", "port": 6333}},
        "llm": {"provider": "ollama", "config": {"model": "llama3", "ollama_base_url": "http://127.0.0.1:11434"}},
    }
    with caplog.at_level(logging.WARNING), Memory.from_config(config, path=tmp_path / "home") as memory:
        assert memory._own is not None
        chat = memory._own.settings.chat_model
        assert chat == ChatSettings(base_url="http://127.0.0.1:11434/v1", model="llama3")
        memory.add("I keep bees.", user_id="ana", prompt="Extract hobbies.")
    assert "vector_store of the configuration: not used" in caplog.text
    assert "`prompt` is not used" in caplog.text
    with Memory(path=tmp_path / "home") as memory:
        assert texts(memory.search("Who keeps bees?", filters={"user_id": "ana"}, threshold=0)) == {"I keep bees."}


@pytest.mark.parametrize("memos", [7, AsyncMemOSClient("mst_x", "http://127.0.0.1:1")], ids=["number", "async"])
def test_it_is_over_an_installation_or_a_client_that_waits(memos: Any) -> None:
    with pytest.raises(ValueError, match="must be a MemOS or a MemOSClient"):
        Memory(memos=memos)
