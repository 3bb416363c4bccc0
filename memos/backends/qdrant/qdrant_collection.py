"""The collection of a Qdrant server that holds one vector space: how it is laid out, made once and checked.

Several processes may make it at the same time. Knows nothing of points.
"""

from __future__ import annotations

from memos.backends.qdrant.qdrant_points import BUILD_WIDTH, DENSE, INTEGERS, KEYWORDS, SPARSE, STANDING
from memos.backends.qdrant.server_client import Connection, models
from memos.core.settings import QdrantSettings
from memos.errors import BackendUnavailable, IntegrityError

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

    Raises: IntegrityError when the collection is not memstrata's or has vectors of another length.
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
    """Return memstrata's other collections whose names begin with `<prefix>-`, sorted."""
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
        shard_number=settings.shards,
        replication_factor=settings.replicas,
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
            f"The Qdrant collection {name} was not made by memstrata; choose another MEMOS_QDRANT__COLLECTION."
        )
    if sizes != {dimension}:
        raise IntegrityError(
            f"The Qdrant collection {name} holds vectors of {max(sizes)} numbers and the embedder makes {dimension}; "
            "choose another MEMOS_QDRANT__COLLECTION, or delete that collection and it is filled from the ledger."
        )


def _sizes(info: models.CollectionInfo) -> set[int]:
    """Return the lengths of the dense vectors; none when the collection has other vectors than memstrata's."""
    dense, sparse = info.config.params.vectors, info.config.params.sparse_vectors
    if not isinstance(dense, dict) or set(dense) != set(DENSE) or set(sparse or ()) != set(SPARSE):
        return set()
    return {vector.size for vector in dense.values()}
