"""The parts of a dump: written from one moment of a cube, and read whole before anything is loaded.

Knows the rows of one ledger; neither files nor permissions. `memos.memcube.dump.load` checks rows against each other.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from memos.core.types import ItemType
from memos.errors import InvalidInput
from memos.memcube.activation.blocks import Array, Block
from memos.memcube.backup import rows
from memos.memcube.backup.archive import Part
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.backup.rows import Bounds, object_of
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.dump import kv as dump_kv
from memos.memcube.dump import vectors as dump_vectors
from memos.memcube.dump.container import (
    CONTENTS,
    FILE,
    MOST_FILES,
    NAMES,
    TABLES,
    CubeHead,
    DumpManifest,
    DumpReader,
    DumpWriter,
    bad,
    left_out,
    part_of,
    write_manifest,
)
from memos.memcube.dump.ids import OWN, Ids, Kind
from memos.memcube.dump.vectors import VectorSource
from memos.memcube.indexing.followers import TEXT_FORMAT
from memos.memcube.ledger import cubes
from memos.memcube.ledger import schema as t
from memos.memcube.profiles.template import stored_template


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a dump: a cube at the moment of `connection`, with its vectors if an index is given.

    `kept` are its blocks of activation memory, None where they are not wanted; `adapters` is the folder with those of
    its adapters, None likewise. `scratch` is a folder for what is too large to hold.
    """

    connection: sa.Connection
    cube: str
    at: datetime
    vectors: VectorSource | None = None
    scratch: Path | None = None
    kept: Iterable[tuple[Block, Array]] | None = None
    adapters: Path | None = None


def write_dump(source: Source, out: DumpWriter, ticker: ProgressReporter) -> DumpManifest:
    """Write a dump. Raises: NotFound (cube), InvalidInput (too many files), IntegrityError (a damaged adapter)."""
    connection, cube = source.connection, source.cube
    head = _head(connection, cube)
    for table in TABLES:
        with out.part(part_of(table)) as part:
            streamed = rows.stream(connection, table, ordered=True, cube=cube)
            part.write_rows(streamed, partial(_travelling, left_out(table)), ticker)
    merged = list(rows.stream(connection, t.entity_aliases, ordered=True, cube=cube))
    if merged:
        with out.part(NAMES) as part:
            part.write_rows(merged, partial(_travelling, left_out(t.entity_aliases)), ticker)
    _write_contents(source, out)
    fingerprint = cubes.heads(connection, [cube])[cube].fingerprint
    if source.vectors is not None:
        dump_vectors.write(connection, cube, source.vectors, source.scratch, fingerprint.dimension, out)
    if source.kept is not None:
        dump_kv.write(connection, cube, source.kept, out)
    if source.adapters is not None:
        dump_adapters.write(connection, cube, source.adapters, out)
    manifest = DumpManifest(head, fingerprint, source.at, TEXT_FORMAT, dict(out.parts))
    out.finish(write_manifest(manifest))
    return manifest


# Columns that came after format 1. Where they say nothing they are left out, so that older programs read the file.
_LATER = {"record_id": None, "ttl_s": None, "expires_at": None, "searchable": True}


def _travelling(apart: list[str], row: rows.Row) -> rows.Row:
    told = {name: value for name, value in row.items() if name not in apart}
    return {name: value for name, value in told.items() if name not in _LATER or value is not _LATER[name]}


def count(connection: sa.Connection, cube: str) -> int:
    counted = (t.items, t.versions, t.messages, t.events)
    return sum(
        connection.scalar(sa.select(sa.func.count()).select_from(table).where(table.c.cube_id == cube)) or 0
        for table in counted
    )


def check(reader: DumpReader, bounds: Bounds, ids: Ids, ticker: ProgressReporter) -> None:
    """Read all of a dump. Raises: InvalidInput naming the part, and the line, that is wrong."""
    manifest = reader.manifest
    _check_head(manifest, bounds)
    chain = _Chain()
    for table in TABLES:
        for row in reader.rows(table, bounds):
            _remember(ids, table, row)
            if table is t.events:
                chain.follow(row)
            ticker.tick()
    if reader.has(NAMES):
        for _ in reader.rows(t.entity_aliases, bounds):
            ticker.tick()
    if (chain.seq, chain.end.hex()) != (manifest.cube.event_seq, manifest.cube.event_chain):
        raise bad(f"its chain of events ends at event {chain.seq}, not where the manifest says")
    listed = set()
    for name, part in contents(reader):
        if name in listed or not reader.has(name):
            raise bad(f"{CONTENTS} names {name!r:.60} twice, or the file is missing")
        listed.add(name)
        for _ in reader.blocks(name, part):
            pass
    if reader.files != listed:
        raise bad(f"it has files that {CONTENTS} does not name")
    dump_vectors.check(reader)
    dump_adapters.check(reader)
    ours = set(dump_adapters.names(reader))
    for name in reader.reserved:
        if name not in ours:
            dump_kv.check(reader, name)
    ids.index_places()


