"""`QdrantServerIndex`: the vector index on a Qdrant server or cluster, one collection per vector space.

A write is visible when its call returns and on disk within seconds. Arms are returned separately, since fusion
scales and explains each. IDF is counted over the searched cubes per shard, so scores differ slightly with several
shards.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import SystemRandom
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

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
    compile_search,
    point_key,
    stored_payload,
)
from memos.core.ports import ArmQuery, HeldPoint, ScoredPoint, SparseVector, Stamp, Vector, VectorPoint, VectorSearch
from memos.core.settings import QdrantSettings
from memos.core.types import STANDING_OF
from memos.errors import BackendTimeout, BackendUnavailable, IntegrityError, InvalidInput, MemosError

try:
    import httpx
    from qdrant_client import QdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
    from qdrant_client.http.models import IdfCorpusParams
except ImportError as missing:
    raise BackendUnavailable(
        "A Qdrant server needs the package qdrant-client 1.19 or newer; install it with: "
        "`pip install '.[qdrant]'` in hippocube's clone."
    ) from missing

__all__ = ["Connection", "IdfCorpusParams", "connect", "models"]

LEAST_VERSION = (1, 19)
"""The first version that counts IDF over a corpus of the query's; older ones ignore that without a word."""

TIMEOUT_S = 10
_PAUSES_S = (0.05, 0.15, 0.4, 0.9)
_FAILURES = (ApiException, QdrantException, httpx.InvalidURL, json.JSONDecodeError, UnicodeDecodeError)
_PASSING_STATUS = frozenset({429, 500, 502, 503, 504})
_REASON_CHARS = 200
_RANDOM = SystemRandom()

Answer = TypeVar("Answer")


class Connection:
    """A client of one server; thread-safe."""

    def __init__(self, client: QdrantClient, settings: QdrantSettings) -> None:
        self.client = client
        self._settings = settings
        self._where = _shown(settings.address or "")
        self._closed = False

    def run(self, ask: Callable[[int], Answer]) -> Answer:
        """Return what `ask` does, given the seconds left; what may pass is asked again, within ten seconds."""
        end = time.monotonic() + TIMEOUT_S
        pauses = iter(_PAUSES_S)
        while True:
            self._check_open()
            try:
                return ask(max(1, math.ceil(end - time.monotonic())))
            except (*_FAILURES, ValueError) as error:
                self._check_open(error)
                if not isinstance(error, _FAILURES):
                    raise
                # A random part of each pause, so that many clients do not come back at once.
                pause = next(pauses, math.inf) * _RANDOM.uniform(0.5, 1)
                if not _may_pass(error) or time.monotonic() + pause >= end:
                    raise self._told(error) from error
            time.sleep(pause)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.client.close()

    def _check_open(self, error: Exception | None = None) -> None:
        if self._closed:
            raise BackendUnavailable("The vector index is closed.") from error

    def check_version(self) -> None:
        try:
            version = self.run(lambda _left: self.client.info()).version
        except _NotFound as error:
            raise self._not_qdrant() from error
        numbers = re.match(r"v?(\d+)\.(\d+)", version)
        if numbers is None:
            raise self._not_qdrant()
        if (int(numbers[1]), int(numbers[2])) < LEAST_VERSION:
            raise BackendUnavailable(
                f"The Qdrant server at {self._where} is version {version:.20}; update it to "
                f"{'.'.join(map(str, LEAST_VERSION))} or newer."
            )

    def _told(self, error: Exception) -> MemosError:
        match error:
            case ResponseHandlingException(source=httpx.TimeoutException()):
                return self._timeout()
            case ResponseHandlingException(source=httpx.TransportError() as source):
                return self._unreachable(str(source) or type(source).__name__)
            case ResponseHandlingException(source=ValueError()):  # pydantic's, of an answer that has another form
                return self._not_qdrant()
            case ResponseHandlingException():
                return self._unreachable(type(error.source).__name__)
            case UnexpectedResponse():
                return self._told_status(error.status_code or 0, _reason(error.content))
            case httpx.InvalidURL():
                return _bad_url()
            case QdrantException():
                return self._told_status(429, str(error))
            case _:
                return self._not_qdrant()

    def _told_status(self, status: int, reason: str) -> MemosError:
        if status in (401, 403):
            if self._settings.api_key is None:
                return BackendUnavailable(
                    f"The Qdrant server at {self._where} asks for an API key; set MEMOS_QDRANT__API_KEY."
                )
            return BackendUnavailable(
                f"The Qdrant server at {self._where} refused the API key; set MEMOS_QDRANT__API_KEY to one that may "
                "read and write."
            )
        if status in (404, 405):
            return _NotFound(
                f"The Qdrant server at {self._where} no longer has this index ({reason}); restart hippocube, which "
                "rebuilds it from the ledger."
            )
        if status in (408, 504):
            return self._timeout()
        if status in _PASSING_STATUS:
            return BackendUnavailable(
                f"The Qdrant server at {self._where} cannot answer now ({status} {reason}); check its log and load."
            )
        return BackendUnavailable(
            f"The Qdrant server at {self._where} refused a call ({status} {reason}); check its log."
        )

    def _unreachable(self, reason: str) -> BackendUnavailable:
        return BackendUnavailable(
            f"The Qdrant server at {self._where} cannot be reached ({_cut(reason)}); start it, or correct "
            "MEMOS_QDRANT__URL."
        )

    def _timeout(self) -> BackendTimeout:
        return BackendTimeout(
            f"The Qdrant server at {self._where} did not answer within {TIMEOUT_S} s; check its load."
        )

    def _not_qdrant(self) -> BackendUnavailable:
        return BackendUnavailable(f"The server at {self._where} is not a Qdrant server; correct MEMOS_QDRANT__URL.")


