"""Reads a dump from its first byte to its last before anything of it is loaded, and remembers its ids.

Sees each part by itself; whether rows belong together is seen in the transaction that loads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from memos.core.types import ItemType
from memos.errors import InvalidInput
from memos.memcube.backup.files import Ticker
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.dump import kv as dump_kv
from memos.memcube.dump.check import Bounds, Chain, RowReader
from memos.memcube.dump.container import DumpReader
from memos.memcube.dump.format import (
    CONTENTS,
    FILE,
    ID,
    POINTS,
    TABLES,
    VECTORS,
    DumpManifest,
    Part,
    bad,
    object_of,
    part_of,
)
from memos.memcube.dump.ids import Ids, Kind
from memos.memcube.dump.write import safetensors_header
from memos.memcube.ledger import schema as t
from memos.memcube.profiles.template import stored_template

OWN: dict[str, Kind] = {
    "conversations": Kind.CONVERSATION, "items": Kind.ITEM, "versions": Kind.VERSION, "messages": Kind.MESSAGE,
    "extractions": Kind.EXTRACTION, "files": Kind.FILE, "segments": Kind.SEGMENT, "pages": Kind.PAGE,
    "retention_rules": Kind.RULE,
}  # fmt: skip
"""What the ids of a table's rows are the ids of."""


def check(reader: DumpReader, bounds: Bounds, ids: Ids, ticker: Ticker) -> None:
    """Read all of a dump. Raises: InvalidInput naming the part, and the line, that is wrong."""
    manifest = reader.manifest
    check_head(manifest, bounds)
    chain = Chain()
    for table in TABLES:
        for row in table_rows(reader, table, bounds):
            _remember(ids, table, row)
            if table is t.events:
                chain.follow(row)
            ticker.tick()
    if (chain.seq, chain.end.hex()) != (manifest.cube.event_seq, manifest.cube.event_chain):
        raise bad(f"its chain of events ends at event {chain.seq}, and not where the manifest says")
    listed = set()
    for name, part in contents(reader):
        if name in listed or not reader.has(name):
            raise bad(f"{CONTENTS} names {name!r:.60} twice, or it is missing")
        listed.add(name)
        for _ in reader.blocks(name, part):
            pass
    if reader.files != listed:
        raise bad(f"it has files that {CONTENTS} does not name")
    _check_vectors(reader)
    dump_adapters.check(reader)
    ours = set(dump_adapters.names(reader))
    for name in reader.reserved:
        if name not in ours:
            dump_kv.check(reader, name)
    ids.index_places()


def unknown(reader: DumpReader) -> tuple[str, ...]:
    """Return the parts of reserved names that a load does nothing with."""
    ours = set(dump_adapters.names(reader))
    return tuple(name for name in reader.reserved if name not in ours and not dump_kv.is_known(name))


def check_head(manifest: DumpManifest, bounds: Bounds) -> None:
    """See that what is told of the cube itself can be. Raises: InvalidInput."""
    head = manifest.cube
    if max(head.created_at, head.lone_until or head.created_at) > bounds.now:
        raise bad("the cube was made in the future: the clock here, or there, is wrong; wait, or set it right")
    if not head.id.strip() or len(head.id) > 128:
        raise bad("the cube's id is empty or too long")
    if head.template is not None:
        try:
            stored_template(head.template)
        except InvalidInput as error:
            raise bad("the cube's template is none") from error
    missing = [part_of(table) for table in TABLES if part_of(table) not in manifest.parts]
    if missing or CONTENTS not in manifest.parts:
        raise bad(f"it lacks {(missing or [CONTENTS])[0]}")
    if any((part.rows is None) != (not name.endswith(".jsonl")) for name, part in manifest.parts.items()):
        raise bad("the manifest counts no rows where there are some, or some where there are none")


def table_rows(reader: DumpReader, table: sa.Table, bounds: Bounds) -> Iterator[dict[str, Any]]:
    """Yield a table's rows by column, each checked. Raises: InvalidInput."""
    read = RowReader(table, bounds).read
    for number, line in enumerate(reader.lines(part_of(table)), start=1):
        yield read(line, number)


def contents(reader: DumpReader) -> Iterator[tuple[str, Part]]:
    """Yield the part of each file, and what it must be. Raises: InvalidInput."""
    for number, line in enumerate(reader.lines(CONTENTS), start=1):
        try:
            told = object_of(line)
            name, part = f"files/{told['file_id']}", Part(told["bytes"], told["sha256"])
            if told.keys() != {"file_id", "bytes", "sha256"} or not FILE.fullmatch(name) or type(part.bytes) is not int:
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise bad(f"{CONTENTS}, line {number} does not name a file") from error
        yield name, part


def points(reader: DumpReader) -> Iterator[tuple[str, int]]:
    """Yield (version, chunk) of each pair of vectors, in their order. Raises: InvalidInput."""
    for number, line in enumerate(reader.lines(POINTS), start=1):
        try:
            told = object_of(line)
            version, chunk = told["version_id"], told["chunk"]
            if told.keys() != {"version_id", "chunk"} or not ID.fullmatch(version) or not 0 <= chunk < 1 << 31:
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise bad(f"{POINTS}, line {number} does not name a vector") from error
        yield version, chunk


def _check_vectors(reader: DumpReader) -> None:
    if reader.has(POINTS) != reader.has(VECTORS):
        raise bad(f"it has one of {POINTS} and {VECTORS}, and needs both or none")
    if not reader.has(POINTS):
        return
    count, dimension = reader.manifest.parts[POINTS].rows or 0, reader.manifest.embedder.dimension
    if not 0 < dimension <= 1 << 16:
        raise bad("its vectors have an impossible number of dimensions")
    header = safetensors_header(count, dimension)
    if reader.manifest.parts[VECTORS].bytes != len(header) + 8 * count * dimension:
        raise bad(f"{VECTORS} has not the size of its vectors")
    beginning = b""
    for block in reader.blocks(VECTORS):
        if len(beginning) < len(header):
            beginning += block[: len(header) - len(beginning)]
    if beginning != header:
        raise bad(f"{VECTORS} does not begin as its vectors are told")
    for _ in points(reader):
        pass


def _remember(ids: Ids, table: sa.Table, row: dict[str, Any]) -> None:
    kind = OWN.get(table.name)
    if kind is not None and not ids.add(kind, row["id"]):
        raise bad(f"{part_of(table)} has an id twice")
    if table is t.sources:
        ids.add_part(Kind.MESSAGE, row["message_id"], row["item_id"])
    elif table is t.extraction_items:
        ids.add_part(Kind.EXTRACTION, row["extraction_id"], row["item_id"])
    elif table is t.versions and row["recorded_to"] is None and row["type"] == ItemType.MESSAGE:
        ids.add_spoken(row["item_id"], row["id"])
    elif table is t.items and row["conversation_id"] is not None and row["position"] is not None:
        ids.say(row["conversation_id"], row["position"], row["page"] or 0, row["session"] or 0, row["id"])
