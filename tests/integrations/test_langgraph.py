"""LangGraph's graphs with a store: the contract, and the store beside LangGraph's own with the same operations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from memos import MemOS
from memos.errors import BackendUnavailable, InvalidInput
from memos.integrations import AgentMemory, Owner
from memos.integrations.langgraph import MemosStore
from tests.fakes import HeldClock
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run


class TestStore(Contract):
    """A graph whose node searches the store before it asks its model, and puts what the user said after it."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        prompts: list[str] = []

        def answer(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
            assert runtime.store is not None
            namespace, said = ("memories", ask.user), state["messages"][-1].text
            known = runtime.store.search(namespace, query=said)
            prompts.append("\n".join(item.value["text"] for item in known))
            runtime.store.put(namespace, ask.turn, {"text": said})
            return {"messages": [AIMessage(ask.answer)]}

        graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").add_edge("answer", END)
        done = graph.compile(store=MemosStore(memory, user_at=1)).invoke({"messages": [ask.text]})
        return Turn(prompts[-1], done["messages"][-1].text)

    test_hostile_memory_stays_fenced = None  # a store returns what was put, exactly: fencing is its graph's


class Both:
    """LangGraph's store and ours, which do the same and whose answers must be the same."""

    def __init__(self, store: BaseStore, asynchronous: bool) -> None:
        self._own, self._other, self._async = store, InMemoryStore(), asynchronous

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def both(*given: Any, **named: Any) -> Any:
            expected = getattr(self._other, name)(*given, **named)
            if self._async:
                found = run(getattr(self._own, f"a{name}")(*given, **named))
            else:
                found = getattr(self._own, name)(*given, **named)
            assert shown(found) == shown(expected), (name, given, named)
            return found

        return both


def shown(found: Any) -> Any:
    """Return an answer without times and scores; the order of a search without a question is not promised."""
    if isinstance(found, list):
        each = [shown(item) for item in found]
        return each if any(isinstance(item, tuple | list) or item is None for item in found) else sorted(each, key=str)
    return (found.namespace, found.key, found.value) if hasattr(found, "namespace") else found


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def both(request: pytest.FixtureRequest, memory: AgentMemory, user: str) -> Both:
    own = AgentMemory(memory.memos, user=user, timeout_s=60, fail_open=False)  # type: ignore[arg-type]
    request.addfinalizer(own.close)
    return Both(MemosStore(own), request.param)


VALUES: list[dict[str, Any]] = [
    {"text": "Ana likes tea.", "n": 1, "tags": ["a", "b"]},
    {"text": "Ben likes coffee.", "n": 2.5, "deep": {"color": "red", "size": {"cm": 3}}},
    {"n": 3, "on": True, "none": None, "odd key.": "x", "deep": {"color": "blue"}},
    {"text": "花が好き", "n": -1, "on": False, "tags": []},
    {},
]
FILTERS: list[dict[str, Any] | None] = [
    None,
    {},
    {"n": 1},
    {"n": {"$eq": 2.5}},
    {"n": {"$ne": 1}},
    {"on": True},
    {"on": {"$ne": True}},
    {"none": None},
    {"tags": ["a", "b"]},
    {"tags": "a"},
    {"deep": {"color": "red"}},
    {"deep": {"size": {"cm": 3}}},
    {"deep": {"color": {"$ne": "red"}}},
    {"odd key.": "x"},
    {"text": "Ana likes tea.", "n": {"$eq": 1}},
    {"missing": 1},
]


def test_the_store_does_what_langgraphs_own_does(both: Both) -> None:
    spaces = [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("x", "b"), ("a/b", "50% of%2F"), ("花", " é ")]
    both.search((), limit=100)
    both.list_namespaces()
    for place, space in enumerate(spaces):
        for n, value in enumerate(VALUES):
            both.put(space, f"k{n}/{place}%", value)
    for space in spaces:  # LangGraph's store lists a namespace from which something was got that is not there
        both.get(space, "k1/0%")
        for wanted in FILTERS:
            both.search(space, filter=wanted, limit=100)
    for number in ("$gt", "$gte", "$lt", "$lte"):
        both.put(("numbers",), number, {"n": 2})
        both.search(("numbers",), filter={"n": {number: 2}}, limit=100)
    for options in (
        {},
        {"prefix": ("a",)},
        {"prefix": ("a", "*")},
        {"suffix": ("b",)},
        {"prefix": ("a",), "suffix": ("c",)},
        {"max_depth": 1},
        {"prefix": ("a",), "max_depth": 2},
        {"limit": 2},
        {"limit": 2, "offset": 1},
        {"suffix": ("*", "b")},
    ):
        both.list_namespaces(**options)
    both.put(("a",), "k1/0%", {"text": "changed"})
    both.get(("a",), "k1/0%")
    both.delete(("a",), "k1/0%")
    both.delete(("a",), "never there")
    both.get(("a",), "k1/0%")
    both.search(("a",), limit=100)
    both.put(("a",), "k1/0%", {"text": "again"})
    both.get(("a",), "k1/0%")


def test_a_batch_reads_before_it_writes_and_the_last_write_of_a_key_counts(both: Both) -> None:
    space = ("batch",)
    both.put(space, "old", {"n": 0})
    ops = [
        PutOp(space, "new", {"n": 1}),
        GetOp(space, "new"),
        GetOp(space, "old"),
        GetOp(space, "old"),
        PutOp(space, "new", {"n": 2}),
        SearchOp(space, limit=10),
        PutOp(space, "old", None),
        ListNamespacesOp(match_conditions=(MatchCondition("prefix", space),)),
    ]
    both.batch(ops)
    both.batch([GetOp(space, "new"), GetOp(space, "old"), SearchOp(space)])
    both.batch([])


def test_random_operations_give_the_same_answers(both: Both) -> None:
    chance = random.Random(7)
    spaces = [("r", "1"), ("r", "2"), ("r", "1", "x")]
    for _ in range(60):
        ops: list[Any] = []
        for _ in range(chance.randint(1, 5)):
            space, key = chance.choice(spaces), str(chance.randint(0, 4))
            value = chance.choice([None, {"n": chance.randint(0, 3), "t": f"text {key}"}])
            ops.append(
                chance.choice(
                    [
                        GetOp(space, key),
                        PutOp(space, key, value),
                        SearchOp(("r",), filter={"n": {"$gte": 2}}, limit=50),
                        SearchOp(space, limit=50),
                        ListNamespacesOp(match_conditions=(MatchCondition("suffix", ("1",)),)),
                    ]
                )
            )
        # Namespaces of which all items are deleted stay in LangGraph's store for ever.
        ops = [op for op in ops if not (isinstance(op, PutOp) and op.value is None and op.key == "0")]
        for space in spaces:
            ops.append(PutOp(space, "stays", {"n": 9}))
        both.batch(ops)


@pytest.fixture
def store(memory: AgentMemory, user: str) -> Iterator[MemosStore]:
    with AgentMemory(memory.memos, user=user, timeout_s=60, fail_open=False) as own:  # type: ignore[arg-type]
        yield MemosStore(own)


def test_a_search_by_meaning_finds_what_is_indexed_best_first_with_filter_and_pages(store: MemosStore) -> None:
    store.put(("s", "1"), "a", {"text": "Ana keeps a parrot called Hugo.", "kind": "pet"})
    store.put(("s", "1"), "b", {"text": "The meeting is on Friday.", "kind": "work"})
    store.put(("s", "2"), "c", {"title": "Rex", "body": {"text": "Ben keeps a dog called Rex."}, "kind": "pet"})
    store.put(("s", "2"), "hidden", {"text": "The parrot has a secret.", "kind": "pet"}, index=False)
    store.put(("s", "2"), "part", {"text": "The parrot is green.", "note": "Nothing else."}, index=["note"])
    first, *_ = store.search(("s",), query="Who has a parrot?")
    assert (first.key, first.value["kind"]) == ("a", "pet")
    assert first.score is not None
    assert 0 < first.score <= 1
    keys = [item.key for item in store.search(("s",), query="Who has a parrot?", limit=10)]
    assert "hidden" not in keys
    assert [item.key for item in store.search(("s",), query="Who has a dog?", filter={"kind": "pet"}, limit=1)] == ["c"]
    pages = [store.search(("s",), query="Who has a parrot?", limit=2, offset=offset) for offset in (0, 2)]
    assert [item.key for page in pages for item in page] == keys[:4]
    assert store.search(("s", "1"), query="Who has a dog?")[0].namespace == ("s", "1")
    fields = MemosStore(store.memory, fields=["title"])
    fields.put(("f",), "x", {"title": "Parrots", "text": "unsearched words of a zebra"})
    assert not any("zebra" in hit.item.memory for hit in store.memory.recall("zebra").hits)
    assert store.get(("s", "2"), "hidden").value["text"] == "The parrot has a secret."


def test_times_to_live_end_items_and_reads_refresh_them(tmp_path: Path) -> None:
    clock = HeldClock(datetime(2026, 1, 1, tzinfo=UTC))
    with MemOS.open(tmp_path, clock=clock) as memos, AgentMemory(memos, user="ana", timeout_s=60) as memory:
        store = MemosStore(memory, ttl={"default_ttl": 10, "refresh_on_read": True})
        store.put(("t",), "default", {"text": "parrot"})
        store.put(("t",), "short", {"text": "parrot too"}, ttl=2)
        store.put(("t",), "ever", {"text": "parrots"}, ttl=None)
        clock.advance(timedelta(minutes=1))
        assert store.get(("t",), "short", refresh_ttl=False) is not None
        clock.advance(timedelta(minutes=1, seconds=1))
        assert store.get(("t",), "short") is None
        clock.advance(timedelta(minutes=7))
        assert store.get(("t",), "default") is not None
        clock.advance(timedelta(minutes=9))
        assert {item.key for item in store.search(("t",), query="parrot")} == {"default", "ever"}
        clock.advance(timedelta(minutes=9))
        assert {item.key for item in store.search(("t",))} == {"default", "ever"}
        clock.advance(timedelta(minutes=11))
        assert [item.key for item in store.search(("t",))] == ["ever"]
        assert memory.failures == 0


def test_what_cannot_be_an_item_is_refused(store: MemosStore) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(("a.b",), "k", {})
    with pytest.raises(InvalidNamespaceError):
        store.batch([GetOp(("",), "k")])
    with pytest.raises(ValueError, match="Unknown operation"):
        store.batch([object()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="Unsupported operator"):
        store.put(("a",), "k", {"n": 1})
        store.search(("a",), filter={"n": {"$in": [1]}})
    with pytest.raises(InvalidInput):
        store.put(("a",), "k" * 600, {})
    with pytest.raises(InvalidInput, match="65,536"):
        store.put(("a",), "k", {"text": "x" * 70_000})


def test_with_user_at_each_users_items_are_in_the_users_own_cube(memory: AgentMemory, user: str) -> None:
    store = MemosStore(memory, user_at=1)
    store.put(("memories", user), "k", {"text": FACT})
    assert [hit.item.memory for hit in memory.recall(QUESTION, Owner(user)).hits] == [FACT]
    assert store.list_namespaces(prefix=("memories", user)) == [("memories", user)]
    for refused in (
        lambda: store.search(("memories",)),
        lambda: store.put(("memories",), "k", {}),
        store.list_namespaces,
    ):
        with pytest.raises(InvalidInput, match="must name the user at place 1"):
            refused()


def test_a_store_may_refuse_to_go_on_without_memory(away: AgentMemory) -> None:
    assert MemosStore(away, user_at=0).get(("ana",), "k") is None
    with AgentMemory(away.memos, fail_open=False) as strict, pytest.raises(BackendUnavailable):  # type: ignore[arg-type]
        MemosStore(strict, user_at=0).get(("ana",), "k")
