"""Keeps blocks of activation memory in tiers under byte budgets, lends them out, and forgets them at once when told.

Knows no model: keys and values are arrays, or whatever the device's port makes of them. Nothing in use is evicted.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from memos.clock import Clock
from memos.errors import IntegrityError
from memos.memcube.activation import policy
from memos.memcube.activation.blocks import Array, Block, Tier, empty
from memos.memcube.activation.disk import DiskTier
from memos.memcube.activation.policy import Heat, Rate

log = logging.getLogger("memos.activation")

_QUEUED_WRITES = 32
_REMEMBERED_KEYS = 200_000
_DISK_PAUSE_S = 60.0


class Device(Protocol):
    """Memory beside the processor's own; `Held` arrays are the device's."""

    def upload(self, array: Array, block: Block) -> object:
        """Return a copy on the device. Raises: MemoryError."""
        ...

    def download(self, held: object, block: Block) -> Array:
        """Return a copy in host memory."""
        ...

    def room(self, block: Block) -> Array:
        """Return host memory for a block that the device reads quickly."""
        ...


Alive = Callable[[str, Collection[str]], bool]
"""Says whether a cube is there and all these items of it may still be held."""


@dataclass(slots=True)
class _Entry:
    block: Block
    held: dict[Tier, object] = field(default_factory=dict)
    children: set[str] = field(default_factory=set)
    refs: int = 0
    queued: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True)
class TierStats:
    """How full a tier is and what came of it since the store was opened."""

    blocks: int
    size_bytes: int
    budget_bytes: int
    hits: int
    evictions: int
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What the store holds; `dropped_writes` were not written to disk because it was too slow, full or failed."""

    tiers: Mapping[Tier, TierStats]
    dropped_writes: int
    damaged: int
    forgotten: int


