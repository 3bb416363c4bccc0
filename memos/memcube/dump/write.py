"""Writes one cube as it is at one moment into a dump, a part a table, never holding more of it than a batch.

Knows one ledger's rows and the vectors that an index holds of them; neither files nor who may ask.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Protocol

import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.ports import HeldPoint
from memos.errors import InvalidInput
from memos.memcube.activation.blocks import Array, Block, tensor_head
from memos.memcube.backup import rows
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.dump import kv as dump_kv
from memos.memcube.dump.container import MOST_FILES, DumpWriter
from memos.memcube.dump.format import (
    CONTENTS,
    POINTS,
    TABLES,
    VECTORS,
    CubeHead,
    DumpManifest,
    line_of,
    part_of,
    write_manifest,
)
from memos.memcube.indexing.followers import CHUNK_TOKENS, TEXT_FORMAT, point_id
from memos.memcube.ledger import cubes
from memos.memcube.ledger import cubes as templates
from memos.memcube.ledger import schema as t

_VERSIONS_AT_ONCE = 250
_COPIED = 1 << 20


class ActivationSource(Protocol):
    """What a dump needs of a vector index."""

    def held(self, ids: Sequence[str]) -> dict[str, HeldPoint]:
        """Return revision and vectors of those points that are held."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """What is dumped: a cube at the moment of `connection`, its vectors where an index is given.

    `kept` are its blocks of activation memory, None where they are not wanted; `adapters` is the folder with those of
    its adapters, None likewise. `scratch` is a folder for what is too large to hold.
    """

    connection: sa.Connection
    cube: str
    at: datetime
    vectors: ActivationSource | None = None
    scratch: Path | None = None
    kept: Iterable[tuple[Block, Array]] | None = None
    adapters: Path | None = None


def write_dump(source: Source, out: DumpWriter, ticker: ProgressReporter) -> DumpManifest:
    """Write a whole dump; return its manifest.

    Raises: NotFound (cube), InvalidInput (too many files), IntegrityError (an adapter is damaged).
    """
    connection, cube = source.connection, source.cube
    head = _head(connection, cube)
    for table in TABLES:
        with out.part(part_of(table)) as part:
            for values in rows.stream(connection, table, ordered=True, cube=cube):
                part.write_line(line_of(table, values))
                ticker.tick()
    _write_contents(source, out)
    fingerprint = cubes.heads(connection, [cube])[cube].fingerprint
    if source.vectors is not None:
        _write_vectors(source, out, fingerprint.dimension)
    if source.kept is not None:
        dump_kv.write(connection, cube, source.kept, out)
    if source.adapters is not None:
        dump_adapters.write(connection, cube, source.adapters, out)
    manifest = DumpManifest(head, fingerprint, source.at, TEXT_FORMAT, dict(out.parts))
    out.finish(write_manifest(manifest))
    return manifest


def count(connection: sa.Connection, cube: str) -> int:
    """Return about how many rows there are to write."""
    counted = (t.items, t.versions, t.messages, t.events)
    return sum(
        connection.scalar(sa.select(sa.func.count()).select_from(table).where(table.c.cube_id == cube)) or 0
        for table in counted
    )


def _head(connection: sa.Connection, cube: str) -> CubeHead:
    row = connection.execute(sa.select(t.cubes).where(t.cubes.c.id == cube)).one_or_none()
    if row is None:
        raise cubes.unknown(cube)
    return CubeHead(
        row.id,
        row.description,
        row.time_zone,
        row.kind,
        bool(row.redact_pii),
        to_micros(row.created_at),
        row.heat_tau_s,
        None if row.lone_until is None else to_micros(row.lone_until),
        templates.get_template(connection, cube),
        row.event_seq,
        bytes(row.event_chain).hex(),
    )


def _write_contents(source: Source, out: DumpWriter) -> None:
    """Write each file's bytes as a part of its own, and then a list of them with their digests."""
    parts = sa.select(t.file_parts.c.data).order_by(t.file_parts.c.ordinal)
    stored = sa.exists().where(t.file_parts.c.file_id == t.files.c.id)
    wanted = sa.select(t.files.c.id).where(t.files.c.cube_id == source.cube, stored).order_by(t.files.c.id)
    ids = list(source.connection.scalars(wanted))
    if len(ids) > MOST_FILES:
        raise InvalidInput("cube", f"has {len(ids):,} files, and a dump at most {MOST_FILES:,}: make a backup instead")
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
            lines.write_line(json.dumps(entry, separators=(",", ":")).encode() + b"\n")


def _write_vectors(source: Source, out: DumpWriter, dimension: int) -> None:
    """Write the vectors that the index holds of these very texts; those it has not yet, a reader computes."""
    count = 0
    with (
        tempfile.TemporaryFile(dir=source.scratch) as turns,
        tempfile.TemporaryFile(dir=source.scratch) as windows,
    ):
        with out.part(POINTS) as lines:
            for version, chunk, point in _points(source):
                turns.write(point.turn.astype("<f4").tobytes())
                windows.write(point.window.astype("<f4").tobytes())
                told = {"version_id": version, "chunk": chunk}
                lines.write_line(json.dumps(told, separators=(",", ":")).encode() + b"\n")
                count += 1
        with out.part(VECTORS, lines=False) as part:
            part.write(safetensors_header(count, dimension))
            for file in (turns, windows):
                file.seek(0)
                for block in _blocks(file):
                    part.write(block)


def safetensors_header(count: int, dimension: int) -> bytes:
    """Return the beginning of a file with two float32 tensors (count, dimension), `turn` and `window`."""
    size = count * dimension * 4
    return tensor_head(
        {
            name: {"dtype": "F32", "shape": [count, dimension], "data_offsets": [place * size, (place + 1) * size]}
            for place, name in enumerate(("turn", "window"))
        }
    )


def _points(source: Source) -> Iterator[tuple[str, int, HeldPoint]]:
    """Yield (version, chunk, point) of what the index holds at the revision that the ledger has."""
    assert source.vectors is not None
    v = t.versions
    query = (
        sa.select(v.c.id, t.items.c.revision, sa.func.length(v.c.memory).label("chars"))
        .join(t.items, t.items.c.id == v.c.item_id)
        .where(v.c.cube_id == source.cube)
        .order_by(v.c.id)
    )
    found = source.connection.execute(query, execution_options={"yield_per": _VERSIONS_AT_ONCE})
    for batch in found.partitions(_VERSIONS_AT_ONCE):
        revisions = {row.id: row.revision for row in batch}
        chunk, left = 0, list(revisions)
        while left:
            held = source.vectors.held([point_id(id_, chunk) for id_ in left])
            fresh = _fresh(left, chunk, held, revisions)
            yield from ((id_, chunk, point) for id_, point in fresh.items())
            # Only a longer text has another chunk.
            chunk, left = chunk + 1, [row.id for row in batch if row.id in fresh and row.chars > CHUNK_TOKENS - 2]


def _fresh(
    versions: Sequence[str], chunk: int, held: Mapping[str, HeldPoint], revisions: Mapping[str, int]
) -> dict[str, HeldPoint]:
    points = {id_: held.get(point_id(id_, chunk)) for id_ in versions}
    return {id_: point for id_, point in points.items() if point is not None and point.revision == revisions[id_]}


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_COPIED):
        yield block
