"""`MemOS.activity`: adds and searches of this process over the last day, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from memos.core.telemetry import RecentCalls
from memos.core.types import LOCAL_OWNER
from memos.kernel.context import Context
from memos.reader.arguments import within

_MOST_MINUTES = 24 * 60
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class ActivityPoint:
    """Calls of an interval that begins at `at`; times are null where there were none."""

    at: Annotated[datetime, "Start of the interval"]
    operation: Annotated[str, "`add` or `search`"]
    calls: Annotated[int, "Calls that ended in it"]
    failed: Annotated[int, "How many of them failed"]
    p50_ms: Annotated[float | None, "Half of the calls took at most that many milliseconds"]
    p95_ms: Annotated[float | None, "95 of 100 calls took at most that many milliseconds"]


class Activity:
    """Calls of this process, counted in memory; other processes of the installation count their own. Thread-safe."""

    def __init__(self, context: Context, calls: RecentCalls) -> None:
        self._context = context
        self._calls = calls

    def recent(self, *, minutes: int = 60, step: int = 1, actor: str = LOCAL_OWNER) -> Sequence[ActivityPoint]:
        """Return the calls of the last minutes in intervals of `step` minutes, oldest first, for admins.

        Raises: InvalidInput, PermissionDenied.
        """
        self._context.scopes.check_admin(actor)
        minutes, step = within("minutes", minutes, 1, _MOST_MINUTES), within("step", step, 1, _MOST_MINUTES)
        last = int(datetime.now(UTC).timestamp() // 60)
        return [
            self._point(start, step, operation)
            for start in range(last - minutes + 1, last + 1, step)
            for operation in ("add", "search")
        ]

    def _point(self, start: int, step: int, operation: str) -> ActivityPoint:
        found = self._calls.between(operation, start, start + step)
        p50, p95 = found.percentile_ms(0.5), found.percentile_ms(0.95)
        return ActivityPoint(_EPOCH + timedelta(minutes=start), operation, found.calls, found.failed, p50, p95)
