"""Bad input: every refusal is one sentence of the right type, stores nothing, and the store goes on working.

One store serves the whole module, so each refusal also has to leave it in order for the next test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

import memos as package
from memos import MemOS, Settings
from memos.core.types import AddReceipt, Status
from memos.errors import Conflict, InvalidInput, MemosError, NotFound
from tests.fakes import WordEmbedder

LONE = "broken \ud800 text"
NUL = "cut \0 here"
_number = count(1)


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    settings = Settings.model_validate({"index": {"wait_s": 30}, "limits": {"min_free_bytes": 1_000_000}})
    home = tmp_path_factory.mktemp("bad-input") / "home"
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as opened:
        yield opened
        assert opened.maintenance.verify().clean


@pytest.fixture
def item(memos: MemOS) -> str:
    """An item of its own for tests that try to change one."""
    return memos.add(f"an item to change, number {next(_number)}").item_ids[0]


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


def brief(value: object) -> str:
    """Name a parameter in a test's id: short, printable, whatever it is."""
    try:
        return ascii(value)[:40]
    except (ValueError, RecursionError):
        return type(value).__name__


@contextmanager
def refused(memos: MemOS, error: type[MemosError], *words: str) -> Iterator[None]:
    """Expect exactly this error, saying these words; then that nothing was stored and the store still works."""
    before = sum(cube.items for cube in memos.cubes.list())
    with pytest.raises(error) as caught:
        yield
    told = str(caught.value)
    assert type(caught.value) is error
    assert told.encode()
    assert "\n" not in told
    assert len(told) < 400
    for word in words:
        assert word in told
    assert sum(cube.items for cube in memos.cubes.list()) == before
    word = f"usable{next(_number)}"
    receipt = memos.add(f"still {word}")
    assert receipt.indexed
    assert receipt.item_ids[0] in [hit.item.id for hit in memos.search(word)]


def message(**fields: object) -> dict[str, Any]:
    return {"role": "user", "content": "hello", **fields}


def test_an_installation_is_opened_with_open() -> None:
    opened: Any = MemOS
    for given in ((), ("./data",)):
        with pytest.raises(TypeError, match=r"MemOS\.open"):
            opened(*given)
    assert {"MemOS", "Settings"} <= set(dir(package))


def test_help_of_search_names_its_arguments(memos: MemOS) -> None:
    assert "top_k: The number of hits." in str(memos.search.__doc__)


@pytest.mark.parametrize(
    "text",
    ["", "   ", "\n\t\u3000", "\u200b \ufeff", message(content="")],
    ids=brief,
)
def test_a_message_without_words_is_refused(memos: MemOS, text: Any) -> None:
    with refused(memos, InvalidInput, "messages[0].content", "empty", "leave the message out"):
        memos.add(text)


@pytest.mark.parametrize("text", [message(content=None), {"role": "user"}], ids=brief)
def test_a_message_without_content_is_refused(memos: MemOS, text: Any) -> None:
    with refused(memos, InvalidInput, "messages[0].content: is required"):
        memos.add(text)


def test_one_empty_message_refuses_the_whole_list(memos: MemOS) -> None:
    with refused(memos, InvalidInput, "messages[1].content"):
        memos.add(["fine", " ", "also fine"])


def test_an_empty_list_is_refused(memos: MemOS) -> None:
    with refused(memos, InvalidInput, "messages", "at least one"):
        memos.add([])


@pytest.mark.parametrize("raw", [None, 5, 1.5, True, {"a"}, iter(["x"]), object()], ids=lambda raw: type(raw).__name__)
def test_what_is_no_message_at_all_is_refused_with_its_type(memos: MemOS, raw: Any) -> None:
    with refused(memos, InvalidInput, "messages", "must be text, a message or a list", type(raw).__name__):
        memos.add(raw)


@pytest.mark.parametrize("raw", [5, None, ["nested"], b"\xff\xfe"], ids=brief)
def test_an_entry_that_is_no_message_is_named_by_its_place(memos: MemOS, raw: Any) -> None:
    with refused(memos, InvalidInput, "messages[1]"):
        memos.add(["fine", raw])


