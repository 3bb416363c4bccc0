"""Hot sets by hand and against slow copies of themselves; traces; the part of the scheduler's program."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from benchmarks import scheduler
from benchmarks.data import load_locomo
from benchmarks.heat_simulation import BASELINES, OURS, counted, figures_of, levels_of, repeats
from benchmarks.hot_sets import Coldest, HotSet, arc, by_levels, lfu, lru
from benchmarks.traces import Trace, locomo_messages, locomo_sessions, zipf
from memos.scheduler import rules
from memos.scheduler.heat import Access, DecayPolicy, ForwardDecay, MemoryOsPolicy, Policy, Warmth
from tests.benchmarks.samples import LOCOMO, write

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
MEMORYOS = MemoryOsPolicy(rules.MEMORYOS)


def trace_of(items: str | Sequence[int], every: timedelta = timedelta(hours=1)) -> Trace:
    numbers = [ord(item) for item in items] if isinstance(items, str) else list(items)
    times = tuple(NEW_YEAR + place * every for place in range(len(numbers)))
    return Trace(len(set(numbers)), times, tuple(numbers), ("all",) * len(numbers))


def hits(make: Callable[[Trace, int], HotSet], capacity: int, items: str) -> str:
    """Return the accessed items, hits as capital letters."""
    trace = trace_of(items)
    hot = make(trace, capacity)
    return "".join(
        letter.upper() if hot.access(place, number) else letter
        for place, (letter, number) in enumerate(zip(items, trace.items, strict=True))
    )


def test_lru_puts_out_what_was_not_used_longest() -> None:
    assert hits(lru, 2, "abacbab") == "abAcbaB"


def test_lfu_puts_out_what_was_used_least_and_forgets_its_count() -> None:
    # a has two uses, so b and c put out each other, however often they come back with one.
    assert hits(lfu, 2, "aabcbca") == "aAbcbcA"
    assert hits(lfu, 2, "abcab") == "abcab"  # of equal counts the least recently used leaves


def test_arc_by_hand() -> None:
    # a is seen again, so c puts out b, which comes back from the ghosts and puts out a; a comes back and puts out c.
    assert hits(arc, 2, "abacbab") == "abAcbaB"
    # A scan passes by what was seen twice; under LRU it would not.
    assert hits(arc, 4, "ababcdefghijab") == "abABcdefghijAB"
    assert hits(lru, 4, "ababcdefghijab") == "abABcdefghijab"
    # b came back after it had been seen once, so room is made for c, which was seen once: d puts out b, seen twice.
    assert hits(arc, 2, "abacbdc") == "abAcbdC"
    assert hits(lru, 2, "abacbdc") == "abAcbdc"


def test_memoryos_keeps_counts_of_what_left() -> None:
    # b and c come back with their second use, so c puts out a, whose two uses are older.
    assert hits(lambda trace, capacity: Coldest(trace, capacity, MEMORYOS), 2, "aabcbca") == "aAbcbca"


def slow(trace: Trace, capacity: int, policy: Policy) -> list[bool]:
    """Return the hits of the rule itself: the heat of everything is computed at every access."""
    warmths: dict[int, Warmth] = {}
    kept: set[int] = set()
    found = []
    for now, item in zip(trace.times, trace.items, strict=True):
        found.append(item in kept)
        if item not in kept and len(kept) == capacity:
            kept.remove(min(kept, key=lambda one: (policy.heat(warmths[one], now), warmths[one].last)))
        kept.add(item)
        warmths[item] = policy.accessed(warmths.get(item, Warmth()), Access.RETRIEVED, now, now)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("capacity", [1, 3, 9])
def test_sets_that_go_by_static_levels_do_what_computing_every_heat_does(seed: int, capacity: int) -> None:
    random = np.random.default_rng(seed)
    trace = trace_of(random.geometric(0.12, 400).tolist())
    tau = timedelta(days=2)
    ours = by_levels(levels_of(trace, tau))(trace, capacity)
    assert [ours.access(place, item) for place, item in enumerate(trace.items)] == slow(
        trace, capacity, DecayPolicy(ForwardDecay(tau))
    )
    original = Coldest(trace, capacity, MEMORYOS)
    assert [original.access(place, item) for place, item in enumerate(trace.items)] == slow(trace, capacity, MEMORYOS)


def test_zipf_traces_repeat_with_their_seed_and_drift() -> None:
    trace = zipf(3, accesses=4000, drift_days=1)
    assert trace == zipf(3, accesses=4000, drift_days=1) != zipf(4, accesses=4000, drift_days=1)
    assert list(trace.times) == sorted(trace.times)
    assert {*trace.items} <= set(range(trace.universe))
    days = (trace.times[-1] - trace.times[0]) / timedelta(days=1)
    assert days == pytest.approx(20, rel=0.1)
    still = zipf(3, accesses=4000, drift_days=10_000)
    # Without drift the first topic stays the first, a tenth to a third of all accesses.
    assert max(np.bincount(np.array(still.items[-1000:]) // 40)) > 150
    assert np.bincount(np.array(still.items[:1000]) // 40).argmax() == (
        np.bincount(np.array(still.items[-1000:]) // 40).argmax()
    )


def test_locomo_questions_access_their_evidence_in_the_order_of_its_latest_session(tmp_path: Path) -> None:
    turned = [{**LOCOMO[0], "qa": LOCOMO[0]["qa"][::-1]}]
    [chat] = load_locomo(write(tmp_path, "l.json", turned))
    messages = locomo_messages(chat)
    assert (messages.universe, messages.items) == (4, (0, 1, 2))  # D1:1, then D1:2 and D2:1
    first, second = datetime(2024, 3, 1, 16, 31, tzinfo=UTC), datetime(2024, 3, 3, 0, 6, tzinfo=UTC)
    assert messages.times == (first, second, second)
    assert messages.units == ("talk-1 question 1", "talk-1 question 0", "talk-1 question 0")
    sessions = locomo_sessions(chat)
    assert (sessions.universe, sessions.items) == (2, (0, 0, 1))


def test_counts_are_by_unit_and_a_set_has_at_least_one_place() -> None:
    trace = Trace(3, trace_of("aab").times, (0, 0, 1), ("one", "two", "two"))
    assert counted([trace], 0.01, lru).tolist() == [[0, 1], [1, 2]]
    assert repeats([trace, trace]) == pytest.approx(1 / 3, abs=1e-4)


def test_a_difference_that_may_be_chance_is_a_tie() -> None:
    def column(*found: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.array([[hit, 10] for hit in found])

    counts = dict.fromkeys(BASELINES, column(1, 1, 1, 1)) | {"arc": column(4, 5, 4, 5)}
    cell = figures_of(counts | {"forward_decay": column(5, 6, 5, 6), "one_tau": column(5, 4, 5, 4)}, seed=1)
    assert (cell["best_baseline"], cell["hit_rate"]["arc"]) == ("arc", 0.45)
    assert cell["forward_decay"] == {"ratio": 1.2222, "difference_95": [0.1, 0.1], "outcome": "more"}
    assert (cell["one_tau"]["ratio"], cell["one_tau"]["outcome"]) == (1, "tie")
    worse = figures_of(counts | dict.fromkeys(OURS, column(3, 3, 3, 3)), seed=1)
    assert worse["forward_decay"]["outcome"] == "less"


def test_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = write(tmp_path, "l.json", LOCOMO), tmp_path / "out.json"
    arguments = ["--data", str(data), "--out", str(out), "--seeds", "2", "--accesses", "600", "--parts", "heat"]
    assert scheduler.main(arguments) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures == json.loads(out.read_text(encoding="utf-8"))
    assert figures["benchmark"] == "scheduler"
    assert figures["n"]["heat"] == 3 * 2 * 600 + 3 + 3
    assert figures.keys() >= {"seed", "machine", "versions", "commit", "one_tau_over_best_baseline"}
    assert len(figures["by_trace"]) == 5
    cells = [cell for family in figures["by_trace"].values() for cell in family.values()]
    assert len(cells) == 15
    assert figures["hit_rate_over_best_baseline"] == min(cell["forward_decay"]["ratio"] for cell in cells)
    assert all(list(cell["hit_rate"]) == [*BASELINES, *OURS] for cell in cells)
    for family, cells_ in figures["by_trace"].items():
        assert max(rate for cell in cells_.values() for rate in cell["hit_rate"].values()) <= figures["repeats"][family]


def test_without_data_only_the_seeded_traces_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.main(["--parts", "heat", "--seeds", "1", "--accesses", "300"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["by_trace"]) == 3


def test_a_file_that_is_not_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.main(["--data", str(tmp_path / "none.json"), "--seeds", "1", "--accesses", "10"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_what_a_sweep_reads_does_not_grow_with_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.main(["--parts", "sweep", "--segments", "5000", "9000"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["sweep"]
    for question in ("promote", "archive", "bring back", "beyond capacity"):
        small, large = found["5000"][question], found["9000"][question]
        assert small["steps"] == large["steps"] > 0
        assert small["rows"] == large["rows"] == (1 if question == "beyond capacity" else 100)
        assert all("SCAN" not in line for line in large["plan"])


def test_facts_that_are_one_are_told_from_those_that_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.main(["--parts", "duplicates"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["duplicates"]
    assert found["used"] in found["grid"]
    assert found["merged"][0] >= 36
    assert found["merged"][1] == 0


def test_a_model_is_asked_less_than_once_in_three_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert scheduler.main(["--parts", "model", "--pages", "40"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["n"]["model"]["read"] >= 8
    assert 0 < figures["model"]["calls_per_page"] <= 0.3
    assert figures["model"]["facts"] > 0
