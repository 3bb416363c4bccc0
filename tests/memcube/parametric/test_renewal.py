"""When a cube is worth learning again, and which adapters nobody misses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memos.memcube.ledger.adapters import AdapterRow, AdapterState
from memos.memcube.parametric.selection import Learned, Memory, Renewal, Why, renewal, superfluous

NOTHING: frozenset[Memory] = frozenset()


def memories(*names: str, version: int = 1) -> frozenset[Memory]:
    return frozenset((name, version) for name in names)


def learned(seen: str, standing: str, served: str = "") -> Learned:
    return Learned(memories(*seen), memories(*standing), memories(*served))


def test_enough_that_is_new_is_a_reason_and_what_cooled_is_told() -> None:
    active = learned("abc", "abc", "abc")
    assert renewal(memories(*"abd"), active, NOTHING, 2) is None
    assert renewal(memories(*"abde"), active, NOTHING, 2) == Renewal(Why.NEW, ("d", "e"), (), ("c",))
    assert renewal(memories(*"ab"), Learned(), NOTHING, 2) == Renewal(Why.NEW, ("a", "b"), (), ())


def test_what_is_gone_is_a_reason_by_itself() -> None:
    assert renewal(memories(*"ab"), learned("abc", "ab"), NOTHING, 99) == Renewal(Why.STALE, (), ("c",), ())
    changed = memories(*"ab") | memories("c", version=2)
    assert renewal(changed, learned("abc", "ab"), NOTHING, 99) == Renewal(Why.STALE, ("c",), ("c",), ())


def test_what_was_refused_is_not_tried_again_until_it_differs() -> None:
    stale = learned("abc", "ab")
    assert renewal(memories(*"ab"), stale, memories(*"ab"), 2) is None
    assert renewal(memories(*"abd"), stale, memories(*"ab"), 2) is None
    assert renewal(memories(*"abde"), stale, memories(*"ab"), 2) is not None
    assert renewal(memories(*"abcd"), Learned(), memories(*"abcd"), 2) is None


def test_of_several_shards_one_that_was_refused_holds_up_no_other() -> None:
    refused = memories(*"abcd")
    assert renewal(memories(*"abcdefgh"), Learned(), refused, 4) == Renewal(Why.NEW, tuple("abcdefgh"), (), ())
    active = learned("efgh", "efgh", "efgh")
    assert renewal(memories(*"abcdefgh"), active, refused, 4) is None
    stale = learned("efgh", "efg")
    assert renewal(memories(*"abcdefg"), stale, refused, 3) == Renewal(Why.STALE, tuple("abcd"), ("h",), ())


def test_nothing_left_to_learn_is_told_where_something_is_stale() -> None:
    assert renewal(frozenset(), learned("a", ""), memories("a"), 8) == Renewal(Why.STALE, (), ("a",), ())
    assert renewal(frozenset(), learned("a", "a", "a"), NOTHING, 1) is None


def row(number: int, state: str, shard: str = "") -> AdapterRow:
    now = datetime(2025, 1, number, tzinfo=UTC)
    return AdapterRow(
        f"{shard}{number}", "default", shard, number, AdapterState(state), "m", "b", {}, "d", None, None, None, None,
        None, now, now,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("states", "stale", "answered", "gone"),
    [
        (["retired", "retired", "active"], "", "2", "1"),
        (["retired", "retired", "active"], "", "1", "2"),  # somebody had gone back to the first
        (["retired", "retired", "active"], "", None, "1"),
        (["retired", "retired", "active"], "2", "2", "2"),  # the first may still answer
        (["active", "refused", "refused"], "", "1", "2"),
        (["active", "refused"], "1", "1", "1"),
        (["retired", "active", "training", "ready"], "", None, ""),
        (["ready", "active"], "1", None, "1"),
        ([], "", None, ""),
    ],
)
def test_what_answers_stays_and_one_to_go_back_to(
    states: list[str], stale: str, answered: str | None, gone: str
) -> None:
    rows = [row(place, state) for place, state in enumerate(states, 1)]
    assert "".join(sorted(each.id for each in superfluous(rows[::-1], set(stale), answered))) == gone


def test_shards_are_looked_at_one_by_one() -> None:
    rows = [row(3, "active", "a"), row(2, "retired", "a"), row(1, "retired", "b"), replace(row(1, "retired", "a"))]
    assert [each.id for each in superfluous(rows, (), None)] == ["a1"]
