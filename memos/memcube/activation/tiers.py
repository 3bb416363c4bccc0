"""Which blocks are in which tier, under byte budgets: what is worth least makes room, the end of a chain first.

Keeps accounts and knows no locks, files or devices; the store calls it under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memos.memcube.activation import policy
from memos.memcube.activation.blocks import Block, Tier
from memos.memcube.activation.policy import Heat

_REMEMBERED_KEYS = 200_000


@dataclass(slots=True)
class Entry:
    """A block with what holds it in each tier, how many prompts use it now, and what stands behind it.

    `queued`: it waits to be written to disk; `gone`: nobody finds it any more.
    """

    block: Block
    held: dict[Tier, object] = field(default_factory=dict)
    children: set[str] = field(default_factory=set)
    refs: int = 0
    queued: bool = False
    gone: bool = False

    @property
    def tier(self) -> Tier | None:
        """The fastest tier it is in."""
        return min(self.held, key=list(Tier).index, default=None)


Leave = Callable[[Entry, Tier], bool]
"""Does what has to be done before a block leaves a tier, such as removing its file; False when it has to stay."""


class Shelves:
    """The blocks of one process by key."""

    def __init__(self, budgets: Mapping[Tier, int], leave: Leave) -> None:
        self.budgets = {tier: budgets.get(tier, 0) for tier in Tier}
        self.used = dict.fromkeys(Tier, 0)
        self.evictions = dict.fromkeys(Tier, 0)
        self.entries: dict[str, Entry] = {}
        self._leave = leave
        # Also of keys that are not here: what is asked for again and again gets in at last.
        self._heats: dict[str, Heat] = {}

    def heat(self, key: str) -> Heat:
        """Return how much a key was used of late."""
        return self._heats.get(key, Heat(0.0, 0.0))

    def count(self, keys: Sequence[str], now: float) -> None:
        """Count a use of each key."""
        for key in keys:
            self._heats[key] = self._heats.pop(key, Heat(0.0, now)).used(now)
        while len(self._heats) > _REMEMBERED_KEYS:
            self._heats.pop(next(iter(self._heats)))

    def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the longest run of entries from the first key on."""
        found = []
        for key in keys:
            entry = self.entries.get(key)
            if entry is None or not entry.held:
                break
            found.append(entry)
        return found

    def fill(self, held: Mapping[str, tuple[Block, Heat]], now: float) -> None:
        """Take in what the disk has; what its budget has no room for leaves it."""
        for key, (block, heat) in held.items():
            self.entries[key], self._heats[key] = Entry(block), heat
            self.hold(self.entries[key], Tier.DISK, None)
        for key, entry in self.entries.items():
            if entry.block.parent is not None:
                self.entries[entry.block.parent].children.add(key)
        while self.used[Tier.DISK] > self.budgets[Tier.DISK] and self._evict_coldest(Tier.DISK, None, None, now):
            pass

    def add(self, block: Block, tier: Tier, held: object, now: float) -> Entry | None:
        """Return a new block's entry; None when its parent is not here or there is no room."""
        if (block.parent is not None and block.parent not in self.entries) or not self.make_room(tier, block, now):
            return None
        entry = self.entries[block.key] = Entry(block)
        if block.parent is not None:
            self.entries[block.parent].children.add(block.key)
        self.hold(entry, tier, held)
        return entry

    def hold(self, entry: Entry, tier: Tier, held: object) -> None:
        """Put a block into a tier in which there is room."""
        entry.held[tier] = held
        self.used[tier] += _size(entry.block, tier)

    def make_room(self, tier: Tier, block: Block, now: float) -> bool:
        """Evict what is worth less than the block until it fits; False when that is not enough."""
        size = _size(block, tier)
        if size > self.budgets[tier]:
            return False
        worth = policy.worth(self.heat(block.key), block.compute_s, block.size_bytes, now)
        while self.used[tier] + size > self.budgets[tier]:
            if not self._evict_coldest(tier, block.parent, worth, now):
                return False
        return True

    def remove(self, keys: Collection[str]) -> list[Entry]:
        """Remove blocks with all that stands behind them from every tier; return them as they were held."""
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
        """Say whether the next process could come to the block: its parent is on disk."""
        parent = self.entries.get(block.parent or "")
        return block.parent is None or (parent is not None and Tier.DISK in parent.held)

    def _evict_coldest(self, tier: Tier, parent: str | None, worth: float | None, now: float) -> bool:
        victim = policy.coldest(self._evictable(tier, parent), lambda key: self._worth(key, now))
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
        """Yield leaves: a block is useless without its parents, so the end of a chain goes first."""
        for key, entry in self.entries.items():
            if tier not in entry.held or entry.refs or key == parent:
                continue
            if any(tier in self.entries[child].held for child in entry.children):
                continue
            if len(entry.held) > 1 or not entry.children or tier is Tier.DEVICE:
                yield key

    def _worth(self, key: str, now: float) -> float:
        block = self.entries[key].block
        return policy.worth(self.heat(key), block.compute_s, block.size_bytes, now)

    def _unlink(self, entry: Entry) -> None:
        entry.gone = True
        self.entries.pop(entry.block.key, None)
        if entry.block.parent in self.entries:
            self.entries[entry.block.parent].children.discard(entry.block.key)


def _size(block: Block, tier: Tier) -> int:
    return block.stored_bytes if tier is Tier.DISK else block.size_bytes
