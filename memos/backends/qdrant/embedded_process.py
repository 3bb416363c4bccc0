"""The child process that holds a Qdrant Edge shard: every call to the engine keeps the interpreter lock.

Serves requests over one socket until the parent closes it or dies. Imports only the engine and the filters.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import UUID

import qdrant_edge as edge

from memos.backends.child import die_with_parent, ignore_interrupts, lock_folder, serve, write_durably
from memos.backends.qdrant.filters import (
    ASKED,
    AT_LEAST,
    BUILD_WIDTH,
    DENSE,
    INTEGERS,
    KEYWORDS,
    SEARCH_WIDTHS,
    SPARSE,
    STANDING,
    EdgeDialect,
    compile_search,
    point_key,
    stored_payload,
)
from memos.core.types import STANDING_OF, Arm

# Which item and version each point of a shard is of: reading that from payloads costs as much as a search.

KEYS_FILE = "keys"
_HEAD = re.compile(rb"#(\d{1,12}) ([0-9a-f]{8})\n")
# About 60 MB; of a larger index the rest is asked of the shard when it is found.
_MOST = 250_000


class PointKeys:
    """The keys ("item:version") of points, by the points' ids as numbers."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / KEYS_FILE
        self._known: dict[int, str] = {}
        self._unsaved: list[str] = []
        if self._file.exists():
            self._load()

    def of(self, points: Sequence[int], ask: Callable[[Sequence[int]], Mapping[int, str]]) -> list[str]:
        """Return the points' keys; `ask` reads from the shard those that are not known."""
        missing = [point for point in points if point not in self._known]
        if missing:
            if len(self._known) + len(missing) > _MOST:
                self._known.clear()
                missing = list(points)
            self._known.update(ask(missing))
        return [self._known[point] for point in points]

    def write(self, point: int, key: str) -> None:
        self._unsaved.append(f"{point:032x} {key}\n")
        if len(self._known) < _MOST:
            self._known[point] = key

    def save(self) -> None:
        if self._unsaved:
            block = "".join(self._unsaved).encode()
            with self._file.open("ab") as file:
                file.write(b"#%d %08x\n" % (len(block), zlib.crc32(block)) + block)
            self._unsaved.clear()

    def _load(self) -> None:
        content = self._file.read_bytes()
        place = 0
        while head := _HEAD.match(content, place):
            block = content[head.end() : head.end() + int(head[1])]
            if len(block) < int(head[1]) or zlib.crc32(block) != int(head[2], 16):
                break
            place = head.end() + len(block)
            if len(self._known) < _MOST:
                lines = (line.split(" ", 1) for line in block.decode().splitlines())
                self._known.update((int(point, 16), key) for point, key in lines)
        if place < len(content):
            with self._file.open("r+b") as file:
                file.truncate(place)


MARK_FILE = "mark"
OPTIMISED_FILE = "optimised"
_EDGE = EdgeDialect()
_DENSE_PARAMS = {name: edge.SearchParams(hnsw_ef=width) for name, width in SEARCH_WIDTHS.items()}
_SCAN_PAGE = 2_000
_LARGE_CORPUS = 2_000
_NEARLY_ALL = 0.8
_MOST_CUBES = 1_000_000
_COPY_PAGE = 256
# So few points are searched as fast without indexes of their payloads.
_INDEXED_FROM = 100
# Exact search is as fast up to here, in KiB of vectors of one cube (about 2,500 points of 384 dimensions in 8 bits).
_FULL_SCAN_KIB = 940
# A cosine up to here may be 0: vectors are kept in 8 bits.
_NOISE = 2**-8

# One point on the wire: id, payload, two dense vectors as float32 bytes, two sparse as (indices, values).
WirePoint = tuple[str, dict[str, Any], bytes, bytes, tuple[list[int], list[float]], tuple[list[int], list[float]]]
# One arm on the wire: name, vector, how many points.
WireArm = tuple[str, bytes | tuple[list[int], list[float]], int]


def config(dimension: int) -> edge.EdgeConfig:
    """Return the shard's layout: graphs for each cube only, since every search names its cubes."""
    # Without a write-ahead log: the ledger's outbox replays what was not flushed, and no log keeps erased payloads.
    dense = edge.EdgeVectorParams(dimension, edge.Distance.Cosine, datatype=edge.VectorStorageDatatype.Turbo8)
    sparse = edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)
    return edge.EdgeConfig(
        vectors=dict.fromkeys(DENSE, dense),
        sparse_vectors=dict.fromkeys(SPARSE, sparse),
        hnsw_config=edge.HnswIndexConfig(
            m=0, payload_m=16, ef_construct=BUILD_WIDTH, full_scan_threshold=_FULL_SCAN_KIB, max_indexing_threads=1
        ),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=_FULL_SCAN_KIB, default_segment_number=1),
        max_search_threads=1,
        wal_enabled=False,
    )


