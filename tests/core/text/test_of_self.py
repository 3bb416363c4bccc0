"""Which texts are about their own speaker, and which only ask, order, quote or pass something on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.sentences import is_about_speaker


@pytest.mark.parametrize(
    "text",
    [
        "Canned laughter makes my skin crawl.", "I get seasick in a bathtub.", "we've two toddlers and a puppy",
        "School starts at eight for us, so evenings are out.", "My wallet and I agreed on nothing over fifty quid.",
        "If the dog dies I'm out.", "Autotune sets my teeth on edge. No, really.", "我晕船。",
        "im hopeless before noon",
        "I'm bored at home. What could I photograph?", "My knees are shot.", "We have two toddlers.",
        "I need to use the lift, stairs are out.", "I'm going to be a father.",
    ],
)  # fmt: skip
def test_what_somebody_says_of_themselves_is(text: str) -> None:
    assert is_about_speaker(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "The train was late again.", "What should I wear?", "Can you help me with my essay?", "Explain it to me.",
        "Write a function that sorts my list.", "I want you to write a poem.", "She lost her keys.", "帮我写一封信",
        "Translate: I love my cat.", "I'll paste the report in three parts.", "Imagine I am a dragon.", "昨天下雨了。",
        "my code crashes on line 3", "The API, i.e. the server, is down.", "Tom said: I hate olives.",
        "Jeg bor i Oslo.",
        "The I/O board is broken.", "I think so.", "I live in Porto. " + "word " * 200,
        "I see. " + "The second chapter is on the trade of salt and on who was paid for it. " * 3,
    ],
)  # fmt: skip
def test_what_asks_or_is_of_something_else_is_not(text: str) -> None:
    assert not is_about_speaker(text)


@given(st.text(max_size=1_000))
def test_any_text_is_read(text: str) -> None:
    assert is_about_speaker(text) in (True, False)
