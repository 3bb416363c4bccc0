"""Thresholds, capacities and presets; what is wrong is refused by name."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from memos.core.settings import HeatSettings, Settings
from memos.errors import InvalidInput
from memos.scheduler.heat import DecayPolicy, ForwardDecay, MemoryOsHeat, MemoryOsPolicy, tau_for
from memos.scheduler.rules import HeatRules, Thresholds, TierSettings, named_policy, rules_of, wanted_tau


def test_between_the_thresholds_nothing_moves() -> None:
    border = Thresholds(promote_above=5, demote_below=1)
    assert [border.hot(heat, was_hot=False) for heat in (0.5, 1, 4.9, 5, 9)] == [False, False, False, True, True]
    assert [border.hot(heat, was_hot=True) for heat in (0.5, 0.99, 1, 4.9, 9)] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("promote", "demote", "field"),
    [
        (1, 5, "demote_below"),
        (5, 5, "demote_below"),
        (5, -1, "demote_below"),
        (5, math.nan, "demote_below"),
        (math.nan, 1, "promote_above"),
        (math.inf, 1, "promote_above"),
        (-5, -6, "promote_above"),
    ],
)
def test_thresholds_that_are_none_are_refused(promote: float, demote: float, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Thresholds(promote, demote)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("short_capacity", -1), ("short_capacity", 0), ("mid_capacity", -2000), ("mid_capacity", 1.5),
        ("mid_capacity", True), ("similarity", math.nan), ("similarity", -0.1), ("similarity", 2.1),
    ],
)  # fmt: skip
def test_capacities_and_similarity_are_checked(field: str, value: Any) -> None:
    values: dict[str, Any] = {"short_capacity": 10, "mid_capacity": 2000, "similarity": 0.6, field: value}
    with pytest.raises(InvalidInput) as refused:
        HeatRules(DecayPolicy(ForwardDecay(timedelta(days=7))), Thresholds(5, 1), **values)
    assert refused.value.field == field


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="policy: must be forward_decay or memoryos, got 'lru'"):
        named_policy("lru", tau=timedelta(days=7))
    with pytest.raises(InvalidInput, match="tau"):
        named_policy("forward_decay", tau=timedelta(seconds=1))


def test_the_default_is_forward_decay() -> None:
    settings = Settings().heat
    rules = rules_of(settings)
    assert rules.policy == DecayPolicy(ForwardDecay(timedelta(days=20)))
    assert (rules.short_capacity, rules.mid_capacity, rules.similarity) == (10, 2000, 0.5)
    assert rules.thresholds.demote_below < rules.thresholds.promote_above


def test_the_fuller_the_tier_the_shorter_the_memory_unless_a_tau_is_set() -> None:
    assert wanted_tau(HeatSettings(), 0.2) == tau_for(0.2)
    assert wanted_tau(TierSettings(tau_days=3), 0.2) == timedelta(days=3)
    assert rules_of(HeatSettings(), timedelta(days=3)).policy == DecayPolicy(ForwardDecay(timedelta(days=3)))


def test_memoryos_goes_by_the_parameters_of_its_package() -> None:
    pypi = rules_of(TierSettings(policy="memoryos"))
    assert pypi.policy == MemoryOsPolicy(MemoryOsHeat(1, 1, 1, timedelta(hours=24)))
    assert (pypi.short_capacity, pypi.mid_capacity, pypi.thresholds.promote_above) == (10, 2000, 5)
    assert pypi.thresholds.demote_below == 0  # it archives by capacity alone


def test_what_is_given_goes_before_them() -> None:
    rules = rules_of(TierSettings(policy="memoryos", mid_capacity=50, promote_above=0.5, similarity=0.9))
    assert (rules.mid_capacity, rules.similarity, rules.thresholds) == (50, 0.9, Thresholds(0.5, 0))
    with pytest.raises(InvalidInput, match="demote_below"):
        rules_of(TierSettings(policy="memoryos", promote_above=1, demote_below=2))
    with pytest.raises(InvalidInput, match="demote_below"):
        rules_of(HeatSettings(promote_above=0.01))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("promote_above", math.inf), ("promote_above", 0), ("grace", 1), ("short_capacity", 2),
    ],
)  # fmt: skip
def test_settings_refuse_the_same_and_name_the_field(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        HeatSettings(**{field: value})
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]
