"""Hours of each day, such as those in which long work may be done that nobody asked for. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY, _LEAST = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From one time of the day in UTC until another, which may be on the day after."""

    start: time
    length: timedelta

    @classmethod
    def read(cls, text: str) -> TimeWindow:
        """Read `02:00-05:00`. Raises: ValueError (another form, or less than an hour)."""
        found = _HOURS.fullmatch(text)
        if found is None:
            raise ValueError("must be hours such as 02:00-05:00")
        from_hour, from_minute, to_hour, to_minute = map(int, found.groups())
        length = timedelta(hours=to_hour - from_hour, minutes=to_minute - from_minute) % _DAY
        if length < _LEAST:
            raise ValueError("must be an hour or more")
        return cls(time(from_hour, from_minute), length)

    def end(self, now: datetime) -> datetime | None:
        """Return when the night ends that it is now, None by day."""
        for start in (self._start(now), self._start(now) - _DAY):
            if start <= now < start + self.length:
                return start + self.length
        return None

    def next(self, now: datetime) -> datetime:
        """Return when the next night begins."""
        start = self._start(now)
        return start if start > now else start + _DAY

    def _start(self, now: datetime) -> datetime:
        return datetime.combine(now.astimezone(UTC).date(), self.start, UTC)