@pytest.mark.parametrize("role", ["robot", "", 7, None, [], {}, LONE, nested(5000), 10**5000], ids=brief)
def test_an_unknown_role_is_refused_with_the_roles_there_are(memos: MemOS, role: Any) -> None:
    with refused(memos, InvalidInput, "messages[0].role", "use one of", "user"):
        memos.add(message(role=role))


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("mood", ["messages[0].mood", "unknown field", "`info`"]),
        ("contnet", ["messages[0].contnet", "did you mean `content`?"]),
        ("timestmp", ["messages[0].timestmp", "did you mean `timestamp`?"]),
        (LONE, ["unknown field", "`info`"]),
    ],
    ids=brief,
)
def test_an_unknown_message_field_is_refused_with_the_nearest_or_info(
    memos: MemOS, field: str, words: list[str]
) -> None:
    with refused(memos, InvalidInput, *words):
        memos.add(message(**{field: "x"}))


def test_a_message_over_the_limit_is_refused_with_both_sizes(memos: MemOS) -> None:
    with refused(memos, InvalidInput, "2,097,152 bytes", "1,048,576", "split it"):
        memos.add("x" * 2_097_152)
    with refused(memos, InvalidInput, "1,048,577 bytes"):
        memos.add("é" * 524_288 + "x")


def test_too_many_messages_in_one_add_are_refused(memos: MemOS) -> None:
    with refused(memos, InvalidInput, "1,001 messages", "several calls"):
        memos.add(["x"] * 1001)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"plain bytes"], ids=brief)
def test_bytes_are_refused_with_how_to_decode_them(memos: MemOS, content: bytes) -> None:
    with refused(memos, InvalidInput, "bytes", "decode"):
        memos.add(message(content=content))
    with refused(memos, InvalidInput, "bytes", "decode"):
        memos.add(content)


