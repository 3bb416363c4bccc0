"""Keeps calls under so many requests and tokens a minute; knows nothing of what is called."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# A full bucket holds ten seconds' worth, so that no minute sees more than 7/6 of the limit.
_BURST_S = 10.0


class _Bucket:
    """Fills at a steady rate. More than it holds may be taken when it is full; what comes later pays for that."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._rate = per_minute / 60
        self._size = max(1.0, self._rate * _BURST_S)
        self._level = self._size
        self._at = now

    def delay(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` can be taken."""
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (min(amount, self._size) - self._level) / self._rate)

    def take(self, amount: float) -> None:
        """Take it now; the level may fall below nothing."""
        self._level = min(self._size, self._level - amount)


class RateLimit:
    """Two token buckets shared by threads; None is no limit. Callers are served in the order they came."""

    def __init__(
        self,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        *,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._requests = None if requests_per_minute is None else _Bucket(requests_per_minute, now())
        self._tokens = None if tokens_per_minute is None else _Bucket(tokens_per_minute, now())
        self._now = now
        self._wait = wait
        self._lock = threading.Lock()

    def take(self, tokens: int, within_s: float) -> bool:
        """Wait for room for one request of so many tokens; False at once, with nothing taken, if that takes longer."""
        with self._lock:
            now = self._now()
            wanted = [(bucket, amount) for bucket, amount in ((self._requests, 1), (self._tokens, tokens)) if bucket]
            delay = max((bucket.delay(amount, now) for bucket, amount in wanted), default=0.0)
            if delay > within_s:
                return False
            for bucket, amount in wanted:
                bucket.take(amount)
        if delay > 0:
            self._wait(delay)
        return True

    def settle(self, taken: int, used: int) -> None:
        """Give back what was taken and not used, or take what was used beyond it."""
        if self._tokens is not None:
            with self._lock:
                self._tokens.take(used - taken)
