"""Tier rules of a cube: heat policy, thresholds with hysteresis, capacities, and the constants of MemoryOS.

All values are validated, so that a wrong one is rejected before anything moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa

from memos.core.settings import HeatSettings
from memos.errors import InvalidInput, shown
from memos.memcube.ledger import tier_moves
from memos.memcube.ledger.schema import segments, warmth
from memos.scheduler.heat import (
    DecayPolicy,
    ForwardDecay,
    MemoryOsHeat,
    MemoryOsPolicy,
    Policy,
    Warmth,
    not_negative,
    tau_for,
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Two heats for promotion and demotion, with hysteresis: an item near the border does not flap between tiers."""

    promote_above: float
    demote_below: float

    def __post_init__(self) -> None:
        not_negative("promote_above", self.promote_above)
        not_negative("demote_below", self.demote_below)
        if not self.demote_below < self.promote_above:
            raise InvalidInput(
                "demote_below", f"must be below promote_above ({self.promote_above:g}), got {self.demote_below:g}"
            )

    def hot(self, heat: float, *, was_hot: bool) -> bool:
        return heat >= (self.demote_below if was_hot else self.promote_above)


@dataclass(frozen=True, slots=True)
class HeatRules:
    """The tier rules of one cube. Raises: InvalidInput."""

    policy: Policy
    thresholds: Thresholds
    short_capacity: int
    mid_capacity: int
    similarity: float

    def __post_init__(self) -> None:
        for name in ("short_capacity", "mid_capacity"):
            capacity = getattr(self, name)
            if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
                raise InvalidInput(name, f"must be a whole number from 1, got {shown(capacity)}")
        if not 0 <= self.similarity <= 2:  # a cosine and a Jaccard index
            raise InvalidInput("similarity", f"must be a number from 0 to 2, got {shown(self.similarity)}")


class TierSettings(HeatSettings):
    """The heat settings, plus parameters that can only be set in code.

    Example: `Settings(heat=TierSettings(policy="memoryos", short_capacity=7))`.
    """

    # How heat is computed from accesses: forward decay, or the formula of MemoryOS (Kang et al. 2025).
    policy: Literal["forward_decay", "memoryos"] = "forward_decay"
    demote_below: float = 0.05  # heat below which a segment is archived
    short_capacity: int = 10  # pages of one conversation in the short tier
    mid_capacity: int = 2000  # segments of one cube in the mid tier
    similarity: float = 0.5  # cosine plus shared keywords from which a page joins a segment
    # Time constant of `forward_decay`: heat falls to 37 % in these days; by default chosen by the size of the cube.
    tau_days: float | None = None
    idle_hours: float = 12  # hours without a message until a conversation's last pages leave the short tier; 0: never

    @classmethod
    def of(cls, settings: HeatSettings) -> TierSettings:
        return settings if isinstance(settings, cls) else cls(**settings.model_dump(exclude_unset=True))


# Source: github.com/BAI-LAB/MemoryOS, memoryos-pypi: RECENCY_TAU_HOURS in mid_term.py, and the defaults of `Memoryos`.
# It archives by capacity only, so nothing is demoted by heat.
MEMORYOS = MemoryOsHeat(1, 1, 1, timedelta(hours=24))
_OF_MEMORYOS: Mapping[str, float] = {"demote_below": 0.0, "similarity": 0.6}


def named_policy(name: str, *, tau: timedelta) -> Policy:
    if name == "forward_decay":
        return DecayPolicy(ForwardDecay(tau))
    if name == "memoryos":
        return MemoryOsPolicy(MEMORYOS)
    raise InvalidInput("policy", f"must be forward_decay or memoryos, got {shown(name)}")


def wanted_tau(settings: HeatSettings, share: float = 1.0) -> timedelta:
    """Return tau of forward decay: from the settings, or chosen for a tier with room for this share of all segments."""
    days = TierSettings.of(settings).tau_days
    return tau_for(share) if days is None else timedelta(days=days)


def rules_of(settings: HeatSettings, tau: timedelta | None = None) -> HeatRules:
    settings = TierSettings.of(settings)
    values: dict[str, Any] = {
        name: getattr(settings, name)
        for name in ("promote_above", "demote_below", "short_capacity", "mid_capacity", "similarity")
    }
    if settings.policy == "memoryos":
        values |= {name: value for name, value in _OF_MEMORYOS.items() if name not in settings.model_fields_set}
    return HeatRules(
        named_policy(settings.policy, tau=tau or wanted_tau(settings)),
        Thresholds(values.pop("promote_above"), values.pop("demote_below")),
        **values,
    )


# Stored in place of a tau: the levels are those of `memoryos`.
_NO_TAU = 0.0
# Ratio of tau to the wanted one up to which the levels of a cube are not rewritten.
_TAU_TOLERANCE = 1.25
_BATCH = 500


@dataclass(frozen=True, slots=True)
class CubeRules:
    settings: HeatSettings

    def of(self, connection: sa.Connection, cube: str) -> HeatRules:
        """Return the rules under which a cube's levels were computed."""
        tau_s = tier_moves.tau_of(connection, cube)
        return rules_of(self.settings, timedelta(seconds=tau_s) if tau_s else None)

    def ready(self, connection: sa.Connection, cube: str) -> HeatRules:
        """Return the rules for writing levels; recompute the levels if another policy wrote them.

        The caller's transaction must hold the cube's lock.
        """
        tau_s, counts = tier_moves.tau_of(connection, cube), TierSettings.of(self.settings).policy == "memoryos"
        if tau_s is None or (tau_s == _NO_TAU) is not counts:
            wanted = _NO_TAU if counts else wanted_tau(self.settings).total_seconds()
            tier_moves.set_tau(connection, cube, wanted)
            if tau_s is not None:
                _recount(connection, cube, self.of(connection, cube).policy)
        return self.of(connection, cube)

    def adjust_tau(self, connection: sa.Connection, cube: str, now: datetime) -> bool:
        """Set tau to suit the share of segments that fit the mid tier; return True if it changed."""
        rules = self.ready(connection, cube)
        tau_s = tier_moves.tau_of(connection, cube)
        if not tau_s:
            return False
        is_fixed = TierSettings.of(self.settings).tau_days is not None
        known = 0 if is_fixed else tier_moves.count(connection, cube)
        wanted = wanted_tau(self.settings, min(1.0, rules.mid_capacity / max(1, known))).total_seconds()
        if (1 / _TAU_TOLERANCE < tau_s / wanted < _TAU_TOLERANCE and not is_fixed) or tau_s == wanted:
            return False
        shift = ForwardDecay.shift(timedelta(seconds=tau_s), timedelta(seconds=wanted), now)
        tier_moves.set_tau(connection, cube, wanted, shift)
        return True


def _recount(connection: sa.Connection, cube: str, policy: Policy) -> None:
    for table, key in ((segments, segments.c.id), (warmth, warmth.c.item_id)):
        for rows in _pages(connection, table, key, cube):
            for row in rows:
                after = policy.recounted(Warmth(row.level, row.visits, row.interactions, row.last))
                connection.execute(sa.update(table).where(key == row.key).values(level=after.level))


def _pages(
    connection: sa.Connection, table: sa.Table, key: sa.Column[str], cube: str
) -> Iterator[list[sa.Row[tuple[object, ...]]]]:
    last = ""
    columns = (key.label("key"), table.c.level, table.c.visits, table.c.interactions, table.c.last)
    while True:
        query = sa.select(*columns).where(table.c.cube_id == cube, key > last).order_by(key).limit(_BATCH)
        rows = list(connection.execute(query))
        if not rows:
            return
        yield rows
        last = rows[-1].key
