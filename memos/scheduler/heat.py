"""The heat of an item by its accesses: forward decay, and the formula of MemoryOS. Pure functions.

Late accesses and clocks that are set back never lower a level; an access in the future counts as one now.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from memos.core.clock import to_micros
from memos.errors import InvalidInput, shown

NEVER = -math.inf  # the level of an item that was never accessed; not stored
SHORTEST_TAU = timedelta(minutes=1)
LONGEST_TAU = timedelta(days=366)

_MICROSECOND = timedelta(microseconds=1)
# The logarithm of the largest heat reported, just below overflow; reached only if the clock is set back by hundreds of
# tau.
_MAX_LOG_HEAT = 700.0


def log_add_exp(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return high if low == NEVER else high + math.log1p(math.exp(low - high))


def not_negative(field: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise InvalidInput(field, f"must be a number from 0, got {shown(value)}")
    return value


@dataclass(frozen=True, slots=True)
class ForwardDecay:
    """Exponentially decaying heat with time constant `tau`: an access of weight w at t counts w * exp((t - now) / tau).

    The stored level is S = log(sum of w * exp(t / tau)), with t since 1970. S changes only with an access, so items
    sorted by S are sorted by heat at any time, and "hotter than H" is a range of S. One access of weight 1 now has heat
    1. At tau = 1 minute in the year 2100 the spacing of floats at S is 1.5e-8, the relative error of a heat.

    Source: Cormode, Shkapenyuk, Srivastava and Xu, "Forward Decay", ICDE 2009, section III; for cache eviction: Lee et
    al., "LRFU", IEEE Trans. Computers 50(12), 2001. Raises: InvalidInput for a tau below a minute or above a year.
    """

    tau: timedelta

    def __post_init__(self) -> None:
        if not SHORTEST_TAU <= self.tau <= LONGEST_TAU:
            raise InvalidInput("tau", f"must be from a minute to a year, got {shown(str(self.tau))}")

    def add(self, level: float, at: datetime, now: datetime, weight: float = 1.0) -> float:
        """Return the level after an access at `at`; it never decreases."""
        if not 0 < weight < math.inf:
            raise InvalidInput("weight", f"must be a positive number, got {shown(weight)}")
        return log_add_exp(level, math.log(weight) + self._age(min(at, now)))

    def heat(self, level: float, now: datetime) -> float:
        return math.exp(min(level - self._age(now), _MAX_LOG_HEAT))

    def threshold(self, heat: float, now: datetime) -> float:
        """Return the level of an item with this heat now; hotter items have higher levels."""
        return self._age(now) + (math.log(heat) if not_negative("heat", heat) else NEVER)

    @staticmethod
    def shift(old_tau: timedelta, new_tau: timedelta, now: datetime) -> float:
        """Return what to add to every level so that heats stay the same when tau changes."""
        return ForwardDecay(new_tau)._age(now) - ForwardDecay(old_tau)._age(now)

    @staticmethod
    def rebase(level: float, old_tau: timedelta, new_tau: timedelta, now: datetime) -> float:
        """Return the level with `new_tau` that has the same heat now as `level` with `old_tau`."""
        return level + ForwardDecay.shift(old_tau, new_tau, now)

    def _age(self, moment: datetime) -> float:
        # Both are integers, so that the quotient is correctly rounded.
        return to_micros(moment) / (self.tau // _MICROSECOND)


def tau_for(share: float) -> timedelta:
    """Return the tau for a tier with room for this share of all items: 20 days for all, 7 for 20 %, 1 for 1 %.

    Items at the border of a larger tier are accessed more rarely, so that ranking them takes a longer time constant; at
    least an hour. Source: docs/development/log.md, fitted on LoCoMo and on seeded traces of 200 accesses a day; with a
    tenth of that, a tau of 7 to 20 days is better for tiers of 1 to 5 %.
    """
    if not 0 < share <= 1:
        raise InvalidInput("share", f"must be above 0 and at most 1, got {shown(share)}")
    return max(timedelta(days=20 * share**0.65), timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class MemoryOsHeat:
    """H = alpha * N_visit + beta * L_interaction + gamma * exp(-dt / tau), dt since the last visit.

    The first two terms change only with an access; the recency term lies between 0 and gamma. With alpha = gamma = 1 it
    never outweighs a visit: among segments with the same number of pages, the coldest is the least frequently used, and
    among those the least recently used.

    Source: Kang et al., "Memory OS of AI Agent", EMNLP 2025 (arXiv:2506.06326), its mid-term memory. Raises:
    InvalidInput for weights that are negative, infinite or NaN, and for a tau that is not positive.
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
        """Return the terms that do not decay."""
        return self.alpha * visits + self.beta * interactions

    def heat(self, visits: int, interactions: int, last: datetime | None, now: datetime) -> float:
        """Return H; a last visit in the future counts as one now."""
        recency = 0.0 if last is None else math.exp(-(max(now - last, timedelta(0)) / self.tau))
        return self.lasting(visits, interactions) + self.gamma * recency


class Access(StrEnum):
    RETRIEVED = "retrieved"
    CITED = "cited"
    CONFIRMED = "confirmed"
    MERGED = "merged"


# Set by hand, not fitted to data: no usage data on confirmations exists yet.
WEIGHTS: Mapping[Access, float] = {
    # The unit: the item was put into a context, so it looked relevant.
    Access.RETRIEVED: 1.0,
    # An answer cited it, in addition to the retrieval. Of ten hits one or two contain the evidence (LoCoMo: 1.4
    # messages per question), which would justify a factor of seven, but it is the model that claims to have used it.
    Access.CITED: 3.0,
    # A person confirmed it: it becomes as hot as after five retrievals.
    Access.CONFIRMED: 5.0,
    # It was talked about again: the same as a retrieval, as alpha = beta = 1 in Kang et al. 2025.
    Access.MERGED: 1.0,
}


