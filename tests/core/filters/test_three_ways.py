"""A filter means the same in Python, in SQL on both databases and in both vector indexes, whatever items there are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.backends.qdrant.server import QdrantServerIndex
from memos.core.clock import to_micros
from memos.core.filters import matches, parse
from memos.core.ports import ArmQuery, VectorIndex, VectorSearch
from memos.core.types import Arm, Item, ItemType, Role, Status, Tier
from memos.memcube.ledger import items
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.search.searcher import recall
from tests.core.filters import rows
from tests.support.examples import share
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.qdrant_rest import server_settings

Places = tuple[tuple[Ledger, ...], tuple[VectorIndex, ...]]

THEN, LATER = rows.THEN, rows.THEN + timedelta(microseconds=1)
# Case pairs that only full folding joins, marks that combine, text from right to left, signs that LIKE and GLOB know.
LETTERS = [
    *"aAbİiIıßSſﬁfKKÅåΣσςжЖ漢字عربע%_*?[]\\'\"$.{}, \n\t",
    "\u0301", "\u200d", "\ufe0f", "👩", "🚀", "ss", "fi", "e\u0301", "é", "\u202e", "\uffff", "\U0010ffff",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(LETTERS), max_size=4).map("".join)
NAMES = TEXTS.filter(bool)
INTEGERS = [0, 1, -1, 2, 3, 2**31, 2**53, -(2**53), 2**53 - 1]
FLOATS = [0.0, -0.0, 1.0, 0.5, -2.5, 0.1 + 0.2, 0.3, 1e-7, 5e-324, 1 / 3, 2.0**52 + 0.5, 1e15 + 0.3]
NUMBERS = st.one_of(
    st.sampled_from([*INTEGERS, *FLOATS]),
    st.integers(-3, 3),
    st.floats(-(2.0**53), 2.0**53, allow_nan=False),
)
SCALARS = st.one_of(TEXTS, st.booleans(), NUMBERS)
MOMENTS = st.sampled_from(
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2023, 6, 5, 10, tzinfo=UTC),
        datetime(2023, 6, 5, 10, 0, 0, 1, tzinfo=UTC),
        datetime(2023, 6, 5, 10, 0, 0, 1_000, tzinfo=UTC),
        # Past the year 2255 a float no longer tells one microsecond from the next.
        *(datetime(9999, 12, 31, 23, 59, 59, micros, tzinfo=UTC) for micros in (999_967, 999_968, 999_998, 999_999)),
    ]
)
KEYS = [
    "x",
    "a.b",
    "c-d",
    "user_id",
    "type",
    "0",
    "x.y",
    "x.y.0",
    "x.y.z",
    "a.b.x",
    "x.",
    "x..y",
    ".x",
    "x.0",
    "result.x",
]
# Keys at every level, so that paths meet keys with dots, lists, and what is missing on the way.
_PARTS = ["x", "x", "y", "z", "0", "a", "b", "a.b", "x.y", "c-d", "user_id", "type", "X", '"x', "\u0301", "result"]
INFOS = st.dictionaries(
    st.sampled_from(_PARTS),
    st.recursive(
        st.one_of(SCALARS, st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*_PARTS, ""]), inner, max_size=3)
        ),
        max_leaves=4,
    ),
    max_size=4,
)
RECORD_IDS = st.lists(
    st.sampled_from(["a", "b", "A", "/", "/", "%", "_", "é", "\uffff", "\U0010ffff", "."]), max_size=5
)
CONFIDENCES = st.sampled_from([0.0, 0.1 + 0.2, 0.3, 0.5, 1.0])
STATES = st.fixed_dictionaries(
    {
        "memory": TEXTS,
        "type": st.sampled_from(ItemType),
        "tier": st.sampled_from(Tier),
        "status": st.sampled_from(Status),
        "speaker": NAMES,
        "role": st.sampled_from(Role),
        "key": st.none() | NAMES,
        "tags": st.lists(NAMES, max_size=3).map(tuple),
        "entities": st.lists(NAMES, max_size=3).map(tuple),
        "keywords": st.lists(NAMES, max_size=3).map(tuple),
        "info": INFOS,
        "confidence": CONFIDENCES,
        "valid_from": st.none() | MOMENTS,
        "valid_to": st.none() | MOMENTS,
    }
)


@st.composite
def stories(draw: st.DrawFn) -> list[Item]:
    """One item: one version, or an older and a newer one."""
    fixed = {"conversation": draw(st.none() | NAMES), "created_at": draw(MOMENTS), "said_at": draw(st.none() | MOMENTS)}
    fixed |= {"record_id": "".join(draw(RECORD_IDS)) or None, "expires_at": draw(st.none() | MOMENTS)}
    first = rows.item(**draw(STATES), **fixed, updated_at=THEN)
    if draw(st.booleans()):
        return [first]
    second = {**draw(STATES), **fixed, "id": first.id, "version": 2, "updated_at": LATER}
    return [rows.item(**{**_fields(first), "recorded_to": LATER}), rows.item(**second)]


def _record_or_item(story: list[Item]) -> str:
    return story[0].record_id or story[0].id


def _fields(state: Item) -> dict[str, Any]:
    return {name: getattr(state, name) for name in Item.__slots__}


def _asked(names: list[str], values: st.SearchStrategy[Any], one: list[str], several: list[str]) -> Any:
    """Conditions on fields of one kind: operators that take one value, that take a list, and `exists`."""
    name = st.sampled_from(names)
    return st.one_of(
        st.tuples(name, st.sampled_from(one), values),
        st.tuples(name, st.sampled_from(several), st.lists(values, min_size=1, max_size=3)),
        st.tuples(name, st.just("exists"), st.booleans()),
    )


EQUAL, ORDER, MEMBER = ["eq", "ne"], ["gt", "gte", "lt", "lte"], ["in", "nin"]
CHOICES: dict[str, type[StrEnum]] = {"type": ItemType, "tier": Tier, "status": Status, "role": Role}
TEXT_NAMES = ["memory", "key", "conversation", "speaker", "id", "cube", "record_id"]
TEXT_NAMES += ["session_id", "conversation_id", "cube_id"]
LIKE_NAMES = [*TEXT_NAMES, *CHOICES, "tags", "entities", "keywords"]
INFO_NAMES = [f"info.{key}" for key in KEYS] + [key for key in KEYS if key != "type"]
DATES = st.one_of(
    MOMENTS.map(datetime.isoformat),
    MOMENTS.filter(lambda moment: 1970 <= moment.year < 9999).map(lambda moment: to_micros(moment) / 1000),
    st.sampled_from(["2023-06-05", "2023-06-05T12:00:00+02:00", THEN.isoformat(), LATER.isoformat()]),
)
CONDITIONS = st.one_of(
    _asked(TEXT_NAMES, st.one_of(TEXTS, st.sampled_from(["user", "a"])), EQUAL, MEMBER),
    *(_asked([name], st.sampled_from([str(each) for each in kind]), EQUAL, MEMBER) for name, kind in CHOICES.items()),
    st.tuples(st.sampled_from([*LIKE_NAMES, *INFO_NAMES]), st.sampled_from(["like", "startswith"]), NAMES),
    st.tuples(st.just("record_id"), st.just("startswith"), RECORD_IDS.map("".join).filter(bool)),
    _asked(["tags", "entities", "keywords"], NAMES, [*EQUAL, "contains"], MEMBER),
    _asked(["confidence", "version"], st.one_of(CONFIDENCES, NUMBERS, st.just(1.5)), EQUAL + ORDER, MEMBER),
    _asked(
        ["created_at", "create_time", "updated_at", "update_time", "said_at", "valid_from", "valid_to", "expires_at"],
        DATES, EQUAL + ORDER, MEMBER,
    ),
    _asked(INFO_NAMES, SCALARS, [*EQUAL, "contains"], MEMBER),
    st.tuples(st.sampled_from(INFO_NAMES), st.sampled_from(ORDER), NUMBERS),
).map(lambda asked: {asked[0]: {asked[1]: asked[2]}})  # fmt: skip
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("filters")
    ledgers = (Ledger.open(sqlite_url(folder / "ledger.db")), Ledger.open(postgres_server.url()))
    for ledger in ledgers:
        rows.make_cube(ledger)
    with server_settings() as server:
        embedded = QdrantEdgeIndex.open(folder / "index", rows.DIMENSION)
        served = QdrantServerIndex.open(server, "filters", rows.DIMENSION)
        yield ledgers, (embedded, served)
        embedded.close()
        served.close()
    for ledger in ledgers:
        ledger.close()


def answers(places: Places, raw: Any, standing: list[Item], at: datetime | None) -> list[set[str]]:
    """Return the ids that pass by Python, by SQL in its three forms on each database, and by each index."""
    ledgers, indexes = places
    node = parse(raw)
    python = [state for state in standing if matches(node, items.record_of(state))]
    by_sql: list[set[str]] = []
    for ledger in ledgers:
        with ledger.read() as connection:
            by_sql.append(set(items.matching_ids(connection, ["a"], node, at=at)))
            by_sql.append(items.passing(connection, ["a"], node, [state.id for state in standing], at=at))
            if at is None:
                listed = items.matching(connection, ["a"], node, limit=1_000)
                assert listed == sorted(python, key=lambda state: (state.created_at, state.id))
    arm = ArmQuery(Arm.TURN, rows.ones(1)[0])
    search = VectorSearch(("a",), (arm,), 1_000, node, None if at is None else to_micros(at))
    recalled = [recall(ledgers[0], index, search)[0] for index in indexes]
    return [{state.id for state in python}, *by_sql, *({p.item for p in points} for points in recalled)]


def check(places: Places, told: list[list[Item]], raws: list[Any]) -> None:
    ledgers, indexes = places
    states = [state for story in told for state in story]
    for ledger in ledgers:
        rows.write(ledger, told)
    for index in indexes:
        rows.index_all(index, states, rows.ones(len(states)))
    try:
        for raw in raws:
            for at, standing in ((None, [s[-1] for s in told]), (THEN, [s[0] for s in told])):
                python, *others = answers(places, raw, standing, at)
                assert others == [python] * len(others), (raw, at)
    finally:
        for ledger in ledgers:
            for index in indexes:
                rows.clear(ledger, index, states)


@settings(max_examples=share(20), deadline=None)
@given(
    told=st.lists(stories(), min_size=1, max_size=6, unique_by=_record_or_item),
    raws=st.lists(FILTERS, min_size=1, max_size=10),
)
def test_a_filter_means_the_same_in_python_in_sql_and_in_the_indexes(
    places: Places, told: list[list[Item]], raws: list[Any]
) -> None:
    check(places, told, raws)


VALUES = [
    "", "a", "A", "1", "true", 0, 1, 1.0, -1, 2.5, True, False,
    [], [0], [1.0], [True], ["a", 1, False], ["1"], [2.5, -1], ["A", ""],
    None, [None], [None, 1], {}, {"a": None}, {"a": "a"}, {"y": 1}, {"y": ["a", True]}, {"y": {"a": 1}}, [{"y": "a"}],
    {"y": None}, {"y": []}, {"y": {}}, [["a"]], [[]], [{}],
]  # fmt: skip
OPERANDS = ["", "a", "1", "true", 0, 1, 1.0, 2.5, True, False]


def test_every_operator_on_every_type_of_info(places: Places) -> None:
    told = [[rows.item(info={"x": value})] for value in VALUES] + [[rows.item()]]
    raws: list[Any] = [{"x": {op: value}} for op in ("eq", "ne", "contains") for value in OPERANDS]
    raws += [{"x": {op: value}} for op in ORDER for value in (0, 1, 1.0, 2.5, -3)]
    raws += [{"x": {op: values}} for op in MEMBER for values in (["a", 1], [True, "1"], [False, 2.5], ["", 0])]
    raws += [{"x": {op: part}} for op in ("like", "startswith") for part in ("a", "1", "RUE")]
    raws += [{name: {"exists": there}} for name in ("x", "x.y", "x.y.a") for there in (True, False)]
    raws += [{name: value} for name in ("x.y", "x.y.a") for value in ("a", 1, True)]
    check(places, told, [*raws, *({"not": raw} for raw in raws)])


def test_every_operator_on_what_may_be_missing(places: Places) -> None:
    day = datetime(2023, 6, 5, tzinfo=UTC)
    dates = ("valid_from", "valid_to", "said_at")
    told = [[rows.item(**{**dict.fromkeys(dates, day + timedelta(microseconds=n)), "key": f"k{n}"})] for n in range(3)]
    told += [[rows.item()], [rows.item(key="", conversation="k1", tags=("k1",), entities=("K1", "k2"), keywords=("",))]]
    told += [
        [rows.item(record_id=text)] for text in ("k", "k1", "k/", "k/1", "k/1/2", "K1", "k\U0010ffff", "k\ud7ff", "l")
    ]
    moment = (day + timedelta(microseconds=1)).isoformat()
    raws: list[Any] = [{name: {op: moment}} for name in dates for op in EQUAL + ORDER]
    raws += [{name: {op: [moment, 0]}} for name in dates for op in MEMBER]
    begin = ("k", "k1", "k/", "k/1/", "/", "K", "k%", "_", "k\U0010ffff", "\U0010ffff", "k\ud7ff")
    raws += [{"record_id": {"startswith": text}} for text in begin]
    for name in ("key", "conversation", "tags", "entities", "keywords", "speaker"):
        raws += [{name: {op: text}} for op in EQUAL for text in ("k1", "", "K1")]
        raws += [{name: {"like": "K"}}, {name: {"startswith": "k"}}]
        raws += [{name: {op: ["k2", ""]}} for op in MEMBER]
    raws += [{name: {"exists": there}} for name in (*dates, "key", "tags", "keywords", "id") for there in (True, False)]
    check(places, told, [*raws, *({"not": raw} for raw in raws)])


def test_whole_numbers_are_compared_exactly_where_floats_are_not(places: Places) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    moments = [last - timedelta(microseconds=back) for back in (0, 1, 31, 32, 33, 63, 64, 65)]
    told = [[rows.item(valid_to=moment)] for moment in moments]
    raws: list[Any] = [{"valid_to": {op: m.isoformat()}} for op in EQUAL + ORDER for m in moments]
    raws += [{"version": {op: bound}} for op in EQUAL + ORDER for bound in (0.5, 1, 1.0, 1.5)]
    raws += [{"version": {op: [0.5, 1.5]}} for op in MEMBER]
    check(places, told, raws)
