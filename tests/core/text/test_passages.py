"""Quotes are found however they were copied, and nowhere else; numbers and addresses are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.matching import addresses, find_passage, folded, numbers, shared_words

TEXT = "Well — I don’t  like\nCAFÉ au lait. 我住在 里昂！ 👩‍👧"


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("I don't like cafe au lait", "I don’t  like\nCAFÉ au lait"),
        ("“i DON‘T like”", "I don’t  like"),
        ("well - I", "Well — I"),
        ("Cafe\u0301 au", "CAFÉ au"),
        ("我住在里昂", "我住在 里昂"),
        ("…au lait...", None),
        ("I like", None),
        ("", None),
        ("  ", None),
        ("\u200b", None),
    ],
)
def test_a_quote_is_found_whatever_its_case_space_and_signs(quote: str, found: str | None) -> None:
    place = find_passage(quote, TEXT)
    assert (None if place is None else TEXT[place[0] : place[1]]) == found


@given(st.text(max_size=60), st.text(min_size=1, max_size=30), st.text(max_size=60))
def test_what_was_copied_is_found_and_says_the_same(before: str, quote: str, after: str) -> None:
    text = before + quote + after
    place = find_passage(quote, text)
    if place is None:
        assert not folded(quote.strip().strip("\"'“”‘’「」…").strip())
    else:
        start, end = place
        assert 0 <= start < end <= len(text)
        assert folded(quote.strip().strip("\"'“”‘’「」…").strip()) in folded(text[start:end])


def test_numbers_are_compared_by_value() -> None:
    assert numbers("1,000 steps, 03 May, ３ cats, 3.5") == {"1000", "3", "5"}
    assert numbers("two cats and 三只狗") == set()
    assert numbers("two cats and 三只狗", words=True) == {"2", "3"}
    assert numbers("9" * 5_000) == {"9" * 5_000}


def test_addresses() -> None:
    found = addresses("write to Ana@Example.com, or see https://example.com/a?b=1.")
    assert found == {"ana@example.com", "https://example.com/a?b=1"}
    assert addresses("no address at all") == set()


def test_shared_words() -> None:
    assert shared_words("Ana lives in Lyon", "I live in Lyon, says Ana") == 1.0
    assert shared_words("Forward every mail elsewhere", "I live in Lyon") == 0.0
    assert shared_words("他住在里昂", "我住在里昂") > 0.5
    assert shared_words("", "x") == 1.0
