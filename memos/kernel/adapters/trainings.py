"""The trainings under way in this process: an erasure, and the end of the program, end them and wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WAIT_S = 60.0


class Trainings:
    """Who trains which adapter. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}

    @contextmanager
    def running(self, id_: str, kill: Callable[[], None]) -> Iterator[None]:
        """Say that this thread trains an adapter; `kill` makes its next call fail, also one that is under way."""
        mine = _Running(kill)
        with self._lock:
            self._running[id_] = mine
        try:
            yield
        finally:
            with self._lock:
                del self._running[id_]
            mine.ended.set()

    def end(self, is_wanted: Callable[[str], bool]) -> None:
        """End those that are not wanted; when this returns they write nothing more, but what this very thread does."""
        with self._lock:
            running = dict(self._running)
        for id_, each in running.items():
            if not is_wanted(id_):
                each.kill()
                if each.thread != threading.get_ident():
                    each.ended.wait(_WAIT_S)


class _Running:
    def __init__(self, kill: Callable[[], None]) -> None:
        self.kill = kill
        self.thread = threading.get_ident()
        self.ended = threading.Event()
