"""A month of prompts: how many of their tokens a store has, by how prompts are laid out and by what it throws away.

The keys are real (`chain`), the store is the program's own; keys and values are a few bytes, for no model is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from memos.core.kv_cache import BLOCK_TOKENS
from memos.memcube.activation.blocks import Block, Tier, block_keys, empty, usable_blocks
from memos.memcube.activation.store import BlockStore

DAYS, TURNS = 30, 1_000
CUBES, FACTS, PINNED, SHOWN = 20, 120, 40, 10
_SYSTEM, _FACT, _QUERY = 200, 20, 30
_EDITED = 0.01
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# A later block costs more to compute: attention looks back. Seconds; only their ratios count.
_BLOCK_S, _BACK_S = 0.04, 0.0008


class TurnClock:
    """Stands where the trace is."""

    def __init__(self) -> None:
        self.at = _BEGIN

    def now(self) -> datetime:
        """Return the moment of the turn."""
        return self.at


@dataclass(slots=True)
class _Cube:
    """One tenant's facts by version, and those pinned in their order."""

    name: int
    versions: list[int] = field(default_factory=lambda: [0] * FACTS)
    pinned: list[tuple[int, int]] = field(default_factory=list)
    corrections: int = 0

    def fact(self, number: int, version: int) -> list[int]:
        return [1_000_000 + ((self.name * FACTS + number) * 1_000 + version) * _FACT + token for token in range(_FACT)]


def prompts(seed: int, turns: int) -> Iterator[tuple[datetime, _Cube, list[int], list[int]]]:
    """Yield (moment, cube, its facts by relevance to the turn, the query's tokens); some turns edit a fact before."""
    random = np.random.default_rng(seed)
    cubes = [_Cube(name, pinned=[(fact, 0) for fact in range(PINNED)]) for name in range(CUBES)]
    moments = np.sort(random.uniform(0, DAYS * 86_400, turns))
    for place, moment in enumerate(moments):
        cube = cubes[min(CUBES, int(random.zipf(1.3))) - 1]
        if random.random() < _EDITED:
            fact = int(random.integers(FACTS))
            cube.versions[fact] += 1
            if fact < PINNED:  # an edit appends a correction; when there are many, all is composed anew
                cube.pinned.append((fact, cube.versions[fact]))
                cube.corrections += 1
                if cube.corrections > PINNED // 4:
                    cube.pinned, cube.corrections = [(fact, cube.versions[fact]) for fact in range(PINNED)], 0
        liking = 1 / np.arange(1, FACTS + 1) * random.exponential(1.0, FACTS)
        relevant = [int(fact) for fact in np.argsort(-liking)]
        yield _BEGIN + timedelta(seconds=float(moment)), cube, relevant, [place * _QUERY + t for t in range(_QUERY)]


def pinned_first(cube: _Cube, relevant: Sequence[int], query: Sequence[int]) -> tuple[list[int], int]:
    """Return a prompt as the program lays it out and how many tokens of it come again."""
    stable = [*range(_SYSTEM), *(token for fact, version in cube.pinned for token in cube.fact(fact, version))]
    others = [fact for fact in relevant if fact >= PINNED][:SHOWN]
    return [*stable, *(token for fact in others for token in cube.fact(fact, cube.versions[fact])), *query], len(stable)


def by_relevance(cube: _Cube, relevant: Sequence[int], query: Sequence[int]) -> tuple[list[int], int]:
    """Return a prompt with as many facts, the most relevant first; all of it may be kept."""
    shown = relevant[: PINNED + SHOWN]
    ids = [*range(_SYSTEM), *(token for fact in shown for token in cube.fact(fact, cube.versions[fact]))]
    return [*ids, *query], len(ids)


Layout = Callable[[_Cube, Sequence[int], Sequence[int]], tuple[list[int], int]]


def cached_token_rate(layout: Layout, seed: int, turns: int = TURNS) -> float:
    """Return the share of prompt tokens that came from a store with room for everything."""
    clock = TurnClock()
    store = BlockStore({Tier.HOST: 2**40}, clock)
    cached = total = 0
    for clock.at, cube, relevant, query in prompts(seed, turns):
        ids, stable = layout(cube, relevant, query)
        keys = block_keys("model", str(cube.name), ids[:stable])
        cached += min(_used(store, keys, str(cube.name)), usable_blocks(len(ids))) * BLOCK_TOKENS
        total += len(ids)
    return cached / total


