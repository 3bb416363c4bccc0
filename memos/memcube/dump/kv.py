"""Activation memory in a dump: what prompts of the cube began with, and the blocks of KV that a model made of it.

A dump carries it when that is asked for, and a load takes it where the same model answers; whatever it says of items
and sizes is checked before anything believes it.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.errors import IntegrityError
from memos.memcube import prompt_prefix as prefix_rows
from memos.memcube.activation import blocks
from memos.memcube.activation.blocks import SUFFIX, Array, Block, is_adapted
from memos.memcube.backup.rows import ID, object_of
from memos.memcube.dump.container import DumpReader, DumpWriter, bad
from memos.memcube.dump.ids import IdResolution, Ids, Kind
from memos.memcube.ledger import schema as t
from memos.memcube.prompt_prefix import PrefixRow

PREFIX = "kv/prefix.jsonl"
_BLOCK = re.compile(r"kv/[0-9a-f]{64}" + re.escape(SUFFIX))
# A model of 70 billion parameters has blocks of 42 MB.
_LARGEST_BLOCK = 256 << 20
_MOST = 1 << 30
_COLUMNS = {"ordinal": int, "item_id": str, "version": int, "added_at": int}


def write(connection: sa.Connection, cube: str, kept: Iterable[tuple[Block, Array]], out: DumpWriter) -> None:
    """Write a cube's prefix and its blocks, each as the file that the disk tier has of it.

    Those that were made under an adapter stay: no other installation has the adapter by the same digest.
    """
    with out.part(PREFIX) as lines:
        for row in prefix_rows.of(connection, cube):
            told = (row.ordinal, row.item, row.version, to_micros(row.added_at))
            lines.write_line(dict(zip(_COLUMNS, told, strict=True)))
    for block, array in kept:
        if is_adapted(block.fingerprint):
            continue
        with out.part(f"kv/{block.key}{SUFFIX}", lines=False) as part:
            for data in blocks.file_data(block, array):
                part.write(data)


def is_block(name: str) -> bool:
    return bool(_BLOCK.fullmatch(name))


def names(reader: DumpReader) -> list[str]:
    return [name for name in reader.reserved if is_block(name)]


def is_known(name: str) -> bool:
    return name == PREFIX or is_block(name)


def load_prefix(connection: sa.Connection, reader: DumpReader, ids: Ids, cube: str, now: int) -> None:
    """Load the prompt prefix of the dumped cube into the new cube. Raises: InvalidInput."""
    if not reader.has(PREFIX):
        return
    rows: list[PrefixRow] = []
    for row in reader.entries(PREFIX, lambda line: _row(line, now)):
        item, fate = ids.find(Kind.ITEM, row.item) or ("", IdResolution.LEFT_OUT)
        if fate is IdResolution.NEW:
            rows.append(PrefixRow(row.ordinal, item, row.version, row.added_at))
    for row in rows:
        made = sa.select(t.versions.c.id).where(t.versions.c.item_id == row.item, t.versions.c.version == row.version)
        if connection.scalar(made) is None:
            raise bad(f"{PREFIX} names a version that is missing in the file")
    prefix_rows.append(connection, cube, rows)


def check(reader: DumpReader, name: str) -> None:
    if is_block(name):
        _head(reader, name)
        _read(b"".join(reader.blocks(name)), name)
    else:
        for _ in reader.blocks(name):
            pass


def heads(reader: DumpReader) -> dict[str, Block]:
    return {block.key: block for block in (_head(reader, name) for name in names(reader))}


def read_blocks(reader: DumpReader, told: Mapping[str, Block], ids: Ids) -> Iterator[tuple[Block, Array]]:
    """Yield the blocks of `heads`, parents first, with the ids of this installation.

    Those whose memories are not here are left out. Raises: InvalidInput (damaged, or no block).
    """
    behind: dict[str | None, list[str]] = {}
    for key, block in told.items():
        behind.setdefault(block.parent if block.parent in told else None, []).append(key)
    waiting = deque(behind.get(None, ()))
    while waiting:
        key = waiting.popleft()
        waiting.extend(behind.get(key, ()))
        name = f"kv/{key}{SUFFIX}"
        block, array = _read(b"".join(reader.blocks(name)), name)
        found = [ids.find(Kind.ITEM, id_) or ("", IdResolution.LEFT_OUT) for id_ in sorted(block.items)]
        if all(fate is IdResolution.NEW for _, fate in found):
            yield block.of_items(id_ for id_, _ in found), array


def _head(reader: DumpReader, name: str) -> Block:
    if reader.manifest.parts[name].bytes > _LARGEST_BLOCK:
        raise bad(f"{name} is larger than a KV block can be")
    try:
        block = blocks.head_from(io.BytesIO(next(reader.blocks(name), b"")), reader.manifest.parts[name].bytes)
    except IntegrityError as error:
        raise bad(f"{name} is no block of KV") from error
    if name != f"kv/{block.key}{SUFFIX}":
        raise bad(f"{name} contains another block than its name says")
    return block


def _read(data: bytes, name: str) -> tuple[Block, Array]:
    try:
        block, array = blocks.read_from(io.BytesIO(data), len(data))
    except IntegrityError as error:
        raise bad(f"{name} is not a KV block, or is damaged") from error
    if not all(ID.fullmatch(id_) for id_ in block.items):
        raise bad(f"{name} names something that is not a memory")
    return block, array


def _row(line: bytes, now: int) -> PrefixRow:
    told = object_of(line)
    typed = told.keys() == _COLUMNS.keys() and all(type(told[name]) is kind for name, kind in _COLUMNS.items())
    fits = typed and ID.fullmatch(told["item_id"]) and 0 <= told["added_at"] <= now
    if not fits or not 0 < told["ordinal"] < _MOST or not 0 < told["version"] < _MOST:
        raise ValueError("is not an entry of a prefix")
    return PrefixRow(told["ordinal"], told["item_id"], told["version"], from_micros(told["added_at"]))
