"""Where sentences end, what asks, and what is said as true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.sentences import asserted, is_hypothetical, is_question, sentences


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def test_sentences_end_at_stops_and_lines_not_inside_numbers_and_names() -> None:
    text = "Dr. Smith came at 3.5 p.m. yesterday. I work at Acme Inc. as a clerk! Really?!\n好的。我住在里昂。"
    assert split(text) == [
        "Dr. Smith came at 3.5 p.m. yesterday.",
        "I work at Acme Inc. as a clerk!",
        "Really?!",
        "好的。",
        "我住在里昂。",
    ]
    assert split("") == split(" \n ") == []


def test_right_to_left_text_and_emoji_keep_their_places() -> None:
    text = "אני גר בפריז. هل أنت هنا؟ 👩‍👩‍👧 yes."
    assert split(text) == ["אני גר בפריז.", "هل أنت هنا؟", "👩‍👩‍👧 yes."]


@pytest.mark.parametrize(
    "text", ["Where?", "do you live here", "你好吗", "هل أنت هنا؟", 'He asked "why?"', "what is it", "你在哪？"]
)
def test_a_question(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize("text", ["I live here.", "What a day!", "When I ask, answer.", "", "我住在里昂"])
def test_no_question(text: str) -> None:
    assert not is_question(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("So yes, I live in Paris", True),
        ("I live in Paris, where can I swim?", True),
        ("Not sure if I told you, but I live in Paris", True),
        ("I live in Paris, right?", False),
        ("Do you think I live in Paris?", False),
        ("What if I live in Paris", False),
        ("I wish I live in Paris", False),
        ('She said "I live in Paris"', False),
        ("She said I live in Paris", False),
        ("“I live in Paris”, he wrote", False),
        ("> I live in Paris", False),
        ("It's not true that I live in Paris", False),
        ("他说I live in Paris", False),
        ("Translate this to French: I live in Paris", False),
    ],
)
def test_what_is_supposed_asked_or_quoted_is_not_asserted(text: str, said: bool) -> None:
    start = text.index("I live in Paris")
    assert asserted(text, start, start + len("I live in Paris")) is said


@given(st.text(alphabet=st.sampled_from("aI .!?。\n\"'“”é字😀Dr"), max_size=200))
def test_sentences_cover_all_but_white_space(text: str) -> None:
    spans = sentences(text)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
    covered = "".join("".join(text[start:end].split()) for start, end in spans)
    assert covered == "".join(text.split())


@pytest.mark.parametrize(
    "text", ["If it rains I stay.", "I stay, unless it rains.", "假如下雨我就不去。", "Imagine I were a cat."]
)
def test_what_is_only_supposed(text: str) -> None:
    assert is_hypothetical(text)


@pytest.mark.parametrize("text", ["It rains and I stay.", "I like the gift.", "下雨了我不去。"])
def test_what_is_not_supposed(text: str) -> None:
    assert not is_hypothetical(text)
