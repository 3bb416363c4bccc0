"""What the tiers of a cube go by: a heat policy, thresholds with room between them, capacities; and the presets.

Pure; checks values wherever they come from, so that a wrong one is refused before anything moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from memos.core.settings import HeatSettings
from memos.errors import InvalidInput, shown
from memos.scheduler.heat import ForwardDecay, MemoryOsHeat, not_negative, tau_for
from memos.scheduler.policy import DecayPolicy, MemoryOsPolicy, Policy


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Two heats with room between them, so that an item at the border does not move back and forth.

    Raises: InvalidInput for a negative, infinite or NaN heat, and unless `demote_below` is the lower one.
    """

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
        """Return whether it is hot now: between the thresholds it stays what it was."""
        return heat >= (self.demote_below if was_hot else self.promote_above)


@dataclass(frozen=True, slots=True)
class HeatRules:
    """Everything the tiers of one cube go by.

    Raises: InvalidInput for a capacity below 1 and a similarity that is no number from 0 to 2.
    """

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


@dataclass(frozen=True, slots=True)
class Preset:
    """Published parameters of MemoryOS; it archives by capacity alone, so nothing is demoted for its heat."""

    formula: MemoryOsHeat
    short_capacity: int
    mid_capacity: int
    promote_above: float = 5.0
    demote_below: float = 0.0
    similarity: float = 0.6


PRESETS: Mapping[str, Preset] = {
    # Kang et al., EMNLP 2025 (arXiv:2506.06326), the settings of its experiments.
    "paper": Preset(MemoryOsHeat(1, 1, 1, timedelta(seconds=1e7)), short_capacity=7, mid_capacity=200),
    # github.com/BAI-LAB/MemoryOS, memoryos-pypi: RECENCY_TAU_HOURS in mid_term.py, the defaults of `Memoryos`.
    "pypi": Preset(MemoryOsHeat(1, 1, 1, timedelta(hours=24)), short_capacity=10, mid_capacity=2000),
}


def named_policy(name: str, *, tau: timedelta, preset: str = "pypi") -> Policy:
    """Return a policy by its name: `tau` is forward decay's, `preset` that of `memoryos`. Raises: InvalidInput."""
    if name == "forward_decay":
        return DecayPolicy(ForwardDecay(tau))
    if name == "memoryos":
        return MemoryOsPolicy(_preset(preset).formula)
    raise InvalidInput("policy", f"must be forward_decay or memoryos, got {shown(name)}")


def wanted_tau(settings: HeatSettings, share: float = 1.0) -> timedelta:
    """Return forward decay's tau: that of the settings, else what suits a tier with room for this share of all.

    Raises: InvalidInput.
    """
    return tau_for(share) if settings.tau_days is None else timedelta(days=settings.tau_days)


def rules_of(settings: HeatSettings, tau: timedelta | None = None) -> HeatRules:
    """Return the rules of a cube whose levels are counted under `tau`; `memoryos` takes what was not set from a preset.

    Raises: InvalidInput.
    """
    tau = tau or wanted_tau(settings)
    values = {
        name: getattr(settings, name)
        for name in ("promote_above", "demote_below", "short_capacity", "mid_capacity", "similarity")
    }
    if settings.policy == "memoryos":
        preset = _preset(settings.preset)
        values |= {name: getattr(preset, name) for name in values if name not in settings.model_fields_set}
    return HeatRules(
        named_policy(settings.policy, tau=tau, preset=settings.preset),
        Thresholds(values.pop("promote_above"), values.pop("demote_below")),
        **values,
    )


def _preset(name: str) -> Preset:
    if name not in PRESETS:
        raise InvalidInput("preset", f"must be one of {', '.join(PRESETS)}, got {shown(name)}")
    return PRESETS[name]
