"""Both policies keep one contract, and each does to an access what its paper says."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.scheduler.heat import (
    WEIGHTS,
    Access,
    DecayPolicy,
    ForwardDecay,
    MemoryOsHeat,
    MemoryOsPolicy,
    Policy,
    Warmth,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY, WEEK = timedelta(days=1), timedelta(days=7)
DECAY = DecayPolicy(ForwardDecay(WEEK))
MEMORYOS = MemoryOsPolicy(MemoryOsHeat(1, 1, 1, DAY))

policies = st.sampled_from([DECAY, MEMORYOS, MemoryOsPolicy(MemoryOsHeat(0.5, 2, 3.5, WEEK))])
days = st.floats(-400, 400)
histories = st.lists(st.tuples(st.sampled_from(Access), days, days), max_size=8)


def warmth_of(policy: Policy, history: list[tuple[Access, float, float]]) -> Warmth:
    warmth = Warmth()
    for access, at, now in history:
        warmth = policy.accessed(warmth, access, NOON + at * DAY, NOON + now * DAY)
    return warmth


@given(policies, histories, days, st.floats(1e-3, 30))
def test_levels_bound_heats_at_any_time(
    policy: Policy, history: list[tuple[Access, float, float]], day: float, border: float
) -> None:
    now = NOON + day * DAY
    warmth = warmth_of(policy, history)
    heat = policy.heat(warmth, now)
    assert math.isfinite(heat)
    assert heat >= 0
    if warmth.level >= policy.level_of(border, now):
        assert heat >= border * (1 - 1e-9)
    if warmth.level < policy.level_of(border, now) - policy.slack:
        assert heat < border * (1 + 1e-9)


@given(policies, histories, st.sampled_from(Access), days, days, days)
def test_an_access_never_cools(
    policy: Policy, history: list[tuple[Access, float, float]], access: Access, at: float, now: float, later: float
) -> None:
    before = warmth_of(policy, history)
    after = policy.accessed(before, access, NOON + at * DAY, NOON + now * DAY)
    assert after.level >= before.level
    moment = NOON + later * DAY
    assert policy.heat(after, moment) >= policy.heat(before, moment)


@given(policies, histories, histories)
def test_buffered_accesses_joined_later_count_as_if_they_had_been_written_at_once(
    policy: Policy, stored: list[tuple[Access, float, float]], buffered: list[tuple[Access, float, float]]
) -> None:
    at_once = warmth_of(policy, [*stored, *buffered])
    joined = policy.joined(warmth_of(policy, stored), warmth_of(policy, buffered))
    assert (joined.visits, joined.interactions, joined.last) == (at_once.visits, at_once.interactions, at_once.last)
    if not (stored or buffered):
        assert policy.heat(joined, NOON) == 0
    else:
        assert joined.level == pytest.approx(at_once.level)


def test_stronger_signs_of_use_weigh_more() -> None:
    assert WEIGHTS[Access.RETRIEVED] == 1
    assert WEIGHTS[Access.MERGED] == WEIGHTS[Access.RETRIEVED] < WEIGHTS[Access.CITED] < WEIGHTS[Access.CONFIRMED]
    assert set(WEIGHTS) == set(Access)
    for access, weight in WEIGHTS.items():
        assert DECAY.heat(DECAY.accessed(Warmth(), access, NOON, NOON), NOON) == pytest.approx(weight)


def test_memoryos_counts_visits_and_pages_and_forgets_both_when_analysed() -> None:
    warmth = warmth_of(
        MEMORYOS, [(Access.MERGED, -2, -2), (Access.MERGED, -2, -2), (Access.RETRIEVED, -1, -1), (Access.CITED, -1, -1)]
    )
    assert (warmth.visits, warmth.interactions, warmth.level) == (1, 2, 3)
    assert MEMORYOS.heat(warmth, NOON) == pytest.approx(3 + math.exp(-1))
    analysed = MEMORYOS.analysed(warmth, NOON)
    assert (analysed.level, MEMORYOS.heat(analysed, NOON)) == (0, 1)


def test_analysing_leaves_decaying_heat_alone() -> None:
    warmth = DECAY.accessed(Warmth(), Access.MERGED, NOON, NOON)
    assert DECAY.analysed(warmth, NOON + DAY) == warmth
