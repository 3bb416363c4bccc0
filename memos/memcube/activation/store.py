"""A tiered store of KV blocks under byte budgets, with a disk tier; blocks in use are not evicted.

Keys and values are arrays, or whatever the device's port makes of them.
"""

from __future__ import annotations

import json
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memos.core.clock import Clock
from memos.core.kv_cache import KvStats, TierFill
from memos.errors import BackendUnavailable, IntegrityError
from memos.memcube.activation import blocks
from memos.memcube.activation import tiers as policy
from memos.memcube.activation.blocks import SUFFIX, Array, Block, Tier, empty
from memos.memcube.activation.tiers import BlockLease, Entry, Heat, Rate, TieredCache
from memos.memcube.ledger import sqlcipher

if TYPE_CHECKING:
    from memos.memcube.encryption.vault import BlockSealer

log = logging.getLogger("memos.activation")

_INDEX = "index.db"
# Primary error codes of a full disk: the index is intact then, and must be kept, as no file has the heats in it.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_NO_ROOM_TEXTS = ("database or disk is full", "disk I/O error")  # of SQLCipher's driver, which has no codes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS blocks (
    key TEXT PRIMARY KEY, parent TEXT, fingerprint TEXT NOT NULL, cube TEXT NOT NULL, dtype TEXT NOT NULL,
    shape TEXT NOT NULL, compute_s REAL NOT NULL, items TEXT NOT NULL, uses REAL NOT NULL, used_at REAL NOT NULL
) STRICT
"""


class DiskTier:
    def __init__(self, folder: Path, index: sqlite3.Connection, sealer: BlockSealer | None) -> None:
        self._folder = folder
        self._index = index
        self._sealer = sealer

    @classmethod
    def open(cls, folder: Path, sealer: BlockSealer | None = None) -> tuple[DiskTier, dict[str, tuple[Block, Heat]]]:
        """Open the folder; unknown files are adopted, damaged ones removed. `sealer` encrypts it."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tier = cls(folder, _opened(folder / _INDEX, sealer), sealer)
            return tier, tier._reconciled()
        except _errors(sealer, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BackendUnavailable(f"The folder of activation memory {folder} cannot be used: {reason}.") from error

    def write(self, block: Block, array: Array, heat: Heat) -> None:
        blocks.write(self._folder, block, array, self._sealer)
        try:
            self._note(block, heat)
        except _errors(self._sealer) as error:
            self._file_of(block.key).unlink(missing_ok=True)
            raise OSError(f"index: {error}") from error

    def read(self, block: Block, room: Callable[[Block], Array]) -> Array:
        found, array = blocks.read(self._folder, block.key, room, self._sealer)
        if (found.dtype, found.shape) != (block.dtype, block.shape):
            raise IntegrityError(f"The file of block {block.key[:12]} is damaged.")
        return array

    def remove(self, keys: Collection[str]) -> None:
        """Remove files, then their index rows, so that no unknown file is left."""
        for key in keys:
            self._file_of(key).unlink(missing_ok=True)
        try:
            with self._index:
                self._index.executemany("DELETE FROM blocks WHERE key = ?", [(key,) for key in keys])
        except _errors(self._sealer) as error:
            raise OSError(f"index: {error}") from error

    def keep_heats(self, heats: Mapping[str, Heat]) -> None:
        with self._index:
            rows = [(heat.uses, heat.at, key) for key, heat in heats.items()]
            self._index.executemany("UPDATE blocks SET uses = ?, used_at = ? WHERE key = ?", rows)

    def close(self) -> None:
        self._index.close()

    def _file_of(self, key: str) -> Path:
        return blocks.file_of(self._folder, blocks.name_of(key, self._sealer))

    def _note(self, block: Block, heat: Heat) -> None:
        with self._index:
            shape, items = json.dumps(block.shape), json.dumps(sorted(block.items))
            row = (block.key, block.parent, block.fingerprint, block.cube, block.dtype, shape, block.compute_s, items)
            insert = "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            self._index.execute(insert, (*row, heat.uses, heat.at))

    def _reconciled(self) -> dict[str, tuple[Block, Heat]]:
        known = {row[0]: _row(row) for row in self._index.execute("SELECT * FROM blocks")}
        for leftover in self._folder.glob("*/*.new"):
            leftover.unlink(missing_ok=True)
        files = {file.name.removesuffix(SUFFIX): file for file in self._folder.glob(f"*/*{SUFFIX}")}
        names = {key: blocks.name_of(key, self._sealer) for key in known}
        for name in files.keys() - set(names.values()):
            try:
                block, heat = blocks.read_head(files[name], self._sealer), Heat(1.0, 0.0)
            except (IntegrityError, OSError):
                files[name].unlink(missing_ok=True)
                continue
            self._note(block, heat)
            known[block.key] = block, heat
        lost = {key for key, name in names.items() if name not in files}
        self.remove(lost | _orphans(known, lost))
        return {key: held for key, held in known.items() if self._file_of(key).exists()}


def _orphans(known: Mapping[str, tuple[Block, Heat]], lost: Collection[str]) -> set[str]:
    """Return blocks with a missing ancestor: no prompt can reach them."""
    reached: dict[str, bool] = {}

    def reach(key: str) -> bool:
        chain: dict[str, None] = {}
        while key not in reached and key not in chain and key in known and key not in lost:
            chain[key] = None
            parent = known[key][0].parent
            if parent is None:
                reached[key] = True
            else:
                key = parent
        found = reached.get(key, False)
        reached.update(dict.fromkeys(chain, found))
        return found

    return {key for key in known if not reach(key)}


def _errors(sealer: BlockSealer | None, *others: type[Exception]) -> tuple[type[Exception], ...]:
    return (sqlite3.Error if sealer is None else sqlcipher.driver().Error, *others)


def _opened(path: Path, sealer: BlockSealer | None) -> sqlite3.Connection:
    try:
        return _with_schema(path, sealer)
    except _errors(sealer) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_ROOM or str(error).startswith(_NO_ROOM_TEXTS):
            raise
        log.warning("the index of activation memory was damaged; rebuilding it from its files")
        for name in _files(path):
            name.unlink(missing_ok=True)
        return _with_schema(path, sealer)


def _with_schema(path: Path, sealer: BlockSealer | None) -> sqlite3.Connection:
    path.touch(mode=0o600)
    index: sqlite3.Connection = (
        sqlite3.connect(path, check_same_thread=False)
        if sealer is None
        else sqlcipher.connect(path, sealer.index_key, check_same_thread=False)
    )
    try:
        index.execute("PRAGMA journal_mode = WAL")
        index.execute("PRAGMA synchronous = NORMAL")  # rows lost in a power failure are restored from the files
        index.execute("PRAGMA secure_delete = ON")
        index.execute(_SCHEMA)
        # Fails with another schema, or damage that only shows when rows are read.
        index.execute("SELECT * FROM blocks ORDER BY key").fetchall()
        if index.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise _errors(sealer)[0]("damaged")
    except _errors(sealer):
        index.close()
        raise
    return index


def _files(path: Path) -> Iterable[Path]:
    return path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def _row(row: tuple[str, str | None, str, str, str, str, float, str, float, float]) -> tuple[Block, Heat]:
    key, parent, fingerprint, cube, dtype, shape, compute_s, items, uses, used_at = row
    axes, held = tuple(json.loads(shape)), frozenset(json.loads(items))
    return Block(key, parent, fingerprint, cube, dtype, axes, compute_s, held), Heat(uses, used_at)


_QUEUED_WRITES = 32
# Seconds that a small model takes for 64 tokens on two cores.
_ASSUMED_COMPUTE_S = 0.1
_DISK_PAUSE_S = 60.0


class Device(Protocol):
    """Memory of an accelerator; `upload` returns a device tensor, `room` a host buffer for fast copies."""

    def upload(self, array: Array, block: Block) -> object: ...

    def download(self, held: object, block: Block) -> Array: ...

    def room(self, block: Block) -> Array: ...


Alive = Callable[[str, Collection[str]], bool]
"""Returns True if a cube exists and the KV of all these items of it may be kept."""


class BlockStore:
    """The KV blocks of one process. Thread-safe. The disk tier needs a folder and a budget above 0."""

    def __init__(
        self,
        budgets: Mapping[Tier, int],
        clock: Clock,
        *,
        folder: Path | None = None,
        sealer: BlockSealer | None = None,
        device: Device | None = None,
        alive: Alive = lambda _, __: True,
    ) -> None:
        self._clock = clock
        self._device = device
        self._alive = alive
        self._shelves = TieredCache({**budgets, **({} if device else {Tier.DEVICE: 0})}, self._leave)
        self._hits = dict.fromkeys(Tier, 0)
        self._rates = {tier: Rate() for tier in Tier}
        self._misses = self._dropped = self._damaged = self._forgotten = 0
        self._building: set[str] = set()
        # `_lock` guards the state in memory; `_io` is held while files change, and is acquired first.
        self._lock, self._io = threading.RLock(), threading.RLock()
        self._disk: DiskTier | None = None
        self._disk_paused_until = 0.0
        # Files of removed blocks that could not be deleted; retried with the next removal.
        self._doomed: set[str] = set()
        self._writes: queue.Queue[Entry | None] = queue.Queue(_QUEUED_WRITES)
        self._closed = False
        self._writer: threading.Thread | None = None
        if folder is not None and self._shelves.budgets[Tier.DISK] > 0:
            self._disk, held = DiskTier.open(folder, sealer)
            self._shelves.fill(held, self._now())
            self._writer = threading.Thread(target=self._write_queued, name="memos-activation", daemon=True)
            self._writer.start()

    def checkout(self, keys: Sequence[str], *, counted: bool = True) -> BlockLease:
        """Lease the longest cached run from the first key on; with `counted`, count a use, hit or miss of each key."""
        with self._lock:
            if counted:
                self._shelves.count(keys, self._now())
            found = self._shelves.find(keys)
            for entry in found:
                entry.refs += 1
                if counted and entry.tier is not None:
                    self._hits[entry.tier] += 1
                self._write_behind(entry)
            if counted:
                self._misses += len(keys) - len(found)
        return BlockLease(self, found)

    def has(self, keys: Sequence[str]) -> int:
        with self._lock:
            return len(self._shelves.find(keys))

    def begin(self, key: str) -> bool:
        """Reserve a block for the caller to compute; False while another caller computes it. Does not block."""
        with self._lock:
            free = key not in self._building
            self._building.add(key)
            return free

    def end(self, key: str) -> None:
        with self._lock:
            self._building.discard(key)

    def forget(self, items: Collection[str]) -> int:
        wanted = frozenset(items)
        return self._remove_where(lambda block: not wanted.isdisjoint(block.items))

    def drop(self, cube: str | None = None, fingerprint: str | None = None) -> int:
        return self._remove_where(lambda block: cube in (None, block.cube) and fingerprint in (None, block.fingerprint))

    def reconcile(self) -> int:
        with self._lock:
            told = {(entry.block.cube, entry.block.items) for entry in self._shelves.entries.values()}
        dead = {each for each in told if not self._alive(*each)}
        return self._remove_where(lambda block: (block.cube, block.items) in dead)

    def blocks(self) -> list[tuple[Block, tuple[Tier, ...], float]]:
        now = self._now()
        with self._lock:
            return [
                (entry.block, tuple(tier for tier in Tier if tier in entry.held), self._shelves.heat(key).now(now))
                for key, entry in self._shelves.entries.items()
            ]

    def stats(self) -> KvStats:
        with self._lock:
            shelves = self._shelves
            tiers = tuple(
                TierFill(
                    str(tier),
                    sum(tier in entry.held for entry in shelves.entries.values()),
                    shelves.used[tier],
                    shelves.budgets[tier],
                    self._hits[tier],
                    shelves.evictions[tier],
                    self._rates[tier].per_s,
                )
                for tier in Tier
            )
            return KvStats(tiers, self._misses, self._dropped, self._damaged, self._forgotten)

    def verify(self) -> list[str]:
        with self._lock:
            entries = [entry for entry in self._shelves.entries.values() if Tier.DISK in entry.held]
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
                    found = self._shelves.entries.items()
                    heats = {key: self._shelves.heat(key) for key, entry in found if Tier.DISK in entry.held}
                self._disk.keep_heats(heats)
                self._disk.close()
                self._disk = None

    def lend_blocks(self, cube: str) -> Generator[tuple[Block, Array], None, None]:
        with self._lock:
            found = [entry for entry in self._shelves.entries.values() if entry.block.cube == cube]
            for entry in found:
                entry.refs += 1
        try:
            for entry in found:
                if (array := self._array(entry)) is not None:
                    yield entry.block, array
        finally:
            self.returned(found)

    def adopt(self, block: Block, array: Array) -> bool:
        if self._writes.full():
            self.settle()
        with self._lock:
            if block.key in self._shelves.entries or self._closed:
                return False
            self._shelves.count([block.key] * policy.ADMITTED_USES, self._now())
            # The compute time was measured on another machine: cap it at that of blocks computed here.
            here = [each.block for each in self._shelves.entries.values()]
            alike = (each.compute_s for each in here if each.fingerprint == block.fingerprint)
            most_s = max(alike, default=_ASSUMED_COMPUTE_S)
        block = replace(block, compute_s=min(block.compute_s, most_s))
        entry = self.added(block, array, Tier.HOST)
        if entry is None:
            return False
        self.returned([entry])
        return not entry.gone

    def _array(self, entry: Entry) -> Array | None:
        with self._lock:
            held = dict(entry.held)
        if Tier.HOST in held:
            return held[Tier.HOST]  # type: ignore[return-value]
        if Tier.DEVICE in held:
            assert self._device is not None
            return self._device.download(held[Tier.DEVICE], entry.block)
        if self._disk is None or entry.gone:
            return None
        try:
            return self._disk.read(entry.block, empty)
        except (IntegrityError, OSError):
            self._lose(entry)
            return None

    # What a checkout calls.

    def load_s(self, entry: Entry) -> float:
        with self._lock:
            tier = entry.tier or Tier.DISK
            return 0.0 if tier is Tier.DEVICE else self._rates[tier].seconds(entry.block.size_bytes)

    def loaded(self, entry: Entry) -> tuple[Tier, object] | None:
        """Return KV and their tier, None if removed or damaged; they move up where there is room."""
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

    def _uploaded(self, entry: Entry, array: object) -> object:
        if self._device is None:
            return array
        copy = self._device.upload(array, entry.block)  # type: ignore[arg-type]
        with self._lock:
            self._raise_to(entry, Tier.DEVICE, copy)
        return copy

    def _raise_to(self, entry: Entry, tier: Tier, held: object) -> None:
        if not entry.gone and tier not in entry.held and self._shelves.make_room(tier, entry.block, self._now()):
            self._shelves.put(entry, tier, held)

    def measured(self, tier: Tier, size_bytes: int, seconds: float) -> None:
        with self._lock:
            self._rates[tier].measured(size_bytes, seconds)

    def added(self, block: Block, held: object, tier: Tier) -> Entry | None:
        with self._lock:
            entry = self._shelves.entries.get(block.key)
            if entry is None and not self._closed:
                entry = self._shelves.add(block, tier, held, self._now())
                if entry is None and tier is Tier.DEVICE:  # full of what is in use, by this prompt perhaps
                    entry = self._added_to_host(block, held)
            if entry is None:
                return None
            entry.refs += 1
            self._write_behind(entry)
        # Checked after the block was added: a later `forget` finds the block, an earlier one is detected here.
        if not self._alive(block.cube, block.items):
            self._remove_where(lambda other: (other.cube, other.items) == (block.cube, block.items))
        return entry

    def _added_to_host(self, block: Block, held: object) -> Entry | None:
        assert self._device is not None
        if not self._shelves.make_room(Tier.HOST, block, self._now()):
            return None
        return self._shelves.add(block, Tier.HOST, self._device.download(held, block), self._now())

    def returned(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                entry.refs -= 1

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _leave(self, entry: Entry, tier: Tier) -> bool:
        if tier is Tier.DISK:
            assert self._disk is not None
            try:
                self._disk.remove([entry.block.key])
            except OSError as error:
                log.warning("a block of activation memory could not be removed: %s", error)
                return False
        if tier is Tier.DEVICE and len(entry.held) == 1:
            assert self._device is not None
            if self._shelves.make_room(Tier.HOST, entry.block, self._now()):
                self._shelves.put(entry, Tier.HOST, self._device.download(entry.held[tier], entry.block))
            elif entry.children:
                return False
        return True

    def _lose(self, entry: Entry) -> None:
        with self._io, suppress(OSError):  # a file that could not be deleted is retried with the next removal
            with self._lock:
                self._damaged += 1
            self._remove([entry.block.key])

    def _remove_where(self, wanted: Callable[[Block], bool]) -> int:
        # Wait for a write in progress, otherwise its file would appear after the removal.
        with self._io:
            with self._lock:
                found = [key for key, entry in self._shelves.entries.items() if wanted(entry.block)]
            count = self._remove(found)
            with self._lock:
                self._forgotten += count
            return count

    def _remove(self, keys: Sequence[str]) -> int:
        """Remove blocks with their descendants. The caller holds `_io`."""
        with self._lock:
            removed = self._shelves.remove(keys)
            for entry in removed:
                if Tier.DISK in entry.held:
                    self._doomed.add(entry.block.key)
                entry.held.clear()
        if self._doomed and self._disk is not None:
            self._disk.remove(self._doomed)
            self._doomed.clear()
        return len(removed)

    def _write_behind(self, entry: Entry) -> None:
        if self._disk is None or self._closed or entry.queued or entry.gone or not entry.held.keys() - {Tier.DISK}:
            return
        if Tier.DISK in entry.held or self._shelves.heat(entry.block.key).uses <= policy.ADMITTED_USES - 1:
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

    def _write(self, entry: Entry) -> None:
        with self._io:
            with self._lock:
                if entry.gone or Tier.DISK in entry.held or self._disk is None:
                    return
                reachable = self._shelves.reachable_on_disk(entry.block)
                if not reachable or not self._shelves.make_room(Tier.DISK, entry.block, self._now()):
                    self._dropped += 1
                    return
                heat = self._shelves.heat(entry.block.key)
                held = entry.held.get(Tier.HOST)
            if held is None:
                assert self._device is not None
                held = self._device.download(entry.held[Tier.DEVICE], entry.block)
            try:
                self._disk.write(entry.block, held, heat)  # type: ignore[arg-type]
            except ValueError as error:
                log.warning("a block of activation memory is not written to disk: %s", error)
                with self._lock:
                    self._dropped += 1
                return
            except OSError as error:
                log.warning("activation memory writes nothing to disk for %d s: %s", _DISK_PAUSE_S, error)
                self._disk_paused_until = time.monotonic() + _DISK_PAUSE_S
                with self._lock:
                    self._dropped += 1
                return
            with self._lock:
                self._shelves.put(entry, Tier.DISK, None)
