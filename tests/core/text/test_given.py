"""What in a message is not its writer's own word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.sentences import without_pasted_text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("I live in Oslo.\n```\nI live in Rome.\n```\nI like tea.", ["I live in Oslo.", "I like tea."]),
        ("I like tea.\n```python\nname = 'never closed'", ["I like tea."]),
        ("def f():\n    # my name is Bob\n    return 1;\nwhy?", ["why?"]),
        (
            "I am tired.\nPlease proofread this:\nI am a nurse.\nI live in Leeds.",
            ["I am tired.", "Please proofread this:"],
        ),
        ("翻译成英文：我住在苏州", ["翻译成英文："]),
        ("SELECT * FROM users WHERE bio = 'I like tea';\nreturns nothing", ["returns nothing"]),
        ("Correction: I live in Rome, and I like tea.", ["Correction: I live in Rome, and I like tea."]),
    ],
)
def test_code_and_given_text_are_left_out(text: str, left: list[str]) -> None:
    assert [line.strip() for line in without_pasted_text(text).split("\n") if line.strip()] == left


@given(st.text(max_size=500))
def test_places_stay_as_they_are(text: str) -> None:
    own = without_pasted_text(text)
    assert len(own) == len(text)
    assert all(left in (" ", sign) for left, sign in zip(own, text, strict=True))
