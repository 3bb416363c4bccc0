"""Which memories stay at hand: hit rates of hot sets by heat and by classic caches; the part `heat` of the scheduler's.

A set of 1, 5 and 20 % of all items is told every access of a trace; a hit is an access to an item that is in it, and
first accesses are misses for all. Every set takes in what was just accessed and puts out one other item.
Baselines are LRU, LFU, ARC and `memoryos`: the heat of Kang et al. with the numbers of its package, whose counts
outlive an eviction, as they do in our ledger. Ours is `forward_decay` with the tau that the scheduler takes for a tier
of the set's share; `one_tau` is the same with a single tau for all sizes. Both were fitted on the seeds 1000 to 1002,
which do not run here, and on the LoCoMo file, which does (docs/development/log.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import load_locomo
from benchmarks.hot_sets import Coldest, HotSet, arc, by_levels, lfu, lru
from benchmarks.report import Report, figures_table, positive, progress
from benchmarks.traces import Trace, locomo_messages, locomo_sessions, zipf
from memos.scheduler.heat import NEVER, ForwardDecay, MemoryOsPolicy, tau_for
from memos.scheduler.rules import MEMORYOS

CAPACITIES = (0.01, 0.05, 0.2)
DRIFT_DAYS = {"Zipf, drift in 10 days": 10.0, "Zipf, drift in 3 days": 3.0, "Zipf, drift in 1 day": 1.0}
BASELINES = ("lru", "lfu", "arc", "memoryos")
OURS = ("forward_decay", "one_tau")
ONE_TAU_DAYS = 2.0
SEEDS, ACCESSES = 10, 20_000
_SAMPLES = 2000

# One for every trace, or one for each.
Makers = Callable[[Trace, int], HotSet] | Sequence[Callable[[Trace, int], HotSet]]
Counts = NDArray[np.int64]  # (units, 2): hits and accesses of each unit


def measure(arguments: argparse.Namespace) -> Report:
    """Run every set over every trace."""
    one_tau = timedelta(days=arguments.one_tau_days)
    taus = {capacity: tau_for(capacity) for capacity in CAPACITIES}
    families = traces(arguments)
    cells = [(family, capacity) for family in families for capacity in CAPACITIES]
    levels = {
        (family, tau): [levels_of(trace, tau) for trace in runs]
        for family, runs in families.items()
        for tau in {one_tau, *taus.values()}
    }
    by_trace: dict[str, dict[str, Any]] = {family: {} for family in families}
    for family, capacity in progress(cells, "heat"):
        ours = {
            name: [by_levels(found) for found in levels[family, tau]]
            for name, tau in zip(OURS, (taus[capacity], one_tau), strict=True)
        }
        sets: dict[str, Makers] = {**_baselines(), **ours}
        counts = {name: counted(families[family], capacity, make) for name, make in sets.items()}
        by_trace[family][f"{capacity:.0%}"] = figures_of(counts, arguments.seed)
    results = [cell for family in by_trace.values() for cell in family.values()]
    smallest = {name: min(cell[name]["ratio"] for cell in results) for name in OURS}
    figures = {
        "hit_rate_over_best_baseline": smallest["forward_decay"],
        "one_tau_over_best_baseline": smallest["one_tau"],
        "baselines_over_best_baseline": {
            name: min(_over(cell["hit_rate"][name], cell["hit_rate"][cell["best_baseline"]]) for cell in results)
            for name in BASELINES
        },
        "tau_days": {f"{capacity:.0%}": round(tau / timedelta(days=1), 2) for capacity, tau in taus.items()},
        "one_tau_days": arguments.one_tau_days,
        "trace_seeds": arguments.seeds,
        "repeats": {family: repeats(runs) for family, runs in families.items()},
        "by_trace": by_trace,
    }
    n = sum(len(trace.items) for runs in families.values() for trace in runs)
    return Report({"n": n, **figures}, tables=[_table(by_trace), _ratios(by_trace)])


def traces(arguments: argparse.Namespace) -> dict[str, list[Trace]]:
    """Return the traces by family: one for each seed, or for each conversation."""
    families = {
        name: [zipf(seed, accesses=arguments.accesses, drift_days=days) for seed in range(arguments.seeds)]
        for name, days in DRIFT_DAYS.items()
    }
    if arguments.data is not None:
        chats = load_locomo(arguments.data)
        families["LoCoMo, messages"] = [locomo_messages(chat) for chat in chats]
        families["LoCoMo, sessions"] = [locomo_sessions(chat) for chat in chats]
    return families


def levels_of(trace: Trace, tau: timedelta) -> list[float]:
    """Return the accessed item's level after each access."""
    decay = ForwardDecay(tau)
    known: dict[int, float] = {}
    found = []
    for at, item in zip(trace.times, trace.items, strict=True):
        known[item] = decay.add(known.get(item, NEVER), at, at)
        found.append(known[item])
    return found


