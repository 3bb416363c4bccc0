"""JSON found in what models write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.llm.client import json_values

VALUE = {"city": "Lyon", "tags": ["a", {"b": 1}]}
TEXT = json.dumps(VALUE)


@pytest.mark.parametrize(
    "written",
    [
        TEXT,
        f"  \n{TEXT}\n",
        f"\ufeff{TEXT}",
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}```",
        f"Here is the JSON you asked for:\n\n```json\n{TEXT}\n```\nLet me know!",
        f"Sure! {TEXT} Anything else?",
        f"{TEXT}\n{TEXT[:10]}",
        f"{{{{ {TEXT}",
        f"<answer>{TEXT}</answer>",
        json.dumps(VALUE, indent=4),
    ],
)
def test_the_object_is_found(written: str) -> None:
    assert json.loads(next(json_values(written))) == VALUE


def test_prose_in_braces_comes_before_nothing() -> None:
    assert [json.loads(each) for each in json_values(f"Use {{braces}} [1] like {TEXT}")] == [[1], VALUE]


@pytest.mark.parametrize(
    "nothing",
    [
        "",
        "Lyon",
        "{",
        "}{",
        '{"a": 1',
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": 1e999}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "{" * 1_000_000,
        '{"n": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: f"{text[:12]}-{len(text)}",
)
def test_what_is_no_json_is_not_found(nothing: str) -> None:
    assert list(json_values(nothing)) == []


def test_text_no_store_can_keep_is_mended() -> None:
    [found] = json_values('{"a\\u0000b": ["\\ud800x", "\\ud83d\\ude00"]}')
    assert json.loads(found) == {"a\ufffdb": ["\ufffdx", "😀"]}


STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_characters="{["), max_size=30),
    st.dictionaries(STORABLE, st.recursive(st.none() | st.booleans() | st.integers() | STORABLE, st.lists)),
    st.text(max_size=30),
)
def test_any_object_between_any_words_is_found(before: str, value: dict[str, object], after: str) -> None:
    assert json.loads(next(json_values(before + json.dumps(value) + after))) == value
