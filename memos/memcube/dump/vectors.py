"""Vectors that came with a dump, lent to the vector index's follower so that it need not compute them again.

They are of the texts that were loaded, at their first revision, and of no others.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from uuid import UUID

import numpy as np

from memos.core.ports import Vector
from memos.memcube.dump.check import points
from memos.memcube.dump.container import DumpReader
from memos.memcube.dump.format import POINTS, VECTORS, bad
from memos.memcube.dump.ids import IdResolution, Ids, Kind
from memos.memcube.dump.write import safetensors_header
from memos.memcube.indexing.followers import point_id

_ROWS_AT_ONCE = 10_000
_LONGEST = 1.01  # a unit vector, as exact as an index keeps it


class DumpedVectors:
    """The vectors of one dump, in a file without a name."""

    def __init__(self, reader: DumpReader, scratch: Path | None, *, normalised: bool) -> None:
        """Copy them out of a checked dump. Raises: InvalidInput when some are none."""
        count, dimension = reader.manifest.parts[POINTS].rows or 0, reader.manifest.embedder.dimension
        self._keys = np.zeros(count, dtype="S16")
        self._order = np.arange(count)
        shape, start = (2, count, dimension), len(safetensors_header(count, dimension))
        with tempfile.TemporaryFile(dir=scratch) as file:  # what is mapped stays when it is closed
            for block in reader.blocks(VECTORS):
                file.write(block)
            file.flush()
            mapped = np.memmap(file, dtype="<f4", mode="r", offset=start, shape=shape) if count else None
        self._vectors: Vector = np.zeros(shape, dtype=np.float32) if mapped is None else mapped
        self._check(normalised)

    def name(self, reader: DumpReader, ids: Ids) -> None:
        """Say whose vectors they are, by the ids that versions have here."""
        for place, (version, chunk) in enumerate(points(reader)):
            found = ids.find(Kind.VERSION, version)
            if found is not None and found[1] is IdResolution.NEW:
                self._keys[place] = UUID(point_id(found[0], chunk)).bytes
        self._order = np.argsort(self._keys, kind="stable")
        self._keys = self._keys[self._order]

    def of(self, point: str) -> tuple[Vector, Vector] | None:
        """Return turn and window vector of a point, None for one that the dump has none of."""
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
                    raise bad(f"{VECTORS} has numbers that are no vectors")
