"""Divides a cube's facts into shards of one topic each, so that a fact which is forgotten costs one short training.

A fact stays in its shard for as long as both are there; only what is new is placed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from memos.memcube.parametric.quiz import KnownFact

Vectors = npt.NDArray[np.float32]

_FILLED = 0.8
"""How full a shard is made at first, so that there is room for what comes."""

WHOLE = ""
"""The shard of a cube that has only one, and the first of those that have several."""


def shards_of(
    facts: Sequence[KnownFact],
    known: Mapping[str, Collection[str]],
    most: int,
    vectors_of: Callable[[Sequence[str]], Vectors],
) -> dict[str, tuple[KnownFact, ...]]:
    """Return the facts of each shard by its name, at most `most` a shard, in the order in which they are given.

    `known` are the items that each shard's adapter saw; `vectors_of` returns unit vectors as (texts, dimensions), and
    is asked only where there is a choice. A shard without facts left is not returned.
    """
    place = {item: name for name, items in known.items() for item in items}
    found: dict[str, list[int]] = {name: [] for name in known}
    new: list[int] = []
    for row, fact in enumerate(facts):
        name = place.get(fact.item)
        if name is not None and len(found[name]) < most:
            found[name].append(row)
        else:
            new.append(row)
    filled = [name for name, rows in found.items() if rows]
    if new and not filled and len(new) <= most:
        found[WHOLE] = new
    elif new and filled == [WHOLE] and len(facts) <= most:
        found[WHOLE] += new
    elif new:
        _place(found, new, most, vectors_of([fact.memory for fact in facts]))
    return {name: tuple(facts[row] for row in sorted(rows)) for name, rows in sorted(found.items()) if rows}


def _place(found: dict[str, list[int]], new: list[int], most: int, vectors: Vectors) -> None:
    """Put a few new rows into the nearest shards with room; many, or those that find none, become shards themselves.

    A shard that nobody trained yet is many, so that training one of several leaves the others as they were divided.
    """
    filled = max(1, int(most * _FILLED))
    centres = {name: vectors[rows].mean(0) for name, rows in found.items() if rows}
    left = new if len(new) > max(1, most - filled) else []
    for row in () if left else new:
        open_ = [name for name in centres if len(found[name]) < most]
        if open_:
            found[max(open_, key=lambda name: float(centres[name] @ vectors[row]))].append(row)
        else:
            left.append(row)
    for rows in _parts(left, -(-len(left) // filled), vectors):
        found[_free_name(found)] = rows


def _parts(rows: list[int], count: int, vectors: Vectors) -> list[list[int]]:
    """Return rows in so many parts of about one size, cut along the direction in which they differ most."""
    if count < 2:
        return [rows] if rows else []
    centred = vectors[rows] - vectors[rows].mean(0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    direction *= 1 if direction[np.abs(direction).argmax()] > 0 else -1  # a sign is nothing that was computed
    order = [rows[int(each)] for each in np.argsort(centred @ direction, kind="stable")]
    first = count // 2
    cut = len(order) * first // count
    return _parts(order[:cut], first, vectors) + _parts(order[cut:], count - first, vectors)


def _free_name(found: Mapping[str, list[int]]) -> str:
    if not found.get(WHOLE):
        return WHOLE
    return next(name for name in map(str, range(2, len(found) + 3)) if not found.get(name))
