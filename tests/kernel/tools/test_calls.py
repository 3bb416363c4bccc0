"""Which answer belongs to which call, how a call is written, and that nothing odd breaks it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.tool_calls import Turn, call_succeeded, error_type, normalised, pairs, shown_call, span_of, written
from memos.core.types import Role, ToolCall


def turns(*entries: str | list[str], talk: str = "t") -> list[Turn]:
    """A list is the ids of a message's calls, a text what a tool's message answers, 'user' a user's message."""
    found = []
    for place, entry in enumerate(entries):
        if isinstance(entry, list):
            calls = tuple(ToolCall(id_, f"tool{number}", "{}") for number, id_ in enumerate(entry))
            found.append(Turn(f"{talk}{place}", talk, place, 0, Role.ASSISTANT, calls, None))
        else:
            found.append(Turn(f"{talk}{place}", talk, place, 0, Role.TOOL, (), entry or None))
    return found


def answered(*entries: str | list[str]) -> list[tuple[str, int, list[str]]]:
    found = pairs(turns(*entries))
    return [(pair.turn.item, pair.place, [turn.item for turn in pair.answers]) for pair in found]


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        ((["a"], "a"), [("t0", 0, ["t1"])]),
        ((["a"],), [("t0", 0, [])]),
        ((["a"], "x"), [("t0", 0, [])]),
        ((["a", "b"], "b", "a"), [("t0", 0, ["t2"]), ("t0", 1, ["t1"])]),
        # An id that comes again is the next call's.
        ((["a"], "a", ["a"], "a"), [("t0", 0, ["t1"]), ("t2", 0, ["t3"])]),
        # Two outcomes of one call; one that comes after other calls is nobody's.
        ((["a"], "a", "a"), [("t0", 0, ["t1", "t2"])]),
        ((["a"], "a", ["b"], "a"), [("t0", 0, ["t1"]), ("t2", 0, [])]),
        # A late first answer is the call's still.
        ((["a"], ["b"], "b", "a"), [("t0", 0, ["t3"]), ("t1", 0, ["t2"])]),
        # The same id twice in one message: in order.
        ((["a", "a"], "a", "a"), [("t0", 0, ["t1"]), ("t0", 1, ["t2"])]),
        # Stored before its call.
        (("a", ["a"]), [("t1", 0, ["t0"])]),
        # Without an id only when it is plain whose it is.
        ((["a"], ""), [("t0", 0, ["t1"])]),
        ((["a", "b"], ""), [("t0", 0, []), ("t0", 1, [])]),
        ((["a"], "a", ""), [("t0", 0, ["t1"])]),
    ],
)
def test_an_answer_belongs_to_one_call(entries: tuple[str | list[str], ...], wanted: object) -> None:
    assert answered(*entries) == wanted


def test_conversations_do_not_answer_each_other() -> None:
    found = pairs([*turns(["a"], talk="s"), *turns("a", talk="t")])
    assert [pair.answers for pair in found] == [[]]


@given(
    st.lists(st.one_of(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.sampled_from(["a", "b", "c", ""])))
)
def test_no_answer_has_two_calls(entries: list[str | list[str]]) -> None:
    found = pairs(turns(*entries))
    given_ = [turn.item for pair in found for turn in pair.answers]
    assert len(given_) == len(set(given_))
    assert len(found) == sum(len(entry) for entry in entries if isinstance(entry, list))
    for pair in found:
        assert all(turn.answers in (None, pair.call.id) for turn in pair.answers)


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_the_order_of_keys_says_nothing(arguments: dict[str, object]) -> None:
    backwards = dict(reversed(arguments.items()))
    assert normalised(json.dumps(arguments)) == normalised(json.dumps(backwards, indent=2, ensure_ascii=True))


@given(st.text(max_size=200))
def test_any_text_can_be_arguments(arguments: str) -> None:
    shown_call("f", arguments)
    assert normalised(normalised(arguments)) == normalised(arguments)


@pytest.mark.parametrize("arguments", ['{"a": "\\ud800"}', '{"a": "\\u0000"}', "{", "[1,", "not json", "{'a': 1}"])
def test_what_no_store_could_keep_decoded_stays_as_written(arguments: str) -> None:
    assert normalised(arguments) == arguments.strip()
    shown_call("f", arguments).encode()


def test_deep_and_large_arguments_are_text_like_any_other() -> None:
    deep = "[" * 100_000
    assert normalised(deep) == deep
    assert len(shown_call("f", json.dumps({"q": "x" * 1_000_000}))) < 500


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"from":"Paris","to":"Osaka"}', "f(from=Paris, to=Osaka)"),
        ('{"n": 1, "deep": {"a": [1, true, null]}}', 'f(n=1, deep={"a": [1, true, null]})'),
        ("", "f()"),
        ("{}", "f()"),
        ("[1, 2]", "f([1, 2])"),
        ("ls\n -la", "f(ls -la)"),
    ],
)
def test_a_call_is_shown_as_people_write_it(arguments: str, shown: str) -> None:
    assert shown_call("f", arguments) == shown


@given(st.text(max_size=20), st.lists(st.tuples(st.text(min_size=1, max_size=5), st.text(max_size=10)), min_size=1))
def test_the_span_of_a_call_is_the_call(before: str, made: list[tuple[str, str]]) -> None:
    calls = [ToolCall(str(number), name, arguments) for number, (name, arguments) in enumerate(made)]
    text = "\n".join([*([before] if before else []), *map(written, calls)])
    for place, one in enumerate(calls):
        start, end = span_of(text, calls, place)
        assert text[start:end] == written(one)
    assert span_of("edited", calls, 0) in ((0, 6), (0, 0)) or written(calls[0]) in "edited"


@pytest.mark.parametrize(
    ("outcome", "ok", "sort"),
    [
        ("3 flights found", True, None),
        ('{"ok": false, "error": {"type": "quota"}}', False, "quota"),
        ("ModuleNotFoundError: No module named 'x'", False, "ModuleNotFoundError"),
        ("Traceback (most recent call last):\n  File\nValueError: bad", False, "ValueError"),
        ("404 not here", False, "http 404"),
        ("Timed out after 30 s", False, "timeout"),
        ("permission denied: /etc/shadow", False, "permission"),
        ("failed", False, "error"),
        ('{"error": {"code": "\\ud800\\u0000"}}', False, "error"),
        ("[]", None, None),
        ("2 passed, 1 failed", None, None),
    ],
)
def test_an_outcome_tells_whether_it_worked(outcome: str, ok: bool | None, sort: str | None) -> None:
    assert call_succeeded(outcome) is ok
    if sort is not None:
        assert error_type(outcome) == sort
