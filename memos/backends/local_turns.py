"""Takes turns at a model: one call at a time, in the order of asking, so that no request waits for another's end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock that is given to who has waited longest. Not reentrant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Wait for a turn and hold it."""
        mine: threading.Event | None = None
        with self._lock:
            if self._taken:
                mine = threading.Event()
                self._waiting.append(mine)
            self._taken = True
        if mine is not None:
            mine.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._taken = False
