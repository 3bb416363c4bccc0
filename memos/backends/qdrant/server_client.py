"""Calls to a Qdrant server: one client, bounded retries, and each of its errors as one sentence.

Every call made through it may be made twice. Knows nothing of collections or points.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from random import SystemRandom
from typing import TypeVar
from urllib.parse import urlsplit

from memos.backends.qdrant.filters import BUILD_WIDTH, DENSE, INTEGERS, KEYWORDS, SPARSE, STANDING
from memos.core.settings import QdrantSettings
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
    """One client of one server; thread-safe."""

    def __init__(self, client: QdrantClient, settings: QdrantSettings) -> None:
        self.client = client
        self._settings = settings
        self._where = _shown(settings.url or "")
        self._closed = False

    def run(self, ask: Callable[[int], Answer]) -> Answer:
        """Return what `ask` does, given the seconds left; what may pass is asked again, within ten seconds.

        Raises: BackendUnavailable, BackendTimeout.
        """
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
        """Close the client; safe to call twice."""
        if not self._closed:
            self._closed = True
            self.client.close()

    def _check_open(self, error: Exception | None = None) -> None:
        if self._closed:
            raise BackendUnavailable("The vector index is closed.") from error

    def check_version(self) -> None:
        """Ask which version the server has. Raises: BackendUnavailable when it is too old or no Qdrant server."""
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
                f"{'.'.join(map(str, LEAST_VERSION))} or newer, which rates words by the memories that are searched."
            )

    def _told(self, error: Exception) -> MemosError:
        """Return the error to raise: what went wrong and what to do, without any key."""
        match error:
            case ResponseHandlingException():
                return self._told_transport(error.source)
            case UnexpectedResponse():
                return self._told_status(error.status_code or 0, _reason(error.content))
            case httpx.InvalidURL():
                return _bad_url()
            case QdrantException():
                return self._told_status(429, str(error))
            case _:
                return self._not_qdrant()

    def _told_transport(self, source: Exception) -> MemosError:
        match source:
            case httpx.TimeoutException():
                return self._timeout()
            case httpx.TransportError():
                return self._unreachable(str(source) or type(source).__name__)
            case ValueError():  # pydantic's, of an answer that has another form
                return self._not_qdrant()
            case _:
                return self._unreachable(type(source).__name__)

    def _told_status(self, status: int, reason: str) -> MemosError:
        if status in (401, 403):
            return self._refused()
        if status in (404, 405):
            return _NotFound(
                f"The Qdrant server at {self._where} does not have this index any more ({reason}); restart hippocube, "
                "which makes it again from the ledger."
            )
        if status in (408, 504):
            return self._timeout()
        if status in _PASSING_STATUS:
            return BackendUnavailable(
                f"The Qdrant server at {self._where} cannot answer now ({status} {reason}); look at its log and load."
            )
        return BackendUnavailable(f"The Qdrant server at {self._where} refused a call ({status} {reason}).")

    def _unreachable(self, reason: str) -> BackendUnavailable:
        return BackendUnavailable(
            f"The Qdrant server at {self._where} cannot be reached ({_cut(reason)}); start it, or correct "
            "MEMOS_QDRANT__URL."
        )

    def _timeout(self) -> BackendTimeout:
        return BackendTimeout(
            f"The Qdrant server at {self._where} did not answer within {TIMEOUT_S} s; look at its load."
        )

    def _refused(self) -> BackendUnavailable:
        if self._settings.api_key is None:
            return BackendUnavailable(
                f"The Qdrant server at {self._where} asks for an API key; set MEMOS_QDRANT__API_KEY."
            )
        return BackendUnavailable(
            f"The Qdrant server at {self._where} refused the API key; set MEMOS_QDRANT__API_KEY to one that may "
            "read and write."
        )

    def _not_qdrant(self) -> BackendUnavailable:
        return BackendUnavailable(f"What answers at {self._where} is no Qdrant server; correct MEMOS_QDRANT__URL.")


class _NotFound(BackendUnavailable):
    """The server does not know the path or the collection that was asked for."""


def connect(settings: QdrantSettings) -> Connection:
    """Return a connection to a server that has answered. Raises: BackendUnavailable, BackendTimeout, InvalidInput."""
    try:
        if urlsplit(settings.url or "").scheme not in ("http", "https"):
            raise _bad_url()
        client = QdrantClient(
            url=settings.url,
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
    return InvalidInput("MEMOS_QDRANT__URL", "is no URL of a server, such as http://127.0.0.1:6333")


def _may_pass(error: Exception) -> bool:
    """Say whether the same call may succeed in a moment."""
    match error:
        case ResponseHandlingException():
            return isinstance(error.source, httpx.TransportError) and not isinstance(
                error.source, httpx.TimeoutException
            )
        case UnexpectedResponse():
            return error.status_code in _PASSING_STATUS
        case _:
            return isinstance(error, QdrantException)


def _shown(url: str) -> str:
    """Return a URL as a message may show it: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(content: bytes) -> str:
    """Return what a Qdrant server says of a refusal; another server's page says nothing."""
    try:
        status = json.loads(content)["status"]
        return _cut(str(status["error"] if isinstance(status, dict) else status))
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def _cut(text: str) -> str:
    return " ".join(text.split())[:_REASON_CHARS]


# The collection of a Qdrant server that holds one vector space: how it is laid out, made once and checked.

_KEYWORD = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=False)
_INTEGER = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=True, enable_hnsw=False)
_INDEXES: dict[str, models.KeywordIndexParams | models.IntegerIndexParams] = {
    "cube": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    STANDING: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=True),
    **dict.fromkeys(KEYWORDS, _KEYWORD),
    **dict.fromkeys(INTEGERS, _INTEGER),
}


def ensure(connection: Connection, name: str, dimension: int, settings: QdrantSettings) -> None:
    """Make the collection and its payload indexes unless they are there.

    Raises: IntegrityError when the collection is not hippocube's or has vectors of another length.
    """
    if not _exists(connection, name):
        try:
            connection.run(lambda left_s: _create(connection, name, dimension, settings, left_s))
        except BackendUnavailable:
            # Another process made it meanwhile, or this one did and the answer was lost.
            if not _exists(connection, name):
                raise
    info = connection.run(lambda _left: connection.client.get_collection(name))
    _check(info, name, dimension)
    for field, schema in _INDEXES.items():
        # Its maker may have been cut off before them; making them again changes nothing.
        if field not in info.payload_schema:
            _index(connection, name, field, schema)


def others(connection: Connection, name: str, prefix: str) -> list[str]:
    """Return hippocube's other collections whose names begin with `<prefix>-`, sorted."""
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
            f"The Qdrant collection {name} was not made by hippocube; choose another MEMOS_QDRANT__COLLECTION."
        )
    if sizes != {dimension}:
        raise IntegrityError(
            f"The Qdrant collection {name} holds vectors of {max(sizes)} numbers and the embedder makes {dimension}; "
            "choose another MEMOS_QDRANT__COLLECTION, or delete that collection and it is filled from the ledger."
        )


def _sizes(info: models.CollectionInfo) -> set[int]:
    """Return the lengths of the dense vectors; none when the collection has other vectors than hippocube's."""
    dense, sparse = info.config.params.vectors, info.config.params.sparse_vectors
    if not isinstance(dense, dict) or set(dense) != set(DENSE) or set(sparse or ()) != set(SPARSE):
        return set()
    return {vector.size for vector in dense.values()}