class Checkout:
    """Blocks lent to one prompt, from its beginning; what is lent is neither evicted nor changed until it is closed."""

    def __init__(self, store: BlockStore, entries: list[_Entry]) -> None:
        self._store = store
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that are there, in order."""
        return tuple(entry.block for entry in self._entries)

    def load_s(self) -> list[float]:
        """Return for each block how long loading it should take, by what was measured."""
        return [self._store.load_s(entry) for entry in self._entries]

    def load(self, count: int) -> Iterator[tuple[Tier, object]]:
        """Yield keys and values of the first blocks with the tier they come from; ends early at a damaged one."""
        for entry in self._entries[:count]:
            found = self._store.loaded(entry)
            if found is None:
                return
            yield found

    def add(self, block: Block, held: object, tier: Tier) -> bool:
        """Store the next block of this prompt, and lend it too; False when there is no room for it."""
        entry = self._store.added(block, held, tier)
        if entry is not None:
            self._entries.append(entry)
        return entry is not None

    def close(self) -> None:
        """Give everything back; safe to call twice."""
        self._store.returned(self._entries)
        self._entries = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockStore:
    """The blocks of one process. Thread-safe. Without a folder or with a budget of 0 there is no disk tier."""

    def __init__(
        self, budgets: Mapping[Tier, int], clock: Clock, *, folder: Path | None = None, device: Device | None = None,
        alive: Alive = lambda _, __: True,
    ) -> None:  # fmt: skip
        """Open the store. Raises: BackendUnavailable (the folder)."""
        self._clock, self._device, self._alive = clock, device, alive
        self._budgets = {tier: budgets.get(tier, 0) for tier in Tier}
        if device is None:
            self._budgets[Tier.DEVICE] = 0
        self._used = dict.fromkeys(Tier, 0)
        self._hits, self._evictions = dict.fromkeys(Tier, 0), dict.fromkeys(Tier, 0)
        self._rates = {tier: Rate() for tier in Tier}
        self._dropped = self._damaged = self._forgotten = 0
        self._entries: dict[str, _Entry] = {}
        self._heats: dict[str, Heat] = {}
        self._flights: dict[str, threading.Lock] = {}
        # What `_lock` guards is in memory; `_io` is held while files change, and is taken first of the two.
        self._lock, self._io = threading.RLock(), threading.RLock()
        self._disk: DiskTier | None = None
        self._disk_paused_until = 0.0
        self._writes: queue.Queue[_Entry | None] = queue.Queue(_QUEUED_WRITES)
        self._closed = False
        self._writer: threading.Thread | None = None
        if folder is not None and self._budgets[Tier.DISK] > 0:
            self._open_disk(folder)

    def checkout(self, keys: Sequence[str], *, counted: bool = True) -> Checkout:
        """Lend the longest run of blocks from the first key on that is there.

        All of the keys count as used, also those that are missing, unless this use is counted already.
        """
        now, found = self._now(), []
        with self._lock:
            if counted:
                self._count(keys, now)
            for key in keys:
                entry = self._entries.get(key)
                if entry is None or not entry.held:
                    break
                entry.refs += 1
                found.append(entry)
            for entry in found:
                self._hits[min(entry.held, key=list(Tier).index)] += 1
                self._write_behind(entry)
        return Checkout(self, found)

    def _count(self, keys: Sequence[str], now: float) -> None:
        for key in keys:
            self._heats[key] = self._heats.pop(key, Heat(0.0, now)).used(now)
        while len(self._heats) > _REMEMBERED_KEYS:
            self._heats.pop(next(iter(self._heats)))

    def has(self, keys: Sequence[str]) -> int:
        """Return how many of the leading blocks are there, using none."""
        with self._lock:
            for place, key in enumerate(keys):
                if key not in self._entries:
                    return place
        return len(keys)

    @contextmanager
    def flight(self, key: str) -> Iterator[bool]:
        """Let one caller at a time build the block; False when another did meanwhile, so that one looks again."""
        with self._lock:
            lock = self._flights.setdefault(key, threading.Lock())
        first = lock.acquire(blocking=False)
        if not first:
            lock.acquire()
        try:
            yield first
        finally:
            lock.release()
            with self._lock:
                if not lock.locked():
                    self._flights.pop(key, None)

    def forget(self, items: Collection[str]) -> int:
        """Remove every block in which, or behind which, one of these items stands, from all tiers; return how many."""
        wanted = frozenset(items)
        return self._remove_where(lambda block: not wanted.isdisjoint(block.items))

    def drop(self, cube: str | None = None, fingerprint: str | None = None) -> int:
        """Remove the blocks of a cube, of a model, or all; return how many."""
        return self._remove_where(lambda block: cube in (None, block.cube) and fingerprint in (None, block.fingerprint))

    def reconcile(self) -> int:
        """Remove what the ledger says may no longer be held; return how many blocks."""
        with self._lock:
            told = {(entry.block.cube, entry.block.items) for entry in self._entries.values()}
        dead = {each for each in told if not self._alive(*each)}
        return self._remove_where(lambda block: (block.cube, block.items) in dead) if dead else 0

    def blocks(self) -> list[tuple[Block, tuple[Tier, ...], float]]:
        """Return every block with its tiers and its heat, parents before children."""
        now = self._now()
        with self._lock:
            return [
                (entry.block, tuple(tier for tier in Tier if tier in entry.held), self._heat(key).now(now))
                for key, entry in self._entries.items()
            ]

    def stats(self) -> StoreStats:
        """Return what the store holds and did."""
        with self._lock:
            tiers = {
                tier: TierStats(
                    sum(tier in entry.held for entry in self._entries.values()), self._used[tier],
                    self._budgets[tier], self._hits[tier], self._evictions[tier], self._rates[tier].per_s,
                )
                for tier in Tier
            }  # fmt: skip
            return StoreStats(tiers, self._dropped, self._damaged, self._forgotten)

    def verify(self) -> list[str]:
        """Read every file; remove damaged ones with what stands behind them and return their keys."""
        with self._lock:
            entries = [entry for entry in self._entries.values() if Tier.DISK in entry.held]
        damaged = []
        for entry in entries:
            with self._io:
                if entry.gone or Tier.DISK not in entry.held or self._disk is None:
                    continue
                try:
                    self._disk.read(entry.block, empty)
                except (IntegrityError, OSError):
                    damaged.append(entry.block.key)
                    self._lose(entry)
        return damaged

    def settle(self) -> None:
        """Wait until everything queued for the disk is written."""
        self._writes.join()

    def close(self) -> None:
        """Write what is queued and the heats, and close the files; safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._writer is not None:
            self._writes.put(None)
            self._writer.join()
        with self._io:
            if self._disk is not None:
                with self._lock:
                    heats = {key: self._heat(key) for key, entry in self._entries.items() if Tier.DISK in entry.held}
                self._disk.keep_heats(heats)
                self._disk.close()
                self._disk = None

    # What a checkout calls.

    def load_s(self, entry: _Entry) -> float:
        """Return how long loading a block should take; what is in the fastest tier is not loaded at all."""
        with self._lock:
            tier = min(entry.held, key=list(Tier).index, default=Tier.DISK)
            if tier is Tier.DEVICE:
                return 0.0
            return self._rates[tier].seconds(entry.block.size_bytes)

    def loaded(self, entry: _Entry) -> tuple[Tier, object] | None:
        """Return a lent block's keys and values and where they were; they move up where there is room.

        None when the block was forgotten meanwhile or its file is damaged.
        """
        with self._lock:
            held = dict(entry.held)
        for tier in (Tier.DEVICE, Tier.HOST):
            if tier in held:
                return tier, self._uploaded(entry, held[tier]) if tier is Tier.HOST else held[tier]
        disk = self._disk
        if disk is None or entry.gone:
            return None
        began = time.perf_counter()
        try:
            array = disk.read(entry.block, self._device.room if self._device else empty)
        except (IntegrityError, OSError) as error:
            if not entry.gone:
                log.warning("a block of activation memory could not be read: %s", error)
                self._lose(entry)
            return None
        with self._lock:
            self._rates[Tier.DISK].measured(entry.block.size_bytes, time.perf_counter() - began)
            self._raise_to(entry, Tier.HOST, array)
        return Tier.DISK, self._uploaded(entry, array)

    def _uploaded(self, entry: _Entry, array: object) -> object:
        """Return a copy on the device, which stays there where there is room; without a device the array itself."""
        if self._device is None:
            return array
        copy = self._device.upload(array, entry.block)  # type: ignore[arg-type]
        with self._lock:
            self._raise_to(entry, Tier.DEVICE, copy)
        return copy

    def _raise_to(self, entry: _Entry, tier: Tier, held: object) -> None:
        if not entry.gone and tier not in entry.held and self._make_room(tier, entry.block):
            self._hold(entry, tier, held)

    def measured(self, tier: Tier, size_bytes: int, seconds: float) -> None:
        """Take in how long bringing blocks of a tier to where they are used took."""
        with self._lock:
            self._rates[tier].measured(size_bytes, seconds)

    def added(self, block: Block, held: object, tier: Tier) -> _Entry | None:
        """Hold a new block and lend it; None when there is no room, or its text may not be held any more."""
        with self._lock:
            entry = self._entries.get(block.key)
            if entry is None:
                if block.parent is not None and block.parent not in self._entries:
                    return None
                if self._closed or not self._make_room(tier, block):
                    return None
                entry = self._entries[block.key] = _Entry(block)
                if block.parent is not None:
                    self._entries[block.parent].children.add(block.key)
                self._hold(entry, tier, held)
            entry.refs += 1
            self._write_behind(entry)
        # Looked at after it can be found: what is forgotten from now on finds it, what was before is seen here.
        if not self._alive(block.cube, block.items):
            self._remove_where(lambda other: (other.cube, other.items) == (block.cube, block.items))
        return entry

    def returned(self, entries: Sequence[_Entry]) -> None:
        """Take lent blocks back."""
        with self._lock:
            for entry in entries:
                entry.refs -= 1

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _heat(self, key: str) -> Heat:
        return self._heats.get(key, Heat(0.0, 0.0))

    def _worth(self, key: str, now: float) -> float:
        block = self._entries[key].block
        return policy.worth(self._heat(key), block.compute_s, block.size_bytes, now)

    def _hold(self, entry: _Entry, tier: Tier, held: object) -> None:
        entry.held[tier] = held
        self._used[tier] += entry.block.size_bytes

    def _make_room(self, tier: Tier, block: Block) -> bool:
        """Evict what is worth less than the block until it fits; False when that is not enough."""
        now, budget = self._now(), self._budgets[tier]
        if block.size_bytes > budget:
            return False
        worth = policy.worth(self._heat(block.key), block.compute_s, block.size_bytes, now)
        while self._used[tier] + block.size_bytes > budget:
            victim = policy.coldest(self._evictable(tier, block.parent), lambda key: self._worth(key, now))
            if victim is None or self._worth(victim, now) > worth or not self._evict(self._entries[victim], tier):
                return False
        return True

    def _evictable(self, tier: Tier, parent: str | None) -> Iterator[str]:
        """Yield leaves: a block is useless without its parents, so the end of a chain goes first."""
        for key, entry in self._entries.items():
            if tier not in entry.held or entry.refs or key == parent:
                continue
            if not any(tier in self._entries[child].held for child in entry.children) and (
                len(entry.held) > 1 or not entry.children or tier is Tier.DEVICE
            ):
                yield key

    def _evict(self, entry: _Entry, tier: Tier) -> bool:
        """Take a block out of a tier; from the device it goes to host memory if there is room."""
        if tier is Tier.DISK:
            with self._io:
                assert self._disk is not None
                try:
                    self._disk.remove([entry.block.key])
                except OSError as error:
                    log.warning("a block of activation memory could not be removed: %s", error)
                    return False
        if tier is Tier.DEVICE and len(entry.held) == 1:
            assert self._device is not None
            if self._make_room(Tier.HOST, entry.block):
                self._hold(entry, Tier.HOST, self._device.download(entry.held[tier], entry.block))
            elif entry.children:
                return False
        self._release(entry, tier)
        self._evictions[tier] += 1
        if not entry.held:
            self._unlink(entry)
        return True

    def _parent_written(self, entry: _Entry) -> bool:
        """Say whether the next process could reach the block."""
        parent = self._entries.get(entry.block.parent or "")
        return entry.block.parent is None or (parent is not None and Tier.DISK in parent.held)

    def _release(self, entry: _Entry, tier: Tier) -> None:
        entry.held.pop(tier)
        self._used[tier] -= entry.block.size_bytes

    def _unlink(self, entry: _Entry) -> None:
        entry.gone = True
        self._entries.pop(entry.block.key, None)
        if entry.block.parent in self._entries:
            self._entries[entry.block.parent].children.discard(entry.block.key)

    def _lose(self, entry: _Entry) -> None:
        """Remove a damaged block and all that stands behind it."""
        with self._io:
            with self._lock:
                self._damaged += 1
            self._remove([entry.block.key])

    def _remove_where(self, wanted: Callable[[Block], bool]) -> int:
        # A block that is being written now has to be seen written, or it would appear after this.
        with self._io:
            with self._lock:
                found = [key for key, entry in self._entries.items() if wanted(entry.block)]
            count = self._remove(found)
            with self._lock:
                self._forgotten += count
            return count

    def _remove(self, keys: Sequence[str]) -> int:
        """Remove blocks with all that stands behind them. The caller holds `_io`. Raises: OSError."""
        with self._lock:
            doomed: dict[str, _Entry] = {}
            waiting = list(keys)
            while waiting:
                key = waiting.pop()
                entry = self._entries.get(key)
                if entry is not None and key not in doomed:
                    doomed[key] = entry
                    waiting.extend(entry.children)
            files = [key for key, entry in doomed.items() if Tier.DISK in entry.held]
            for entry in doomed.values():
                for tier in tuple(entry.held):
                    self._release(entry, tier)
                self._unlink(entry)
                self._heats.pop(entry.block.key, None)
        if files and self._disk is not None:
            self._disk.remove(files)
        return len(doomed)

    def _open_disk(self, folder: Path) -> None:
        self._disk, held = DiskTier.open(folder)
        for key, (block, heat) in held.items():
            self._entries[key] = _Entry(block)
            self._heats[key] = heat
            self._hold(self._entries[key], Tier.DISK, None)
        for key, entry in self._entries.items():
            if entry.block.parent is not None:
                self._entries[entry.block.parent].children.add(key)
        self._shrink()
        self._writer = threading.Thread(target=self._write_queued, name="memos-activation", daemon=True)
        self._writer.start()

    def _shrink(self) -> None:
        """Evict from disk what a budget that was made smaller has no room for."""
        now = self._now()
        while self._used[Tier.DISK] > self._budgets[Tier.DISK]:
            victim = policy.coldest(self._evictable(Tier.DISK, None), lambda key: self._worth(key, now))
            if victim is None or not self._evict(self._entries[victim], Tier.DISK):
                break

    def _write_behind(self, entry: _Entry) -> None:
        """Queue a block for the disk once it was used a second time; a full queue drops it, which costs no answer."""
        if self._disk is None or self._closed or entry.queued or entry.gone or not entry.held.keys() - {Tier.DISK}:
            return
        if Tier.DISK in entry.held or self._heat(entry.block.key).uses <= policy.ADMITTED_USES - 1:
            return
        if time.monotonic() < self._disk_paused_until:
            return
        try:
            self._writes.put_nowait(entry)
        except queue.Full:
            self._dropped += 1
        else:
            entry.queued = True
            entry.refs += 1  # it is not evicted while it waits

    def _write_queued(self) -> None:
        while (entry := self._writes.get()) is not None:
            try:
                self._write(entry)
            except Exception:
                log.exception("writing a block of activation memory failed unexpectedly")
            finally:
                entry.queued = False
                self.returned([entry])
                self._writes.task_done()
        self._writes.task_done()

    def _write(self, entry: _Entry) -> None:
        with self._io:
            with self._lock:
                if entry.gone or Tier.DISK in entry.held or not self._parent_written(entry) or self._disk is None:
                    return
                if not self._make_room(Tier.DISK, entry.block):
                    self._dropped += 1
                    return
                heat = self._heat(entry.block.key)
                held = entry.held.get(Tier.HOST)
            if held is None:
                assert self._device is not None
                held = self._device.download(entry.held[Tier.DEVICE], entry.block)
            try:
                self._disk.write(entry.block, held, heat)  # type: ignore[arg-type]
            except OSError as error:
                log.warning("activation memory writes nothing to disk for %d s: %s", _DISK_PAUSE_S, error)
                self._disk_paused_until = time.monotonic() + _DISK_PAUSE_S
                with self._lock:
                    self._dropped += 1
                return
            with self._lock:
                self._hold(entry, Tier.DISK, None)
