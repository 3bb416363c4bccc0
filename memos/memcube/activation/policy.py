"""Decides what stays in a tier and whether a block is loaded or computed again. Pure: values in, values out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

HALF_LIFE_S = 2 * 86_400.0
"""Heat halves in two days: less is better where conversations come and go, more where habits last (docs/log.md)."""

ADMITTED_USES = 2
"""Uses before a block is written to disk: most prompts never come again."""

_NEWS = 0.3


@dataclass(frozen=True, slots=True)
class Heat:
    """How much a block was used of late: `uses` as of `at` (seconds); a use counts one and halves in `HALF_LIFE_S`."""

    uses: float
    at: float

    def now(self, now: float) -> float:
        """Return the heat at a later moment; a clock that went back cools nothing."""
        return self.uses * math.pow(0.5, max(0.0, now - self.at) / HALF_LIFE_S)

    def used(self, now: float) -> Heat:
        """Return the heat after one more use."""
        return Heat(self.now(now) + 1.0, max(now, self.at))


def worth(heat: Heat, saved_s: float, size_bytes: int, now: float) -> float:
    """Return the seconds of computing that a byte is expected to save.

    Source: cost over size as in Cao & Irani, Cost-Aware WWW Proxy Caching Algorithms, USENIX 1997, with decaying use
    counts in place of their inflation.
    """
    return heat.now(now) * saved_s / max(1, size_bytes)


def coldest(candidates: Iterable[str], worth_of: Callable[[str], float]) -> str | None:
    """Return the key of least worth, the smaller key of equals; None of nothing."""
    return min(candidates, key=lambda key: (worth_of(key), key), default=None)


def blocks_to_load(load_s: Sequence[float], compute_s: Sequence[float]) -> int:
    """Return how many of the leading blocks to load; the rest is computed.

    Both are seconds by block, in order. Reuse ends where the first block is computed, so it is the number for which
    loading those before and computing those behind takes the least time; of equals the larger.
    """
    best, best_s = 0, sum(compute_s)
    total = best_s
    for place, (load, compute) in enumerate(zip(load_s, compute_s, strict=True)):
        total += load - compute
        if total <= best_s:
            best, best_s = place + 1, total
    return best


class Rate:
    """A measured rate: units a second, newer measurements counting more. Not thread-safe."""

    def __init__(self) -> None:
        self.per_s: float | None = None

    def measured(self, units: float, seconds: float) -> None:
        """Take in that so many units took so many seconds."""
        if units <= 0 or seconds <= 0:
            return
        seen = units / seconds
        # Times are averaged, not rates: a rate near infinity would outweigh everything.
        self.per_s = seen if self.per_s is None else 1 / ((1 - _NEWS) / self.per_s + _NEWS / seen)

    def seconds(self, units: float) -> float:
        """Return how long so many units should take; 0 while nothing was measured, so that it is tried."""
        return 0.0 if self.per_s is None else units / self.per_s