class Shard:
    """An open generation folder; each public method is one request."""

    def __init__(self, folder: str, dimension: int) -> None:
        self._folder = Path(folder)
        self._lock = lock_folder(self._folder, "vector index")
        self._keys = PointKeys(self._folder)
        self._counts: dict[str, int] = {}
        self._written = self._counted_at = 0
        if self.mark() and not any((self._folder / "segments").glob("*")):
            # The engine would open this as an empty shard, and the mark would vouch for it.
            raise ValueError("its segments are gone")
        has_data = any(entry.name not in ("lock", MARK_FILE, KEYS_FILE) for entry in self._folder.iterdir())
        self._shard = edge.EdgeShard.load(folder) if has_data else edge.EdgeShard.create(folder, config(dimension))
        # Also where making it, or them, was cut off.
        self._indexed = _index_fields(self._shard)
        release_pages(self._folder)

    def upsert(self, points: Sequence[WirePoint]) -> None:
        self._shard.update(edge.UpdateOperation.upsert_points([_point(point) for point in points]))
        for point_id, payload, *_ in points:
            self._keys.write(UUID(point_id).int, point_key(payload))
        self._written += len(points)
        self._indexed = self._indexed or _index_fields(self._shard)

    def prune(self, keep: Mapping[str, int | None]) -> None:
        gone = [item for item, revision in keep.items() if revision is None]
        if gone:
            self._delete(edge.Filter(must=[edge.FieldCondition("item", match=edge.MatchAny(gone))]))
        for item, revision in keep.items():
            if revision is not None:
                mine = edge.FieldCondition("item", match=edge.MatchValue(item))
                newest = edge.FieldCondition("revision", match=edge.MatchValue(revision))
                self._delete(edge.Filter(must=[mine], must_not=[newest]))

    def _delete(self, doomed: edge.Filter) -> None:
        self._shard.update(edge.UpdateOperation.delete_points_by_filter(doomed))

    def search(
        self, cubes: Sequence[str], arms: Sequence[WireArm], node: Any, as_of: int | None, live: bool
    ) -> tuple[list[str], list[tuple[bytes, bytes]]]:
        """Return the versions found, and for each arm their places in that list and scores, best first."""
        # Only what has a score above the arm's least is found (`AT_LEAST`).
        plain = node is None and as_of is None and live
        # Without an index the engine compares whole numbers as floats: those beyond 2**53 would be equal.
        self._indexed = self._indexed or (not plain and _index_fields(self._shard, at_once=True))
        parts = {STANDING_OF.get(Arm(name)) for name, _, _ in arms}
        wanted = {
            part: _live_of(tuple(cubes), part) if plain else compile_search(_EDGE, cubes, node, as_of, live, part)
            for part in parts
        }
        sparse = (
            None
            if self._is_nearly_all(cubes)
            else edge.SearchParams(idf=edge.IdfParams(corpus=_EDGE.group(must=[_EDGE.among("cube", cubes)])))
        )
        # Arms that ask by one vector came with one object, since pickling keeps what is one; converting takes 25 us.
        vectors = {id(wire): _vector(wire) for _, wire, _ in arms}
        nearest = {
            key: edge.Query.Nearest(vectors[key[0]], using=key[1])
            for key in {(id(wire), ASKED.get(name, name)) for name, wire, _ in arms}
        }
        requests = [
            edge.QueryRequest(
                limit=limit,
                query=nearest[id(wire), ASKED.get(name, name)],
                filter=wanted[STANDING_OF.get(Arm(name))],
                params=sparse if name in SPARSE else _DENSE_PARAMS[name],
            )
            for name, wire, limit in arms
        ]
        places: dict[int, int] = {}
        ranked = []
        answers: list[list[Any]] = self._shard.query_batch(edge.QueryBatchRequest(requests))
        for (name, *_), found in zip(arms, answers, strict=True):
            least = AT_LEAST.get(name, _NOISE)
            kept = [(places.setdefault(p.id.int, len(places)), p.score) for p in found if p.score > least]
            ranked.append((array("I", [place for place, _ in kept]), array("f", [score for _, score in kept])))
        return self._keys.of(list(places), self._ask_keys), [(at.tobytes(), scores.tobytes()) for at, scores in ranked]

    def turns(self, points: Sequence[str]) -> dict[str, bytes]:
        asked: list[Any] = list(points)
        records: list[Any] = self._shard.retrieve(asked, with_payload=False, with_vector=["turn"])
        return {str(record.id): array("f", record.vector["turn"]).tobytes() for record in records}

    def held(self, points: Sequence[str]) -> dict[str, tuple[int, bytes, bytes]]:
        asked: list[Any] = list(points)
        records: list[Any] = self._shard.retrieve(asked, with_payload=["revision"], with_vector=["turn", "window"])
        return {
            str(record.id): (
                record.payload["revision"],
                array("f", record.vector["turn"]).tobytes(),
                array("f", record.vector["window"]).tobytes(),
            )
            for record in records
        }

    def _ask_keys(self, points: Sequence[int]) -> dict[int, str]:
        asked: list[Any] = [UUID(int=point) for point in points]
        records = self._shard.retrieve(asked, with_payload=["item", "version"], with_vector=False)
        return {_number(record): point_key(record.payload) for record in records}

    def _is_nearly_all(self, cubes: Sequence[str]) -> bool:
        """Return True if these cubes hold nearly every point: the engine's own IDF is then theirs."""
        # Counting terms over one corpus reads all of it, 45 us a thousand points and arm.
        if not self._indexed:
            return False  # there are few points, and facets need an index
        if self._written >= self._counted_at:
            total = int(self._shard.info().points_count)
            hits = self._shard.facet(edge.FacetRequest("cube", limit=_MOST_CUBES)).hits
            self._counts = {str(hit.value): hit.count for hit in hits}
            self._counted_at = self._written + max(1_000, total // 20)
        mine = sum(self._counts.get(cube, 0) for cube in cubes)
        return mine >= _LARGE_CORPUS and mine >= _NEARLY_ALL * sum(self._counts.values())

    def scan(self, cube: str, offset: str | None) -> tuple[list[tuple[str, str, int]], str | None]:
        mine = edge.Filter(must=[edge.FieldCondition("cube", match=edge.MatchValue(cube))])
        records, following = self._shard.scroll(
            edge.ScrollRequest(offset=offset, limit=_SCAN_PAGE, filter=mine, with_payload=["item", "revision"])
        )
        page = [(str(r.id), r.payload["item"], r.payload["revision"]) for r in records if r.payload is not None]
        return page, None if following is None else str(following)

    def count(self, items: Sequence[str]) -> int:
        mine = edge.Filter(must=[edge.FieldCondition("item", match=edge.MatchAny(list(items)))])
        return int(self._shard.count(edge.CountRequest(filter=mine, exact=True)))

    def cubes(self) -> list[str]:
        if not self._indexed:  # facets need an index
            records, _ = self._shard.scroll(edge.ScrollRequest(limit=_INDEXED_FROM, with_payload=["cube"]))
            return sorted({str(record.payload["cube"]) for record in records if record.payload is not None})
        return sorted(str(hit.value) for hit in self._shard.facet(edge.FacetRequest("cube", limit=_MOST_CUBES)).hits)

    def flush(self, mark: int | None) -> None:
        self._shard.flush()
        self._keys.save()
        if mark is not None:
            write_durably(self._folder / MARK_FILE, str(mark))

    def mark(self) -> int:
        return self._number_in(MARK_FILE)

    def optimise(self) -> bool:
        changed = self._shard.optimize()
        self._shard.flush()
        write_durably(self._folder / OPTIMISED_FILE, str(self._shard.info().points_count))
        release_pages(self._folder)
        return bool(changed)

    def unoptimised(self) -> int:
        return max(0, int(self._shard.info().points_count) - self.optimised())

    def optimised(self) -> int:
        return self._number_in(OPTIMISED_FILE)

    def _number_in(self, file: str) -> int:
        path = self._folder / file
        return int(path.read_text()) if path.exists() else 0

    def rewrite(self, target: str, dimension: int) -> None:
        """Copy every live point into a fresh shard at `target`, with graphs when this one has them."""
        fresh = edge.EdgeShard.create(target, config(dimension))
        keys = PointKeys(Path(target))
        indexed = False
        offset = None
        while True:
            request = edge.ScrollRequest(offset=offset, limit=_COPY_PAGE, with_payload=True, with_vector=True)
            records, offset = self._shard.scroll(request)
            points = [edge.Point(r.id, r.vector, r.payload) for r in records if r.vector is not None]
            if points:
                fresh.update(edge.UpdateOperation.upsert_points(points))
                indexed = indexed or _index_fields(fresh)
                for record in records:
                    keys.write(_number(record), point_key(record.payload))
            if offset is None:
                break
        if (self._folder / OPTIMISED_FILE).exists():
            fresh.optimize()
            write_durably(Path(target) / OPTIMISED_FILE, str(fresh.info().points_count))
        fresh.flush()
        fresh.close()
        keys.save()
        if (self._folder / MARK_FILE).exists():
            write_durably(Path(target) / MARK_FILE, str(self.mark()))

    def close(self) -> None:
        self._shard.close()
        os.close(self._lock)


_MAPPED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ...(.) \S+ \S+ \S+ +(.*)")
_MADV_DONTNEED = 4


def release_pages(folder: Path) -> None:
    """Unload the mapped files of a folder; what is read again comes back from the system's cache.

    The engine loads every page of files that it preallocates: 100 MiB of zeros in a shard of 20,000 points.
    Call it between calls of the engine, whose threads rest then: nothing is mapped anew while the addresses are read.
    """
    inside = f"{folder.resolve()}/"
    with suppress(OSError, AttributeError):  # not Linux
        advise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            mapped = _MAPPED.match(line)
            # Private mappings would lose what was written to them.
            if mapped and mapped[3] == "s" and mapped[4].startswith(inside):
                start, end = int(mapped[1], 16), int(mapped[2], 16)
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _index_fields(shard: edge.EdgeShard, *, at_once: bool = False) -> bool:
    """Make the payload indexes that are missing, once there are many points; say whether all are there."""
    # Each takes 2 MiB and some milliseconds, however little is in it.
    told = shard.info()
    if not at_once and told.points_count < _INDEXED_FROM:
        return False
    keyword = edge.KeywordIndexParams(enable_hnsw=False)
    integer = edge.IntegerIndexParams(lookup=True, range=True, enable_hnsw=False)
    wanted: dict[str, Any] = dict.fromkeys(KEYWORDS, keyword) | dict.fromkeys(INTEGERS, integer)
    wanted["cube"] = edge.KeywordIndexParams(is_tenant=True)
    wanted[STANDING] = edge.KeywordIndexParams(enable_hnsw=True)
    missing = wanted.keys() - told.payload_schema.keys()
    for name in missing:
        shard.update(edge.UpdateOperation.create_field_index(name, wanted[name]))
    if missing:
        shard.flush()
    return True


def _point(point: WirePoint) -> edge.Point:
    point_id, payload, turn, window, turn_terms, window_terms = point
    vectors: dict[str, Any] = {"turn": _vector(turn), "window": _vector(window)}
    for name, terms in (("turn_bm25", turn_terms), ("window_bm25", window_terms)):
        if terms[0]:
            vectors[name] = _vector(terms)
    return edge.Point(point_id, vectors, stored_payload(payload))


@lru_cache(maxsize=64)
def _live_of(cubes: tuple[str, ...], stands: int | None) -> Any:
    """Return the filter of nearly every search, which is made once."""
    return compile_search(_EDGE, cubes, None, None, True, stands)


def _vector(wire: bytes | tuple[list[int], list[float]]) -> Any:
    return array("f", wire).tolist() if isinstance(wire, bytes) else edge.SparseVector(*wire)


def _number(point: Any) -> int:
    """Return a point's id as a number: a UUID is slow to hash and slower to print."""
    return int(point.id.int)


class _Server:
    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._shard: Shard | None = None

    def handle(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "open":
            self._shard = Shard(*arguments)
            return None
        if method in ("optimise", "rewrite"):
            os.nice(10)
            die_with_parent(self._channel)
        return getattr(self._shard, method)(*arguments)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a flushed generation, holes kept: the engine preallocates far more than it fills."""
    shutil.copytree(source, target, copy_function=_copy_holes, ignore=shutil.ignore_patterns("lock"))


def _copy_holes(source: str, target: str) -> str:
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        writer.truncate(size)
        position = 0
        while position < size:
            try:
                start = os.lseek(reader.fileno(), position, os.SEEK_DATA)
            except OSError:  # no data after this position
                break
            position = os.lseek(reader.fileno(), start, os.SEEK_HOLE)
            offset = start
            while offset < position:
                offset += os.copy_file_range(reader.fileno(), writer.fileno(), position - offset, offset, offset)
    return target


def main(descriptor: int) -> None:
    ignore_interrupts()
    channel = Connection(descriptor)
    server = _Server(channel)
    serve(channel, server.handle)
