"""`QdrantServerIndex`: the vector index on a Qdrant server or cluster, one collection for each vector space.

A write is there when its call returns; the server logs it before that, and writes its log to disk within seconds.
Arms come back apart, since fusion scales each arm's own scores and explains each hit by them. IDF is counted over the
searched cubes by the server, in each shard for itself: with several shards scores differ a little between them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from memos.backends.qdrant import server_client as qdrant_collection
from memos.backends.qdrant.filters import (
    ASKED,
    AT_LEAST,
    SEARCH_WIDTHS,
    SPARSE,
    compile_search,
    point_key,
    stored_payload,
)
from memos.backends.qdrant.server_client import Connection, IdfCorpusParams, connect, models
from memos.core.ports import ArmQuery, HeldPoint, ScoredPoint, SparseVector, Stamp, Vector, VectorPoint, VectorSearch
from memos.core.settings import QdrantSettings
from memos.core.types import STANDING_OF
from memos.errors import InvalidInput

# How the Qdrant client's Python classes write filters; what a filter means is in `qdrant_filters`.


class ServerDialect:
    """The `Dialect` of `qdrant_client`."""

    def group(
        self, *, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()
    ) -> models.Filter:
        """Return a filter of three lists."""
        # An empty list stays: a filter without any could be read as another condition.
        return models.Filter(must=list(must), should=list(should) or None, must_not=list(must_not) or None)

    def among(self, key: str, values: Sequence[str] | Sequence[int]) -> models.FieldCondition:
        """Return a match of one value or several."""
        match: Any = models.MatchValue(value=values[0]) if len(values) == 1 else models.MatchAny(any=list(values))
        return models.FieldCondition(key=key, match=match)

    def within(self, key: str, **bounds: float) -> models.FieldCondition:
        """Return a range of floats."""
        return models.FieldCondition(key=key, range=models.Range(**bounds))

    def empty(self, key: str) -> models.IsEmptyCondition:
        """Return the condition that there is no value."""
        return models.IsEmptyCondition(is_empty=models.PayloadField(key=key))

    def nothing(self) -> models.Filter:
        """Return a filter that nothing passes."""
        return models.Filter(must=[models.HasIdCondition(has_id=[])])


_SERVER = ServerDialect()
# The point that keeps the flush mark: without a cube no search and no scan sees it, and a snapshot has it.
_MARK_ID = "6d656d73-7472-4174-a000-000000000001"
_SCAN_PAGE = 2_000
_MOST_CUBES = 1_000_000
# A server takes 32 MB by default; a number of a vector is at most 24 characters of JSON.
_BATCH_BYTES = 8 * 2**20
_NUMBER_BYTES = 24
_PRUNE_BATCH = 500
# A cosine up to here may be 0: it is a sum of rounded float32 products.
_NOISE = 2**-20
# Of 8-bit vectors twice as many are looked at, and judged again by the full ones.
_RESCORED = models.QuantizationSearchParams(rescore=True, oversampling=2.0)


class QdrantServerIndex:
    """A `VectorIndex` on a Qdrant server; thread-safe, and any number of processes may share a collection."""

    def __init__(self, connection: Connection, settings: QdrantSettings, name: str) -> None:
        self._connection = connection
        self._client = connection.client
        self._prefix = settings.collection
        self._name = name
        quantization = _RESCORED if settings.on_disk else None
        self._dense = {
            name: models.SearchParams(hnsw_ef=width, quantization=quantization) for name, width in SEARCH_WIDTHS.items()
        }

    @classmethod
    def open(cls, settings: QdrantSettings, space: str, dimension: int) -> QdrantServerIndex:
        """Open or create the collection `<prefix>-<space>`.

        Raises: BackendUnavailable, BackendTimeout; InvalidInput when the URL is none; IntegrityError when the
        collection is not hippocube's or has vectors of another length.
        """
        connection = connect(settings)
        name = f"{settings.collection}-{space}"
        try:
            qdrant_collection.ensure(connection, name, dimension, settings)
        except BaseException:
            connection.close()
            raise
        return cls(connection, settings, name)

    @property
    def incarnation(self) -> int:
        """Return 0: a server that restarts has what it acknowledged."""
        return 0

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        """Insert or replace points by id."""
        for batch in _batches(points):
            self._upsert(batch)

    def _upsert(self, batch: list[models.PointStruct]) -> None:
        self._connection.run(lambda left_s: self._client.upsert(self._name, batch, wait=True, timeout=left_s))

    def prune(self, keep: Mapping[str, int | None]) -> None:
        """Delete the items' points whose revision is not the given one; None deletes all."""
        gone = [item for item, revision in keep.items() if revision is None]
        stale = [
            _SERVER.group(must=[_SERVER.among("item", gone[start : start + _PRUNE_BATCH])])
            for start in range(0, len(gone), _PRUNE_BATCH)
        ]
        stale += [
            _SERVER.group(must=[_SERVER.among("item", [item])], must_not=[_SERVER.among("revision", [revision])])
            for item, revision in keep.items()
            if revision is not None
        ]
        for start in range(0, len(stale), _PRUNE_BATCH):
            self._delete(stale[start : start + _PRUNE_BATCH])

    def _delete(self, filters: list[models.Filter]) -> None:
        operations = [models.DeleteOperation(delete=models.FilterSelector(filter=doomed)) for doomed in filters]
        self._connection.run(
            lambda left_s: self._client.batch_update_points(self._name, operations, wait=True, timeout=left_s)
        )

    def search(self, request: VectorSearch, meanwhile: Callable[[], None] | None = None) -> list[list[ScoredPoint]]:
        """Return one list for each arm, best first; all arms are asked at once, and `meanwhile` is left out."""
        if not request.cubes:
            raise InvalidInput("cubes", "is empty; name at least one cube")
        parts = {STANDING_OF.get(arm.arm) for arm in request.arms}
        wanted = {
            part: compile_search(_SERVER, request.cubes, request.filter, request.as_of, request.live, part)
            for part in parts
        }
        corpus = _SERVER.group(must=[_SERVER.among("cube", request.cubes)])
        terms = models.SearchParams(idf=IdfCorpusParams(corpus=corpus))
        asked = {
            place: models.QueryRequest(
                query=_query(arm),
                using=ASKED.get(arm.arm.value, arm.arm.value),
                filter=wanted[STANDING_OF.get(arm.arm)],
                params=terms if arm.arm in SPARSE else self._dense[arm.arm],
                limit=arm.limit(request.limit),
                with_payload=["item", "version"],
            )
            for place, arm in enumerate(request.arms)
            if not _is_empty(arm)
        }
        found: list[list[ScoredPoint]] = [[] for _ in request.arms]
        if asked:
            answers = self._connection.run(
                lambda left_s: self._client.query_batch_points(self._name, list(asked.values()), timeout=left_s)
            )
            for place, answer in zip(asked, answers, strict=True):
                least = AT_LEAST.get(request.arms[place].arm.value, _NOISE)
                found[place] = [ScoredPoint(point_key(p.payload), p.score) for p in answer.points if p.score > least]
        return found

    def turns(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the turn vectors of those points that are held."""
        found: dict[str, Vector] = {}
        for start in range(0, len(ids), _PRUNE_BATCH):
            records = self._retrieve(ids[start : start + _PRUNE_BATCH], ["turn"])
            for record in records:
                vectors = record.vector if isinstance(record.vector, dict) else {}
                if "turn" in vectors:
                    found[str(record.id)] = np.asarray(vectors["turn"], dtype=np.float32)
        return found

    def held(self, ids: Sequence[str]) -> dict[str, HeldPoint]:
        """Return those of these points that are held."""
        found: dict[str, HeldPoint] = {}
        for start in range(0, len(ids), _PRUNE_BATCH):
            for record in self._retrieve(ids[start : start + _PRUNE_BATCH], ["turn", "window"], ["revision"]):
                vectors = record.vector if isinstance(record.vector, dict) else {}
                if {"turn", "window"} <= vectors.keys():
                    turn, window = (np.asarray(vectors[name], dtype=np.float32) for name in ("turn", "window"))
                    found[str(record.id)] = HeldPoint((record.payload or {})["revision"], turn, window)
        return found

    def _retrieve(
        self, ids: Sequence[str], vectors: list[str], payload: list[str] | None = None
    ) -> list[models.Record]:
        return self._connection.run(
            lambda left_s: self._client.retrieve(
                self._name, list(ids), with_payload=payload or False, with_vectors=vectors, timeout=left_s
            )
        )

    def scan(self, cube: str) -> Iterator[Stamp]:
        """Yield what is held of one cube."""
        offset: Any = None
        while True:
            records, offset = self._page(cube, offset)
            for record in records:
                payload = record.payload or {}
                yield Stamp(str(record.id), payload["item"], payload["revision"])
            if offset is None:
                return

    def _page(self, cube: str, offset: Any) -> tuple[list[models.Record], Any]:
        mine = _SERVER.group(must=[_SERVER.among("cube", [cube])])
        return self._connection.run(
            lambda left_s: self._client.scroll(
                self._name,
                scroll_filter=mine,
                limit=_SCAN_PAGE,
                offset=offset,
                with_payload=["item", "revision"],
                timeout=left_s,
            )
        )

    def cubes(self) -> list[str]:
        """Return the cubes that have at least one point."""
        answer = self._connection.run(
            lambda left_s: self._client.facet(self._name, "cube", limit=_MOST_CUBES, exact=True, timeout=left_s)
        )
        return sorted(str(hit.value) for hit in answer.hits if hit.count)

    def flush(self, mark: int) -> None:
        """Remember the mark; every write before it was acknowledged."""
        self._upsert([models.PointStruct(id=_MARK_ID, vector={}, payload={"mark": mark})])

    def mark(self) -> int:
        """Return the mark of the last flush; a restored snapshot brings back its own."""
        records = self._connection.run(
            lambda left_s: self._client.retrieve(self._name, [_MARK_ID], with_payload=True, timeout=left_s)
        )
        return int((records[0].payload or {})["mark"]) if records else 0

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._connection.close()

    def use(self) -> None:
        """Point the alias named as the prefix at this collection, in one step. Raises: BackendUnavailable."""
        alias = models.DeleteAlias(alias_name=self._prefix)
        mine = models.CreateAlias(collection_name=self._name, alias_name=self._prefix)
        change: list[Any] = [
            models.DeleteAliasOperation(delete_alias=alias),
            models.CreateAliasOperation(create_alias=mine),
        ]
        self._connection.run(lambda left_s: self._client.update_collection_aliases(change, timeout=left_s))

    def remove_others(self) -> list[str]:
        """Delete this installation's collections of former embedders and formats, and return their names.

        Only collections named `<prefix>-...` with hippocube's vectors. Raises: BackendUnavailable.
        """
        gone = qdrant_collection.others(self._connection, self._name, self._prefix)
        for name in gone:
            self._remove(name)
        return gone

    def _remove(self, name: str) -> None:
        self._connection.run(lambda left_s: self._client.delete_collection(name, timeout=left_s))


def _batches(points: Sequence[VectorPoint]) -> Iterator[list[models.PointStruct]]:
    """Yield points in requests that a server takes."""
    batch: list[models.PointStruct] = []
    size_bytes = 0
    for point in points:
        made, made_bytes = _point(point)
        if batch and size_bytes + made_bytes > _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(made)
        size_bytes += made_bytes
    if batch:
        yield batch


def _point(point: VectorPoint) -> tuple[models.PointStruct, int]:
    """Return a point as the client takes it, and about how many bytes of JSON it is."""
    payload = stored_payload(point.payload)
    vectors: dict[str, Any] = {"turn": point.turn.tolist(), "window": point.window.tolist()}
    numbers = 2 * len(point.turn)
    for name, terms in (("turn_bm25", point.turn_terms), ("window_bm25", point.window_terms)):
        if len(terms.indices):
            vectors[name] = _sparse(terms)
            numbers += 2 * len(terms.indices)
    made = models.PointStruct(id=point.id, vector=vectors, payload=payload)
    return made, numbers * _NUMBER_BYTES + len(json.dumps(payload))


def _sparse(terms: SparseVector) -> models.SparseVector:
    return models.SparseVector(indices=terms.indices.tolist(), values=terms.values.tolist())


def _query(arm: ArmQuery) -> models.SparseVector | list[float]:
    return _sparse(arm.query) if isinstance(arm.query, SparseVector) else [float(number) for number in arm.query]


def _is_empty(arm: ArmQuery) -> bool:
    """Say whether a question has no term, which the server would refuse."""
    return isinstance(arm.query, SparseVector) and not len(arm.query.indices)
