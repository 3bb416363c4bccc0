"""Timings and outcomes of `MemOS` calls, reported to listeners."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lap:
    """A part of a stage, which may have several in one call. `started_ns` is epoch time."""

    stage: str
    started_ns: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """A finished call, `add` or `search`, with its timings. Has no ids, names or text."""

    operation: str
    started_ns: int
    seconds: float
    laps: tuple[Lap, ...]
    failed: bool

    @property
    def stages(self) -> dict[str, float]:
        return _seconds(self.laps)


def _seconds(laps: Iterable[Lap]) -> dict[str, float]:
    found: dict[str, float] = {}
    for lap in laps:
        found[lap.stage] = found.get(lap.stage, 0.0) + lap.seconds
    return found


Listener = Callable[[Work], None]
_JUST_NOW_S = 0.2


class StageClock:
    """Times the stages of one call; for one thread."""

    def __init__(self) -> None:
        self.laps: list[Lap] = []

    @property
    def timings_ms(self) -> dict[str, float]:
        return {stage: seconds * 1000 for stage, seconds in _seconds(self.laps).items()}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began_ns, began = time.time_ns(), time.perf_counter()
        yield
        self.laps.append(Lap(name, began_ns, time.perf_counter() - began))


class Listeners:
    """Listeners for every call of an installation, from any surface. Thread-safe."""

    def __init__(self) -> None:
        self._listening: tuple[Listener, ...] = ()
        self._lock = threading.Lock()
        self._under_way = 0
        self._ended = -_JUST_NOW_S

    def busy(self) -> bool:
        """Return True if a call is under way, or was just now."""
        return self._under_way > 0 or time.monotonic() - self._ended < _JUST_NOW_S

    def add(self, listener: Listener) -> None:
        """Call a listener for every later call, on the call's thread; it must be quick and not raise."""
        self._listening = (*self._listening, listener)

    @contextmanager
    def call(self, operation: str) -> Iterator[StageClock]:
        """Time a call, and report it when it ends, also by an error."""
        clock, failed = StageClock(), True
        began_ns, began = time.time_ns(), time.perf_counter()
        with self._lock:
            self._under_way += 1
        try:
            yield clock
            failed = False
        finally:
            with self._lock:
                self._under_way -= 1
                self._ended = time.monotonic()
            if self._listening:
                work = Work(operation, began_ns, time.perf_counter() - began, tuple(clock.laps), failed)
                for listener in self._listening:
                    listener(work)
