"""Events, thoughts and marks in a stream are the same however it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.streaming import EventData, StreamedText, without_reasoning
from memos.kernel.chat.chat import CitationMarks, without_marks

EVENTS = 'data: {"a": 1}\n\n: comment\nevent: x\ndata:two\ndata: lines é\n\nid: 7\n\ndata\ndata: [DONE]\n\n'


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def read(pieces: list[bytes]) -> list[str]:
    events = EventData()
    return [data for piece in pieces for data in events.feed(piece)] + list(events.end())


@given(st.lists(st.integers(0, 500)), st.sampled_from(["\n", "\r\n", "\r"]))
def test_events_are_read_in_any_cut_and_with_any_line_end(places: list[int], end: str) -> None:
    raw = EVENTS.replace("\n", end).encode("latin-1").decode("latin-1")
    pieces = [piece.encode("utf-8") for piece in cut(raw, places)]
    assert read(pieces) == ['{"a": 1}', "two\nlines é", "[DONE]"]


def test_a_line_that_never_ends_is_an_error() -> None:
    events = EventData()
    with pytest.raises(ValueError, match="too long"):
        for _ in range(20):
            list(events.feed(b"x" * 1_000_000))


@given(
    st.sampled_from(
        [
            "<think>Hm, </think>Lyon.",
            " \n<think>x</think>",
            "<thinking> is my tag",
            "In Lyon </think>",
            "<thi",
            "",
            "<think>x",
        ]
    ),
    st.lists(st.integers(0, 50)),
)
def test_thoughts_are_left_out_in_any_cut(text: str, places: list[int]) -> None:
    answering = StreamedText()
    told = "".join(answering.feed(piece) for piece in cut(text, places)) + answering.end()
    assert told == without_reasoning(text)


MARKED = st.lists(
    st.sampled_from(["[m1]", " [m2, m3]", "[m1;2]", "[m", "]", "m9", "[m9]", " ", "\t", "Lyon", "[", ",", "\n", "é"])
)


@given(MARKED.map("".join), st.lists(st.integers(0, 200)), st.booleans())
def test_marks_are_found_in_any_cut(text: str, places: list[int], kept: bool) -> None:
    marks = CitationMarks(("m1", "m2"), kept=kept)
    told = "".join(marks.feed(piece) for piece in cut(text, places)) + marks.end()
    whole, cited = without_marks(text, ("m1", "m2"), kept=kept)
    assert told.rstrip() == whole
    assert tuple(marks.cited) == cited


@pytest.mark.parametrize(
    ("text", "told", "cited"),
    [
        ("Lyon [m1].", "Lyon.", ("m1",)),
        ("[m2] Lyon[m1] and [m2, m1]", "Lyon and", ("m2", "m1")),
        ("Lyon [m1, m77; 2].", "Lyon.", ("m1", "m2")),
        ("array[m77] and [m], [M1]", "array[m77] and [m], [M1]", ()),
        ("Lyon [m01].", "Lyon.", ("m1",)),
        ("[m1", "[m1", ()),
        ("", "", ()),
    ],
)
def test_marks_that_are_known_are_taken_out(text: str, told: str, cited: tuple[str, ...]) -> None:
    assert without_marks(text, ("m1", "m2")) == (told, cited)


def test_a_great_deal_of_white_space_takes_no_time() -> None:
    text = " " * 300_000 + "[m1" + "," * 300_000
    assert without_marks(text + "x", ("m1",))[1] == ()
