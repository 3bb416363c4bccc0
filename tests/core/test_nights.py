"""The hours of long work: read strictly, also over midnight."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from memos.core.settings import ParametricSettings
from memos.core.time_windows import TimeWindow


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2025, 1, day, hour, minute, tzinfo=UTC)


def test_a_night_ends_and_comes_again() -> None:
    night = TimeWindow.read("02:00-05:00")
    assert night.end(at(1, 2)) == night.end(at(1, 4, 59)) == at(1, 5)
    assert night.end(at(1, 1, 59)) is night.end(at(1, 5)) is None
    assert night.next(at(1, 1)) == at(1, 2)
    assert night.next(at(1, 2)) == night.next(at(1, 12)) == at(2, 2)


def test_a_night_may_pass_midnight() -> None:
    night = TimeWindow.read("22:30-05:00")
    assert night.end(at(1, 22, 30)) == night.end(at(2, 4)) == at(2, 5)
    assert night.end(at(2, 5)) is night.end(at(1, 22, 29)) is None
    assert night.next(at(2, 4)) == at(2, 22, 30)


def test_hours_are_those_of_utc() -> None:
    east = timezone(timedelta(hours=9))
    assert TimeWindow.read("02:00-05:00").end(datetime(2025, 1, 1, 12, tzinfo=east)) == at(1, 5)


@pytest.mark.parametrize(
    "text", ["", "2-5", "02:00", "24:00-05:00", "02:00-02:59", "02:00-02:00", "02:00-05:00 ", "02:0５-05:00"]
)
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"hours such as|an hour or more"):
        ParametricSettings(night=text)
