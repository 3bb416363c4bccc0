"""Ways to choose which items are kept at hand, as caches: each is told an access and says whether it was a hit.

Pure and without time of their own: what an access is worth comes as a key, a level or nothing at all.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.traces import Trace
from memos.scheduler.heat import Access, Policy, Warmth

Key = Any  # what compares; a higher one stays


class HotSet(Protocol):
    """A set of at most `capacity` items."""

    def access(self, place: int, item: int) -> bool:
        """Take the access at this place of the trace; return whether the item was in the set."""
        ...


class Ranked:
    """Keeps what it was given and what has the highest keys beside it; a key changes only when its item is accessed.

    With `strict` an accessed item, too, stays out while all others have higher keys.
    """

    def __init__(self, capacity: int, key: Callable[[int, int, bool], Key], *, strict: bool = False) -> None:
        self._capacity = capacity
        self._key = key
        self._strict = strict
        self._keys: dict[int, Key] = {}
        self._heap: list[tuple[Key, int]] = []

    def access(self, place: int, item: int) -> bool:
        """Take an access; the lowest leaves when there is no room."""
        hit = item in self._keys
        key = self._key(place, item, hit)
        if not hit and len(self._keys) == self._capacity:
            lowest, victim = self._lowest()
            if self._strict and key < lowest:
                return False
            del self._keys[victim]
        self._keys[item] = key
        heapq.heappush(self._heap, (key, item))
        return hit

    def _lowest(self) -> tuple[Key, int]:
        while True:
            key, item = heapq.heappop(self._heap)
            if self._keys.get(item) == key:  # else it was accessed or put out since it was pushed
                heapq.heappush(self._heap, (key, item))
                return key, item


def lru(trace: Trace, capacity: int) -> HotSet:
    """Return a set that puts out the least recently used."""
    del trace
    return Ranked(capacity, lambda place, item, hit: place)


def lfu(trace: Trace, capacity: int) -> HotSet:
    """Return a set that puts out the least often used since it came in, of those the least recently used."""
    del trace
    counts: Counter[int] = Counter()

    def key(place: int, item: int, hit: bool) -> Key:
        counts[item] = counts[item] + 1 if hit else 1
        return counts[item], place

    return Ranked(capacity, key)


class Arc:
    """Adaptive replacement: a list of items seen once and one of those seen again, each with a list of who just left.

    Source: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, figure 4.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._target = 0.0  # p: how long the list of items seen once should be
        self._once: OrderedDict[int, None] = OrderedDict()  # T1, oldest first
        self._again: OrderedDict[int, None] = OrderedDict()  # T2
        self._left_once: OrderedDict[int, None] = OrderedDict()  # B1
        self._left_again: OrderedDict[int, None] = OrderedDict()  # B2

    def access(self, place: int, item: int) -> bool:
        """Take an access."""
        del place
        hit = item in self._once or item in self._again
        if hit:
            (self._once if item in self._once else self._again).pop(item)
        elif item in self._left_once:
            step = max(1.0, len(self._left_again) / len(self._left_once))
            self._target = min(self._capacity, self._target + step)
            self._replace(item)
            self._left_once.pop(item)
        elif item in self._left_again:
            step = max(1.0, len(self._left_once) / len(self._left_again))
            self._target = max(0.0, self._target - step)
            self._replace(item)
            self._left_again.pop(item)
        else:
            self._make_room(item)
            self._once[item] = None
            return False
        self._again[item] = None
        return hit

    def _make_room(self, item: int) -> None:
        once = len(self._once) + len(self._left_once)
        known = once + len(self._again) + len(self._left_again)
        if once == self._capacity:
            if len(self._once) < self._capacity:
                self._left_once.popitem(last=False)
                self._replace(item)
            else:
                self._once.popitem(last=False)
        elif known >= self._capacity:
            if known == 2 * self._capacity:
                self._left_again.popitem(last=False)
            self._replace(item)

    def _replace(self, item: int) -> None:
        many = len(self._once)
        if many and (many > self._target or (many == self._target and item in self._left_again)):
            self._left_once[self._once.popitem(last=False)[0]] = None
        else:
            self._left_again[self._again.popitem(last=False)[0]] = None


def arc(trace: Trace, capacity: int) -> HotSet:
    """Return an ARC set."""
    del trace
    return Arc(capacity)


class Coldest:
    """Puts out the coldest by a heat policy whose levels and heats may differ by `slack`; counts outlive the eviction.

    Of items with one level the least recently used is the coldest, so only the oldest of each level is asked.
    """

    def __init__(self, trace: Trace, capacity: int, policy: Policy) -> None:
        self._trace = trace
        self._capacity = capacity
        self._policy = policy
        self._warmths: dict[int, Warmth] = {}
        self._levels: dict[float, OrderedDict[int, None]] = {}
        self._size = 0

    def access(self, place: int, item: int) -> bool:
        """Take an access; a new item puts out the coldest of the others."""
        now = self._trace.times[place]
        before = self._warmths.get(item, Warmth())
        hit = item in self._levels.get(before.level, ())
        if hit:
            self._remove(item)
        elif self._size == self._capacity:
            self._remove(min(self._oldest(), key=lambda one: self._policy.heat(self._warmths[one], now)))
        after = self._policy.accessed(before, Access.RETRIEVED, now, now)
        self._warmths[item] = after
        self._levels.setdefault(after.level, OrderedDict())[item] = None
        self._size += 1
        return hit

    def _oldest(self) -> Sequence[int]:
        lowest = min(self._levels)
        near = [level for level in self._levels if level <= lowest + self._policy.slack]
        return [next(iter(self._levels[level])) for level in sorted(near)]

    def _remove(self, item: int) -> None:
        level = self._warmths[item].level
        self._levels[level].pop(item)
        if not self._levels[level]:
            del self._levels[level]
        self._size -= 1


def by_levels(levels: Sequence[float]) -> Callable[[Trace, int], HotSet]:
    """Return sets that put out the lowest level; `levels` are the accessed items', one for each access of the trace."""

    def ranked(trace: Trace, capacity: int) -> HotSet:
        del trace
        return Ranked(capacity, lambda place, item, hit: (levels[place], place))

    return ranked
