"""`MemOS.activity`: adds and searches of this process over the last day, and how long they took."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated

from memos.core.telemetry import Listeners, Work
from memos.core.types import LOCAL_OWNER
from memos.kernel.context import Context
from memos.reader.arguments import within

_KEPT_MINUTES = 24 * 60
# Durations fall into classes that grow by a tenth, from a tenth of a millisecond: a percentile is within 5 %.
_GROWTH = math.log(1.1)
_LEAST_S = 1e-4


@dataclass(frozen=True, slots=True)
class ActivityPoint:
    """Calls of an interval that begins at `at`; times are null where there were none."""

    at: Annotated[datetime, "Start of the interval"]
    operation: Annotated[str, "`add` or `search`"]
    calls: Annotated[int, "Calls that ended in it"]
    failed: Annotated[int, "How many of them failed"]
    p50_ms: Annotated[float | None, "Half of the calls took at most that many milliseconds"]
    p95_ms: Annotated[float | None, "95 of 100 calls took at most that many milliseconds"]


@dataclass(slots=True)
class _Minute:
    calls: int = 0
    failed: int = 0
    durations: dict[int, int] = field(default_factory=dict)

    def add(self, other: _Minute) -> None:
        self.calls += other.calls
        self.failed += other.failed
        for class_, count in other.durations.items():
            self.durations[class_] = self.durations.get(class_, 0) + count

    def percentile_ms(self, share: float) -> float | None:
        left = share * self.calls
        for class_ in sorted(self.durations):
            left -= self.durations[class_]
            if left <= 0:
                return round(_LEAST_S * math.exp((class_ + 0.5) * _GROWTH) * 1000, 3)
        return None


class Activity:
    """Counts calls by minute, in memory; other processes of the installation count their own. Thread-safe."""

    def __init__(self, context: Context, listeners: Listeners) -> None:
        self._context = context
        self._minutes: OrderedDict[tuple[int, str], _Minute] = OrderedDict()
        self._lock = threading.Lock()
        listeners.add(self._hear)

    def _hear(self, work: Work) -> None:
        minute = int((work.started_ns / 1e9 + work.seconds) // 60)
        class_ = int(math.log(max(work.seconds, _LEAST_S) / _LEAST_S) / _GROWTH)
        with self._lock:
            found = self._minutes.get((minute, work.operation))
            if found is None:
                found = self._minutes[minute, work.operation] = _Minute()
                while next(iter(self._minutes))[0] < minute - _KEPT_MINUTES:
                    self._minutes.popitem(last=False)
            found.add(_Minute(1, int(work.failed), {class_: 1}))

    def recent(self, *, minutes: int = 60, step: int = 1, actor: str = LOCAL_OWNER) -> Sequence[ActivityPoint]:
        """Return the calls of the last minutes in intervals of `step` minutes, oldest first, for admins.

        Raises: InvalidInput, PermissionDenied.
        """
        self._context.scopes.check_admin(actor)
        minutes, step = within("minutes", minutes, 1, _KEPT_MINUTES), within("step", step, 1, _KEPT_MINUTES)
        now = datetime.now(UTC)
        last = int(now.timestamp() // 60)
        starts = range(last - minutes + 1, last + 1, step)
        with self._lock:
            return [self._point(start, step, operation) for start in starts for operation in ("add", "search")]

    def _point(self, start: int, step: int, operation: str) -> ActivityPoint:
        whole = _Minute()
        for minute in range(start, start + step):
            if (found := self._minutes.get((minute, operation))) is not None:
                whole.add(found)
        at = datetime.fromtimestamp(0, UTC) + timedelta(minutes=start)
        return ActivityPoint(
            at, operation, whole.calls, whole.failed, whole.percentile_ms(0.5), whole.percentile_ms(0.95)
        )