class _NotFound(BackendUnavailable):
    pass


def connect(settings: QdrantSettings) -> Connection:
    try:
        if urlsplit(settings.address or "").scheme not in ("http", "https"):
            raise _bad_url()
        client = QdrantClient(
            url=settings.address,
            # As a header and not as `api_key`: the client would warn of plain HTTP at each start of each program,
            # also inside a container network.
            headers=None if settings.api_key is None else {"api-key": settings.api_key.get_secret_value()},
            timeout=TIMEOUT_S,
            check_compatibility=False,
        )
    except ValueError as error:
        raise _bad_url() from error
    connection = Connection(client, settings)
    try:
        connection.check_version()
    except BaseException:
        connection.close()
        raise
    return connection


def _bad_url() -> InvalidInput:
    return InvalidInput("MEMOS_QDRANT__URL", "must be a URL such as http://127.0.0.1:6333")


def _may_pass(error: Exception) -> bool:
    match error:
        case ResponseHandlingException(source=source):
            return isinstance(source, httpx.TransportError) and not isinstance(source, httpx.TimeoutException)
        case UnexpectedResponse():
            return error.status_code in _PASSING_STATUS
        case _:
            return isinstance(error, QdrantException)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(content: bytes) -> str:
    try:
        status = json.loads(content)["status"]
        return _cut(str(status["error"] if isinstance(status, dict) else status))
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def _cut(text: str) -> str:
    return " ".join(text.split())[:_REASON_CHARS]


_KEYWORD = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=False)
_INTEGER = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=True, enable_hnsw=False)
_INDEXES: dict[str, models.KeywordIndexParams | models.IntegerIndexParams] = {
    "cube": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    STANDING: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=True),
    **dict.fromkeys(KEYWORDS, _KEYWORD),
    **dict.fromkeys(INTEGERS, _INTEGER),
}


def ensure(connection: Connection, name: str, dimension: int, settings: QdrantSettings) -> None:
    if not _exists(connection, name):
        try:
            connection.run(lambda left_s: _create(connection, name, dimension, settings, left_s))
        except BackendUnavailable:
            # Another process made it meanwhile, or this one did and the answer was lost.
            if not _exists(connection, name):
                raise
    info = _info(connection, name)
    _check(info, name, dimension)
    for field, schema in _INDEXES.items():
        # Its maker may have been cut off before them; making them again changes nothing.
        if field not in info.payload_schema:
            _index(connection, name, field, schema)


def others(connection: Connection, name: str, prefix: str) -> list[str]:
    listed = connection.run(lambda _left: connection.client.get_collections()).collections
    found = sorted(entry.name for entry in listed if entry.name.startswith(f"{prefix}-") and entry.name != name)
    return [other for other in found if _sizes(_info(connection, other))]


def _info(connection: Connection, name: str) -> models.CollectionInfo:
    return connection.run(lambda _left: connection.client.get_collection(name))


