"""Words of other programs: each does what ours does, two that differ are refused, unknown ones are as before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

from memos import MemOS
from memos.api.client import v1_requests
from memos.core.aliases import ALIASES, known_words, own_signature
from memos.errors import InvalidInput
from memos.kernel.memories import Memories
from memos.kernel.search import SearchService
from memos.kernel.tiers import Tiers

DECLARED = [
    function
    for holder in (Memories, SearchService, Tiers, v1_requests)
    for _, function in inspect.getmembers(holder, inspect.isfunction)
    if "_aliases" in inspect.signature(function).parameters
]


@pytest.fixture
def item(memos: MemOS) -> str:
    memos.users.create("ana")
    memos.cubes.create("team", actor="ana")
    return memos.add("I live in Lyon.", conversation="home", cube="team", actor="ana").item_ids[0]


@pytest.mark.parametrize("function", DECLARED, ids=lambda function: function.__qualname__)
def test_type_checkers_are_told_the_aliases_that_a_call_takes(function: Callable[..., object]) -> None:
    known = known_words(own_signature(function))
    taken = {alias for alias, words in ALIASES.items() if alias not in known and not known.isdisjoint(words)}
    [declared] = get_args(get_type_hints(function)["_aliases"])
    assert set(get_type_hints(declared)) == taken


@pytest.mark.parametrize(
    ("alias", "ours"),
    [
        ({"user_id": "ana"}, {"actor": "ana"}),
        ({"agent_id": "ana", "actor": "ana"}, {"actor": "ana"}),
        *(
            ({name: "work"}, {"conversation": "work"})
            for name in ("conversation_id", "session_id", "thread_id", "run_id")
        ),
        ({"run_id": "r1", "session_id": "work"}, {"conversation": "work", "info": {"run_id": "r1"}}),
        ({"run_id": "r1", "conversation": "r1", "user_id": None}, {"conversation": "r1"}),
        ({"metadata": {"colour": "red"}}, {"info": {"colour": "red"}}),
        ({"infer": True}, {"mode": "fine"}),
        ({"infer": False}, {"mode": "rough"}),
        ({"infer": None, "metadata": None}, {}),
    ],
)
def test_add_takes_them(memos: MemOS, item: str, alias: dict[str, Any], ours: dict[str, Any]) -> None:
    def stored(**named: Any) -> tuple[object, ...]:
        receipt = memos.add("The bakery closes at noon.", cube="team", **{"actor": "ana", **named})
        found = memos.get(receipt.item_ids[0], actor="ana")
        return found.conversation, found.info, receipt.task is None, memos.memories.history(found.id)[0].actor

    assert stored(**alias) == stored(**ours)


def test_messages_and_feedback_take_a_timestamp(memos: MemOS) -> None:
    for name in ("timestamp", "created_at"):
        said = memos.add({"role": "user", "content": "I live in Oslo.", name: "2026-01-02T00:00:00Z"}).item_ids[0]
        assert str(memos.get(said).said_at) == "2026-01-02 00:00:00+00:00"
        told = memos.feedback("No, in Bergen.", ids=[said], timestamp="2026-01-03T00:00:00Z")
        assert (told.related, str(memos.get(told.item_id).said_at)) == ((said,), "2026-01-03 00:00:00+00:00")


CALLS: dict[str, Callable[[MemOS, str], object]] = {
    "get by memory_id": lambda memos, item: memos.get(memory_id=item, user_id="ana") == memos.get(item, actor="ana"),
    "get by id": lambda memos, item: memos.get(id=item) == memos.get(item),
    "history": lambda memos, item: memos.memories.history(item_id=item) == memos.memories.history(item),
    "list": lambda memos, item: [each.id for each in memos.memories.list(cube="team", user_id="ana")] == [item],
    "update": lambda memos, item: memos.update(memory_id=item, metadata={"a": 1}).info == {"a": 1},
    "delete": lambda memos, item: memos.delete(ids=[item], agent_id="ana") == (item,),
    "delete one": lambda memos, item: memos.delete(memory_id=item) == (item,),
    "purge": lambda memos, item: memos.purge(id=item).item_ids == (item,),
    "search": lambda memos, item: memos.search("Lyon", cubes=["team"], limit=1, user_id="ana")[0].item.id == item,
    "search one cube": lambda memos, item: memos.search("Lyon", cube="team")[0].item.id == item,
    "search a name": lambda memos, item: memos.search("Lyon", cubes="team")[0].item.id == item,
    "add to cubes": lambda memos, item: memos.get(memos.add("x", cubes=["team"]).item_ids[0]).cube == "team",
    "context": lambda memos, item: (
        memos.context(thread_id="home", cube="team") == memos.tiers.working_memory("home", cube="team")
    ),
    "mark_used": lambda memos, item: memos.tiers.mark_used(memory_id=item, cube="team") is None,
    "explain_missing": lambda memos, item: (
        memos.search.explain_missing(memory_id=item, query="Lyon", limit=1)
        == memos.search.why_not(item, "Lyon", top_k=1)
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_calls_take_them(memos: MemOS, item: str, call: Callable[[MemOS, str], object]) -> None:
    assert call(memos, item)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda memos: memos.add("x", actor="ana", user_id="ben"), ("user_id", "actor")),
        (lambda memos: memos.add("x", user_id="ana", agent_id="ben"), ("user_id", "actor")),
        (lambda memos: memos.add("x", info={"run_id": "a"}, conversation="c", run_id="b"), ("run_id", "info")),
        (
            lambda memos: memos.add({"content": "x", "chat_time": 1, "timestamp": 2}),
            ("messages[0].timestamp", "chat_t"),
        ),
        (lambda memos: memos.add("x", infer="yes"), ("infer", "true or false")),
        (lambda memos: memos.get("a", memory_id="b"), ("memory_id", "item")),
        (lambda memos: memos.delete(["a"], id="b"), ("id", "item_ids")),
        (lambda memos: memos.search("x", top_k=1, limit=2), ("limit", "top_k")),
        (lambda memos: memos.search("x", cube="a", cubes=["b"]), ("cube", "cubes")),
        (lambda memos: memos.add("x", cubes=["a", "b"]), ("cubes", "one cube")),
        (lambda memos: memos.get(), ("item", "empty")),
    ],
)
def test_two_words_with_different_values_are_refused(
    memos: MemOS, call: Callable[[Any], object], words: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        call(memos)
    assert all(word in str(refused.value) for word in words), refused.value
    assert memos.memories.list() == []


def test_a_repeated_add_is_recognised_in_other_words(memos: MemOS) -> None:
    said = {"role": "user", "content": "x"}
    first = memos.add({**said, "chat_time": "2026-01-01T00:00:00Z"}, idempotency_key="k", infer=False)
    again = memos.add({**said, "timestamp": "2026-01-01T00:00:00Z"}, idempotency_key="k", mode="rough")
    assert (again.item_ids, again.replayed) == (first.item_ids, True)


def test_values_that_cannot_be_compared_are_refused(memos: MemOS) -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="metadata"):
        memos.add("x", info={"a": deep}, metadata={"a": [deep]})
    assert memos.memories.list() == []


@pytest.mark.parametrize("named", [{"user": "ana"}, {"limit": 3}, {"user_id": "ana", "usr": "ana"}, {"messages": "y"}])
def test_another_word_is_a_type_error(memos: MemOS, named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument|multiple values"):
        memos.add("x", **named)


def test_a_type_error_names_the_arguments(memos: MemOS) -> None:
    with pytest.raises(TypeError, match=r"'said_at'; the arguments are messages, cube, .*conversation"):
        memos.add("x", said_at="2026-01-01")  # type: ignore[call-arg]
