"""Vectors in a dump: what the index holds of its texts, written, checked, and lent to the index where it is loaded.

They are of the texts that were loaded, at their first revision, and of no others: none is computed again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from uuid import UUID

import numpy as np
import sqlalchemy as sa

from memos.core.ports import HeldPoint, Vector
from memos.memcube.activation.blocks import tensor_head
from memos.memcube.backup.rows import ID, object_of
from memos.memcube.dump.container import POINTS, VECTORS, DumpReader, DumpWriter, bad
from memos.memcube.dump.ids import IdResolution, Ids, Kind
from memos.memcube.indexing.followers import CHUNK_TOKENS, point_id
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.columns import is_sealed

_ROWS_AT_ONCE = 10_000
_VERSIONS_AT_ONCE = 250
_COPIED = 1 << 20
_LONGEST = 1.01  # a unit vector, as exact as an index keeps it


class VectorSource(Protocol):
    def held(self, ids: Sequence[str]) -> dict[str, HeldPoint]: ...


def write(
    connection: sa.Connection, cube: str, source: VectorSource, scratch: Path | None, dimension: int, out: DumpWriter
) -> None:
    """Write the vectors that the index holds of these very texts; those it has not yet, a reader computes."""
    count = 0
    with tempfile.TemporaryFile(dir=scratch) as turns, tempfile.TemporaryFile(dir=scratch) as windows:
        with out.part(POINTS) as lines:
            for version, chunk, point in _held(connection, cube, source):
                turns.write(point.turn.astype("<f4").tobytes())
                windows.write(point.window.astype("<f4").tobytes())
                lines.write_line({"version_id": version, "chunk": chunk})
                count += 1
        with out.part(VECTORS, lines=False) as part:
            part.write(_header(count, dimension))
            for file in (turns, windows):
                file.seek(0)
                while block := file.read(_COPIED):
                    part.write(block)


def check(reader: DumpReader) -> None:
    if reader.has(POINTS) != reader.has(VECTORS):
        raise bad(f"it has only one of {POINTS} and {VECTORS}; they belong together")
    if not reader.has(POINTS):
        return
    count, dimension = reader.manifest.parts[POINTS].rows or 0, reader.manifest.embedder.dimension
    if not 0 < dimension <= 1 << 16:
        raise bad("its vectors have an invalid number of dimensions")
    header = _header(count, dimension)
    if reader.manifest.parts[VECTORS].bytes != len(header) + 8 * count * dimension:
        raise bad(f"{VECTORS} does not have the size of its vectors")
    beginning = b""
    for block in reader.blocks(VECTORS):
        if len(beginning) < len(header):
            beginning += block[: len(header) - len(beginning)]
    if beginning != header:
        raise bad(f"{VECTORS} has an invalid header")
    for _ in _points(reader):
        pass


class DumpedVectors:
    def __init__(self, reader: DumpReader, scratch: Path | None, *, normalised: bool) -> None:
        count, dimension = reader.manifest.parts[POINTS].rows or 0, reader.manifest.embedder.dimension
        self._keys = np.zeros(count, dtype="S16")
        self._order = np.arange(count)
        shape, start = (2, count, dimension), len(_header(count, dimension))
        with tempfile.TemporaryFile(dir=scratch) as file:  # what is mapped stays when it is closed
            for block in reader.blocks(VECTORS):
                file.write(block)
            file.flush()
            mapped = np.memmap(file, dtype="<f4", mode="r", offset=start, shape=shape) if count else None
        self._vectors: Vector = np.zeros(shape, dtype=np.float32) if mapped is None else mapped
        self._check(normalised)

    def name(self, reader: DumpReader, ids: Ids) -> None:
        for place, (version, chunk) in enumerate(_points(reader)):
            found = ids.find(Kind.VERSION, version)
            if found is not None and found[1] is IdResolution.NEW:
                self._keys[place] = UUID(point_id(found[0], chunk)).bytes
        self._order = np.argsort(self._keys, kind="stable")
        self._keys = self._keys[self._order]

    def of(self, point: str) -> tuple[Vector, Vector] | None:
        wanted = np.array([UUID(point).bytes], dtype="S16")
        place = int(np.searchsorted(self._keys, wanted)[0])
        if place >= len(self._keys) or self._keys[place] != wanted[0]:
            return None
        row = int(self._order[place])
        return np.array(self._vectors[0, row]), np.array(self._vectors[1, row])

    def _check(self, normalised: bool) -> None:
        for tensor in self._vectors:
            for start in range(0, len(tensor), _ROWS_AT_ONCE):
                rows = tensor[start : start + _ROWS_AT_ONCE]
                too_long = normalised and bool((np.linalg.norm(rows.astype(np.float64), axis=1) > _LONGEST).any())
                if not bool(np.isfinite(rows).all()) or too_long:
                    raise bad(f"{VECTORS} contains infinite or NaN values, or vectors that are not normalised")


def _header(count: int, dimension: int) -> bytes:
    """Return the beginning of a file with two float32 tensors (count, dimension), `turn` and `window`."""
    size = count * dimension * 4
    return tensor_head(
        {
            name: {"dtype": "F32", "shape": [count, dimension], "data_offsets": [place * size, (place + 1) * size]}
            for place, name in enumerate(("turn", "window"))
        }
    )


def _held(connection: sa.Connection, cube: str, source: VectorSource) -> Iterator[tuple[str, int, HeldPoint]]:
    v = t.versions
    chars = (v.c.memory if is_sealed(connection) else sa.func.length(v.c.memory)).label("chars")
    query = (
        sa.select(v.c.id, t.items.c.revision, chars)
        .join(t.items, t.items.c.id == v.c.item_id)
        .where(v.c.cube_id == cube)
        .order_by(v.c.id)
    )
    found = connection.execute(query, execution_options={"yield_per": _VERSIONS_AT_ONCE})
    for batch in found.partitions(_VERSIONS_AT_ONCE):
        revisions = {row.id: row.revision for row in batch}
        chunk, left = 0, list(revisions)
        while left:
            held = source.held([point_id(id_, chunk) for id_ in left])
            fresh = _fresh(left, chunk, held, revisions)
            yield from ((id_, chunk, point) for id_, point in fresh.items())
            # Only a longer text has another chunk.
            chunk, left = (
                chunk + 1,
                [row.id for row in batch if row.id in fresh and _length(row.chars) > CHUNK_TOKENS - 2],
            )


def _length(told: int | str) -> int:
    return told if isinstance(told, int) else len(told)


def _fresh(
    versions: Sequence[str], chunk: int, held: Mapping[str, HeldPoint], revisions: Mapping[str, int]
) -> dict[str, HeldPoint]:
    points = {id_: held.get(point_id(id_, chunk)) for id_ in versions}
    return {id_: point for id_, point in points.items() if point is not None and point.revision == revisions[id_]}


def _points(reader: DumpReader) -> Iterator[tuple[str, int]]:
    """Yield (version, chunk) of each pair of vectors, in their order. Raises: InvalidInput."""
    return reader.entries(POINTS, _point)


def _point(line: bytes) -> tuple[str, int]:
    told = object_of(line)
    version, chunk = told["version_id"], told["chunk"]
    if told.keys() != {"version_id", "chunk"} or not ID.fullmatch(version) or not 0 <= chunk < 1 << 31:
        raise ValueError("does not name a vector")
    return version, chunk
