"""Waits for background work from outside: looks now and again, and gives up in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from memos.errors import BackendTimeout, BackendUnavailable
from memos.reader.arguments import seconds_of

_POLLS_S = (0.02, 0.5)
_UNTIL: ContextVar[threading.Event | None] = ContextVar("memos_waiting_until", default=None)


@contextmanager
def waiting_until(stop: threading.Event) -> Iterator[None]:
    """Have what waits inside give up once the event is set: whoever asked is gone, or the program ends."""
    token = _UNTIL.set(stop)
    try:
        yield
    finally:
        _UNTIL.reset(token)


def polls(timeout_s: float | None) -> Iterator[None]:
    """Yield now and again, more and more rarely.

    Raises: BackendTimeout when the time is over, BackendUnavailable (told to stop).
    """
    deadline = None if timeout_s is None else time.monotonic() + seconds_of("timeout_s", timeout_s)
    pause, slowest = _POLLS_S
    stop = _UNTIL.get()
    while True:
        yield
        if deadline is not None and time.monotonic() >= deadline:
            raise BackendTimeout(f"Not ended after {timeout_s:g} s; the work goes on. Wait again, or longer.")
        if stop is None:
            time.sleep(pause)
        elif stop.wait(pause):
            raise BackendUnavailable("The server ends; the work goes on when it runs again. Wait again then.")
        pause = min(slowest, pause * 1.5)
