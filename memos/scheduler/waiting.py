"""Waits for background work from outside: looks now and again, and gives up in time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from memos.errors import BackendTimeout
from memos.reader.fields import seconds_of

_POLLS_S = (0.02, 0.5)


def polls(timeout_s: float | None) -> Iterator[None]:
    """Yield now and again, more and more rarely. Raises: BackendTimeout when the time is over."""
    deadline = None if timeout_s is None else time.monotonic() + seconds_of("timeout_s", timeout_s)
    pause, slowest = _POLLS_S
    while True:
        yield
        if deadline is not None and time.monotonic() >= deadline:
            raise BackendTimeout(f"Not ended after {timeout_s:g} s; the work goes on. Wait again, or longer.")
        time.sleep(pause)
        pause = min(slowest, pause * 1.5)