def counted(
    runs: Sequence[Trace],
    capacity: float,
    make: Makers,
) -> Counts:
    """Return `(units, 2)`: hits and accesses, over all traces; a set has at least one place."""
    makers = make if isinstance(make, Sequence) else [make] * len(runs)
    found: dict[str, list[int]] = {}
    for trace, new_set in zip(runs, makers, strict=True):
        hot = new_set(trace, ceil(capacity * trace.universe))
        for place, (item, unit) in enumerate(zip(trace.items, trace.units, strict=True)):
            count = found.setdefault(unit, [0, 0])
            count[0] += hot.access(place, item)
            count[1] += 1
    return np.array(list(found.values()))


def figures_of(counts: Mapping[str, Counts], seed: int) -> dict[str, Any]:
    """Return one cell: hit rates, and ours against the best baseline with a paired bootstrap over units.

    A tie is a difference whose 95 % interval holds 0.
    """
    rates = {name: float(column[:, 0].sum() / column[:, 1].sum()) for name, column in counts.items()}
    best = max(BASELINES, key=rates.__getitem__)
    cell: dict[str, Any] = {"hit_rate": {name: round(rate, 4) for name, rate in rates.items()}, "best_baseline": best}
    for name in OURS:
        low, high = _interval(counts[name], counts[best], seed)
        outcome = "more" if low > 0 else "less" if high < 0 else "tie"
        cell[name] = {
            "ratio": _over(rates[name], rates[best]),
            "difference_95": [round(low, 4), round(high, 4)],
            "outcome": outcome,
        }
    return cell


def repeats(runs: Sequence[Trace]) -> float:
    """Return the share of accesses that are not an item's first: no set can hit more."""
    first = sum(len(set(trace.items)) for trace in runs)
    return round(1 - first / sum(len(trace.items) for trace in runs), 4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this part's arguments."""
    parser.add_argument("--data", type=Path, metavar="PATH", help="LoCoMo file; without it only the seeded traces run")
    parser.add_argument("--seeds", type=positive, default=SEEDS, help=f"seeded traces of a kind (default {SEEDS})")
    parser.add_argument("--accesses", type=positive, default=ACCESSES, help=f"accesses each (default {ACCESSES})")
    parser.add_argument(
        "--one-tau-days", type=float, default=ONE_TAU_DAYS, help=f"tau of `one_tau` (default {ONE_TAU_DAYS:g})"
    )


def _baselines() -> dict[str, Callable[[Trace, int], HotSet]]:
    memoryos = partial(Coldest, policy=MemoryOsPolicy(MEMORYOS))
    return dict(zip(BASELINES, (lru, lfu, arc, memoryos), strict=True))


def _over(rate: float, best: float) -> float:
    return round(rate / best, 4) if best else 1.0  # a trace too short for any hit


def _interval(ours: Counts, theirs: Counts, seed: int) -> tuple[float, float]:
    random = np.random.default_rng(seed)
    chosen = random.integers(len(ours), size=(_SAMPLES, len(ours)))
    differences = (ours[:, 0] - theirs[:, 0])[chosen].sum(1) / ours[:, 1][chosen].sum(1)
    low, high = np.percentile(differences, [2.5, 97.5])
    return float(low), float(high)


def _table(by_trace: Mapping[str, Mapping[str, Any]]) -> Any:
    rows = {f"{family}, {size}": cell["hit_rate"] for family, cells in by_trace.items() for size, cell in cells.items()}
    return figures_table("hit rate of the hot set", [*BASELINES, *OURS], rows)


def _ratios(by_trace: Mapping[str, Mapping[str, Any]]) -> Any:
    rows = {
        f"{family}, {size}": {
            "best": cell["best_baseline"],
            **{f"{name} / best": f"{cell[name]['ratio']:.3f} {cell[name]['outcome']}" for name in OURS},
        }
        for family, cells in by_trace.items()
        for size, cell in cells.items()
    }
    return figures_table("over the best baseline", ["best", *(f"{name} / best" for name in OURS)], rows)
