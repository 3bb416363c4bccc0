"""Which messages are read together, and which only tell what the others mean."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memos.core.types import Item, Status
from memos.reader.facts.llm import ReadingBudget, shown_tokens, window
from tests.reader.talk import said

PLAIN = said("word " * 20)
EACH = shown_tokens(PLAIN)


def talk(count: int) -> tuple[Item, ...]:
    return tuple(replace(PLAIN, id=f"m{number}", position=number) for number in range(count))


def ids(*numbers: int) -> set[str]:
    return {f"m{number}" for number in numbers}


def shown(count: int, wanted: set[str], room: ReadingBudget) -> tuple[list[str], set[str]]:
    found = window(talk(count), wanted, room)
    return [message.id for message in found.messages], set(found.context)


def test_a_window_is_as_many_as_there_is_room_for_and_one_at_least() -> None:
    everything = ids(*range(6))
    assert shown(6, everything, ReadingBudget(3 * EACH, 0)) == (["m0", "m1", "m2"], set())
    assert shown(6, everything, ReadingBudget(3 * EACH - 1, 0)) == (["m0", "m1"], set())
    assert shown(6, everything, ReadingBudget(1, 0)) == (["m0"], set())
    assert shown(6, everything, ReadingBudget(10_000, 10_000)) == ([f"m{number}" for number in range(6)], set())


def test_what_came_before_is_context_as_far_as_there_is_room() -> None:
    assert shown(6, ids(4, 5), ReadingBudget(10_000, 2 * EACH)) == (["m2", "m3", "m4", "m5"], ids(2, 3))
    assert shown(6, ids(4, 5), ReadingBudget(10_000, EACH - 1)) == (["m4", "m5"], set())


def test_what_lies_between_is_context_unless_it_is_too_much() -> None:
    assert shown(6, ids(0, 2), ReadingBudget(10_000, EACH)) == (["m0", "m1", "m2"], ids(1))
    assert shown(6, ids(0, 3), ReadingBudget(10_000, EACH)) == (["m0"], set())


def test_what_was_deleted_or_waits_is_passed_over() -> None:
    messages = list(talk(3))
    messages[0] = replace(messages[0], status=Status.DELETED)
    messages[2] = replace(messages[2], status=Status.PENDING)
    found = window(tuple(messages), ids(0, 1, 2), ReadingBudget())
    assert [message.id for message in found.messages] == ["m1"]
    assert found.passed == ids(0, 2)
    assert window(tuple(messages), ids(0, 2), ReadingBudget()).messages == ()
    assert window((), frozenset(), ReadingBudget()) == ((), frozenset(), frozenset())


def test_each_attempt_has_half_the_room() -> None:
    assert [ReadingBudget(1_500, 300).shrunk(times).window for times in (0, 1, 2, 20)] == [1_500, 750, 375, 1]


@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.integers(1, 600), st.integers(0, 200))
def test_every_wanted_message_is_read_once_in_order_whatever_the_room(
    count: int, numbers: set[int], most: int, around: int
) -> None:
    wanted = {f"m{number}" for number in numbers if number < count}
    messages, left, read = talk(count), set(wanted), list[str]()
    while left:
        found = window(messages, left, ReadingBudget(most, around))
        mine = [message.id for message in found.messages if message.id not in found.context]
        assert mine
        assert sum(shown_tokens(message) for message in found.messages) <= max(most, EACH) + around
        read += mine
        left -= set(mine)
    assert read == sorted(wanted, key=lambda id_: int(id_[1:]))
