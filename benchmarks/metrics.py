"""The figures a benchmark reports, from a ranked list and the gold; pure.

Definitions: ../shared/benchmarks.md; averages are over questions.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from math import log2
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)


def frac_at(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the share of the gold among the first k."""
    return len(set(gold) & set(ranked[:k])) / len(set(gold))


def any_at(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return 1 when at least one of the gold is among the first k."""
    return float(not set(gold).isdisjoint(ranked[:k]))


def all_at(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return 1 when all the gold is among the first k."""
    return float(set(gold) <= set(ranked[:k]))


def ndcg_at(ranked: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the normalised discounted cumulative gain, as LongMemEval counts it: places 1 and 2 weigh the same.

    Source: github.com/xiaowu0162/LongMemEval, src/retrieval/eval_utils.py, `dcg` and `ndcg`.
    """
    gains = [float(entry in gold) for entry in ranked[:k]]
    return _dcg(gains) / _dcg([1.0] * min(k, len(set(gold))))


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / max(1.0, log2(place)) for place, gain in enumerate(gains, start=1))


def newest_first(ranked: Sequence[Hashable], gold: Sequence[Hashable]) -> float | None:
    """Return 1 when the newest of the gold (given oldest first) stands before every older one; None for one alone.

    What is not in the list stands behind everything in it; a newest that is not found is not first.
    """
    *older, newest = dict.fromkeys(gold)
    if not older:
        return None
    places = {entry: place for place, entry in reversed(list(enumerate(ranked)))}
    if newest not in places:
        return 0.0
    return float(all(places[newest] < places.get(entry, len(ranked)) for entry in older))


def first_seen(keys: Iterable[_Key]) -> list[_Key]:
    """Return the distinct keys in order of first appearance."""
    return list(dict.fromkeys(keys))


def fitting(costs: Sequence[int], budget: int) -> list[int]:
    """Return the places that a context under a budget keeps: in order, skipping what is too long."""
    kept, used = [], 0
    for place, cost in enumerate(costs):
        if used + cost <= budget:
            kept.append(place)
            used += cost
    return kept


def mean(rows: Iterable[Mapping[str, float | None]]) -> dict[str, float]:
    """Return each figure's average over the rows that have it, in order of first appearance."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return {name: round(sum(column) / len(column), 4) for name, column in values.items()}