def _exists(connection: Connection, name: str) -> bool:
    return connection.run(lambda _left: connection.client.collection_exists(name))


def _create(connection: Connection, name: str, dimension: int, settings: QdrantSettings, left_s: int) -> None:
    """Ask for graphs of each cube only, since every search names its cubes."""
    on_disk = settings.on_disk
    dense = models.VectorParams(
        size=dimension,
        distance=models.Distance.COSINE,
        memory=models.Memory.COLD if on_disk else None,
        quantization_config=_QUANTIZED if on_disk else None,
    )
    connection.client.create_collection(
        name,
        vectors_config=dict.fromkeys(DENSE, dense),
        sparse_vectors_config=dict.fromkeys(SPARSE, models.SparseVectorParams(modifier=models.Modifier.IDF)),
        hnsw_config=models.HnswConfigDiff(m=0, payload_m=16, ef_construct=BUILD_WIDTH),
        # What users store in `info` has no index; a server in strict mode would refuse to filter by it.
        strict_mode_config=models.StrictModeConfig(unindexed_filtering_retrieve=True, unindexed_filtering_update=True),
        timeout=left_s,
    )


_QUANTIZED = models.ScalarQuantization(
    scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, memory=models.Memory.PINNED)
)


def _index(
    connection: Connection, name: str, field: str, schema: models.KeywordIndexParams | models.IntegerIndexParams
) -> None:
    connection.run(
        lambda left_s: connection.client.create_payload_index(
            name, field, field_schema=schema, wait=True, timeout=left_s
        )
    )


def _check(info: models.CollectionInfo, name: str, dimension: int) -> None:
    sizes = _sizes(info)
    if not sizes:
        raise IntegrityError(
            f"The Qdrant collection {name} was not made by hippocube; choose another prefix in "
            "MEMOS_QDRANT__URL, as in http://HOST:6333?collection=PREFIX."
        )
    if sizes != {dimension}:
        raise IntegrityError(
            f"The Qdrant collection {name} holds vectors of {max(sizes)} dimensions, but the embedder makes "
            f"{dimension}; choose another prefix in MEMOS_QDRANT__URL (?collection=PREFIX), or delete that collection "
            "to have it rebuilt from the ledger."
        )


def _sizes(info: models.CollectionInfo) -> set[int]:
    dense, sparse = info.config.params.vectors, info.config.params.sparse_vectors
    if not isinstance(dense, dict) or set(dense) != set(DENSE) or set(sparse or ()) != set(SPARSE):
        return set()
    return {vector.size for vector in dense.values()}


