"""What states something that holds on: tastes, needs, limits and standing orders, of the speaker alone."""

from __future__ import annotations

import pytest

from memos.core.text.instructions import instructs, is_lasting_preference


@pytest.mark.parametrize(
    "text",
    [
        "I avoid bustling nightlife.", "I do not like games with a lot of text.", "I have a severe peanut allergy.",
        "I follow a strict gluten-free diet due to celiac disease.", "I refuse to fly with budget airlines.",
        "I only book hotels that offer breakfast.", "I'm strongly against fast fashion.", "I prioritize battery life.",
        "I have no interest in reality shows.", "I need a car with at least seven seats.", "I have a phobia of lifts.",
        "I exclusively wear natural fabrics.", "I find crowded places overwhelming.", "I'm on a low-potassium diet.",
        "我对花生过敏。", "我不吃香菜。",
        "Always include version numbers when I ask about libraries.", "From now on, answer in German.",
        "Never use emojis in your replies.", "以后请用中文回答。",
    ],
)  # fmt: skip
def test_what_holds_on_is_seen(text: str) -> None:
    assert is_lasting_preference(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "See you at eight.", "What is the capital of France?", "Ann avoids crowds.", "The train was late again.",
        "Do you like jazz?", "We met in Porto last week.", "She has a severe peanut allergy.", "昨天下雨了。",
        "Always good to hear from you!", "I'm on a train to Lyon.", "x" * 5_000,
    ],
)  # fmt: skip
def test_what_passes_is_not(text: str) -> None:
    assert not is_lasting_preference(text)


def test_an_order_for_every_time_is_told_from_a_taste() -> None:
    assert instructs("Always format code with syntax highlighting when I ask about details.")
    assert not instructs("I avoid bustling nightlife.")
    assert not instructs("Always here to help!")


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    assert is_lasting_preference("I have a severe peanut allergy. " + "word " * 1_000)
    assert not is_lasting_preference("word " * 1_000 + "I have a severe peanut allergy.")
