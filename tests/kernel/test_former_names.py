"""Former names of `MemOS` work for one minor version, and say what to write instead."""

from __future__ import annotations

from operator import attrgetter

import pytest

from memos import MemOS
from memos.errors import InvalidInput
from memos.kernel.former_names import RENAMED


def test_a_former_name_warns_with_the_new_one_and_does_the_same(memos: MemOS) -> None:
    memos.add("I live in Lyon.")
    with pytest.warns(DeprecationWarning, match=r"MemOS\.list is now MemOS\.memories\.list"):
        listed = memos.list()  # type: ignore[attr-defined]
    assert listed == memos.memories.list()


def test_every_former_name_stands_for_something(memos: MemOS) -> None:
    for path in RENAMED.values():
        if path != "models.local":  # raises where no model runs in this process
            attrgetter(path)(memos)


def test_what_never_was_there_is_no_attribute(memos: MemOS) -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        memos.nothing_of_the_kind  # type: ignore[attr-defined]  # noqa: B018


def test_a_least_relevance_may_have_its_former_name(memos: MemOS) -> None:
    memos.add("I live in Lyon.")
    assert memos.search.recall("Lyon", {"memory": 1})["memory"]
    assert not memos.search.recall("Lyon", {"memory": 1}, min_relevance=1)["memory"]
    with pytest.warns(DeprecationWarning, match="`relevance` is now `min_relevance`"):
        assert not memos.search.recall("Lyon", {"memory": 1}, relevance=1)["memory"]
    with pytest.warns(DeprecationWarning), pytest.raises(InvalidInput, match="relevance: must be a number"):
        memos.chat.recall("Lyon", relevance=2)