def unknown(reader: DumpReader) -> tuple[str, ...]:
    ours = set(dump_adapters.names(reader))
    return tuple(name for name in reader.reserved if name not in ours and not dump_kv.is_known(name))


def contents(reader: DumpReader) -> Iterator[tuple[str, Part]]:
    return reader.entries(CONTENTS, _content)


def digest_of(salt: bytes, body: str) -> bytes:
    return hashlib.sha256(salt + body.encode()).digest()


def link(previous: bytes, seq: int, digest: bytes) -> bytes:
    return hashlib.sha256(previous + seq.to_bytes(8, "big") + digest).digest()


def _head(connection: sa.Connection, cube: str) -> CubeHead:
    found = list(rows.stream(connection, t.cubes, cube=cube))
    if not found:
        raise cubes.unknown(cube)
    [row] = found
    told = {name: row[name] for name in CubeHead.__annotations__ if name in row}
    end = base64.b64decode(row["event_chain"]).hex()
    return CubeHead(**told | {"template": cubes.get_template(connection, cube), "event_chain": end})


def _write_contents(source: Source, out: DumpWriter) -> None:
    parts = sa.select(t.file_parts.c.data).order_by(t.file_parts.c.ordinal)
    stored = sa.exists().where(t.file_parts.c.file_id == t.files.c.id)
    wanted = sa.select(t.files.c.id).where(t.files.c.cube_id == source.cube, stored).order_by(t.files.c.id)
    ids = list(source.connection.scalars(wanted))
    if len(ids) > MOST_FILES:
        raise InvalidInput(
            "cube",
            f"has {len(ids):,} files, more than the limit of {MOST_FILES:,} for a cube file; make a backup instead",
        )
    listed = []
    for id_ in ids:
        with out.part(f"files/{id_}", lines=False, listed=False) as part:
            query = parts.where(t.file_parts.c.file_id == id_)
            for data in source.connection.scalars(query, execution_options={"yield_per": 4}):
                part.write(bytes(data))
        told = part.told(lines=False)
        listed.append({"file_id": id_, "bytes": told.bytes, "sha256": told.sha256})
    with out.part(CONTENTS) as lines:
        for entry in listed:
            lines.write_line(entry)


def _check_head(manifest: DumpManifest, bounds: Bounds) -> None:
    head = manifest.cube
    if max(head.created_at, head.lone_until or head.created_at) > bounds.now:
        raise bad("the cube was created in the future; correct this machine's clock or that of the source")
    if not head.id.strip() or len(head.id) > 128:
        raise bad("the cube's id is empty or too long")
    if head.template is not None:
        try:
            stored_template(head.template)
        except InvalidInput as error:
            raise bad("the cube's template is invalid") from error
    missing = [part_of(table) for table in TABLES if part_of(table) not in manifest.parts]
    if missing or CONTENTS not in manifest.parts:
        raise bad(f"it lacks {(missing or [CONTENTS])[0]}")
    if any((part.rows is None) != (not name.endswith(".jsonl")) for name, part in manifest.parts.items()):
        raise bad("the manifest has row counts for the wrong parts")


def _content(line: bytes) -> tuple[str, Part]:
    told = object_of(line)
    name, part = f"files/{told['file_id']}", Part(told["bytes"], told["sha256"])
    if told.keys() != {"file_id", "bytes", "sha256"} or not FILE.fullmatch(name) or type(part.bytes) is not int:
        raise ValueError("does not name a file")
    return name, part


class _Chain:
    def __init__(self) -> None:
        self.seq, self.end = 0, bytes(32)

    def follow(self, row: dict[str, Any]) -> None:
        digest = base64.b64decode(row["digest"])
        self.seq += 1
        if row["seq"] != self.seq:
            raise bad(f"event {self.seq} is missing")
        if (row["body"] is None) != (row["salt"] is None):
            raise bad(f"event {self.seq} has a body without a salt, or the reverse")
        if row["body"] is not None and digest_of(base64.b64decode(row["salt"]), row["body"]) != digest:
            raise bad(f"the body of event {self.seq} was changed")
        self.end = link(self.end, self.seq, digest)
        if self.end != base64.b64decode(row["chain"]):
            raise bad(f"event {self.seq} does not follow the one before it")


def _remember(ids: Ids, table: sa.Table, row: dict[str, Any]) -> None:
    kind = OWN.get(table.name)
    if kind is not None and not ids.add(kind, row["id"]):
        raise bad(f"{part_of(table)} has a duplicate id")
    if table is t.sources:
        ids.add_part(Kind.MESSAGE, row["message_id"], row["item_id"])
    elif table is t.extraction_items:
        ids.add_part(Kind.EXTRACTION, row["extraction_id"], row["item_id"])
    elif table is t.versions and row["recorded_to"] is None and row["type"] == ItemType.MESSAGE:
        ids.add_spoken(row["item_id"], row["id"])
    elif table is t.items and row["conversation_id"] is not None and row["position"] is not None:
        ids.say(row["conversation_id"], row["position"], row["page"] or 0, row["session"] or 0, row["id"])
