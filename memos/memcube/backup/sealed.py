"""Tables of a backup of an encrypted installation: rows in frames, each sealed with the key of the cube it belongs to.

What outlives a cube (receipts of erasures, users, keys) is sealed with the installation's key. A cube's frames can be
read no more once its key is destroyed; the rows of all tables that belonged to it are then left out together.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import IO

import sqlalchemy as sa

from memos.memcube.backup import rows
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.encryption.files import SealedWriter, frames
from memos.memcube.encryption.keys import Keyring
from memos.memcube.installation import TABLES
from memos.memcube.ledger import schema as t

_LEVEL = 3
_FRAME_BYTES = 1 << 18
_HELD_BYTES = 16 << 20
_SHARED = "backups"
_NOBODY = ""
# Rows that stay when their cube is erased.
_STAYING = frozenset(table.name for table in TABLES if not table.erased_by)


class TableSealer:
    """Seals the tables of one backup; its cubes are those of the backup's moment."""

    def __init__(self, keys: Keyring, connection: sa.Connection) -> None:
        self._keys = keys
        self._connection = connection
        query = sa.select(t.cubes.c.id, t.cubes.c.created_at)
        self._cubes: Mapping[str, datetime] = {row.id: row.created_at for row in connection.execute(query)}
        self._key_ids: dict[str, str] = {}

    def write(self, out: IO[bytes], table: sa.Table, ticker: ProgressReporter) -> int:
        """Write a table's rows, and return how many."""
        writer = SealedWriter(out, table.name)
        held: dict[str, bytearray] = {}
        count = size = 0

        def flush(cube: str) -> None:
            key_id, key = self._key_of(cube)
            writer.write(key_id, key, zlib.compress(bytes(held.pop(cube)), _LEVEL))

        for row, of_cube in rows.stream_with_cube(self._connection, table):
            owner = of_cube or _NOBODY
            cube = owner if owner in self._cubes and table.name not in _STAYING else _NOBODY
            line = rows.line([*row.values()])
            held.setdefault(cube, bytearray()).extend(line)
            size += len(line)
            count += 1
            ticker.tick()
            if len(held[cube]) >= _FRAME_BYTES:
                size -= len(held[cube])
                flush(cube)
            elif size >= _HELD_BYTES:
                for each in list(held):
                    flush(each)
                size = 0
        for each in list(held):
            flush(each)
        writer.finish(_SHARED, self._keys.shared(_SHARED))
        return count

    def _key_of(self, cube: str) -> tuple[str, bytes]:
        if cube == _NOBODY:
            return _SHARED, self._keys.shared(_SHARED)
        if cube not in self._key_ids:
            self._key_ids[cube] = self._keys.for_cube(cube, self._cubes[cube])
        key_id = self._key_ids[cube]
        key = self._keys.key(key_id)
        if key is None:  # the cube was erased while the backup was made: so is its part of it
            return _SHARED, self._keys.shared(_SHARED)
        return key_id, key


def lines(source: IO[bytes], name: str, keys: Keyring, destroyed: set[str]) -> Iterator[bytes]:
    """Yield the lines of a sealed table; ids of keys that are no more are added to `destroyed`.

    Raises: IntegrityError (changed or cut off), ValueError (it cannot be unpacked).
    """

    def key_of(id_: str) -> bytes | None:
        return keys.shared(_SHARED) if id_ == _SHARED else keys.key(id_)

    for key_id, content in frames(source, name, key_of):
        if content is None:
            destroyed.add(key_id)
            continue
        try:
            yield from zlib.decompress(content).splitlines()
        except zlib.error as error:
            raise ValueError("cannot be unpacked") from error
