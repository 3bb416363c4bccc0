"""How hot something is after its accesses: forward decay, and the heat of MemoryOS. Numbers in, numbers out.

Knows nothing of items, tiers and tables, nor what time it is. Clocks go back and accesses arrive late: neither lowers
a level, and an access from the future counts as one of now.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from memos.core.clock import to_micros
from memos.errors import InvalidInput, shown

NEVER = -math.inf
"""The level of what was never accessed; a ledger may keep nothing for it."""

SHORTEST_TAU = timedelta(minutes=1)
LONGEST_TAU = timedelta(days=366)

_MICROSECOND = timedelta(microseconds=1)
# The logarithm of the largest heat that is told, a bit below the largest float's. Only a clock that was set back by
# hundreds of tau gets there.
_MOST = 700.0


def log_add_exp(one: float, other: float) -> float:
    """Return ln(exp(one) + exp(other)) without computing either."""
    high, low = max(one, other), min(one, other)
    return high if low == NEVER else high + math.log1p(math.exp(low - high))


def not_negative(field: str, value: float) -> float:
    """Return the value. Raises: InvalidInput for one that is negative, infinite or NaN."""
    if not 0 <= value < math.inf:
        raise InvalidInput(field, f"must be a number from 0, got {shown(value)}")
    return value


@dataclass(frozen=True, slots=True)
class ForwardDecay:
    """Heat that falls by 1/e in `tau`: each access of weight w at time t counts w * exp((t - now) / tau).

    What is kept is S, the logarithm of the sum of w * exp(t / tau), with t from 1970 on. S changes only by an access,
    so the order of items by S is their order by heat at any time, and "hotter than H" is a range of S.
    One access of weight 1 has the heat 1. A float of S at tau = 1 minute in the year 2100 is 1.5e-8 from the next,
    which is the relative error of a heat.

    Source: Cormode, Shkapenyuk, Srivastava and Xu, "Forward Decay", ICDE 2009, section III; with one item's decay
    under a cache's eviction: Lee et al., "LRFU", IEEE Trans. Computers 50(12), 2001.

    Raises: InvalidInput for a tau below a minute or above a year.
    """

    tau: timedelta

    def __post_init__(self) -> None:
        if not SHORTEST_TAU <= self.tau <= LONGEST_TAU:
            raise InvalidInput("tau", f"must be from a minute to a year, got {shown(str(self.tau))}")

    def add(self, level: float, at: datetime, now: datetime, weight: float = 1.0) -> float:
        """Return S after an access at `at`, never less than it was. Raises: InvalidInput."""
        if not 0 < weight < math.inf:
            raise InvalidInput("weight", f"must be a positive number, got {shown(weight)}")
        return log_add_exp(level, math.log(weight) + self._age(min(at, now)))

    def heat(self, level: float, now: datetime) -> float:
        """Return exp(S - now / tau)."""
        return math.exp(min(level - self._age(now), _MOST))

    def threshold(self, heat: float, now: datetime) -> float:
        """Return the S of what has this heat now: what is at least as hot has at least this S. Raises: InvalidInput."""
        return self._age(now) + (math.log(heat) if not_negative("heat", heat) else NEVER)

    @staticmethod
    def shift(old_tau: timedelta, new_tau: timedelta, now: datetime) -> float:
        """Return what to add to every S so that each heat stays what it is now under another tau."""
        return ForwardDecay(new_tau)._age(now) - ForwardDecay(old_tau)._age(now)

    @staticmethod
    def rebase(level: float, old_tau: timedelta, new_tau: timedelta, now: datetime) -> float:
        """Return the S under `new_tau` of what had `level` under `old_tau`: the heat now is the same."""
        return level + ForwardDecay.shift(old_tau, new_tau, now)

    def _age(self, moment: datetime) -> float:
        # Whole microseconds on both sides: the quotient is the float nearest to the true one.
        return to_micros(moment) / (self.tau // _MICROSECOND)


def tau_for(share: float) -> timedelta:
    """Return the tau that suits a tier with room for this share of all: 20 days for all, 7 for 20 %, 1 for 1 %.

    What is at the border of a larger tier is accessed more rarely, so telling it apart needs a longer memory; at least
    an hour. Source: docs/log.md, fitted on LoCoMo and on seeded traces of 200 accesses a day; for steady use of ten
    times less, a tau of 7 to 20 days is better for tiers of 1 to 5 %.

    Raises: InvalidInput unless the share is above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise InvalidInput("share", f"must be above 0 and at most 1, got {shown(share)}")
    return max(timedelta(days=20 * share**0.65), timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class MemoryOsHeat:
    """H = alpha * N_visit + beta * L_interaction + gamma * exp(-dt / tau), dt since the last visit.

    The first two terms, the lasting ones, never change by themselves; the third lies between 0 and gamma. So H is at
    least the lasting part and at most gamma more. With alpha = gamma = 1 the third never outweighs one visit: of
    segments with as many pages, the coldest is the least often used one, of those the least recently used.

    Source: Kang et al., "Memory OS of AI Agent", EMNLP 2025 (arXiv:2506.06326), its mid-term memory.

    Raises: InvalidInput for weights that are negative, infinite or NaN, and for a tau that is not positive.
    """

    alpha: float
    beta: float
    gamma: float
    tau: timedelta

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma"):
            not_negative(name, getattr(self, name))
        if self.tau <= timedelta(0):
            raise InvalidInput("tau", f"must be positive, got {shown(str(self.tau))}")

    def lasting(self, visits: int, interactions: int) -> float:
        """Return alpha * N_visit + beta * L_interaction."""
        return self.alpha * visits + self.beta * interactions

    def heat(self, visits: int, interactions: int, last: datetime | None, now: datetime) -> float:
        """Return H; a last visit in the future counts as one of now."""
        recency = 0.0 if last is None else math.exp(-(max(now - last, timedelta(0)) / self.tau))
        return self.lasting(visits, interactions) + self.gamma * recency
