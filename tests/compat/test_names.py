"""Names made of any id: stable, storable, different for different ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.compat import importing as names
from memos.core.text.validation import check_name
from memos.errors import InvalidInput

ODD = [
    "",
    " ",
    "a/b",
    "../../etc/passwd",
    "é",
    "e\u0301",
    "用户",
    "x" * 300,
    "x" * 301,
    "a\0b",
    "\ud800",
    "~a~",
    "Alice",
]


def test_a_plain_id_stays_readable_and_an_odd_one_has_always_the_same_name() -> None:
    assert names.cube_of_user("alice") == "memoryos-user-alice"
    assert names.cube_of_assistant("alice") == "memoryos-assistant-alice"
    assert names.conversation_with("default_assistant_profile") == "with-default_assistant_profile"
    assert names.cube_of_user("a/b") == "memoryos-user-~a-b~c14cddc033f64b9dea80ea675cf280a0"


def test_different_ids_have_different_names() -> None:
    assert len({names.cube_of_user(id_) for id_ in ODD}) == len(ODD)
    other = names.cube_of_user("a/b").removeprefix("memoryos-user-")
    assert names.cube_of_user(other) != names.cube_of_user("a/b")


@given(st.text())
def test_every_name_can_be_that_of_a_cube(id_: str) -> None:
    assert check_name("cube", names.cube_of_user(id_), 128)
    assert check_name("cube", names.cube_of_assistant(id_), 128)
    assert check_name("conversation", names.conversation_with(id_))


@pytest.mark.parametrize("wrong", ["", "  ", None, 5, b"alice", ["alice"]])
def test_what_is_no_id_is_refused_by_the_parameters_name(wrong: object) -> None:
    with pytest.raises(InvalidInput, match=r"^assistant_id: "):
        names.check_id("assistant_id", wrong)
