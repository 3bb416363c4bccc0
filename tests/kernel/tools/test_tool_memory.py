"""Calls and definitions as stored memories: added, repeated, changed, deleted, erased, found."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.core.types import Item, Trust
from memos.errors import InvalidInput, NotFound
from tests.fakes import WordEmbedder
from tests.kernel.tools.talk import call, definition, idle, of_type, result, trajectories, user

FLIGHTS = {"from": "Paris", "to": "Osaka"}


def done(memos: MemOS, talk: str, outcome: str, arguments: Any = None, **more: Any) -> tuple[str, ...]:
    said = [user("Find me a flight."), call(("c1", "search_flights", arguments or FLIGHTS)), result("c1", outcome)]
    return memos.add(said, conversation=talk, **more).item_ids


def one(memos: MemOS) -> Item:
    found = memos.tools.called("search_flights", FLIGHTS)
    assert found is not None
    return found


# Calls


def test_a_call_with_its_outcome_is_one_item_with_both_messages_as_sources(memos: MemOS) -> None:
    _, asked, answered = done(memos, "t", "3 flights found")
    [item] = trajectories(memos)
    assert item.memory == "search_flights(from=Paris, to=Osaka) → 3 flights found"
    assert item.tier == "long"
    assert item.info["calls"] == item.info["successes"] == 1
    assert (item.info["ok"], item.info["success_rate"], item.info["result"]) == (True, 1.0, "3 flights found")
    whole = memos.get(item.id)
    assert [source.passage for source in whole.sources] == [
        'search_flights({"from": "Paris", "to": "Osaka"})', "3 flights found",
    ]  # fmt: skip
    assert {source.trust for source in whole.sources} == {Trust.TRUSTED, Trust.UNTRUSTED}
    assert memos.get(asked).type == memos.get(answered).type == "message"
    assert memos.maintenance.verify().clean


def test_message_by_message_is_the_same_as_at_once(memos: MemOS) -> None:
    for message in (user("Find."), call(("c1", "search_flights", FLIGHTS)), result("c1", "3 flights found")):
        assert memos.tools.called("search_flights", FLIGHTS) is None
        memos.add(message, conversation="t")
    assert one(memos).memory.endswith("3 flights found")


def test_the_same_call_again_is_the_next_version(memos: MemOS) -> None:
    done(memos, "s", "3 flights found")
    done(memos, "t", "TimeoutError: no answer", {"to": "Osaka", "from": "Paris"})
    [item] = trajectories(memos)
    assert item.version == 2
    assert (item.info["calls"], item.info["successes"], item.info["success_rate"]) == (2, 1, 0.5)
    assert (item.info["ok"], item.info["error_type"]) == (False, "TimeoutError")
    assert "failed: TimeoutError: no answer (called 2 times, 1 worked)" in item.memory
    assert len(memos.get(item.id).sources) == 4
    assert memos.maintenance.verify().clean


def test_results_that_never_come_leave_no_item_and_late_ones_do(memos: MemOS) -> None:
    memos.add([call(("a", "f", {}), ("b", "g", {})), result("b", "done")], conversation="t")
    assert [item.info["tool"] for item in trajectories(memos)] == ["g"]
    memos.add(result("a", "done at last"), conversation="t")
    assert {item.info["tool"] for item in trajectories(memos)} == {"f", "g"}


def test_one_id_in_two_conversations_and_two_cubes_is_several_calls(memos: MemOS) -> None:
    memos.cubes.create("other")
    memos.add([call(("c1", "f", {"n": 1}))], conversation="s")
    memos.add([call(("c1", "f", {"n": 2}))], conversation="t")
    memos.add([result("c1", "two")], conversation="t")
    memos.add([call(("c1", "f", {"n": 2})), result("c1", "other")], conversation="t", cube="other")
    assert [item.info["result"] for item in trajectories(memos)] == ["two"]
    [apart] = trajectories(memos, cube="other")
    assert apart.info["result"] == "other"
    assert apart.key != trajectories(memos)[0].key  # the digest is salted by cube


def test_fifty_parallel_calls_are_fifty_items_whatever_the_order_of_results(memos: MemOS) -> None:
    calls = [(f"c{number}", "square", {"n": number}) for number in range(50)]
    answers = [result(f"c{number}", f"is {number * number}") for number in reversed(range(50))]
    memos.add([user("Squares!"), call(*calls), *answers], conversation="t")
    found = trajectories(memos)
    assert {item.info["arguments"]: item.info["result"] for item in found} == {
        f'{{"n":{number}}}': f"is {number * number}" for number in range(50)
    }
    assert memos.maintenance.verify().clean


def test_several_outcomes_count_once_and_the_last_one_stands(memos: MemOS) -> None:
    memos.add([call(("c1", "f", {})), result("c1", "error: not yet"), result("c1", "ready")], conversation="t")
    [item] = trajectories(memos)
    assert (item.info["calls"], item.info["ok"], item.info["result"]) == (1, True, "ready")


def test_calls_of_one_message_with_one_id_are_told_apart_by_their_order(memos: MemOS) -> None:
    ids = memos.add(
        [call(("a", "f", {"n": 1}), ("a", "f", {"n": 2})), result("a", "one"), result("a", "two")], conversation="t"
    ).item_ids
    assert {item.info["arguments"]: item.info["result"] for item in trajectories(memos)} == {
        '{"n":1}': "one", '{"n":2}': "two",
    }  # fmt: skip
    memos.update(ids[2], "two and a half")
    assert {item.info["result"] for item in trajectories(memos)} == {"one", "two and a half"}
    assert all(item.info["calls"] == 1 for item in trajectories(memos))


def test_a_message_that_is_known_already_is_no_new_call(memos: MemOS) -> None:
    said = [call(("c1", "f", {}), message_id="m1"), result("c1", "ok then", message_id="m2")]
    memos.add(said, conversation="t", idempotency_key="k")
    memos.add(said, conversation="t", idempotency_key="k")
    memos.add(said, conversation="t")
    [item] = trajectories(memos)
    assert (item.version, item.info["calls"]) == (1, 1)


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({"duration_s": 0.25}, 0.25),
        ({"duration_ms": 1500}, 1.5),
        ({"duration_s": 0}, 0.0),
        ({"chat_time": "2025-01-01T10:00:02.5+00:00"}, 2.5),
        ({"chat_time": "2025-01-01T09:00:00+00:00"}, None),  # before the call
        ({"chat_time": "2025-01-03T09:00:00+00:00"}, None),  # days after it
    ],
)
def test_a_duration_is_given_or_is_between_the_times(memos: MemOS, more: Any, seconds: float | None) -> None:
    at = "2025-01-01T10:00:00+00:00"
    memos.add([call(("c1", "f", {}), chat_time=at), result("c1", "ok then", **{"chat_time": at, **more})])
    [item] = trajectories(memos)
    assert item.info.get("duration_s") == seconds


@pytest.mark.parametrize("value", [-1, "1", True, float("nan"), float("inf"), 10**400, []])
def test_a_duration_that_is_none_is_refused(memos: MemOS, value: Any) -> None:
    with pytest.raises(InvalidInput, match="duration_s"):
        memos.add([result("c1", "ok then", duration_s=value)])


def test_a_duration_is_of_a_tools_message_only(memos: MemOS) -> None:
    with pytest.raises(InvalidInput, match="duration_ms"):
        memos.add([user("hello", duration_ms=5)])


def test_what_worked_after_a_failure_is_the_lesson_of_both(memos: MemOS) -> None:
    memos.add(
        [
            user("Run the tests."),
            call(("c1", "run", {"path": "test"})), result("c1", "FileNotFoundError: test"),
            call(("c2", "run", {"path": "tests"})), result("c2", "12 passed"),
        ],
        conversation="t",
    )  # fmt: skip
    lesson = 'run: {"path":"tests"} worked after {"path":"test"} failed.'
    assert [item.info["lesson"] for item in trajectories(memos)] == [lesson, lesson]
    [use] = memos.tools.list()
    assert (use.calls, use.success_rate, use.lesson) == (2, 0.5, lesson)
    assert memos.maintenance.verify().clean


def test_a_users_message_in_between_makes_it_no_lesson(memos: MemOS) -> None:
    memos.add(
        [
            user("Run."), call(("c1", "run", {"path": "test"})), result("c1", "FileNotFoundError: test"),
            user("Something else."), call(("c2", "run", {"path": "tests"})), result("c2", "12 passed"),
        ],
        conversation="t",
    )  # fmt: skip
    assert all("lesson" not in item.info for item in trajectories(memos))


ODD = "名前 👩‍👩‍👧 שלום 𝕏 \u200d"


@pytest.mark.parametrize(
    "arguments",
    [
        {ODD: ODD}, {"deep": {"list": [1, {"x": None}]}}, "not json at all", '{"half": "\\ud800"}',
        '{"nul": "\\u0000"}', "[" * 5_000, "", "null", "3", '{"a": 1, "a": 2}', {"big": "x" * 1_000_000},
    ],
)  # fmt: skip
def test_any_arguments_are_kept_and_found_again(memos: MemOS, arguments: Any) -> None:
    made = call(("c1", ODD, arguments))
    memos.add([made, result("c1", "ok then")], conversation="t")
    memos.add([made, result("c1", "ok then")], conversation="s")
    found = memos.tools.called(ODD, made["tool_calls"][0]["function"]["arguments"])
    assert found is not None
    assert (found.info["calls"], found.info["tool"]) == (2, ODD)
    assert len(found.memory) < 3_000
    assert memos.maintenance.verify().clean


def test_arguments_that_are_none_are_no_arguments(memos: MemOS) -> None:
    for number, function in enumerate(({"name": "now"}, {"name": "now", "arguments": None})):
        asked = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
        memos.add([asked, result("c", "noon")], conversation=f"talk{number}")
    found = memos.tools.called("now")
    assert found is not None
    assert found.info["calls"] == 2


def test_a_huge_result_is_cut_in_the_item_and_whole_in_its_message(memos: MemOS) -> None:
    ids = done(memos, "t", "flight " * 100_000)
    item = one(memos)
    assert len(item.memory) < 1_000 and len(item.info["result"]) <= 1_000
    assert len(memos.get(ids[2]).memory) == 700_000


def test_many_calls_go_on_in_a_new_item_with_all_of_them_counted(memos: MemOS) -> None:
    said = [part for n in range(60) for part in (call((f"c{n}", "now", {})), result(f"c{n}", f"it is {n} o'clock"))]
    memos.add(said, conversation="t")
    memos.add([call(("x", "now", {})), result("x", "error: clock stopped")], conversation="s")
    [current] = [item for item in trajectories(memos) if item.status == "active"]
    assert (current.info["calls"], current.info["successes"], current.info["failures"]) == (61, 60, 1)
    assert len(memos.get(current.id).sources) == 2
    assert memos.tools.list()[0].calls == 61
    assert [item.status for item in trajectories(memos)].count("superseded") == 3
    # What is taken from the first of them is taken from the sum.
    first = next(item for item in of_type(memos, "message") if item.memory == "it is 0 o'clock")
    memos.delete(first.id)
    assert memos.tools.list()[0].calls == 60
    memos.erase(first.id)
    idle(memos)
    assert memos.maintenance.verify().clean


# Taking back


def test_deleting_a_result_recounts(memos: MemOS) -> None:
    done(memos, "s", "3 flights found")
    *_, answered = done(memos, "t", "error: closed")
    memos.delete(answered)
    item = one(memos)
    assert (item.info["calls"], item.info["failures"], item.info["result"]) == (1, 0, "3 flights found")
    assert "closed" not in item.memory
    assert len(item.sources) == 2
    memos.memories.rollback(answered, 1)
    assert (one(memos).info["calls"], one(memos).info["failures"]) == (2, 1)
    assert memos.maintenance.verify().clean


def test_deleting_the_only_call_takes_the_item_and_bringing_it_back_brings_it_back(memos: MemOS) -> None:
    _, asked, _ = done(memos, "s", "3 flights found")
    memos.delete(asked)
    assert memos.tools.called("search_flights", FLIGHTS) is None
    assert trajectories(memos) == []
    memos.memories.rollback(asked, 1)
    assert one(memos).info["calls"] == 1


def test_a_result_that_is_corrected_says_what_it_says_now(memos: MemOS) -> None:
    *_, answered = done(memos, "s", "3 flights found")
    memos.update(answered, "error: the airline is closed")
    assert (one(memos).info["ok"], one(memos).info["failures"]) == (False, 1)


def test_a_call_whose_message_was_changed_counts_no_more(memos: MemOS) -> None:
    _, asked, _ = done(memos, "s", "3 flights found")
    memos.update(asked, "I looked at a map.")
    assert memos.tools.called("search_flights", FLIGHTS) is None


def test_an_item_that_was_deleted_by_hand_begins_anew_with_the_next_call(memos: MemOS) -> None:
    done(memos, "s", "3 flights found")
    memos.delete(one(memos).id)
    idle(memos)
    assert memos.tools.called("search_flights", FLIGHTS) is None
    done(memos, "t", "4 flights found")
    assert one(memos).info["calls"] == 1


def test_erasing_a_message_erases_what_quotes_it_and_the_rest_is_read_again(
    memos: MemOS, tmp_path: Path, embedder: WordEmbedder
) -> None:
    done(memos, "s", "3 flights found")
    *_, answered = done(memos, "t", "xylophone flights only")
    memos.erase(answered)
    idle(memos)
    item = one(memos)
    assert (item.info["calls"], item.info["result"], item.version) == (1, "3 flights found", 1)
    assert memos.maintenance.verify().clean
    memos.close()
    held = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"xylophone" not in held
    assert b"3 flights found" in held


def test_a_lesson_goes_with_the_failure_it_tells_of(memos: MemOS) -> None:
    ids = memos.add(
        [
            user("Run."), call(("c1", "run", {"path": "test"})), result("c1", "FileNotFoundError: test"),
            call(("c2", "run", {"path": "tests"})), result("c2", "12 passed"),
        ],
        conversation="t",
    ).item_ids  # fmt: skip
    memos.delete(ids[2])
    [item] = trajectories(memos)
    assert "lesson" not in item.info and "Lesson" not in item.memory
    assert len(memos.get(item.id).sources) == 2


def test_what_no_index_should_hold_is_in_no_payload(memos: MemOS) -> None:
    done(memos, "s", "3 flights found")
    found = memos.search("flights", filter={"info.result": {"like": "3 flights"}})
    assert [hit.item.type for hit in found] == ["tool_trajectory"]
    assert [hit.item.type for hit in memos.search("flights", filter={"result": "3 flights found"})] == [
        "tool_trajectory"
    ]
    assert [hit.item.type for hit in memos.search("flights", filter={"tool": "search_flights"})] == ["tool_trajectory"]


def test_what_people_write_into_an_items_info_breaks_nothing(memos: MemOS) -> None:
    done(memos, "s", "3 flights found")
    memos.update(one(memos).id, info={"earlier": "yes", "calls": "many", "mine": 1})
    done(memos, "t", "4 flights found")
    assert (one(memos).info["calls"], one(memos).info["mine"]) == (2, 1)


# Definitions


def test_a_definition_is_one_item_and_its_change_the_next_version(memos: MemOS) -> None:
    tools = [definition(**{"from": "string", "date": "string"})]
    memos.add("hello", tools=tools)
    backwards = dict(reversed(tools[0]["function"].items()))
    memos.add("hello again", tools=[{"type": "function", "function": backwards}])
    [item] = of_type(memos, "tool_schema")
    assert item.memory == "search_flights(from: string, date?: string): Finds flights."
    assert (item.version, item.key, item.tier) == (1, "tool_schema:search_flights", "long")
    memos.tools.define([definition(description="Finds cheap flights.")])
    [item] = of_type(memos, "tool_schema")
    assert (item.version, item.memory) == (2, "search_flights(): Finds cheap flights.")
    sources = memos.get(item.id).sources
    assert [source.trust for source in sources] == [Trust.UNTRUSTED] * 2
    assert "Finds cheap flights." in sources[-1].passage
    assert memos.maintenance.verify().clean
    assert memos.search("which tool finds cheap flights?")[0].item.id == item.id


def test_an_erased_definition_leaves_nothing(memos: MemOS, tmp_path: Path) -> None:
    memos.tools.define([definition(description="Finds zeppelins.")])
    memos.tools.define([definition(description="Finds airships.")])
    [item] = of_type(memos, "tool_schema")
    memos.erase(item.id)
    memos.close()
    with sqlite3.connect(tmp_path / "home" / "ledger.db") as ledger:
        assert ledger.execute("select count(*) from messages").fetchone() == (0,)
    held = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"zeppelin" not in held and b"airship" not in held


DEEP: Any = {}
for _ in range(2_000):
    DEEP = {"properties": {"x": DEEP}}


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ("search", "tools"), ({"type": "function"}, "tools"), ([3], r"tools\[0\]"),
        ([{"type": "function"}], r"tools\[0\]"),
        ([{"type": "web", "function": {"name": "x"}}], "type"), ([{"function": {"name": ""}}], "name"),
        ([{"function": {"name": 3}}], "name"), ([{"function": {"name": "a\0b"}}], "name"),
        ([{"function": {"name": "x" * 300}}], "name"), ([{"function": {"name": "x", "description": 3}}], "description"),
        ([{"function": {"name": "x", "parameters": []}}], "parameters"),
        ([{"function": {"name": "x", "parameters": {"properties": 3}}}], "parameters"),
        ([{"function": {"name": "x", "parameters": {"a": float("nan")}}}], r"tools\[0\]"),
        ([{"function": {"name": "x", "parameters": {"a": object()}}}], r"tools\[0\]"),
        ([{"function": {"name": "x", "description": "\ud800"}}], r"tools\[0\]"),
        ([{"function": {"name": "x", "description": "a\0b"}}], "description"),
        ([{"function": {"name": "x", "description": "y" * 70_000}}], r"tools\[0\]"),
        ([{"function": {"name": "x", "parameters": DEEP}}], r"tools\[0\]"),
        ([definition()] * 600, "tools"),
    ],
)  # fmt: skip
def test_a_bad_definition_is_refused_and_nothing_is_stored(memos: MemOS, tools: Any, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        memos.add("hello", tools=tools)
    assert memos.memories.list() == []


def test_a_definition_is_part_of_a_repeated_request(memos: MemOS) -> None:
    first = memos.add("hello", tools=[definition()], idempotency_key="k")
    assert memos.add("hello", tools=[definition()], idempotency_key="k").item_ids == first.item_ids
    assert len(of_type(memos, "tool_schema")) == 1


# The list


def test_the_list_joins_definitions_and_calls(memos: MemOS) -> None:
    done(memos, "s", "3 flights found", tools=[definition(), definition("book", "Books.")])
    done(memos, "t", "error: closed", {"from": "Rome"})
    memos.add([call(("c", "search", {})), result("c", "ok then")], conversation="u")
    uses = {use.tool: use for use in memos.tools.list()}
    assert list(uses) == ["book", "search", "search_flights"]
    assert (uses["book"].calls, uses["book"].success_rate, uses["book"].description) == (0, None, "Books.")
    assert (uses["search_flights"].calls, uses["search_flights"].successes, uses["search_flights"].failures) == (
        2,
        1,
        1,
    )
    assert uses["search"].schema is None
    assert [item.info["tool"] for item in memos.tools.calls("search")] == ["search"]


@pytest.mark.parametrize("arguments", [3, {1, 2}, {"a": object()}, {"a": "\ud800"}])
def test_asking_for_a_call_with_no_arguments_is_refused(memos: MemOS, arguments: Any) -> None:
    with pytest.raises(InvalidInput, match="arguments"):
        memos.tools.called("f", arguments)


def test_an_unknown_cube_is_named(memos: MemOS) -> None:
    for ask in (memos.tools.list, lambda **where: memos.tools.called("f", **where)):
        with pytest.raises(NotFound, match="nowhere"):
            ask(cube="nowhere")


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_secrets_in_arguments_and_results_are_masked_and_the_call_is_found_by_them(memos: MemOS) -> None:
    memos.add([call(("c1", "clone", {"token": SECRET})), result("c1", f"cloned with {SECRET}")], conversation="t")
    [item] = trajectories(memos)
    assert SECRET not in f"{item.memory} {dict(item.info)}"
    assert all(SECRET not in source.passage for source in memos.get(item.id).sources)
    assert memos.tools.called("clone", {"token": SECRET}) is not None


def test_secrets_in_definitions_are_masked(memos: MemOS) -> None:
    memos.add("hello", tools=[definition("one", f"Uses {SECRET}")])
    memos.tools.define([definition("two", f"Uses {SECRET}")])
    schemas = of_type(memos, "tool_schema")
    assert len(schemas) == 2
    for schema in schemas:
        assert SECRET not in f"{schema.memory} {dict(schema.info)} {memos.get(schema.id).sources[0].passage}"


@pytest.mark.parametrize("nothing", ["", " \n", None])
def test_a_tool_that_answers_nothing_has_answered(memos: MemOS, nothing: str | None) -> None:
    said = [user("Make a folder."), call(("c1", "run", {"cmd": "mkdir a"})), {**result("c1", "x"), "content": nothing}]
    answer = memos.add(said, conversation="t").item_ids[2]
    assert memos.get(answer).memory == "[no output]"
    with pytest.raises(InvalidInput, match="is required" if nothing is None else "is empty"):
        memos.add({"role": "user", "content": nothing})
