"""Timings and outcomes of `MemOS` calls, reported to listeners, and the slowest of late."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated


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


@dataclass(frozen=True, slots=True)
class SlowCall:
    """A finished call that was slow. Unlike `Work` it may hold what was asked, so it is only for readers of `cubes`."""

    operation: Annotated[str, "`add` or `search`"]
    at: Annotated[datetime, "When it began"]
    seconds: Annotated[float, "How long it took"]
    stages_ms: Annotated[Mapping[str, float], "Milliseconds of each stage"]
    cubes: Annotated[tuple[str, ...], "Cubes it was about"]
    question: Annotated[
        str | None,
        "What was asked, at most 300 characters; null for an add, after an erasure, and for who does not own the cubes",
    ]
    failed: Annotated[bool, "Whether it ended with an error"]


_SLOW_KEPT = 50
_SLOW_FOR_S = 24 * 3600.0
_SLOW_CHARS = 300


class SlowCalls:
    """The 50 slowest calls of the last 24 hours in this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[SlowCall] = []

    def note(self, work: Work, cubes: tuple[str, ...], question: str | None) -> None:
        """Keep a call if it is among the slowest."""
        with self._lock:
            if len(self._calls) >= _SLOW_KEPT and work.seconds <= self._calls[-1].seconds:
                self._drop_old()
                if len(self._calls) >= _SLOW_KEPT:
                    return
            at = datetime.fromtimestamp(work.started_ns / 1e9, UTC)
            stages = {stage: round(seconds * 1000, 3) for stage, seconds in work.stages.items()}
            asked = None if question is None else question[:_SLOW_CHARS]
            self._calls.append(SlowCall(work.operation, at, work.seconds, stages, cubes, asked, work.failed))
            self._calls.sort(key=lambda call: -call.seconds)
            del self._calls[_SLOW_KEPT:]

    def slowest(self) -> list[SlowCall]:
        """Return the calls, the slowest first."""
        with self._lock:
            self._drop_old()
            return list(self._calls)

    def forget(self, cubes: Collection[str]) -> None:
        """Drop what was asked in these cubes, of which something was erased."""
        gone = set(cubes)
        with self._lock:
            self._calls = [replace(call, question=None) if gone & set(call.cubes) else call for call in self._calls]

    def _drop_old(self) -> None:
        oldest = time.time() - _SLOW_FOR_S
        self._calls = [call for call in self._calls if call.at.timestamp() >= oldest]


_MINUTES_KEPT = 24 * 60
# Durations fall into classes that grow by a tenth, from a tenth of a millisecond: a percentile is within 5 %.
_GROWTH = math.log(1.1)
_LEAST_S = 1e-4


@dataclass(slots=True)
class CallCounts:
    """Counts, failures and durations of the calls of an interval."""

    calls: int = 0
    failed: int = 0
    durations: dict[int, int] = field(default_factory=dict)

    def add(self, other: CallCounts) -> None:
        self.calls += other.calls
        self.failed += other.failed
        for class_, count in other.durations.items():
            self.durations[class_] = self.durations.get(class_, 0) + count

    def percentile_ms(self, share: float) -> float | None:
        """Return a percentile of the durations, None without calls."""
        left = share * self.calls
        for class_ in sorted(self.durations):
            left -= self.durations[class_]
            if left <= 0:
                return round(_LEAST_S * math.exp((class_ + 0.5) * _GROWTH) * 1000, 3)
        return None


class RecentCalls:
    """Counts the calls of the last 24 hours in this process by minute. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: OrderedDict[tuple[int, str], CallCounts] = OrderedDict()

    def note(self, work: Work) -> None:
        minute = int((work.started_ns / 1e9 + work.seconds) // 60)
        class_ = int(math.log(max(work.seconds, _LEAST_S) / _LEAST_S) / _GROWTH)
        with self._lock:
            found = self._minutes.get((minute, work.operation))
            if found is None:
                found = self._minutes[minute, work.operation] = CallCounts()
                while next(iter(self._minutes))[0] < minute - _MINUTES_KEPT:
                    self._minutes.popitem(last=False)
            found.add(CallCounts(1, int(work.failed), {class_: 1}))

    def between(self, operation: str, first: int, end: int) -> CallCounts:
        """Return the counts of an operation from minute `first` to before `end`, in minutes since 1970."""
        whole = CallCounts()
        with self._lock:
            for minute in range(first, end):
                if (found := self._minutes.get((minute, operation))) is not None:
                    whole.add(found)
        return whole


class StageClock:
    """Times the stages of one call; for one thread."""

    def __init__(self) -> None:
        self.laps: list[Lap] = []
        self.cubes: tuple[str, ...] = ()
        self.question: str | None = None

    def about(self, cubes: Iterable[str], question: str | None = None) -> None:
        """Record the cubes and the question of a call after its checks; only `SlowCalls` reads them."""
        self.cubes, self.question = tuple(cubes), question

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
        self.slow = SlowCalls()
        self.recent = RecentCalls()
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
            work = Work(operation, began_ns, time.perf_counter() - began, tuple(clock.laps), failed)
            if clock.cubes:  # a call that was refused is not told
                self.slow.note(work, clock.cubes, clock.question)
            self.recent.note(work)
            for listener in self._listening:
                listener(work)
