"""Which time a question asks about: what it names, and what it says of that."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.filters import matches
from memos.search.question import Span, of_spans, read_question

ASKED = datetime(2023, 12, 20, 12, tzinfo=UTC)


def told(text: str, zone: str = "UTC") -> list[str]:
    spans = read_question(text, ASKED, ZoneInfo(zone)).spans
    return [" ".join("…" if side is None else f"{side:%Y-%m-%d}" for side in span) for span in spans]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("What did Maria plan on the evening of 7 July, 2023?", "2023-07-07 2023-07-08"),
        ("What did John do the week before August 3, 2023 involving his kids?", "2023-07-27 2023-08-03"),
        ("Where was she the day after 3 August 2023?", "2023-08-04 2023-08-05"),
        ("What happened 3 days before 3 August 2023?", "2023-07-31 2023-08-03"),
        ("Where was John between August 11 and August 15 2023?", "2023-08-11 2023-08-16"),
        ("What did we do from 3 May 2023 to 5 May 2023?", "2023-05-03 2023-05-06"),
        ("Which country was Tim in in the second week of November?", "2023-11-08 2023-11-15"),
        ("Was the first half of September 2022 a good month?", "2022-09-01 2022-09-16"),
        ("What was planned for the last week of May 2023?", "2023-05-25 2023-06-01"),
        ("What was on the last weekend in May?", "2023-05-25 2023-06-01"),
        ("Where did she travel in early June 2023?", "2023-06-01 2023-06-11"),
        ("Where did she travel at the end of June 2023?", "2023-06-21 2023-07-01"),
        ("What changed since October 2023?", "2023-10-01 2023-12-20"),
        ("What was said after 1 December 2023?", "2023-12-02 2023-12-20"),
        ("Where did I live before March 2021?", "… 2021-03-01"),
        ("Who came in 2022?", "2022-01-01 2023-01-01"),
        ("What did I eat yesterday?", "2023-12-19 2023-12-20"),
        ("上周我吃了什么?", "2023-12-11 2023-12-18"),
        ("The early week of 3 May 2023", "2023-05-03 2023-05-04"),
        ("", None),
        ("What does the cat eat?", None),
    ],
)
def test_a_question_asks_about_a_time(text: str, span: str | None) -> None:
    assert told(text) == ([] if span is None else [span])


def test_days_are_those_of_the_zone() -> None:
    [span] = read_question("What did I eat yesterday?", ASKED, ZoneInfo("Asia/Tokyo")).spans
    assert span == Span(datetime(2023, 12, 18, 15, tzinfo=UTC), datetime(2023, 12, 19, 15, tzinfo=UTC))


@pytest.mark.parametrize(
    ("record", "is_of_then"),
    [
        ({"said_at": "2023-07-07"}, True), ({"said_at": "2023-07-08"}, False), ({"said_at": "2023-07-06"}, False),
        ({"valid_from": "2023-07-07"}, True), ({"valid_from": "2023-07-01"}, False),
        ({"valid_from": "2023-07-01", "valid_to": "2023-07-09"}, True),
        ({"valid_from": "2023-07-01", "valid_to": "2023-07-07"}, False), ({}, False),
    ],
)  # fmt: skip
def test_what_was_said_began_or_was_so_then_is_of_that_time(record: dict[str, str], is_of_then: bool) -> None:
    spans = read_question("What was on 7 July 2023?", ASKED, ZoneInfo("UTC")).spans
    moments = {
        name: int(datetime.fromisoformat(f"{day}T00:00+00:00").timestamp()) * 10**6 for name, day in record.items()
    }
    assert matches(of_spans(spans), moments) is is_of_then


@given(
    st.text(max_size=80),
    st.sampled_from(["7 July 2023", "May 2023", "in 2022", "last week", "0001-01-01", "9999-12-31"]),
)
def test_any_words_before_a_time_are_read(words: str, time: str) -> None:
    for moment in (ASKED, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):
        for opening in ("", "the week before ", "300 years after ", "99 years before "):
            spans = read_question(f"{words} {opening}{time}", moment, ZoneInfo("UTC")).spans
            assert isinstance(matches(of_spans(spans), {"said_at": 0}), bool)
