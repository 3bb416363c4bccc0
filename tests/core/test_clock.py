"""Record times always rise, and go on while the machine's clock is behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from memos.core.clock import RisingClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class Told:
    """A clock that says what it is told."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=30), st.integers(-(10**9), 10**9))
def test_times_rise_whatever_the_clock_says(steps: list[int], before: int) -> None:
    told = Told(START)
    clock = RisingClock(told, START + timedelta(seconds=before))
    times = []
    for step in steps:
        told.moment = START + timedelta(microseconds=step)
        times.append(clock.now())
        assert times[-1] >= told.moment
    assert times == sorted(set(times))
    assert times[0] > START + timedelta(seconds=before) or times[0] == START + timedelta(microseconds=steps[0])


def test_a_clock_that_is_a_year_behind_still_passes_the_time() -> None:
    told = Told(START)
    clock = RisingClock(told, START + timedelta(days=365))
    first = clock.now()
    told.moment += timedelta(seconds=5)
    assert clock.now() - first == timedelta(seconds=5)
    told.moment -= timedelta(days=3)  # and steps back again
    second = clock.now()
    assert second > first
    told.moment += timedelta(seconds=7)
    assert clock.now() - second == timedelta(seconds=7)
    told.moment = START + timedelta(days=400)  # it was put right
    assert clock.now() == told.moment