def _used(store: BlockStore, keys: Sequence[str], cube: str) -> int:
    with store.checkout(keys) as lent:
        found = len(lent)
        for place in range(found, len(keys)):
            parent = keys[place - 1] if place else None
            block = Block(keys[place], parent, "model", cube, "F32", (1,), _cost(place))
            if not lent.add(block, empty(block), Tier.HOST):
                break
    return found


def _cost(place: int) -> float:
    return _BLOCK_S + _BACK_S * place


def accesses(seed: int, *, changing: bool) -> list[tuple[float, list[str]]]:
    """Return (seconds, keys) of prompts of very different habits; of `changing` ones half are new each three days."""
    random = np.random.default_rng(seed)
    found = []
    for moment in np.sort(random.uniform(0, DAYS * 86_400, 4 * TURNS)):
        name = min(400, int(random.zipf(1.25)))
        length = 4 + name * 7 % 29
        if changing and name % 2:
            name += 1_000 * (1 + int(moment // (3 * 86_400)))
        ids = [name * 10_000 + token for token in range(length * BLOCK_TOKENS)]
        found.append((float(moment), block_keys("model", "home", ids)))
    return found


def saved_by_ours(trace: Sequence[tuple[float, list[str]]], blocks: int) -> float:
    """Return the share of seconds of computing that the program's store saves with room for so many blocks."""
    clock = TurnClock()
    store = BlockStore({Tier.HOST: 4 * blocks}, clock)  # a block is one float32
    saved = total = 0.0
    for seconds, keys in trace:
        clock.at = _BEGIN + timedelta(seconds=seconds)
        found = _used(store, keys, "home")
        total += sum(map(_cost, range(len(keys))))
        saved += sum(map(_cost, range(found)))
    return saved / total


def saved_by(policy: str, trace: Sequence[tuple[float, list[str]]], blocks: int) -> float:
    """Return the same for LRU, LFU or GDSF, which keep whatever comes and also throw the end of a chain away first.

    Source: Cherkasova, Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy, 1998.
    """
    held: dict[str, tuple[float, int]] = {}  # key: (worth, place)
    parents: dict[str, str | None] = {}
    children: dict[str, int] = {}
    uses: dict[str, int] = {}
    inflation = saved = total = 0.0
    for now, keys in trace:
        found = next((place for place, key in enumerate(keys) if key not in held), len(keys))
        total += sum(map(_cost, range(len(keys))))
        saved += sum(map(_cost, range(found)))
        used = set(keys)
        for place, key in enumerate(keys):
            uses[key] = uses.get(key, 0) + 1 if policy == "LFU" or key in held else 1
            worth = {"LRU": now, "LFU": float(uses[key]), "GDSF": inflation + uses[key] * _cost(place)}[policy]
            if key not in held:
                while len(held) >= blocks:
                    leaves = [other for other in held if not children.get(other) and other not in used]
                    if not leaves:
                        break
                    victim = min(leaves, key=lambda other: (held[other][0], -held[other][1]))
                    inflation = max(inflation, held.pop(victim)[0])
                    children[str(parents[victim])] = children.get(str(parents[victim]), 1) - 1
                if len(held) >= blocks:
                    break
                parents[key] = keys[place - 1] if place else None
                children[str(parents[key])] = children.get(str(parents[key]), 0) + 1
            held[key] = (worth, place)
    return saved / total


def policies(seed: int) -> dict[str, dict[str, float]]:
    """Return by trace and room, in shares of all that the trace asks for, what each policy saves."""
    found = {}
    for changing in (False, True):
        trace = accesses(seed, changing=changing)
        distinct = len({key for _, keys in trace for key in keys})
        for share in (0.03, 0.1):
            blocks = math.ceil(distinct * share)
            told = {"ours": saved_by_ours(trace, blocks)}
            told |= {policy: saved_by(policy, trace, blocks) for policy in ("LRU", "LFU", "GDSF")}
            name = f"{'changing' if changing else 'lasting'} {share:.0%}"
            found[name] = {policy: round(value, 4) for policy, value in told.items()}
    return found
