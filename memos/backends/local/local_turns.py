"""Takes turns at a model: one call at a time, in the order of asking, so that no request waits for another's end.

What nobody waits for lets the others go first, but for one turn in so many: it comes to its end, too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_FIRST = 8


class Turns:
    """A lock that is given to who has waited longest, `later` ones last. Not reentrant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._later: deque[threading.Event] = deque()
        self._passed = 0
        self._taken = False

    @contextmanager
    def __call__(self, *, later: bool = False) -> Iterator[None]:
        """Wait for a turn and hold it."""
        mine: threading.Event | None = None
        with self._lock:
            if self._taken:
                mine = threading.Event()
                (self._later if later else self._waiting).append(mine)
            self._taken = True
        if mine is not None:
            mine.wait()
        try:
            yield
        finally:
            with self._lock:
                self._give_on()

    def _give_on(self) -> None:
        if self._waiting and not (self._later and self._passed >= _FIRST):
            self._passed = self._passed + 1 if self._later else 0
            self._waiting.popleft().set()
        elif self._later:
            self._passed = 0
            self._later.popleft().set()
        else:
            self._taken = False
