"""What time expressions mean, seen from Wednesday 7 June 2023."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.times import time_expressions

WEDNESDAY = datetime(2023, 6, 7, 14, tzinfo=UTC)
ZONE = ZoneInfo("UTC")


def days(text: str, anchor: datetime = WEDNESDAY, zone: str = "UTC") -> list[tuple[str, str]]:
    there = ZoneInfo(zone)
    return [
        (f"{found.valid_from.astimezone(there):%m-%d}", f"{found.valid_to.astimezone(there):%m-%d}")
        for found in time_expressions(text, anchor, there)
    ]


@pytest.mark.parametrize(
    ("text", "first", "after"),
    [
        ("I met her yesterday.", "06-06", "06-07"),
        ("Today was great", "06-07", "06-08"),
        ("See you tomorrow!", "06-08", "06-09"),
        ("I slept badly last night", "06-06", "06-07"),
        ("the day before yesterday it rained", "06-05", "06-06"),
        ("We went last Friday", "06-02", "06-03"),
        ("We went last Wednesday", "05-31", "06-01"),
        ("this Friday we go", "06-09", "06-10"),
        ("next Friday we go", "06-09", "06-10"),
        ("next Wednesday we go", "06-14", "06-15"),
        ("We met on Monday", "06-05", "06-06"),
        ("I'll see you on Monday", "06-12", "06-13"),
        ("last week was hard", "05-29", "06-05"),
        ("next week", "06-12", "06-19"),
        ("last weekend", "06-03", "06-05"),
        ("this weekend", "06-10", "06-12"),
        ("next weekend", "06-17", "06-19"),
        ("two weekends ago", "05-27", "05-29"),
        ("we ran last Tues.", "06-06", "06-07"),
        ("last month", "05-01", "06-01"),
        ("two weeks ago", "05-22", "05-29"),
        ("a couple of days ago", "06-05", "06-06"),
        ("3 months ago", "03-01", "04-01"),
        ("in two days", "06-09", "06-10"),
        ("on 5 June I left", "06-05", "06-06"),
        ("June 5th was it", "06-05", "06-06"),
        ("the 3rd of May", "05-03", "05-04"),
        ("back in March it was cold", "03-01", "04-01"),
        ("2023-05-06 was it", "05-06", "05-07"),
        ("昨天我去了医院", "06-06", "06-07"),
        ("大前天", "06-04", "06-05"),
        ("后天见", "06-09", "06-10"),
        ("上周五我们见面了", "06-02", "06-03"),
        ("下周一开会", "06-12", "06-13"),
        ("这周日", "06-11", "06-12"),
        ("上个月搬家了", "05-01", "06-01"),
        ("下周很忙", "06-12", "06-19"),
        ("三天前", "06-04", "06-05"),
        ("两周前", "05-22", "05-29"),
        ("十二天后", "06-19", "06-20"),
        ("上周末去爬山", "06-03", "06-05"),
        ("5月6日出发", "05-06", "05-07"),
        ("2023年5月", "05-01", "06-01"),
        ("先週、京都に行きました", "05-29", "06-05"),
        ("昨日は雨でした", "06-06", "06-07"),
    ],
)
def test_an_expression_means_these_days(text: str, first: str, after: str) -> None:
    assert days(text) == [(first, after)]


@pytest.mark.parametrize(
    ("text", "year", "until"),
    [
        ("last year", 2022, 2023),
        ("next year", 2024, 2025),
        ("10 years ago", 2013, 2014),
        ("in 2019 I moved", 2019, 2020),
        ("去年夏天", 2022, 2023),
        ("前年", 2021, 2022),
        ("2021年", 2021, 2022),
    ],
)
def test_years_are_whole(text: str, year: int, until: int) -> None:
    [found] = time_expressions(text, WEDNESDAY, ZONE)
    assert (found.valid_from.date(), found.valid_to.date()) == (date(year, 1, 1), date(until, 1, 1))


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("July 3, 2022", "2022-07-03"),
        ("on 3 July", "2022-07-03"),
        ("in December 2021", "2021-12-01"),
        ("in December we met", "2022-12-01"),
        ("we plan it for late August", "2023-08-01"),
        ("12月25日", "2022-12-25"),
        ("since 12 May", "2023-05-12"),
        ("the 25th of May", "2023-05-25"),
        ("31 May", "2023-05-31"),
        ("until 25 May", "2024-05-25"),
        ("25 Dec", "2022-12-25"),
        ("on 29 February", "2020-02-29"),
        ("We will move on 25 October", "2023-10-25"),
        ("We fly to Rome on 25 October", "2023-10-25"),
        ("We're flying on October 25th", "2023-10-25"),
        ("I signed up for the half marathon on 5 October", "2023-10-05"),
        ("I have an appointment on 3 July", "2023-07-03"),
        ("I had an appointment on 3 July", "2022-07-03"),
        ("I will go. We met on 3 July", "2022-07-03"),
        ("she comes on Thursday 20 July", "2023-07-20"),
        ("Saw her on Wednesday 20 July", "2022-07-20"),  # which was one in 2022
        ("Wednesday, the 20th of July", "2022-07-20"),
        ("Thu, July 20", "2023-07-20"),
        ("I am working at Acme since 12 May", "2023-05-12"),
        ("It is amazing, we watched it on 3 July", "2022-07-03"),
        ("I registered my car on 3 July", "2022-07-03"),
        ("due to the storm of 3 July", "2022-07-03"),
        ("the rent is due on 3 July", "2023-07-03"),
        ("We booked a hotel for 3 July", "2023-07-03"),
        ("We booked a hotel on 3 July", "2022-07-03"),
        ("on Friday 5 people came", "2023-06-02"),
    ],
)
def test_a_date_without_a_year_lies_behind_unless_the_words_speak_of_plans(text: str, first: str) -> None:
    assert [f"{found.valid_from:%Y-%m-%d}" for found in time_expressions(text, WEDNESDAY, ZONE)] == [first]


@pytest.mark.parametrize(
    "text",
    [
        "a few days ago",
        "last summer",
        "the sun shone on sat images and wed photos",
        "some time later",
        "I may go",
        "May I ask?",
        "she will march on",
        "call 2023",
        "in 5 minutes",
        "2023-13-45",
        "31 February",
        "0 May",
        "13月45日",
        "9999999 years ago",
        "",
    ],
)
def test_what_nobody_can_know_is_left_out(text: str) -> None:
    assert days(text) == []


def test_spans_are_those_of_the_words() -> None:
    text = "Yesterday I called, 上周五 too 😀 and last week."
    found = time_expressions(text, WEDNESDAY, ZONE)
    assert (
        [text[one.start : one.end] for one in found] == ["Yesterday", "上周五", "last week"] == [o.text for o in found]
    )


def test_a_day_is_that_of_the_zone() -> None:
    late = datetime(2023, 6, 7, 23, 30, tzinfo=UTC)
    [found] = time_expressions("today", late, ZoneInfo("Asia/Shanghai"))
    assert found.valid_from == datetime(2023, 6, 7, 16, tzinfo=UTC)
    assert found.valid_to == datetime(2023, 6, 8, 16, tzinfo=UTC)


@pytest.mark.parametrize("anchor", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)])
def test_the_ends_of_the_calendar_give_nothing_and_no_error(anchor: datetime) -> None:
    for text in ("last year", "next year", "昨天", "tomorrow", "ten weeks ago", "in 900 years", "十年后"):
        time_expressions(text, anchor, ZoneInfo("Asia/Tokyo"))


@given(
    st.text(max_size=60), st.sampled_from(["last week", "昨天", "in 3 days", "on Monday", "5 June 2023", "Sept 3rd"])
)
def test_words_around_an_expression_never_break_it(around: str, said: str) -> None:
    text = f"{around} {said} {around[::-1]}"
    for found in time_expressions(text, WEDNESDAY, ZONE):
        assert found.valid_from < found.valid_to
        assert text[found.start : found.end] == found.text


def test_at_most_sixteen_are_read() -> None:
    assert len(time_expressions("yesterday " * 100, WEDNESDAY, ZONE)) == 16


def test_every_gate_has_a_reader() -> None:
    from memos.core.text import times  # noqa: PLC0415

    kinds = set(re.findall(r"\(\?P<(\w+)>", times._EXPRESSION.pattern)) - {
        "name",
        "number",
        "named",
        "which",
        "on",
        "side",
    }
    assert kinds == set(times._READERS)
