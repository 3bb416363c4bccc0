"""What is loaded, and what stays."""

from hypothesis import given
from hypothesis import strategies as st

from memos.memcube.activation.tiers import HALF_LIFE_S, Heat, Rate, blocks_to_load, retention_score

seconds = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=8)


@given(seconds)
def test_no_other_number_of_blocks_is_quicker(costs):
    load, compute = [each[0] for each in costs], [each[1] for each in costs]
    chosen = blocks_to_load(load, compute)
    took = [sum(load[:count]) + sum(compute[count:]) for count in range(len(costs) + 1)]
    assert took[chosen] <= min(took) + 1e-9


def test_what_is_not_measured_is_tried():
    assert blocks_to_load([0.0, 0.0], [0.0, 0.0]) == 2


def test_a_slow_first_block_pays_when_those_behind_it_are_quick():
    assert blocks_to_load([3.0, 0.1, 0.1], [1.0, 2.0, 2.0]) == 3
    assert blocks_to_load([6.0, 0.1, 0.1], [1.0, 2.0, 2.0]) == 0


def test_heat_halves_in_its_half_life_and_each_use_adds_one():
    heat = Heat(0.0, 0.0).used(0.0).used(HALF_LIFE_S)
    assert heat.uses == 1.5
    assert heat.now(2 * HALF_LIFE_S) == 0.75
    assert heat.now(0.0) == 1.5  # a clock that went back


def test_worth_grows_with_heat_and_cost_and_falls_with_size():
    usual = retention_score(Heat(1.0, 0.0), 1.0, 100, 0.0)
    assert retention_score(Heat(2.0, 0.0), 1.0, 100, 0.0) > usual
    assert retention_score(Heat(1.0, 0.0), 2.0, 100, 0.0) > usual
    assert retention_score(Heat(1.0, 0.0), 1.0, 200, 0.0) < usual


def test_a_rate_follows_what_is_measured_and_ignores_nonsense():
    rate = Rate()
    assert rate.seconds(100) == 0.0
    rate.measured(100, 1.0)
    rate.measured(100, 0.0)
    rate.measured(0, 1.0)
    assert rate.seconds(100) == 1.0
    for _ in range(50):
        rate.measured(100, 2.0)
    assert abs(rate.seconds(100) - 2.0) < 0.01
