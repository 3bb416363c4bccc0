"""The double of a Qdrant server over gRPC, through the client's own conversions; it lacks what `qdrant_rest` lacks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from qdrant_client import QdrantClient, models
from qdrant_client import grpc as wire
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc

from memos.core.settings import QdrantSettings
from tests.support.servers.qdrant_rest import server_settings

_DONE = wire.PointsOperationResponse(result=wire.UpdateResult(operation_id=0, status=wire.UpdateStatus.Completed))


@contextmanager
def grpc_double() -> Iterator[int]:
    """Yield the port of a server that holds collections as a Qdrant server does."""
    holds = QdrantClient(":memory:")
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Service(holds),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait(10)
        holds.close()


@contextmanager
def grpc_settings() -> Iterator[QdrantSettings]:
    """Yield settings over gRPC for the real server when QDRANT_URL and QDRANT_GRPC_PORT name one, else for a double."""
    port = os.environ.get("QDRANT_GRPC_PORT")
    if "QDRANT_URL" in os.environ and port is not None:
        with server_settings(grpc_port=int(port)) as settings:
            yield settings
        return
    with grpc_double() as double_port:
        yield QdrantSettings(url="http://127.0.0.1:1", grpc_port=double_port, collection="test")


class _Service(grpc.GenericRpcHandler):
    """Answers `/qdrant.<Service>/<Method>` with the method of that name, one call at a time."""

    def __init__(self, holds: QdrantClient) -> None:
        self._holds = holds
        self._lock = threading.Lock()
        self._calls: dict[str, tuple[Any, Any]] = {
            "HealthCheck": (wire.HealthCheckRequest, self._health),
            "CollectionExists": (wire.CollectionExistsRequest, self._exists),
            "Create": (wire.CreateCollection, self._create),
            "CreateFieldIndex": (wire.CreateFieldIndexCollection, lambda _: _DONE),
            "Upsert": (wire.UpsertPoints, self._upsert),
            "UpdateBatch": (wire.UpdateBatchPoints, self._batch),
            "QueryBatch": (wire.QueryBatchPoints, self._query),
            "Scroll": (wire.ScrollPoints, self._scroll),
            "Facet": (wire.FacetCounts, self._facet),
        }

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        service, method = call.method.split("/")[-2:]
        if method == "Get":
            kind, answer = (
                (wire.GetPoints, self._retrieve)
                if service == "qdrant.Points"
                else (wire.GetCollectionInfoRequest, self._info)
            )
        elif method in self._calls:
            kind, answer = self._calls[method]
        else:
            return None

        def handle(request: Any, _: grpc.ServicerContext) -> Any:
            with self._lock:
                return answer(request)

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=kind.FromString, response_serializer=lambda reply: reply.SerializeToString()
        )

    def _health(self, _: Any) -> Any:
        return wire.HealthCheckReply(title="qdrant - vector search engine", version="1.19.0")

    def _exists(self, asked: Any) -> Any:
        exists = self._holds.collection_exists(asked.collection_name)
        return wire.CollectionExistsResponse(result=wire.CollectionExists(exists=exists))

    def _create(self, asked: Any) -> Any:
        sparse = GrpcToRest.convert_sparse_vector_config(asked.sparse_vectors_config)
        dense = GrpcToRest.convert_vectors_config(asked.vectors_config)
        self._holds.create_collection(asked.collection_name, vectors_config=dense, sparse_vectors_config=sparse)
        return wire.CollectionOperationResponse(result=True)

    def _info(self, asked: Any) -> Any:
        info = self._holds.get_collection(asked.collection_name)
        return wire.GetCollectionInfoResponse(result=RestToGrpc.convert_collection_info(info))

    def _upsert(self, asked: Any) -> Any:
        self._holds.upsert(asked.collection_name, [GrpcToRest.convert_point_struct(p) for p in asked.points])
        return _DONE

    def _batch(self, asked: Any) -> Any:
        operations = [GrpcToRest.convert_points_update_operation(operation) for operation in asked.operations]
        self._holds.batch_update_points(asked.collection_name, operations)
        return wire.UpdateBatchResponse(result=[_DONE.result for _ in operations])

    def _query(self, asked: Any) -> Any:
        searches = [GrpcToRest.convert_query_points(search) for search in asked.query_points]
        for search in searches:
            search.params = models.SearchParams(idf=search.params.idf if search.params else None)
        answers = self._holds.query_batch_points(asked.collection_name, searches)
        return wire.QueryBatchResponse(
            result=[
                wire.BatchResult(result=[RestToGrpc.convert_scored_point(point) for point in answer.points])
                for answer in answers
            ]
        )

    def _scroll(self, asked: Any) -> Any:
        records, following = self._holds.scroll(
            asked.collection_name,
            scroll_filter=GrpcToRest.convert_filter(asked.filter),
            limit=asked.limit,
            offset=GrpcToRest.convert_point_id(asked.offset) if asked.HasField("offset") else None,
        )
        offset = None if following is None else RestToGrpc.convert_extended_point_id(following)
        return wire.ScrollResponse(
            result=[RestToGrpc.convert_retrieved_point(record) for record in records], next_page_offset=offset
        )

    def _retrieve(self, asked: Any) -> Any:
        ids = [GrpcToRest.convert_point_id(point) for point in asked.ids]
        wanted = list(asked.with_vectors.include.names)
        records = self._holds.retrieve(asked.collection_name, ids, with_vectors=wanted or False)
        return wire.GetResponse(result=[RestToGrpc.convert_retrieved_point(record) for record in records])

    def _facet(self, asked: Any) -> Any:
        answer = self._holds.facet(asked.collection_name, asked.key, limit=asked.limit)
        return wire.FacetResponse(hits=[RestToGrpc.convert_facet_value_hit(hit) for hit in answer.hits])
