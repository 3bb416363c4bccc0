"""The language itself: which names mean which field, what each operator means, and every refusal by its words."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memos.core.clock import to_micros
from memos.core.filters import FIELDS, Op, fields_of, matches, parse
from memos.core.types import ItemType
from memos.errors import InvalidInput
from memos.memcube.ledger import items
from tests.core.filters import rows

BORN = datetime(2023, 6, 5, 10, 0, 0, 123_456, tzinfo=UTC)
ITEM = rows.item(
    id="0197", memory="Die STRASSE nach Łódź", type=ItemType.PREFERENCE, key="ann|residence", speaker="Ann",
    tags=("home", "a%b"), entities=("Łódź",), keywords=("nach",), conversation="monday", confidence=0.5,
    said_at=BORN, created_at=BORN, updated_at=BORN,
    valid_from=BORN, info={"user_id": "u1", "agent_id": "g1", "app_id": "p1", "source": "mail", "weight": 1,
    "done": True, "colours": ["red", 7, False], "a.b": 2.5, "type": "inner", "nothing": None, "hollow": {"x": None},
    "a": {"b": 3, "c": {"d": "deep", "e": [1, {"f": 2}, None]}, "x.y": "dotted", "": "empty"}},
    record_id="users/ann/a_b", expires_at=BORN,
)  # fmt: skip
RECORD = items.record_of(ITEM)


def passes(raw: Any) -> bool:
    return matches(parse(raw), RECORD)


# Each field that the language names, with a value of the item above.
NAMED: list[tuple[str, Any]] = [
    ("id", "0197"), ("memory", "Die STRASSE nach Łódź"), ("type", "preference"), ("tier", "short"),
    ("status", "active"), ("tags", "home"), ("key", "ann|residence"), ("confidence", 0.5), ("cube", "a"),
    ("cube_id", "a"), ("role", "user"), ("speaker", "Ann"), ("entities", "Łódź"),
    ("keywords", "nach"), ("said_at", "2023-06-05T10:00:00.123456Z"), ("version", 1),
    ("user_id", "u1"), ("info.user_id", "u1"), ("agent_id", "g1"), ("info.agent_id", "g1"), ("app_id", "p1"),
    ("info.app_id", "p1"), ("source", "mail"), ("info.source", "mail"), ("conversation", "monday"),
    ("conversation_id", "monday"), ("session_id", "monday"), ("created_at", "2023-06-05T10:00:00.123456Z"),
    ("create_time", "2023-06-05T12:00:00.123456+02:00"), ("updated_at", "2023-06-05T10:00:00.123456"),
    ("update_time", 1685959200123.456), ("valid_from", "2023-06-05T10:00:00.123456Z"), ("weight", 1),
    ("info.weight", 1.0), ("done", True), ("a.b", 2.5), ("info.a.b", 2.5), ("info.type", "inner"),
    ("a.c.d", "deep"), ("info.a.c.e", 1), ("record_id", "users/ann/a_b"), ("expires_at", "2023-06-05T10:00:00.123456"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NAMED, ids=[name for name, _ in NAMED])
def test_every_field_is_reached_by_each_of_its_names(name: str, value: Any) -> None:
    assert passes({name: value})
    assert passes({name: {"in": [value]}})
    assert passes({name: {"exists": True}})
    assert not passes({name: {"ne": value}})
    assert not passes({"not": {name: value}})


def test_every_field_of_the_language_is_in_the_list_above() -> None:
    assert {name for raw, _ in NAMED for name in fields_of(parse({raw: {"exists": True}}))} >= FIELDS - {"valid_to"}


@pytest.mark.parametrize(("raw", "expected"), [
    ({"colours": "red"}, True),
    ({"colours": {"contains": 7}}, True),
    ({"colours": {"contains": 7.0}}, True),
    ({"colours": {"gt": 6}}, True),
    ({"colours": {"like": "RE"}}, True),
    ({"colours": {"ne": "red"}}, False),
    ({"colours": {"nin": ["green", "red"]}}, False),
    ({"colours": False}, True),
    ({"colours": 0}, False),
    ({"done": 1}, False),
    ({"weight": True}, False),
    ({"weight": "1"}, False),
    ({"weight": {"like": "1"}}, False),
    ({"missing": "x"}, False),
    ({"missing": {"ne": "x"}}, True),
    ({"missing": {"nin": ["x"]}}, True),
    ({"missing": {"lt": 5}}, False),
    ({"not": {"missing": {"lt": 5}}}, True),
    ({"missing": {"exists": False}}, True),
    ({"valid_to": {"lte": 0}}, False),
    ({"not": {"valid_to": {"lte": 0}}}, True),
    ({"valid_to": {"exists": False}}, True),
    ({"memory": {"like": "straße NACH łódź"}}, True),
    ({"memory": {"like": "lodz"}}, False),
    ({"tags": {"like": "A%"}}, True),
    ({"tags": {"like": "e%"}}, False),
    ({"memory": {"startswith": "Die STR"}}, True),
    ({"memory": {"startswith": "die"}}, False),
    ({"memory": {"startswith": "STRASSE"}}, False),
    ({"record_id": {"startswith": "users/ann/a_"}}, True),
    ({"record_id": {"startswith": "users/%"}}, False),
    ({"record_id": {"startswith": "users/annn"}}, False),
    ({"tags": {"startswith": "a%"}}, True),
    ({"tags": {"startswith": "%"}}, False),
    ({"colours": {"startswith": "re"}}, True),
    ({"weight": {"startswith": "1"}}, False),
    ({"missing": {"startswith": "x"}}, False),
    ({"a": "deep"}, False),
    ({"a": {"exists": True}}, True),
    ({"a": {"ne": "deep"}}, True),
    ({"a.b": 3}, False),
    ({"a.c": {"exists": True}}, True),
    ({"a.c.d": {"startswith": "de"}}, True),
    ({"a.c.e.f": 2}, False),
    ({"a.c.e": {"contains": 1}}, True),
    ({"a.c.e": {"exists": True}}, True),
    ({"a.c.e.0": 1}, False),
    ({"a.x.y": "dotted"}, False),
    ({"nothing": {"exists": True}}, False),
    ({"hollow": {"exists": True}}, False),
    ({"hollow.x": {"exists": True}}, False),
    ({"weight": {"gte": 1, "lt": 2}, "done": True}, True),
    ({"weight": {"gte": 1, "lt": 1}}, False),
], ids=str)  # fmt: skip
def test_what_operators_mean_for_lists_types_and_what_is_missing(raw: Any, expected: bool) -> None:
    assert passes(raw) is expected


def nested(levels: int) -> Any:
    node: Any = {"tags": "x"}
    for _ in range(levels):
        node = {"not": node}
    return node


OPERATORS = ", ".join(Op)
REFUSED: list[tuple[Any, str]] = [
    ([], "filter: must be an object such as {'type': 'message'}, not list"),
    ({"and": {}}, "filter: 'and' takes a non-empty list of filters"),
    ({"or": []}, "filter: 'or' takes a non-empty list of filters"),
    ({"not": {}}, "filter: contains an empty object; remove it or name a field"),
    ({"not": None}, "filter: must be an object such as {'type': 'message'}, not NoneType"),
    (nested(21), "filter: is nested deeper than 20 levels; flatten it"),
    ({"or": [{"x": n} for n in range(501)]}, "filter: has more than 500 conditions; use 'in' with a list"),
    ({"x": {"in": list(range(10_001))}}, "filter: has more than 10,000 values; split it into several calls"),
    ({"and": [{"x": {"in": [1] * 6_000}}, {"y": {"nin": [1] * 6_000}}]}, "filter: has more than 10,000 values"),
    ({"tags": {}}, f"filter.tags: has no operator; use one of {OPERATORS}"),
    ({"tags": {"regex": "x"}}, f"filter.tags: unknown operator 'regex'; use one of {OPERATORS}"),
    ({"x": {"eq": 1, "EQ": 1}}, f"filter.x: unknown operator 'EQ'; use one of {OPERATORS}"),
    *(
        ({name: 1}, "may have only letters, digits, '_', '.' and '-'")
        for name in ("", "a b", "a'b", 'a"b', "a\\b", "a/b", "a;b", "$.a", "a[0]", "été", "a\n", "x" * 129, 5, None)
    ),
    ({"info.": 1}, "filter: field name 'info.' has no key; write info.colour, or colour"),
    ({"x": {"exists": 1}}, "filter.x: 'exists' takes true or false"),
    ({"x": {"in": "ab"}}, "filter.x: 'in' takes a non-empty list"),
    ({"x": {"nin": []}}, "filter.x: 'nin' takes a non-empty list"),
    ({"x": {"in": [[1]]}}, "filter.x: takes a string, number or boolean, not list"),
    ({"x": None}, "filter.x: takes a string, number or boolean, not NoneType"),
    ({"x": {"like": ""}}, "filter.x: 'like' takes a non-empty string"),
    ({"x": {"like": 5}}, "filter.x: 'like' takes a non-empty string"),
    ({"x": {"startswith": ""}}, "filter.x: 'startswith' takes a non-empty string"),
    ({"record_id": {"startswith": ["a"]}}, "filter.record_id: 'startswith' takes a non-empty string"),
    ({"version": {"startswith": "1"}}, "filter.version: 'startswith' works on text fields only"),
    ({"record_id": {"contains": "x"}}, "filter.record_id: 'contains' works on lists (tags, entities, info lists)"),
    *(
        ({name: {"like": "1"}}, f"filter.{name}: 'like' works on text fields only")
        for name in ("confidence", "version", "created_at", "update_time", "valid_to")
    ),
    *(
        ({name: {"contains": "x"}}, f"filter.{name}: 'contains' works on lists (tags, entities, info lists)")
        for name in ("memory", "type", "session_id", "confidence", "created_at")
    ),
    *(
        ({name: {op: "x"}}, f"filter.{name}: '{op}' works on numbers and dates only")
        for name, op in (("id", "gt"), ("memory", "gte"), ("tags", "lt"), ("entities", "lte"), ("cube_id", "gt"))
    ),
    *(({name: 1}, f"filter.{name}: takes a string, not int") for name in ("id", "memory", "tags", "key", "entities")),
    ({"tags": {"in": ["x", True]}}, "filter.tags: takes a string, not bool"),
    ({"confidence": True}, "filter.confidence: takes a number up to 2^53, not True"),
    ({"version": {"in": [1, "2"]}}, "filter.version: takes a number up to 2^53, not '2'"),
    ({"x": 2**53 + 1}, "filter.x: takes a number up to 2^53, not 9007199254740993"),
    ({"x": {"gt": "5"}}, "filter.x.gt: takes a number up to 2^53, not '5'"),
    ({"x": {"lte": True}}, "filter.x.lte: takes a number up to 2^53, not True"),
    ({"x": "a\0b"}, "filter.x: contains a NUL character or a lone surrogate, which no stored text has; remove it"),
    ({"x": {"like": "\ud800"}}, "filter.x: contains a NUL character or a lone surrogate"),
    ({"created_at": "soon"}, "filter.created_at: 'soon' is not an ISO 8601 date such as 2023-06-05T10:00:00Z"),
    ({"create_time": {"in": [True]}}, "filter.create_time: takes an ISO 8601 date or epoch milliseconds, not True"),
    ({"valid_to": {"lt": -1}}, "filter.valid_to: -1 is not a moment in epoch milliseconds"),
    *(
        ({name: "x"}, f"filter.{name}: unknown field; did you mean `{meant}`? Own fields are written `info.{name}`")
        for name, meant in (
            ("speakr", "speaker"), ("teir", "tier"), ("stauts", "status"), ("tag", "tags"), ("Role", "role"),
            ("created", "created_at"), ("sesion_id", "session_id"), ("recordid", "record_id"),
        )
    ),
    ({"tier": "lng"}, "filter.tier: unknown tier 'lng'; expected one of short, mid, long"),
    ({"tier": {"ne": "Long"}}, "filter.tier: unknown tier 'Long'; expected one of short, mid, long"),
    ({"status": {"in": ["active", "gone"]}}, "filter.status: unknown status 'gone'; expected one of pending, active"),
    ({"type": {"nin": ["massage"]}}, "filter.type: unknown type 'massage'; expected one of message, working"),
    ({"role": "human"}, "filter.role: unknown role 'human'; expected one of system, user, assistant, tool"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_wrong_is_refused_naming_it(raw: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(raw)
    assert words in str(caught.value)
    with pytest.raises(InvalidInput):
        parse({"or": [{"tags": "fine"}, {"not": {"and": [raw]}}]})


def test_names_unlike_any_field_and_parts_of_choices_are_taken() -> None:
    for name in ("user_id", "agent_id", "app_id", "source", "topic", "tool", "colour", "memory_type"):
        assert fields_of(parse({name: "x"})) == {f"info.{name}"}
    assert fields_of(parse({"info.speakr": "x", "info.tier": "lng"})) == {"info.speakr", "info.tier"}
    assert passes({"type": {"like": "pref"}})


def test_milliseconds_and_iso_dates_are_the_same_moment() -> None:
    for text, millis in (("2023-06-05T10:00:00Z", 1685959200000), ("2023-06-05T10:00:00.001", 1685959200001)):
        assert parse({"created_at": text}) == parse({"created_at": millis}) == parse({"created_at": float(millis)})
    micros = to_micros(BORN)
    assert parse({"created_at": micros / 1000}) == parse({"created_at": BORN.isoformat()})


def test_no_filter_is_none_or_an_empty_object() -> None:
    assert parse(None) is parse({}) is None
    assert matches(None, RECORD)


PAGE = (Path(__file__).parents[3] / "docs/reference/filters.md").read_text(encoding="utf-8")


def test_the_page_about_filters_names_every_field_and_operator_and_no_other() -> None:
    fields, operators = PAGE.split("## Fields")[1].split("## Operators")
    lines = [line for line in fields.splitlines() if line.startswith("| `")]
    names = {name for line in lines for name in _quoted(line.split("|")[1:3])}
    aliases = {name for name, _ in NAMED if fields_of(parse({name: {"exists": True}})) <= FIELDS}
    assert names - {"info.x", "x"} == FIELDS | aliases
    lines = [line for line in operators.splitlines() if line.startswith("| `")]
    assert {name for line in lines for name in _quoted(line.split("|")[1:2])} == set(Op)


def _quoted(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("block", re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_the_filters_of_the_page_are_filters(block: str) -> None:
    assert parse(json.loads(block)) is not None
