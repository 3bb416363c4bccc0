"""The rate limit on a clock that only waiting moves."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.backends.openai.chat import RateLimit


class Hand:
    """A clock turned by hand; waiting turns it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


def limited(hand: Hand, requests: int | None = None, tokens: int | None = None) -> RateLimit:
    return RateLimit(requests, tokens, now=lambda: hand.now, wait=hand.wait)


def test_without_limits_nobody_waits() -> None:
    hand = Hand()
    limit = limited(hand)
    assert all(limit.take(10**9, 0) for _ in range(1000))
    assert hand.now == 1000.0


def test_requests_come_at_the_rate() -> None:
    hand = Hand()
    limit = limited(hand, requests=60)
    assert all(limit.take(1, 60) for _ in range(10))  # ten seconds' worth at once
    assert hand.now == 1000.0
    assert all(limit.take(1, 60) for _ in range(30))
    assert hand.now == pytest.approx(1030.0)


def test_one_request_a_minute_is_one_a_minute() -> None:
    hand = Hand()
    limit = limited(hand, requests=1)
    assert limit.take(1, 0)
    assert limit.take(1, 60)
    assert hand.now == pytest.approx(1060.0)


def test_what_cannot_be_had_in_time_takes_nothing() -> None:
    hand = Hand()
    limit = limited(hand, requests=1)
    assert limit.take(1, 0)
    assert not any(limit.take(1, 59) for _ in range(100))
    assert hand.now == 1000.0
    assert limit.take(1, 61)


def test_more_tokens_than_the_bucket_holds_are_paid_for_later() -> None:
    hand = Hand()
    limit = limited(hand, tokens=600)  # 10 a second, 100 at once
    assert limit.take(1000, 0)
    assert not limit.take(100, 99)
    assert limit.take(100, 101)
    assert hand.now == pytest.approx(1100.0)


def test_unused_tokens_are_given_back_and_overuse_is_taken() -> None:
    hand = Hand()
    limit = limited(hand, tokens=600)
    assert limit.take(100, 0)
    limit.settle(100, 10)
    assert limit.take(90, 0)
    limit.settle(90, 190)
    assert not limit.take(10, 10.9)
    assert limit.take(10, 11.1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 20)), min_size=1, max_size=60))
def test_no_minute_sees_more_than_the_limit_and_its_burst(calls: list[tuple[int, float]]) -> None:
    hand = Hand()
    limit = limited(hand, requests=30, tokens=3_000)
    taken: list[tuple[float, int]] = []
    for tokens, pause in calls:
        hand.now += pause
        assert limit.take(tokens, 10_000)
        taken.append((hand.now, tokens))
    for start, _ in taken:
        inside = [tokens for at, tokens in taken if start <= at < start + 60]
        assert len(inside) <= 30 + 5 + 1
        assert sum(inside) <= 3_000 + 500 + 300


def test_threads_share_the_limit() -> None:
    hand = Hand()
    waited: list[float] = []
    limit = RateLimit(600, None, now=lambda: hand.now, wait=waited.append)
    threads = [threading.Thread(target=lambda: [limit.take(1, 1e9) for _ in range(25)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # 100 at once; each of the other 100 is told a moment of its own, a tenth of a second after the one before.
    assert sorted(round(each, 3) for each in waited) == [round(n / 10, 3) for n in range(1, 101)]
