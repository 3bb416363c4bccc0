"""Facts in shards: none too full, each fact in one, who was somewhere stays, topics stay together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memos.memcube.parametric.quiz import KnownFact
from memos.memcube.parametric.selection import WHOLE, Vectors, shards_of


def fact(number: int) -> KnownFact:
    return KnownFact(f"i{number}", 1, f"{'tea' if number % 2 else 'sea'} {number}", "said")


def by_topic(texts: Sequence[str]) -> Vectors:
    rows = [[1.0, int(text[4:]) / 1e4] if text.startswith("tea") else [int(text[4:]) / 1e4, 1.0] for text in texts]
    found = np.array(rows, np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def never(_: Sequence[str]) -> Vectors:
    raise AssertionError("nothing has to be embedded where there is no choice")


def test_what_fits_is_one_shard_and_nothing_is_embedded() -> None:
    facts = [fact(number) for number in range(4)]
    assert shards_of(facts, {}, 4, never) == {WHOLE: tuple(facts)}
    assert shards_of(facts, {WHOLE: {"i1", "i2"}}, 4, never) == {WHOLE: tuple(facts)}
    assert shards_of(facts[1:3], {WHOLE: {"i0", "i1"}, "2": {"i2"}}, 4, never) == {
        WHOLE: (facts[1],), "2": (facts[2],),
    }  # fmt: skip
    assert shards_of([], {WHOLE: {"i0"}}, 4, never) == {}


def test_topics_stay_together_and_new_facts_go_where_theirs_are() -> None:
    facts = [fact(number) for number in range(10)]
    parts = shards_of(facts, {}, 7, by_topic)
    assert {frozenset(each.memory[:3] for each in part) for part in parts.values()} == {
        frozenset({"tea"}), frozenset({"sea"}),
    }  # fmt: skip
    known = {name: {each.item for each in part} for name, part in parts.items()}
    [tea] = [name for name, part in parts.items() if part[0].memory.startswith("tea")]
    after = shards_of([*facts, fact(11)], known, 7, by_topic)
    assert fact(11) in after[tea]


def test_to_train_one_of_several_moves_nothing_between_them() -> None:
    facts = [fact(number) for number in range(23)]
    parts, known = shards_of(facts, {}, 5, by_topic), dict[str, set[str]]()
    for name in parts:
        before = dict(known)
        known[name] = {each.item for each in shards_of(facts, before, 5, by_topic)[name]}
        now = shards_of(facts, known, 5, by_topic)
        assert {name: {each.item for each in now[name]} for name in known} == known
    assert known.keys() == parts.keys()


@given(
    st.sets(st.integers(0, 60), max_size=40), st.sets(st.integers(0, 60), max_size=40), st.integers(1, 9)
)  # fmt: skip
def test_no_shard_is_too_full_and_whoever_has_a_place_keeps_it(before: set[int], after: set[int], most: int) -> None:
    first = shards_of([fact(number) for number in sorted(before)], {}, most, by_topic)
    known = {name: {each.item for each in part} for name, part in first.items()}
    then = shards_of([fact(number) for number in sorted(after)], known, most, by_topic)
    for found, wanted in ((first, before), (then, after)):
        assert sorted(each.item for part in found.values() for each in part) == sorted(f"i{n}" for n in wanted)
        assert all(0 < len(part) <= most for part in found.values())
    for number in before & after:
        [was] = [name for name, part in first.items() if fact(number) in part]
        assert fact(number) in then[was]