class ServerDialect:
    """The `Dialect` of `qdrant_client`."""

    def group(
        self, *, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()
    ) -> models.Filter:
        # An empty list stays: a filter without any could be read as another condition.
        return models.Filter(must=list(must), should=list(should) or None, must_not=list(must_not) or None)

    def among(self, key: str, values: Sequence[str] | Sequence[int]) -> models.FieldCondition:
        match: Any = models.MatchValue(value=values[0]) if len(values) == 1 else models.MatchAny(any=list(values))
        return models.FieldCondition(key=key, match=match)

    def within(self, key: str, **bounds: float) -> models.FieldCondition:
        return models.FieldCondition(key=key, range=models.Range(**bounds))

    def empty(self, key: str) -> models.IsEmptyCondition:
        return models.IsEmptyCondition(is_empty=models.PayloadField(key=key))

    def nothing(self) -> models.Filter:
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

    def __init__(self, connection: Connection, settings: QdrantSettings, prefix: str, name: str) -> None:
        self._connection = connection
        self._client = connection.client
        self._prefix = prefix
        self._name = name
        quantization = _RESCORED if settings.on_disk else None
        self._dense = {
            name: models.SearchParams(hnsw_ef=width, quantization=quantization) for name, width in SEARCH_WIDTHS.items()
        }

    @classmethod
    def open(
        cls, settings: QdrantSettings, space: str, dimension: int, *, prefix: str | None = None
    ) -> QdrantServerIndex:
        """Open a collection, with the settings' prefix if none is given."""
        connection = connect(settings)
        prefix = settings.collection if prefix is None else prefix
        name = f"{prefix}-{space}"
        try:
            ensure(connection, name, dimension, settings)
        except BaseException:
            connection.close()
            raise
        return cls(connection, settings, prefix, name)

    @property
    def restart_count(self) -> int:
        return 0

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        for batch in _batches(points):
            self._upsert(batch)

    def _upsert(self, batch: list[models.PointStruct]) -> None:
        self._connection.run(lambda left_s: self._client.upsert(self._name, batch, wait=True, timeout=left_s))

    def prune(self, keep: Mapping[str, int | None]) -> None:
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
        operations = [models.DeleteOperation(delete=models.FilterSelector(filter=doomed)) for doomed in stale]
        for start in range(0, len(operations), _PRUNE_BATCH):
            self._delete(operations[start : start + _PRUNE_BATCH])

    def _delete(self, batch: list[models.DeleteOperation]) -> None:
        self._connection.run(
            lambda left_s: self._client.batch_update_points(self._name, batch, wait=True, timeout=left_s)
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
            if not isinstance(arm.query, SparseVector) or len(arm.query.indices)
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
        return {str(record.id): turn for record, (turn,) in self._vectors(ids, ["turn"], [])}

    def held(self, ids: Sequence[str]) -> dict[str, HeldPoint]:
        return {
            str(record.id): HeldPoint((record.payload or {})["revision"], turn, window)
            for record, (turn, window) in self._vectors(ids, ["turn", "window"], ["revision"])
        }

    def _vectors(
        self, ids: Sequence[str], names: list[str], payload: list[str]
    ) -> Iterator[tuple[models.Record, list[Vector]]]:
        def retrieve(batch: list[str]) -> list[models.Record]:
            return self._connection.run(
                lambda left_s: self._client.retrieve(
                    self._name, batch, with_payload=payload or False, with_vectors=names, timeout=left_s
                )
            )

        for start in range(0, len(ids), _PRUNE_BATCH):
            for record in retrieve(list(ids[start : start + _PRUNE_BATCH])):
                vectors = record.vector if isinstance(record.vector, dict) else {}
                if vectors.keys() >= set(names):
                    yield record, [np.asarray(vectors[name], dtype=np.float32) for name in names]

    def scan(self, cube: str) -> Iterator[Stamp]:
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

    def count(self, items: Sequence[str]) -> int:
        def counted(batch: Sequence[str]) -> int:
            mine = _SERVER.group(must=[_SERVER.among("item", batch)])
            answer = self._connection.run(
                lambda left_s: self._client.count(self._name, mine, exact=True, timeout=left_s)
            )
            return answer.count

        return sum(counted(items[start : start + _PRUNE_BATCH]) for start in range(0, len(items), _PRUNE_BATCH))

    def cubes(self) -> list[str]:
        answer = self._connection.run(
            lambda left_s: self._client.facet(self._name, "cube", limit=_MOST_CUBES, exact=True, timeout=left_s)
        )
        return sorted(str(hit.value) for hit in answer.hits if hit.count)

    def flush(self, mark: int) -> None:
        self._upsert([models.PointStruct(id=_MARK_ID, vector={}, payload={"mark": mark})])

    def mark(self) -> int:
        """Return the mark of the last flush; a restored snapshot brings back its own."""
        records = self._connection.run(
            lambda left_s: self._client.retrieve(self._name, [_MARK_ID], with_payload=True, timeout=left_s)
        )
        return int((records[0].payload or {})["mark"]) if records else 0

    def close(self) -> None:
        self._connection.close()

    def use(self) -> None:
        """Point the alias named as the prefix at this collection, in one step."""
        alias = models.DeleteAlias(alias_name=self._prefix)
        mine = models.CreateAlias(collection_name=self._name, alias_name=self._prefix)
        change: list[Any] = [models.DeleteAliasOperation(delete_alias=alias)]
        change.append(models.CreateAliasOperation(create_alias=mine))
        self._connection.run(lambda left_s: self._client.update_collection_aliases(change, timeout=left_s))

    def remove_others(self) -> list[str]:
        """Delete this installation's collections of former embedders and formats, and return their names."""
        # Only collections named `<prefix>-...` with hippocube's vectors.
        gone = others(self._connection, self._name, self._prefix)
        for name in gone:
            self._remove(name)
        return gone

    def _remove(self, name: str) -> None:
        self._connection.run(lambda left_s: self._client.delete_collection(name, timeout=left_s))


def _batches(points: Sequence[VectorPoint]) -> Iterator[list[models.PointStruct]]:
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
