"""Heat of an item after its accesses: forward decay, and MemoryOS heat. Pure functions of numbers.

Clocks may go back and accesses arrive late: neither lowers a level; an access from the future counts as one of now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from memos.core.clock import to_micros
from memos.errors import InvalidInput, shown

NEVER = -math.inf  # the level of what was never accessed; a ledger may keep nothing for it
SHORTEST_TAU = timedelta(minutes=1)
LONGEST_TAU = timedelta(days=366)

_MICROSECOND = timedelta(microseconds=1)
# The logarithm of the largest heat that is reported, a bit below the largest float's. Only a clock that was set back by
# hundreds of tau gets there.
_MOST = 700.0


def log_add_exp(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return high if low == NEVER else high + math.log1p(math.exp(low - high))


def not_negative(field: str, value: float) -> float:
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

    Source: Cormode, Shkapenyuk, Srivastava and Xu, "Forward Decay", ICDE 2009, section III; with one item's decay under
    a cache's eviction: Lee et al., "LRFU", IEEE Trans. Computers 50(12), 2001. Raises: InvalidInput for a tau below a
    minute or above a year.
    """

    tau: timedelta

    def __post_init__(self) -> None:
        if not SHORTEST_TAU <= self.tau <= LONGEST_TAU:
            raise InvalidInput("tau", f"must be from a minute to a year, got {shown(str(self.tau))}")

    def add(self, level: float, at: datetime, now: datetime, weight: float = 1.0) -> float:
        """Return S after an access at `at`, never less than it was."""
        if not 0 < weight < math.inf:
            raise InvalidInput("weight", f"must be a positive number, got {shown(weight)}")
        return log_add_exp(level, math.log(weight) + self._age(min(at, now)))

    def heat(self, level: float, now: datetime) -> float:
        return math.exp(min(level - self._age(now), _MOST))

    def threshold(self, heat: float, now: datetime) -> float:
        """Return the S of what has this heat now: what is at least as hot has at least this S."""
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
        return self.alpha * visits + self.beta * interactions

    def heat(self, visits: int, interactions: int, last: datetime | None, now: datetime) -> float:
        """Return H; a last visit in the future counts as one of now."""
        recency = 0.0 if last is None else math.exp(-(max(now - last, timedelta(0)) / self.tau))
        return self.lasting(visits, interactions) + self.gamma * recency


class Access(StrEnum):
    RETRIEVED = "retrieved"
    CITED = "cited"
    CONFIRMED = "confirmed"
    MERGED = "merged"


# Chosen by these reasons, not fitted: there is no record yet of what users confirm.
WEIGHTS: Mapping[Access, float] = {
    # The unit: it was put into a context, which says that it looked relevant, not that it was.
    Access.RETRIEVED: 1.0,
    # An answer was made from it. Of ten hits one or two hold the evidence (LoCoMo: 1.4 messages a question), so this
    # says several times as much; not seven times, since it is the model that says so. On top of the retrieval.
    Access.CITED: 3.0,
    # A person said that it is right: with this alone an item is as hot as a segment that was looked up five times.
    Access.CONFIRMED: 5.0,
    # Talked about again: as much as being looked up, as alpha = beta = 1 in Kang et al. 2025.
    Access.MERGED: 1.0,
}


@dataclass(frozen=True, slots=True)
class Warmth:
    """The stored values from which an item's heat is computed.

    `level` is the value an index sorts by; it changes only with an access. `visits` and `interactions` are N_visit and
    L_interaction, counted under every policy.
    """

    level: float = NEVER
    visits: int = 0
    interactions: int = 0
    last: datetime | None = None


class Policy(Protocol):
    """Turns accesses into heat, and a heat into a range of levels.

    At any time a `level` of at least `level_of(H)` means heat H or more, and one below `level_of(H) - slack` less than
    H; in between the heat must be computed. So promotion and demotion are range queries on levels.
    """

    @property
    def slack(self) -> float:
        """Return how far below the border a hot level may be; 0 when levels sort exactly as heats do."""

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        """Return the warmth after an access at `at`; one from the future counts as one of now."""

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        """Return the warmth after the accesses of both: for items that become one, and for buffered accesses."""

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the warmth of a segment whose pages have just been read into long-term memory."""

    def recounted(self, warmth: Warmth) -> Warmth:
        """Return the warmth as this policy levels it from the counts alone; for one that another policy kept."""

    def heat(self, warmth: Warmth, now: datetime) -> float: ...

    def level_of(self, heat: float, now: datetime) -> float:
        """Return the level from which on an item has at least this heat."""


@dataclass(frozen=True, slots=True)
class DecayPolicy:
    """`forward_decay`: a level is S, levels order as heats do at any time, analysed segments stay hot."""

    decay: ForwardDecay

    @property
    def slack(self) -> float:
        return 0.0

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        return replace(_counted(warmth, access, at, now), level=self.decay.add(warmth.level, at, now, WEIGHTS[access]))

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        return _summed(one, other, log_add_exp(one.level, other.level))

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the same warmth: the pages record what was analysed, not the heat."""
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
    """`memoryos`: a level is the lasting part of H, so heats and levels differ by up to gamma.

    Retrieval counts as a visit and a merged page as an interaction, as in the original; citing and confirming only
    refresh the last visit, since the retrieval before them was counted.
    """

    formula: MemoryOsHeat

    @property
    def slack(self) -> float:
        return self.formula.gamma

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        return self._levelled(_counted(warmth, access, at, now))

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        return self._levelled(_summed(one, other, NEVER))

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the warmth with both counts at 0 and a visit of now, as the original resets them."""
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


def _counted(warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
    return replace(
        warmth,
        visits=warmth.visits + (access is Access.RETRIEVED),
        interactions=warmth.interactions + (access is Access.MERGED),
        last=_later(warmth.last, min(at, now)),
    )


def _summed(one: Warmth, other: Warmth, level: float) -> Warmth:
    last = _later(one.last, other.last) if other.last is not None else one.last
    return Warmth(level, one.visits + other.visits, one.interactions + other.interactions, last)


def _later(last: datetime | None, at: datetime) -> datetime:
    return at if last is None else max(last, at)
