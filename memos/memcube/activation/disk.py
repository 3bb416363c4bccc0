"""The disk tier of activation memory: a file a block, and an SQLite index beside them that can be made anew from them.

Knows no policy. Not thread-safe: the store calls it under one lock.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from memos.errors import BackendUnavailable, IntegrityError
from memos.memcube.activation import blocks
from memos.memcube.activation.blocks import SUFFIX, Array, Block
from memos.memcube.activation.tiers import Heat

log = logging.getLogger("memos.activation")

_INDEX = "index.db"
# What a full disk answers, in the lowest byte: the index is whole then, and what it says of heats in no file.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS blocks (
    key TEXT PRIMARY KEY, parent TEXT, fingerprint TEXT NOT NULL, cube TEXT NOT NULL, dtype TEXT NOT NULL,
    shape TEXT NOT NULL, compute_s REAL NOT NULL, items TEXT NOT NULL, uses REAL NOT NULL, used_at REAL NOT NULL
) STRICT
"""


class DiskTier:
    """Blocks in files under one folder."""

    def __init__(self, folder: Path, index: sqlite3.Connection) -> None:
        self._folder = folder
        self._index = index

    @classmethod
    def open(cls, folder: Path) -> tuple[DiskTier, dict[str, tuple[Block, Heat]]]:
        """Return the tier, and what it holds; files that nothing knows are taken in, damaged ones removed.

        Raises: BackendUnavailable.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tier = cls(folder, _opened(folder / _INDEX))
            return tier, tier._reconciled()
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BackendUnavailable(f"The folder of activation memory {folder} cannot be used: {reason}.") from error

    def write(self, block: Block, array: Array, heat: Heat) -> None:
        """Store a block. Raises: OSError (the disk is full)."""
        blocks.write(self._folder, block, array)
        try:
            self._note(block, heat)
        except sqlite3.Error as error:
            blocks.file_of(self._folder, block.key).unlink(missing_ok=True)
            raise OSError(f"index: {error}") from error

    def read(self, block: Block, room: Callable[[Block], Array]) -> Array:
        """Return a block's keys and values. Raises: IntegrityError (damaged, another block), OSError."""
        found, array = blocks.read(self._folder, block.key, room)
        if (found.dtype, found.shape) != (block.dtype, block.shape):
            raise IntegrityError(f"The file of block {block.key[:12]} is damaged.")
        return array

    def remove(self, keys: Collection[str]) -> None:
        """Remove files and what the index says of them; the files first, so that none is left that nothing knows.

        Raises: OSError.
        """
        for key in keys:
            blocks.file_of(self._folder, key).unlink(missing_ok=True)
        try:
            with self._index:
                self._index.executemany("DELETE FROM blocks WHERE key = ?", [(key,) for key in keys])
        except sqlite3.Error as error:
            raise OSError(f"index: {error}") from error

    def keep_heats(self, heats: Mapping[str, Heat]) -> None:
        """Write down how hot blocks are, for the next process."""
        with self._index:
            rows = [(heat.uses, heat.at, key) for key, heat in heats.items()]
            self._index.executemany("UPDATE blocks SET uses = ?, used_at = ? WHERE key = ?", rows)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _note(self, block: Block, heat: Heat) -> None:
        with self._index:
            self._index.execute(
                "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    block.key,
                    block.parent,
                    block.fingerprint,
                    block.cube,
                    block.dtype,
                    json.dumps(block.shape),
                    block.compute_s,
                    json.dumps(sorted(block.items)),
                    heat.uses,
                    heat.at,
                ),
            )

    def _reconciled(self) -> dict[str, tuple[Block, Heat]]:
        known = {row[0]: _row(row) for row in self._index.execute("SELECT * FROM blocks")}
        for leftover in self._folder.glob("*/*.new"):
            leftover.unlink(missing_ok=True)
        files = {file.name.removesuffix(SUFFIX): file for file in self._folder.glob(f"*/*{SUFFIX}")}
        for key in files.keys() - known.keys():
            try:
                block, heat = blocks.read_head(files[key]), Heat(1.0, 0.0)
            except (IntegrityError, OSError):
                files[key].unlink(missing_ok=True)
                continue
            self._note(block, heat)
            known[key] = block, heat
        lost = known.keys() - files.keys()
        self.remove(lost | _orphans(known, lost))
        return {key: held for key, held in known.items() if blocks.file_of(self._folder, key).exists()}


def _orphans(known: Mapping[str, tuple[Block, Heat]], lost: Collection[str]) -> set[str]:
    """Return blocks with an ancestor that is not there: no prompt can reach them."""
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


def _opened(path: Path) -> sqlite3.Connection:
    try:
        return _with_schema(path)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_ROOM:
            raise
        log.warning("the index of activation memory was damaged and is made anew from its files")
        for name in _files(path):
            name.unlink(missing_ok=True)
        return _with_schema(path)


def _with_schema(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    index = sqlite3.connect(path, check_same_thread=False)
    try:
        index.execute("PRAGMA journal_mode = WAL")
        index.execute("PRAGMA synchronous = NORMAL")  # what a power cut takes is made anew from the files
        index.execute("PRAGMA secure_delete = ON")
        index.execute(_SCHEMA)
        # A file of an older program, or damage that only reading shows.
        index.execute("SELECT * FROM blocks ORDER BY key").fetchall()
        if index.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("damaged")
    except sqlite3.Error:
        index.close()
        raise
    return index


def _files(path: Path) -> Iterable[Path]:
    return path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def _row(row: tuple[str, str | None, str, str, str, str, float, str, float, float]) -> tuple[Block, Heat]:
    key, parent, fingerprint, cube, dtype, shape, compute_s, items, uses, used_at = row
    block = Block(
        key, parent, fingerprint, cube, dtype, tuple(json.loads(shape)), compute_s, frozenset(json.loads(items))
    )
    return block, Heat(uses, used_at)