@pytest.mark.parametrize(("text", "word"), [(NUL, "NUL"), (LONE, "surrogate")])
@pytest.mark.parametrize(
    "place", ["content", "name", "message_id", "tool_call_id", "part", "image", "tool name", "tool arguments", "extra"]
)
def test_text_no_store_can_keep_is_refused_anywhere_in_a_message(
    memos: MemOS, place: str, text: str, word: str
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    raw = {
        "part": {"role": "user", "content": [{"type": "text", "text": text}]},
        "image": message(content=[{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": text}}]),
        "tool name": message(tool_calls=[{**call, "function": {"name": text, "arguments": "{}"}}]),
        "tool arguments": message(tool_calls=[{**call, "function": {"name": "f", "arguments": {"q": [text]}}}]),
        "extra": message(tool_calls=[{**call, "note": text}]),
    }.get(place) or message(**{place: text})
    with refused(memos, InvalidInput, "messages[0]", word):
        memos.add(raw, idempotency_key=f"{place} {word}")


@pytest.mark.parametrize(("text", "word"), [(NUL, "NUL"), (LONE, "surrogate")])
def test_text_no_store_can_keep_is_refused_in_every_argument(memos: MemOS, item: str, text: str, word: str) -> None:
    calls: list[tuple[str, Any]] = [
        ("tags", lambda: memos.add("x", tags=[text])),
        ("info", lambda: memos.add("x", info={text: 1})),
        ("info.k", lambda: memos.add("x", info={"k": text})),
        ("info.k", lambda: memos.add("x", info={"k": ["fine", text]})),
        ("cube", lambda: memos.add("x", cube=text)),
        ("actor", lambda: memos.add("x", actor=text)),
        ("conversation", lambda: memos.add("x", conversation=text)),
        ("idempotency_key", lambda: memos.add("x", idempotency_key=text)),
        ("query", lambda: memos.search(text)),
        ("cube", lambda: memos.search("x", cubes=["default", text])),
        ("filter.tags", lambda: memos.search("x", filter={"tags": text})),
        ("filter.mood", lambda: memos.search("x", filter={"mood": {"in": ["fine", text]}})),
        ("filter.memory", lambda: memos.search("x", filter={"memory": {"like": text}})),
        ("item", lambda: memos.get(text)),
        ("cube", lambda: memos.get(item, cube=text)),
        ("memory", lambda: memos.update(item, text)),
        ("tags", lambda: memos.update(item, tags=[text])),
        ("value", lambda: memos.update(item, value=text)),
        ("reason", lambda: memos.update(item, "fine", reason=text)),
        ("item_ids", lambda: memos.delete([item, text])),
        ("reason", lambda: memos.delete(item, reason=text)),
        ("item_ids", lambda: memos.erase([item, text])),
        ("receipt", lambda: memos.memories.erase_receipt(text)),
        ("content", lambda: memos.feedback(text)),
        ("name", lambda: memos.feedback("fine", speaker=text)),
        ("conversation", lambda: memos.feedback("fine", conversation=text)),
        ("item_ids", lambda: memos.feedback("fine", item_ids=[text])),
        ("cube", lambda: memos.cubes.create(text)),
        ("description", lambda: memos.cubes.create("new", description=text)),
        ("time_zone", lambda: memos.cubes.create("new", time_zone=text)),
        ("item", lambda: memos.memories.history(text)),
        ("item", lambda: memos.memories.rollback(text, 1)),
    ]
    for field, call in calls:
        with refused(memos, InvalidInput, field, word):
            call()


@pytest.mark.parametrize("top_k", [0, -1, 10**9, 10**5000, 1001, True, False, 2.5, "10", None, math.nan], ids=brief)
def test_a_top_k_outside_its_limits_is_refused_with_them(memos: MemOS, top_k: Any) -> None:
    with refused(memos, InvalidInput, "top_k", "whole number from 1 to 1,000"):
        memos.search("anything", top_k=top_k)


@pytest.mark.parametrize("number", [-1, True, "5", 10**10], ids=brief)
def test_a_wrong_limit_offset_or_budget_is_refused(memos: MemOS, number: Any) -> None:
    with refused(memos, InvalidInput, "limit", "whole number"):
        memos.memories.list(limit=number)
    with refused(memos, InvalidInput, "offset", "whole number"):
        memos.memories.list(offset=number)
    with refused(memos, InvalidInput, "token_budget", "whole number"):
        memos.search("anything", token_budget=number)


@pytest.mark.parametrize("query", ["", "  \n", None, 7, b"bytes", ["list"]], ids=brief)
def test_a_question_without_words_is_refused(memos: MemOS, query: Any) -> None:
    with refused(memos, InvalidInput, "query"):
        memos.search(query)


@pytest.mark.parametrize("query", ["x" * 20_001, "漢" * 20_001, "x" * 3_000_000], ids=brief)
def test_a_question_that_is_too_long_is_refused(memos: MemOS, query: str) -> None:
    with refused(memos, InvalidInput, "query", "more than"):
        memos.search(query)


@pytest.mark.parametrize(("cubes", "words"), [
    ([], ["at least one cube"]),
    (None, ["cubes", "list"]),
    (5, ["cubes", "list"]),
    ([5], ["cube", "int"]),
    ([""], ["cube", "empty"]),
    (["x" * 129], ["cube", "128"]),
], ids=brief)  # fmt: skip
def test_cubes_that_are_no_list_of_names_are_refused(memos: MemOS, cubes: Any, words: list[str]) -> None:
    with refused(memos, InvalidInput, *words):
        memos.search("anything", cubes=cubes)


def test_an_unknown_cube_is_not_found_and_the_remedy_named(memos: MemOS) -> None:
    for call in (
        lambda: memos.add("x", cube="nowhere"),
        lambda: memos.search("x", cubes=["default", "nowhere"]),
        lambda: memos.memories.list(cube="nowhere"),
        lambda: memos.feedback("x", cube="nowhere"),
        lambda: memos.cubes.get("nowhere"),
        lambda: memos.cubes.drop("nowhere"),
        lambda: memos.maintenance.verify(cubes=["nowhere"]),
    ):
        with refused(memos, NotFound, "'nowhere'", "memos cube create nowhere"):
            call()


def test_a_cube_name_that_is_taken_is_a_conflict(memos: MemOS) -> None:
    with refused(memos, Conflict, "'default'", "another id"):
        memos.cubes.create("default")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "Europe", "/etc/passwd", 5], ids=brief)
def test_an_unknown_time_zone_is_refused(memos: MemOS, zone: Any) -> None:
    with refused(memos, InvalidInput, "time_zone"):
        memos.cubes.create("zoned", time_zone=zone)


def deep_filter(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {"tags": "x"}
    for _ in range(levels):
        node = {"not": node}
    return node


@pytest.mark.parametrize(("raw", "words"), [
    ([], ["must be an object", "list"]),
    ([{"tags": "x"}], ["must be an object", "list"]),
    ("tags", ["must be an object", "str"]),
    (5, ["must be an object", "int"]),
    (True, ["must be an object", "bool"]),
    ({"and": []}, ["'and'", "non-empty list"]),
    ({"or": {}}, ["'or'", "non-empty list"]),
    ({"or": {"tags": "x"}}, ["'or'", "non-empty list"]),
    ({"and": [{}]}, ["empty object"]),
    ({"not": {}}, ["empty object"]),
    ({"not": [{"tags": "x"}]}, ["must be an object"]),
    ({"and": ["tags"]}, ["must be an object"]),
    ({"tags": {}}, ["filter.tags", "no operator"]),
    (deep_filter(21), ["deeper than 20", "flatten"]),
    (deep_filter(5000), ["deeper than 20", "flatten"]),
    ({"or": [{"tags": str(n)} for n in range(10_000)]}, ["more than 500 conditions", "'in'"]),
    ({"tags": {"equals": "x"}}, ["filter.tags", "'equals'", "eq, ne"]),
    ({"weight": {"$gt": 1}}, ["'$gt'", "eq, ne"]),
    ({"weight": {None: 1}}, ["None", "eq, ne"]),
    ({"role": 5}, ["filter.role", "string", "int"]),
    ({"role": None}, ["filter.role", "string", "NoneType"]),
    ({"role": ["user"]}, ["filter.role", "string", "list"]),
    ({"tags": {"contains": 5}}, ["filter.tags", "string"]),
    ({"tags": {"in": []}}, ["'in'", "non-empty list"]),
    ({"tags": {"in": "x"}}, ["'in'", "non-empty list"]),
    ({"weight": {"gt": "heavy"}}, ["filter.weight", "gt", "number"]),
    ({"weight": {"gt": True}}, ["filter.weight", "gt", "number"]),
    ({"weight": {"gt": math.nan}}, ["filter.weight", "number"]),
    ({"weight": math.nan}, ["filter.weight", "number"]),
    ({"weight": math.inf}, ["filter.weight", "number"]),
    ({"weight": {"lt": 10**400}}, ["filter.weight", "number"]),
    ({"weight": {"in": [1, 10**30]}}, ["filter.weight", "number"]),
    ({"version": 10**30}, ["filter.version", "number"]),
    ({"version": math.inf}, ["filter.version", "number"]),
    ({"weight": {"eq": [1]}}, ["filter.weight", "list"]),
    ({"weight": {"eq": nested(5)}}, ["filter.weight", "list"]),
    ({"role": {"gt": "a"}}, ["'gt'", "numbers and dates"]),
    ({"role": {"contains": "a"}}, ["'contains'", "'like'"]),
    ({"memory": {"like": ""}}, ["'like'", "non-empty"]),
    ({"version": {"like": "1"}}, ["'like'", "text"]),
    ({"version": {"exists": "yes"}}, ["'exists'", "true or false"]),
    ({"confidence": "high"}, ["filter.confidence", "number"]),
    ({"no such field!": 1}, ["'no such field!'", "letters"]),
    ({"": 1}, ["field name", "letters"]),
    ({"x" * 129: 1}, ["field name"]),
    ({LONE: 1}, ["field name", "letters"]),
    ({5: 1}, ["field name", "letters"]),
    ({"créé": 1}, ["field name", "letters"]),
    ({"created_at": {"gt": "yesterday"}}, ["filter.created_at", "ISO 8601"]),
    ({"created_at": {"gt": "2023-13-01"}}, ["filter.created_at", "ISO 8601"]),
    ({"created_at": {"gt": ""}}, ["filter.created_at", "ISO 8601"]),
    ({"created_at": {"gt": True}}, ["filter.created_at", "ISO 8601"]),
    ({"created_at": {"gt": -1}}, ["filter.created_at", "epoch milliseconds"]),
    ({"created_at": {"gt": 10**18}}, ["filter.created_at", "epoch milliseconds"]),
    ({"created_at": {"gt": math.nan}}, ["filter.created_at", "epoch milliseconds"]),
], ids=brief)  # fmt: skip
def test_a_malformed_filter_is_refused_by_search_and_list(memos: MemOS, raw: Any, words: list[str]) -> None:
    with refused(memos, InvalidInput, "filter", *words):
        memos.search("anything", filter=raw)
    with pytest.raises(InvalidInput):
        memos.memories.list(filter=raw)


def test_the_largest_allowed_filter_works(memos: MemOS) -> None:
    wanted = memos.add("needle in a filter", tags=["t499"]).item_ids[0]
    many = {"or": [{"tags": f"t{n}"} for n in range(500)]}
    assert [hit.item.id for hit in memos.search("needle", filter=many)] == [wanted]
    assert [hit.item.id for hit in memos.search("needle", filter={"tags": {"in": [f"t{n}" for n in range(5000)]}})] == [
        wanted
    ]
    assert memos.search("needle", filter=deep_filter(20)).missing_arms == ()
    assert memos.search("needle", filter={"weight": {"lt": 2**53}}).missing_arms == ()
    assert memos.search("needle", filter={"weight": -(2**53)}).missing_arms == ()
    assert memos.search("needle", filter={"weight": 0.5}).missing_arms == ()


@pytest.mark.parametrize(
    "moment",
    ["yesterday", "", "2023-02-30", "12:00", "2023-06-05T25:00", True, [], {}, math.nan, math.inf, 1e300, -1e300,
     10**400, 10**5000, "0001-01-01T00:00:00+23:00", LONE, NUL, b"2023-06-05", "2023-06-05T10:00:00 CEST"], ids=brief
)  # fmt: skip
def test_what_is_no_time_is_refused_with_an_example(memos: MemOS, item: str, moment: Any) -> None:
    for field, call in (
        ("messages[0].chat_time", lambda: memos.add(message(chat_time=moment))),
        ("as_of", lambda: memos.search("x", as_of=moment)),
        ("reference_time", lambda: memos.search("x", reference_time=moment)),
        ("valid_to", lambda: memos.update(item, valid_to=moment)),
    ):
        with refused(memos, InvalidInput, field, "is not a time", "2023-06-05T10:00:00+02:00"):
            call()


def test_a_time_without_an_offset_is_in_the_cubes_zone_which_is_utc_unless_named(memos: MemOS) -> None:
    said = message(chat_time="2025-07-01T12:00:00")
    memos.cubes.create("tokyo", time_zone="Asia/Tokyo")
    at = {cube: memos.get(memos.add(said, cube=cube).item_ids[0]).sources[0].at for cube in ("default", "tokyo")}
    assert at == {"default": datetime(2025, 7, 1, 12, tzinfo=UTC), "tokyo": datetime(2025, 7, 1, 3, tzinfo=UTC)}


@pytest.mark.parametrize(
    "moment", [1_751_371_200, 1_751_371_200_000, "2025-07-01T14:00:00+02:00", "20250701T120000Z"], ids=brief
)
def test_epoch_numbers_and_offsets_are_understood(memos: MemOS, moment: Any) -> None:
    receipt = memos.add(message(chat_time=moment))
    assert memos.get(receipt.item_ids[0]).sources[0].at == datetime(2025, 7, 1, 12, tzinfo=UTC)


def test_a_wrong_expected_version_is_a_conflict_that_tells_the_right_one(memos: MemOS, item: str) -> None:
    for call in (
        lambda: memos.update(item, "x", expected_version=7),
        lambda: memos.memories.rollback(item, 1, expected_version=7),
    ):
        with refused(memos, Conflict, "version 1, not 7", "read it again"):
            call()
    assert memos.get(item).version == 1


@pytest.mark.parametrize("version", ["1", True, 1.0, -1, 10**30, [1]], ids=brief)
def test_a_version_that_is_no_number_is_refused(memos: MemOS, item: str, version: Any) -> None:
    with refused(memos, InvalidInput, "expected_version", "whole number"):
        memos.update(item, "x", expected_version=version)
    with refused(memos, InvalidInput, "expected_version", "whole number"):
        memos.memories.rollback(item, 1, expected_version=version)
    with refused(memos, InvalidInput, "to_version", "whole number"):
        memos.memories.rollback(item, version)


def test_a_version_that_never_was_is_not_found(memos: MemOS, item: str) -> None:
    with refused(memos, NotFound, "v9", "memos memory history"):
        memos.memories.rollback(item, 9)
    with refused(memos, NotFound, "v0", "memos memory history"):
        memos.memories.rollback(item, 0)
    with refused(memos, Conflict, "version 1, not 0"):
        memos.update(item, "x", expected_version=0)


def test_without_a_version_the_one_before_is_restored(memos: MemOS, item: str) -> None:
    with refused(memos, Conflict, item, "no version before"):
        memos.memories.rollback(item)
    first = memos.get(item).memory
    memos.update(item, "another text")
    assert memos.memories.rollback(item).memory == first
    memos.delete(item)
    with refused(memos, NotFound, f"memos memory rollback {item}"):
        memos.get(item)
    assert memos.memories.rollback(item).status is Status.ACTIVE


def test_an_update_of_a_deleted_item_is_a_conflict_that_names_rollback(memos: MemOS, item: str) -> None:
    memos.delete(item)
    with refused(memos, Conflict, item, "deleted", "rollback"):
        memos.update(item, "back again")
    with refused(memos, NotFound, item, "rollback"):
        memos.get(item)
    assert memos.memories.history(item)[-1].after.status is Status.DELETED


def test_an_unknown_item_is_not_found_everywhere(memos: MemOS) -> None:
    for call in (
        lambda: memos.get("no-such-item"),
        lambda: memos.update("no-such-item", "x"),
        lambda: memos.delete("no-such-item"),
        lambda: memos.erase(["no-such-item"]),
        lambda: memos.memories.history("no-such-item"),
        lambda: memos.memories.rollback("no-such-item", 1),
        lambda: memos.feedback("x", item_ids=["no-such-item"]),
        lambda: memos.feedback("x", item_ids="no-such-item"),
    ):
        with refused(memos, NotFound, "'no-such-item'", "memos list"):
            call()
    with refused(memos, NotFound, "receipt"):
        memos.memories.erase_receipt("no-such-receipt")


def test_one_unknown_item_leaves_the_others_undeleted(memos: MemOS, item: str) -> None:
    with refused(memos, NotFound, "no-such-item"):
        memos.delete([item, "no-such-item"])
    with refused(memos, NotFound, "no-such-item"):
        memos.erase([item, "no-such-item"])
    assert memos.get(item).version == 1


@pytest.mark.parametrize("ids", [[], (), None, 5, [5], [None], [""], b"abc", ["x"] * 10_001, ["x" * 65]], ids=brief)
def test_ids_that_are_no_ids_are_refused(memos: MemOS, ids: Any) -> None:
    with refused(memos, InvalidInput, "item_ids"):
        memos.delete(ids)
    with refused(memos, InvalidInput, "item_ids"):
        memos.erase(ids)
    if ids not in ([], ()):
        with refused(memos, InvalidInput, "item_ids"):
            memos.feedback("fine", item_ids=ids)


@pytest.mark.parametrize("item_id", [None, 5, "", "x" * 65, ["x"]], ids=brief)
def test_an_item_that_is_no_id_is_refused(memos: MemOS, item_id: Any) -> None:
    for call in (
        lambda: memos.get(item_id),
        lambda: memos.update(item_id, "x"),
        lambda: memos.memories.history(item_id),
        lambda: memos.memories.rollback(item_id, 1),
    ):
        with refused(memos, InvalidInput, "item"):
            call()


@pytest.mark.parametrize("confidence", [math.nan, math.inf, -0.1, 1.1, "0.5", True, None, 10**400], ids=brief)
def test_a_confidence_outside_0_to_1_is_refused(memos: MemOS, item: str, confidence: Any) -> None:
    with refused(memos, InvalidInput, "confidence", "from 0 to 1"):
        memos.update(item, confidence=confidence)


@pytest.mark.parametrize(("fields", "words"), [
    ({}, ["memory", "nothing to change"]),
    ({"memory": "  "}, ["memory", "empty", "delete"]),
    ({"memory": 5}, ["memory", "must be text"]),
    ({"memory": "x" * 1_048_577}, ["memory", "1,048,577"]),
    ({"colour": "red"}, ["colour", "cannot be changed", "tags"]),
    ({"created_at": "2020-01-01"}, ["created_at", "cannot be changed"]),
    ({"tier": "huge"}, ["tier", "short, mid, long"]),
    ({"status": "gone"}, ["status", "active"]),
    ({"status": "deleted"}, ["status", "delete"]),
    ({"status": []}, ["status", "active"]),
    ({"type": None}, ["type", "unknown"]),
    ({"key": ""}, ["key", "empty"]),
    ({"value": 5}, ["value", "must be text"]),
    ({"tags": None}, ["tags", "list of strings"]),
], ids=brief)  # fmt: skip
def test_an_update_of_a_wrong_field_or_value_is_refused(
    memos: MemOS, item: str, fields: dict[str, Any], words: list[str]
) -> None:
    with refused(memos, InvalidInput, *words):
        memos.update(item, **fields)
    assert memos.get(item).version == 1


@pytest.mark.parametrize(("info", "words"), [
    ({"a": {"b": {1}}}, ["info.a", "must be JSON"]),
    ({"a": [{2: 1}]}, ["info.a", "must be text", "int"]),
    ({"a": nested(5000)}, ["info.a", "nested deeper than 32 levels"]),
    ({"a": {"b": [math.inf]}}, ["info.a", "number"]),
    ({"a": {"\ud800": 1}}, ["info.a", "lone surrogate"]),
    ({"a": math.nan}, ["info.a", "number"]),
    ({"a": -math.inf}, ["info.a", "number"]),
    ({"a": 2**53 + 1}, ["info.a", "2^53"]),
    ({"a": 10**400}, ["info.a", "2^53"]),
    ({"a": b"x"}, ["info.a", "must be JSON"]),
    ({"a": datetime(2025, 1, 1, tzinfo=UTC)}, ["info.a", "must be JSON"]),
    ({5: "x"}, ["info", "int"]),
    ({"": "x"}, ["info", "empty"]),
    ({"k" * 129: "x"}, ["info", "128"]),
    ({"a": "x" * 70_000}, ["info", "65,536"]),
    ({f"k{n}": "x" * 1000 for n in range(70)}, ["info", "65,536"]),
    ([("a", 1)], ["info", "must be an object", "list"]),
    ("a=1", ["info", "must be an object", "str"]),
], ids=brief)  # fmt: skip
def test_info_that_filters_could_not_ask_for_is_refused(memos: MemOS, item: str, info: Any, words: list[str]) -> None:
    with refused(memos, InvalidInput, *words):
        memos.add("x", info=info)
    with refused(memos, InvalidInput, *words):
        memos.update(item, info=info)


@pytest.mark.parametrize(
    "tags", ["work", None, 5, {"work"}, [5], [None], [""], ["x" * 129], [["work"]], ["x"] * 101, b"work"], ids=brief
)
def test_tags_that_are_no_list_of_words_are_refused(memos: MemOS, item: str, tags: Any) -> None:
    with refused(memos, InvalidInput, "tags"):
        memos.add("x", tags=tags)
    with refused(memos, InvalidInput, "tags"):
        memos.update(item, tags=tags)
    with refused(memos, InvalidInput, "tags"):
        memos.memories.tag(item, add=tags)
    with refused(memos, InvalidInput, "tags"):
        memos.memories.tag(item, remove=tags)


def test_an_idempotency_key_with_other_content_is_a_conflict(memos: MemOS) -> None:
    first = memos.add("the original", idempotency_key="reused", tags=["a"])
    for call in (
        lambda: memos.add("something else", idempotency_key="reused", tags=["a"]),
        lambda: memos.add("the original", idempotency_key="reused", tags=["b"]),
        lambda: memos.add("the original", idempotency_key="reused", tags=["a"], info={"n": 1}),
        lambda: memos.add("the original", idempotency_key="reused", tags=["a"], conversation="other"),
    ):
        with refused(memos, Conflict, "'reused'", "new key"):
            call()
    again = memos.add("the original", idempotency_key="reused", tags=["a"])
    assert again.replayed
    assert again.item_ids == first.item_ids


def test_a_message_id_with_other_text_is_a_conflict_and_stores_none_of_its_batch(memos: MemOS) -> None:
    first = memos.add(message(message_id="m1"), conversation="ids")
    with refused(memos, Conflict, "'m1'", first.item_ids[0], "update"):
        memos.add(["another one first", message(message_id="m1", content="changed words")], conversation="ids")
    with refused(memos, Conflict, "'twice'", "update"):
        memos.add([message(message_id="twice"), message(message_id="twice", content="not hello")], conversation="ids")


@pytest.mark.parametrize("depth", [120, 300, 600, 800, 850, 900, 925, 950, 975, 1000, 5000, 50_000], ids=brief)
def test_content_nested_too_deeply_is_refused(memos: MemOS, depth: int) -> None:
    deep = nested(depth)
    part = {"type": "image_url", "image_url": deep}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": deep}}
    extra = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "note": deep}
    for raw in (message(content=[part]), message(tool_calls=[call]), message(tool_calls=[extra])):
        for key in (None, f"deep {depth}"):
            with refused(memos, InvalidInput, "messages[0]", "nested"):
                memos.add(raw, idempotency_key=key)
    with refused(memos, InvalidInput, "messages[0].content"):
        memos.add(message(content=deep))


@pytest.mark.parametrize("content", [
    [], [{}], [5], [{"type": "hologram"}], [{"type": "text"}], [{"type": "text", "text": 5}],
    [{"type": "text", "text": ""}], [{"type": ["text"]}], [{"type": "file", "file": {"filename": 5}}],
    [{"type": "image_url", "image_url": {"width": math.nan}}], [{"type": "image_url", "image_url": {1, 2}}],
    {"type": "text", "text": "not in a list"}, 5, True,
], ids=brief)  # fmt: skip
def test_malformed_content_parts_are_refused(memos: MemOS, content: Any) -> None:
    with refused(memos, InvalidInput, "messages[0].content"):
        memos.add(message(content=content))


@pytest.mark.parametrize(
    "calls", ["call", {}, [5], [{}], [{"function": "f"}], [{"function": {}}], [{"function": {"name": 5}}],
              [{"function": {"name": "f", "arguments": {1, 2}}}], [{"id": 5, "function": {"name": "f"}}]], ids=brief
)  # fmt: skip
def test_malformed_tool_calls_are_refused(memos: MemOS, calls: Any) -> None:
    with refused(memos, InvalidInput, "messages[0].tool_calls"):
        memos.add(message(tool_calls=calls))


def test_moderately_nested_content_is_kept_as_given(memos: MemOS) -> None:
    part = {"type": "image_url", "image_url": {"url": "", "crops": [[0, 1], [2, 3]]}}
    receipt = memos.add(message(content=[{"type": "text", "text": "a picture"}, part]), idempotency_key="kept")
    assert memos.get(receipt.item_ids[0]).memory == "a picture\n[image]"


ODD = {
    "emoji": "party 🎉🎊 tonight 👍🏽",
    "emoji joined with zero width joiners": "my family 👩‍👩‍👧‍👦 portrait",
    "right to left": "הפגישה הועברה ליום שלישי",
    "right to left with marks": "\u202eالاجتماع\u202c يوم الثلاثاء",
    "combining characters": "cafe\u0301 nai\u0308ve Z\u0351\u036b\u0343\u036a\u0302algo",
    "replacement character": "what was lost \ufffd stays lost",
    "zero width": "in\u200bvis\u200cible\u2060 seam \ufeff here",
    "line separators": "first\u2028second\u2029third\x85fourth\x0bfifth",
    "control characters": "bell \x07 escape \x1b[31m red",
    "beyond the basic plane": "𝔤𝔬𝔱𝔥𝔦𝔠 𒀀𒁀 \U0010fffd",
    "noncharacters": "odd \uffff and \ufdd0 values",
    "chinese": "我们星期二在图书馆见面",
    "quotes and backslashes": "it's a \"test\" \\ with 'quotes'; DROP TABLE items; -- %s %d {x} [/b] :smile:",
    "full width": "ＦＵＬＬ　ｗｉｄｔｈ",
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_but_valid_text_is_kept_exactly_and_found(memos: MemOS, kind: str) -> None:
    text = ODD[kind]
    cube = f"odd {kind}"
    memos.cubes.create(cube, description=text)
    receipt: AddReceipt = memos.add(
        [message(content=text, name=text, message_id=text)],
        cube=cube, conversation=text, tags=[text], info={"said": text, text: 1}, actor=text, idempotency_key=text,
    )  # fmt: skip
    assert receipt.indexed
    found = memos.get(receipt.item_ids[0])
    assert (found.memory, found.speaker, found.tags, found.conversation) == (text, text, (text,), text)
    assert found.info == {"said": text, text: 1}
    assert found.sources[0].passage == text
    for filter_ in (None, {"tags": text}, {"info.said": text}, {"conversation": text}, {"memory": {"like": text}}):
        result = memos.search(text, cubes=[cube], filter=filter_, actor=text)
        assert [hit.item.id for hit in result] == list(receipt.item_ids)
        assert result.missing_arms == ()
    assert memos.update(found.id, text + "!", reason=text).memory == text + "!"


UNSEEN = ["a\nb", "a\x1b[31m", "\x07a", "\u202ea", "a\u200bb", "a\ufeff", "a\u2028b", "a\x85b"]


@pytest.mark.parametrize(
    ("name", "word"), [*((name, "invisible") for name in UNSEEN), (" a", "space"), ("a ", "space")]
)
def test_nothing_is_made_under_an_id_that_cannot_be_read(memos: MemOS, name: str, word: str) -> None:
    for field, call in (("cube", memos.cubes.create), ("id", memos.users.create), ("cube", memos.knowledge.create)):
        with refused(memos, InvalidInput, field, word):
            call(name)


@pytest.mark.parametrize("name", ["café 本", "👩‍👩‍👧‍👦", "می‌خواهم", "a/b", "a b"])
def test_ids_may_be_of_any_script(memos: MemOS, name: str) -> None:
    assert memos.cubes.create(name).id == name
    assert memos.get(memos.add("kept", cube=name).item_ids[0]).memory == "kept"


def test_a_long_message_is_stored_whole_and_found_by_a_phrase_near_its_end(memos: MemOS) -> None:
    memos.cubes.create("long")
    memos.add([f"the decoy number {n} mentions filler words" for n in range(30)], cube="long", conversation="decoys")
    filler = "some filler words follow here and again "
    text = filler * 26_000
    text = text[: 1_048_576 - 100] + " the heliotrope quagga hid the marzipan key"
    text += " ." * ((1_048_576 - len(text)) // 2)
    receipt = memos.add(text, cube="long")
    assert receipt.indexed
    result = memos.search("heliotrope quagga marzipan", cubes=["long"], explain=True)
    assert result.hits[0].item.id == receipt.item_ids[0]
    assert {"turn", "turn_bm25"} <= {vote.arm for vote in result.hits[0].arms}
    assert memos.get(receipt.item_ids[0]).memory == text
