"""The formulas of heat: order, sums, clocks and borders, for dates of 1970 to 2100 and taus from a minute to a year."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.errors import InvalidInput
from memos.scheduler.heat import NEVER, ForwardDecay, MemoryOsHeat, log_add_exp, tau_for

FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 12, 31, tzinfo=UTC)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY, WEEK = timedelta(days=1), timedelta(days=7)
# Two floats of S next to each other differ by up to 1.5e-8 where tau is a minute; a sum may lose some of them.
EXACT = 1e-6

taus = st.timedeltas(timedelta(minutes=1), timedelta(days=366))
moments = st.timedeltas(timedelta(0), LAST - FIRST).map(lambda since: FIRST + since)
weights = st.floats(1e-3, 1e3)
accesses = st.lists(st.tuples(moments, weights), min_size=1, max_size=8)
levels = st.floats(-1e8, 1e8)


def level(decay: ForwardDecay, done: Sequence[tuple[datetime, float]], now: datetime = LAST) -> float:
    found = NEVER
    for at, weight in done:
        found = decay.add(found, at, now, weight)
    return found


@given(taus, moments)
def test_one_access_has_the_heat_one(tau: timedelta, now: datetime) -> None:
    decay = ForwardDecay(tau)
    assert decay.heat(decay.add(NEVER, now, now), now) == pytest.approx(1, rel=EXACT)


def test_heat_by_hand() -> None:
    decay = ForwardDecay(WEEK)
    found = level(decay, [(NOON - WEEK, 1.0), (NOON - 2 * WEEK, 3.0), (NOON, 1.0)], NOON)
    assert decay.heat(found, NOON) == pytest.approx(1 + math.exp(-1) + 3 * math.exp(-2))
    assert decay.heat(found, NOON + WEEK) == pytest.approx(decay.heat(found, NOON) / math.e)
    assert decay.heat(NEVER, NOON) == 0


@given(taus, accesses, accesses, moments)
def test_the_order_by_level_is_the_order_by_heat_at_any_time(
    tau: timedelta, one: list[tuple[datetime, float]], other: list[tuple[datetime, float]], now: datetime
) -> None:
    decay = ForwardDecay(tau)
    low, high = sorted([level(decay, one), level(decay, other)])
    assert decay.heat(low, now) <= decay.heat(high, now)
    if decay.heat(low, now) < decay.heat(high, now):
        assert low < high


@given(taus, accesses, moments)
def test_the_heat_is_the_decayed_sum(tau: timedelta, done: list[tuple[datetime, float]], now: datetime) -> None:
    decay = ForwardDecay(tau)
    done = [(min(at, now), weight) for at, weight in done]
    wanted = math.fsum(weight * math.exp((at - now) / tau) for at, weight in done)
    assert decay.heat(level(decay, done, now), now) == pytest.approx(wanted, rel=EXACT, abs=1e-300)


@given(taus, accesses, moments, moments, weights)
def test_an_access_never_lowers_a_level_whatever_the_clock_says(
    tau: timedelta, done: list[tuple[datetime, float]], at: datetime, now: datetime, weight: float
) -> None:
    decay = ForwardDecay(tau)
    before = level(decay, done)
    assert decay.add(before, at, now, weight) >= before


@given(taus, moments, moments)
def test_an_access_from_the_future_counts_as_one_of_now(tau: timedelta, at: datetime, now: datetime) -> None:
    decay = ForwardDecay(tau)
    assert decay.add(NEVER, max(at, now), now) == decay.add(NEVER, now, now)


@given(taus, moments, st.floats(0, 600))
def test_a_late_access_counts_with_its_own_decayed_weight(tau: timedelta, now: datetime, late: float) -> None:
    decay = ForwardDecay(tau)
    at = max(now - late * tau, FIRST)
    heat = decay.heat(decay.add(NEVER, at, now), now)
    assert heat == pytest.approx(math.exp((at - now) / tau), rel=EXACT)
    assert heat <= 1 + EXACT


@given(levels, levels, levels)
def test_sums_of_logarithms_do_not_depend_on_order_or_grouping(one: float, other: float, third: float) -> None:
    assert log_add_exp(one, other) == log_add_exp(other, one)
    assert log_add_exp(log_add_exp(one, other), third) == pytest.approx(
        log_add_exp(one, log_add_exp(other, third)), rel=1e-12, abs=1e-9
    )
    assert log_add_exp(one, NEVER) == log_add_exp(NEVER, one) == one
    assert log_add_exp(NEVER, NEVER) == NEVER


@given(accesses, taus, taus, moments)
def test_another_tau_keeps_the_heat_of_now(
    done: list[tuple[datetime, float]], old: timedelta, new: timedelta, now: datetime
) -> None:
    before = level(ForwardDecay(old), done, now)
    after = ForwardDecay.rebase(before, old, new, now)
    heat = ForwardDecay(old).heat(before, now)
    assert ForwardDecay(new).heat(after, now) == pytest.approx(heat, rel=EXACT, abs=1e-300)
    assert after == before + ForwardDecay.shift(old, new, now)  # so one UPDATE rebases a whole cube
    assert ForwardDecay.rebase(NEVER, old, new, now) == NEVER


@given(taus, moments, accesses, st.floats(1e-6, 1e6))
def test_hotter_than_is_a_range_of_levels(
    tau: timedelta, now: datetime, done: list[tuple[datetime, float]], border: float
) -> None:
    decay = ForwardDecay(tau)
    found = level(decay, done, now)
    heat = decay.heat(found, now)
    if found >= decay.threshold(border, now):
        assert heat >= border * (1 - EXACT)
    else:
        assert heat <= border * (1 + EXACT)


@given(st.sampled_from([timedelta(minutes=1), timedelta(hours=1), timedelta(days=366)]), accesses, moments)
def test_nothing_overflows_and_nothing_is_nan(
    tau: timedelta, done: list[tuple[datetime, float]], now: datetime
) -> None:
    decay = ForwardDecay(tau)
    found = level(decay, done)
    assert math.isfinite(found)
    assert 0 <= decay.heat(found, now) < math.inf  # also where `now` is a century before the accesses
    assert math.isfinite(decay.threshold(1e300, now))


def test_nothing_is_hotter_than_what_has_no_heat() -> None:
    assert ForwardDecay(WEEK).threshold(0, NOON) == NEVER


@pytest.mark.parametrize("tau", [timedelta(0), timedelta(seconds=59), timedelta(days=-7), timedelta(days=367)])
def test_a_tau_out_of_range_is_refused(tau: timedelta) -> None:
    with pytest.raises(InvalidInput) as refused:
        ForwardDecay(tau)
    assert refused.value.field == "tau"


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(InvalidInput) as refused:
        ForwardDecay(WEEK).add(0, NOON, NOON, weight)
    assert refused.value.field == "weight"


@pytest.mark.parametrize("heat", [-1, math.nan, math.inf])
def test_a_border_that_is_none_is_refused(heat: float) -> None:
    with pytest.raises(InvalidInput) as refused:
        ForwardDecay(WEEK).threshold(heat, NOON)
    assert refused.value.field == "heat"


def test_a_larger_tier_has_a_longer_memory() -> None:
    days = [tau_for(share) / DAY for share in (0.01, 0.05, 0.2, 1)]
    assert days == pytest.approx([1, 2.85, 7, 20], rel=0.01)
    assert tau_for(1e-12) == timedelta(hours=1)


@pytest.mark.parametrize("share", [0, -0.1, 1.01, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InvalidInput, match="share"):
        tau_for(share)


# MemoryOS


def test_memoryos_by_hand() -> None:
    formula = MemoryOsHeat(2, 0.5, 3, DAY)
    assert formula.heat(4, 6, NOON - DAY, NOON) == pytest.approx(2 * 4 + 0.5 * 6 + 3 * math.exp(-1))
    assert formula.heat(0, 0, None, NOON) == 0
    assert formula.heat(0, 0, NOON + DAY, NOON) == 3  # a visit in the future is one of now


@given(st.integers(0, 10**6), st.integers(0, 10**6), moments, moments, taus)
def test_memoryos_lies_at_most_gamma_above_its_lasting_part(
    visits: int, interactions: int, last: datetime, now: datetime, tau: timedelta
) -> None:
    formula = MemoryOsHeat(1, 1, 1, tau)
    lasting = formula.lasting(visits, interactions)
    assert lasting <= formula.heat(visits, interactions, last, now) <= lasting + formula.gamma


@given(st.integers(0, 50), moments, moments, moments)
def test_one_visit_outweighs_any_recency_in_memoryos(
    visits: int, one: datetime, other: datetime, now: datetime
) -> None:
    formula = MemoryOsHeat(1, 1, 1, timedelta(seconds=1e7))
    assert formula.heat(visits + 1, 1, one, now) >= formula.heat(visits, 1, other, now)


@pytest.mark.parametrize("field", ["alpha", "beta", "gamma"])
@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_weights_of_memoryos_are_checked(field: str, weight: float) -> None:
    with pytest.raises(InvalidInput) as refused:
        MemoryOsHeat(**{"alpha": 1.0, "beta": 1.0, "gamma": 1.0, field: weight}, tau=DAY)
    assert refused.value.field == field


def test_a_tau_of_memoryos_is_positive() -> None:
    with pytest.raises(InvalidInput, match="tau"):
        MemoryOsHeat(1, 1, 1, timedelta(0))
