"""The benchmark of the task queue: every task runs once, at every number of cubes."""

from __future__ import annotations

from benchmarks.task_rates import rates


def test_every_number_of_cubes_has_its_figures() -> None:
    found = rates((1, 3), drained=30, timed=5)
    assert list(found) == ["1", "3"]
    for figures in found.values():
        assert figures["tasks_per_s"] > 0
        assert figures["start_p99_ms"] >= figures["start_p50_ms"]
