"""Clocks and ids, passed in so that tests can fix both."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Protocol

import uuid_utils

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """The source of the current time; tests pass a fixed one."""

    def now(self) -> datetime:
        """Return the present as an aware UTC datetime."""


class SystemClock:
    """The machine's clock, never handing out the same or an earlier microsecond twice."""

    # Record times order versions, so two writes of one process must not share one.

    def __init__(self) -> None:
        self._last = _EPOCH
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            self._last = max(datetime.now(UTC), self._last + _MICROSECOND)
            return self._last


class RisingClock:
    """Another clock, never earlier than a given moment nor than what it said before."""

    # A machine's clock may step back, also between two runs; record times may not. While it is behind, time goes on
    # from where it was as fast as that clock goes: what is due in two seconds must not wait for a year.

    def __init__(self, clock: Clock, not_before: datetime | None) -> None:
        self._clock = clock
        self._last = not_before or _EPOCH
        self._behind = timedelta(0)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            told = self._clock.now()
            if told > self._last:
                self._behind = timedelta(0)
            elif told + self._behind <= self._last:
                self._behind = self._last - told + _MICROSECOND
            self._last = told + self._behind
            return self._last


def new_id() -> str:
    """Return a new UUIDv7 in its 36-character form (RFC 9562, section 5.7)."""
    return str(uuid_utils.uuid7())


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
