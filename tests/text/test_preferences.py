"""Which sentences state a preference of their speaker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.text.preferences import states_preference


@pytest.mark.parametrize(
    "text",
    [
        "I prefer trains to planes.",
        "I have a strong aversion to paid subscriptions.",
        "I'm allergic to peanuts.",
        "I can't stand horror films.",
        "Honestly I find turn-based combat too slow and boring.",
        "I'm not interested in sci-fi games.",
        "My favourite season is autumn.",
        "我不吃辣",
        "我对花生过敏",
        "我特别喜欢爬山",
    ],
)
def test_a_preference(text: str) -> None:
    assert states_preference(text)


@pytest.mark.parametrize(
    "text", ["The train leaves at nine.", "You prefer tea, right?", "I moved to Lyon in May.", "我搬到了成都", ""]
)
def test_no_preference(text: str) -> None:
    assert not states_preference(text)


@given(st.text(max_size=2_000))
def test_any_text_has_an_answer(text: str) -> None:
    assert states_preference(text) in (True, False)
