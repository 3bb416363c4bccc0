"""Eviction and leases of KV blocks across tiers: the leaf block with the lowest retention score is evicted.

Pure bookkeeping, without locks, files or devices; the store calls it while holding its lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from memos.memcube.activation.blocks import Block, Tier

HALF_LIFE_S = 2 * 86_400.0
"""Half-life of a block's use count: a shorter one suits changing topics, a longer one lasting habits.

See docs/development/log.md.
"""

ADMITTED_USES = 2
"""Uses before a block is written to disk: most prompts never recur."""

_NEW_WEIGHT = 0.3
"""Weight of the newest measurement in the exponential moving average of a rate."""


@dataclass(frozen=True, slots=True)
class Heat:
    """The decayed use count of a block as of `at` (seconds); each use adds 1, with a half-life of `HALF_LIFE_S`."""

    uses: float
    at: float

    def now(self, now: float) -> float:
        return self.uses * math.pow(0.5, max(0.0, now - self.at) / HALF_LIFE_S)

    def used(self, now: float) -> Heat:
        return Heat(self.now(now) + 1.0, max(now, self.at))


def retention_score(heat: Heat, saved_s: float, size_bytes: int, now: float) -> float:
    """Return the expected savings of compute time per byte, in seconds.

    Source: cost over size as in Cao & Irani, Cost-Aware WWW Proxy Caching Algorithms, USENIX 1997, with decaying use
    counts in place of their inflation.
    """
    return heat.now(now) * saved_s / max(1, size_bytes)


def eviction_candidate(candidates: Iterable[str], worth_of: Callable[[str], float]) -> str | None:
    return min(candidates, key=lambda key: (worth_of(key), key), default=None)


def blocks_to_load(load_s: Sequence[float], compute_s: Sequence[float]) -> int:
    """Return how many of the leading blocks to load, so that loading them and computing the rest takes the least time.

    Both arguments are seconds for each block, in order. If several numbers take equally long, the largest is returned.
    """
    best, best_s = 0, sum(compute_s)
    total = best_s
    for place, (load, compute) in enumerate(zip(load_s, compute_s, strict=True)):
        total += load - compute
        if total <= best_s:
            best, best_s = place + 1, total
    return best


class Rate:
    """A measured rate in units per second, as an exponential moving average. Not thread-safe."""

    def __init__(self) -> None:
        self.per_s: float | None = None

    def measured(self, units: float, seconds: float) -> None:
        if units <= 0 or seconds <= 0:
            return
        seen = units / seconds
        # The harmonic mean: times are averaged, since one very high rate would dominate an average of rates.
        self.per_s = seen if self.per_s is None else 1 / ((1 - _NEW_WEIGHT) / self.per_s + _NEW_WEIGHT / seen)

    def seconds(self, units: float) -> float:
        """Return the estimated time for so many units; 0 before the first measurement, so that one is made."""
        return 0.0 if self.per_s is None else units / self.per_s


_REMEMBERED_KEYS = 200_000


@dataclass(slots=True)
class Entry:
    """A block and its data by tier, in `held`.

    `refs` counts the prompts using it, `queued` is True while it waits to be written to disk, and `gone` once it was
    removed from the cache.
    """

    block: Block
    held: dict[Tier, object] = field(default_factory=dict)
    children: set[str] = field(default_factory=set)
    refs: int = 0
    queued: bool = False
    gone: bool = False

    @property
    def tier(self) -> Tier | None:
        return min(self.held, key=list(Tier).index, default=None)


Leave = Callable[[Entry, Tier], bool]
"""Called before a block is evicted from a tier, for example to remove its file; returns False to keep it."""


class TieredCache:
    def __init__(self, budgets: Mapping[Tier, int], leave: Leave) -> None:
        self.budgets = {tier: budgets.get(tier, 0) for tier in Tier}
        self.used = dict.fromkeys(Tier, 0)
        self.evictions = dict.fromkeys(Tier, 0)
        self.entries: dict[str, Entry] = {}
        self._leave = leave
        # Also of blocks that are not cached, so that those in demand are admitted eventually.
        self._heats: dict[str, Heat] = {}

    def heat(self, key: str) -> Heat:
        return self._heats.get(key, Heat(0.0, 0.0))

    def count(self, keys: Sequence[str], now: float) -> None:
        for key in keys:
            self._heats[key] = self._heats.pop(key, Heat(0.0, now)).used(now)
        while len(self._heats) > _REMEMBERED_KEYS:
            self._heats.pop(next(iter(self._heats)))

    def find(self, keys: Sequence[str]) -> list[Entry]:
        found = []
        for key in keys:
            entry = self.entries.get(key)
            if entry is None or not entry.held:
                break
            found.append(entry)
        return found

    def fill(self, held: Mapping[str, tuple[Block, Heat]], now: float) -> None:
        for key, (block, heat) in held.items():
            self.entries[key], self._heats[key] = Entry(block), heat
            self.put(self.entries[key], Tier.DISK, None)
        for key, entry in self.entries.items():
            if entry.block.parent is not None:
                self.entries[entry.block.parent].children.add(key)
        while self.used[Tier.DISK] > self.budgets[Tier.DISK] and self._evict_coldest(Tier.DISK, None, None, now):
            pass

    def add(self, block: Block, tier: Tier, held: object, now: float) -> Entry | None:
        if (block.parent is not None and block.parent not in self.entries) or not self.make_room(tier, block, now):
            return None
        entry = self.entries[block.key] = Entry(block)
        if block.parent is not None:
            self.entries[block.parent].children.add(block.key)
        self.put(entry, tier, held)
        return entry

    def put(self, entry: Entry, tier: Tier, held: object) -> None:
        entry.held[tier] = held
        self.used[tier] += _size(entry.block, tier)

    def make_room(self, tier: Tier, block: Block, now: float) -> bool:
        size = _size(block, tier)
        if size > self.budgets[tier]:
            return False
        worth = retention_score(self.heat(block.key), block.compute_s, block.size_bytes, now)
        while self.used[tier] + size > self.budgets[tier]:
            if not self._evict_coldest(tier, block.parent, worth, now):
                return False
        return True

    def remove(self, keys: Collection[str]) -> list[Entry]:
        doomed: dict[str, Entry] = {}
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            entry = self.entries.get(key)
            if entry is not None and key not in doomed:
                doomed[key] = entry
                waiting.extend(entry.children)
        for entry in doomed.values():
            for tier in entry.held:
                self.used[tier] -= _size(entry.block, tier)
            self._unlink(entry)
            self._heats.pop(entry.block.key, None)
        return list(doomed.values())

    def reachable_on_disk(self, block: Block) -> bool:
        parent = self.entries.get(block.parent or "")
        return block.parent is None or (parent is not None and Tier.DISK in parent.held)

    def _evict_coldest(self, tier: Tier, parent: str | None, worth: float | None, now: float) -> bool:
        victim = eviction_candidate(self._evictable(tier, parent), lambda key: self._worth(key, now))
        if victim is None or (worth is not None and self._worth(victim, now) > worth):
            return False
        entry = self.entries[victim]
        if not self._leave(entry, tier):
            return False
        entry.held.pop(tier)
        self.used[tier] -= _size(entry.block, tier)
        self.evictions[tier] += 1
        if not entry.held:
            self._unlink(entry)
        return True

    def _evictable(self, tier: Tier, parent: str | None) -> Iterator[str]:
        """Yield the keys of leaves: a block is useless without its ancestors, so a chain is evicted from its end."""
        for key, entry in self.entries.items():
            if tier not in entry.held or entry.refs or key == parent:
                continue
            if any(tier in self.entries[child].held for child in entry.children):
                continue
            if len(entry.held) > 1 or not entry.children or tier is Tier.DEVICE:
                yield key

    def _worth(self, key: str, now: float) -> float:
        block = self.entries[key].block
        return retention_score(self.heat(key), block.compute_s, block.size_bytes, now)

    def _unlink(self, entry: Entry) -> None:
        entry.gone = True
        self.entries.pop(entry.block.key, None)
        if entry.block.parent in self.entries:
            self.entries[entry.block.parent].children.discard(entry.block.key)


def _size(block: Block, tier: Tier) -> int:
    return block.stored_bytes if tier is Tier.DISK else block.size_bytes


class BlockLender(Protocol):
    def load_s(self, entry: Entry) -> float: ...

    def loaded(self, entry: Entry) -> tuple[Tier, object] | None: ...

    def added(self, block: Block, held: object, tier: Tier) -> Entry | None: ...

    def returned(self, entries: Sequence[Entry]) -> None: ...


class BlockLease:
    """The leading blocks of one prompt, protected from eviction until `close`."""

    def __init__(self, store: BlockLender, entries: list[Entry]) -> None:
        self._store = store
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(entry.block for entry in self._entries)

    def load_s(self) -> list[float]:
        return [self._store.load_s(entry) for entry in self._entries]

    def load(self, count: int, first: int = 0) -> Iterator[tuple[Tier, object]]:
        for entry in self._entries[first : first + count]:
            found = self._store.loaded(entry)
            if found is None:
                return
            yield found

    def add(self, block: Block, held: object, tier: Tier) -> bool:
        entry = self._store.added(block, held, tier)
        if entry is not None:
            self._entries.append(entry)
        return entry is not None

    def close(self) -> None:
        self._store.returned(self._entries)
        self._entries = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
