"""The heat policies behind one protocol: what an access does to an item's warmth, and which levels are hot.

Pure like the formulas in `heat`; knows neither thresholds nor settings, and not where levels are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from memos.scheduler.heat import NEVER, ForwardDecay, MemoryOsHeat, log_add_exp, not_negative


class Access(StrEnum):
    """What happened to an item, as far as its heat is concerned."""

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
    """What an item's heat is computed from, as a ledger keeps it.

    `level` is what an index orders items by; it changes only with an access. `visits` and `interactions` are N_visit
    and L_interaction, counted under every policy.
    """

    level: float = NEVER
    visits: int = 0
    interactions: int = 0
    last: datetime | None = None


class Policy(Protocol):
    """How accesses become heat, and heat a range of levels.

    At any time, a `level` of at least `level_of(H)` means at least the heat H, and one below `level_of(H) - slack`
    less than H; between the two the heat has to be computed. So promotion and demotion read a range of levels.
    """

    @property
    def slack(self) -> float:
        """How far a level may be below the border and the item still be hot; 0 when levels order as heats do."""
        ...

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        """Return the warmth after an access at `at`; one from the future counts as one of now."""
        ...

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        """Return the warmth after the accesses of both: for items that become one, and for buffered accesses."""
        ...

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the warmth of a segment whose pages have just been read into long-term memory."""
        ...

    def recounted(self, warmth: Warmth) -> Warmth:
        """Return the warmth as this policy levels it from the counts alone; for one that another policy kept."""
        ...

    def heat(self, warmth: Warmth, now: datetime) -> float:
        """Return the heat now."""
        ...

    def level_of(self, heat: float, now: datetime) -> float:
        """Return the level from which on an item has at least this heat."""
        ...


@dataclass(frozen=True, slots=True)
class DecayPolicy:
    """`forward_decay`: a level is S, levels order as heats do at any time, analysed segments stay hot."""

    decay: ForwardDecay

    @property
    def slack(self) -> float:
        """Return 0: a range of levels is exact."""
        return 0.0

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        """Return the warmth with the access's weight added."""
        return replace(_counted(warmth, access, at, now), level=self.decay.add(warmth.level, at, now, WEIGHTS[access]))

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        """Return the warmth whose heat is the sum of both at any time."""
        return _summed(one, other, log_add_exp(one.level, other.level))

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the same warmth: what was analysed is told by the pages, not by the heat."""
        del now
        return warmth

    def recounted(self, warmth: Warmth) -> Warmth:
        """Return the warmth as if every counted access had been the last one."""
        count = warmth.visits + warmth.interactions
        if warmth.last is None or not count:
            return replace(warmth, level=NEVER)
        return replace(warmth, level=self.decay.add(NEVER, warmth.last, warmth.last, float(count)))

    def heat(self, warmth: Warmth, now: datetime) -> float:
        """Return exp(S - now / tau)."""
        return self.decay.heat(warmth.level, now)

    def level_of(self, heat: float, now: datetime) -> float:
        """Return ln H + now / tau."""
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
        """Return gamma, which a visit of now adds to the lasting part."""
        return self.formula.gamma

    def accessed(self, warmth: Warmth, access: Access, at: datetime, now: datetime) -> Warmth:
        """Return the warmth with the visit or the page counted."""
        return self._levelled(_counted(warmth, access, at, now))

    def joined(self, one: Warmth, other: Warmth) -> Warmth:
        """Return the warmth with the visits and pages of both."""
        return self._levelled(_summed(one, other, NEVER))

    def analysed(self, warmth: Warmth, now: datetime) -> Warmth:
        """Return the warmth with both counts at 0 and a visit of now, as the original resets them."""
        return self._levelled(Warmth(last=_later(warmth.last, now)))

    def recounted(self, warmth: Warmth) -> Warmth:
        """Return the warmth with the level that its counts give."""
        return self._levelled(warmth)

    def heat(self, warmth: Warmth, now: datetime) -> float:
        """Return H."""
        return self.formula.heat(warmth.visits, warmth.interactions, warmth.last, now)

    def level_of(self, heat: float, now: datetime) -> float:
        """Return the heat itself. Raises: InvalidInput."""
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
