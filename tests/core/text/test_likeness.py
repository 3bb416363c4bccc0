"""Two statements are one only when neither says anything of its own, and nothing that matters differs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fact_pairs import OTHER, SAME
from memos.core.text.matching import contains_words, contradicts, normalized_value, overlap, words
from memos.scheduler.consolidation import same


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_differs_in_one_thing_that_matters_is_never_merged(one: str, other: str) -> None:
    assert not same(one, other, 1.0)
    assert not same(other, one, 1.0)


def test_nearly_all_that_is_said_twice_is_merged() -> None:
    told = [same(one, other, 1.0) for one, other in SAME]
    assert sum(told) >= 36
    assert told == [same(other, one, 1.0) for one, other in SAME]


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("I have 2 cats.", "I have 3 cats.", "numbers"),
        ("I have two cats.", "I have 2 cats.", None),
        ("I like tea.", "I never liked tea.", "denial"),
        ("I want a dog.", "I have a dog.", "intention"),
        ("I am a nurse.", "I was a nurse.", "time"),
        ("I met Ann in Oslo.", "I met Bob in Oslo.", "names"),
        ("", "", None),
    ],
)
def test_what_contradicts(one: str, other: str, why: str | None) -> None:
    assert contradicts(one, other) is (why is not None)


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_texts_are_compared_alike_both_ways(one: str, other: str) -> None:
    mine, its = words(one), words(other)
    assert overlap(mine, its) == overlap(its, mine)
    assert 0 <= overlap(mine, its) <= contains_words(mine, its) <= 1
    assert contradicts(one, other) == contradicts(other, one)
    assert same(one, one, 0.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Saint-Denis", "saint denis"),
        ("S\u00e3o Paulo", "Sa\u0303o Paulo"),
        ("O’Hara", "O'Hara"),
        ("Acme ", "ACME."),
    ],
)
def test_one_name_written_in_two_ways_is_one(one: str, other: str) -> None:
    assert normalized_value(one) == normalized_value(other)
    assert not contradicts(f"I met {one} there", f"I met {other} there")


def test_names_that_differ_stay_two() -> None:
    assert normalized_value("M\u00fcller") != normalized_value("Muller")
    assert normalized_value("-5") == "-5"
    assert normalized_value(None) == normalized_value("") == ""