@dataclass(frozen=True, slots=True)
class Warmth:
    """The stored values from which an item's heat is computed.

    `level` is the indexed sort key, which changes only with an access. `visits` and `interactions` are N_visit and
    L_interaction of MemoryOS, counted under every policy.
    """

    level: float = NEVER
    visits: int = 0
    interactions: int = 0
    last: datetime | None = None


History = list[list[float]]
"""Heat over time: `[second, heat before, heat after]` for each UTC day with an access, oldest first."""

_DAYS_REMEMBERED = 30
_DAY_S = 86_400
_LEAST_HEAT = 0.001  # what heats are rounded to


def remembered(history: History, at: datetime, before: float, after: float) -> History:
    """Add an access to a history, of which the last 30 days with an access are kept.

    Args:
        history: The accesses so far.
        at: When it was accessed.
        before: The heat just before.
        after: The heat just after.

    Returns: The new history.
    """
    new = [int(at.timestamp()), round(before, 3), round(after, 3)]
    kept = history[-_DAYS_REMEMBERED:]
    if kept and kept[-1][0] // _DAY_S >= new[0] // _DAY_S:
        last = kept.pop()
        new = [max(last[0], new[0]), last[1], new[2]]
    return [*kept, new][-_DAYS_REMEMBERED:]


def heat_then(history: History, at: datetime) -> float:
    """Return the heat at a time before the last access of a history, taking it to fade at an even rate in between."""
    second = at.timestamp()
    number = bisect_right(history, second, key=lambda entry: entry[0])
    if not number:
        return 0.0
    (since, _, high), (until, low, _) = history[number - 1], history[min(number, len(history) - 1)]
    if until <= since or high <= 0:
        return high
    return float(high * (max(low, _LEAST_HEAT) / high) ** ((second - since) / (until - since)))


class Policy(Protocol):
    """Computes levels and heats from accesses, so that promotion and demotion are range queries on levels.

    A level of at least `level_of(H)` means a heat of H or more, and one below `level_of(H) - slack` a heat below H; in
    between, the heat must be computed.
    """

    @property
    def slack(self) -> float:
        """Return by how much a level may be below that of its heat; 0 if levels and heats have the same order."""

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        """Return the warmth after an access at `at`; one in the future counts as one now."""

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        """Return the warmth after the accesses of both, for merged items and buffered accesses."""

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the warmth of a segment after facts were extracted from all its pages."""

    def recounted(self, warmth: Warmth) -> Warmth:
        """Return the warmth with a level computed from the counts, to convert one of another policy."""

    def heat(self, warmth: Warmth, now: datetime) -> float: ...

    def level_of(self, heat: float, now: datetime) -> float:
        """Return the level from which an item has at least this heat."""


@dataclass(frozen=True, slots=True)
class DecayPolicy:
    """`forward_decay`: levels and heats have the same order at any time; analysed segments stay hot."""

    decay: ForwardDecay

    @property
    def slack(self) -> float:
        return 0.0

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        return _counted(warmth, access, at, now, self.decay.add(warmth.level, at, now, WEIGHTS[access]))

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        return _summed(one, other, log_add_exp(one.level, other.level))

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the same warmth: the pages record what was analysed."""
        del now
        return warmth

    def recounted(self, warmth: Warmth) -> Warmth:
        count = warmth.visits + warmth.interactions
        if warmth.last is None or not count:
            return replace(warmth, level=NEVER)
        return replace(warmth, level=self.decay.add(NEVER, warmth.last, warmth.last, float(count)))

    def heat(self, warmth: Warmth, now: datetime) -> float:
        return self.decay.heat(warmth.level, now)

    def level_of(self, heat: float, now: datetime) -> float:
        return self.decay.threshold(heat, now)


@dataclass(frozen=True, slots=True)
class MemoryOsPolicy:
    """`memoryos`: a level is H without its recency term, so heats and levels differ by up to gamma.

    Retrieval counts as a visit and a merged page as an interaction, as in the original; citing and confirming only
    refresh the last visit, since the retrieval before them was counted.
    """

    formula: MemoryOsHeat

    @property
    def slack(self) -> float:
        return self.formula.gamma

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        return self._levelled(_counted(warmth, access, at, now, warmth.level))

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        return self._levelled(_summed(one, other, NEVER))

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the warmth with both counts at 0 and a visit now, as in the original."""
        return self._levelled(Warmth(last=_later(warmth.last, now)))

    def recounted(self, warmth: Warmth) -> Warmth:
        return self._levelled(warmth)

    def heat(self, warmth: Warmth, now: datetime) -> float:
        return self.formula.heat(warmth.visits, warmth.interactions, warmth.last, now)

    def level_of(self, heat: float, now: datetime) -> float:
        del now
        return not_negative("heat", heat)

    def _levelled(self, warmth: Warmth) -> Warmth:
        return replace(warmth, level=self.formula.lasting(warmth.visits, warmth.interactions))


def _counted(warmth: Warmth, access: Access, at: datetime, now: datetime, level: float) -> Warmth:
    return Warmth(
        level,
        warmth.visits + (access is Access.RETRIEVED),
        warmth.interactions + (access is Access.MERGED),
        _later(warmth.last, min(at, now)),
    )


def _summed(one: Warmth, other: Warmth, level: float) -> Warmth:
    last = _later(one.last, other.last) if other.last is not None else one.last
    return Warmth(level, one.visits + other.visits, one.interactions + other.interactions, last)


def _later(last: datetime | None, at: datetime) -> datetime:
    return at if last is None else max(last, at)
