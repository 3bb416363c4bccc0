"""A loopback server with Qdrant's REST paths over the client's own in-process mode, and settings for tests.

It stands where no real server is: the same tests ask one that `scripts/build_qdrant.sh` built, or QDRANT_URL (and
QDRANT_API_KEY). What it lacks: payload indexes are only noted, searches are exact, one lock serves one call at a time,
there is no gRPC, no cluster. `test_qdrant_double.py` asks both the same.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import SecretStr
from qdrant_client import QdrantClient, models

from memos.core.settings import QdrantSettings
from tests.support.servers.qdrant_server import QdrantServer, binary

Body = dict[str, Any]


class QdrantDouble:
    """The server: what was asked of it, what it was told to answer instead, and what it holds."""

    def __init__(self, *, version: str = "1.19.0", key: str | None = None) -> None:
        self.version = version
        self.key = key
        self.asked: list[tuple[str, str]] = []
        self.faults: deque[int] = deque()
        """Statuses to answer with before anything else, one for each call."""
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        """Called before each answer, with its method and path, while other calls can be answered."""
        self.sizes: list[int] = []
        """Bytes of each request's body."""
        self.created: dict[str, Body] = {}
        self.searches: list[Body] = []
        self.holds = QdrantClient(":memory:")
        self.indexes: dict[str, Body] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.holds.close()

    def __enter__(self) -> QdrantDouble:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = self.path.split("?")[0]
                try:
                    status, answer = double._answer(self.command, path, self.headers.get("api-key"), body)
                except ConnectionAbortedError:  # a test's `before` hangs up
                    self.close_connection = True
                    return
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _answer(self, method: str, path: str, key: str | None, body: bytes) -> tuple[int, Body]:
        self.before(method, path)
        with self._lock:
            self.sizes.append(len(body))
            self.asked.append((method, path))
            if self.faults:
                status = self.faults.popleft()
                return status, {"status": {"error": f"scripted {status}"}}
            if path == "/":
                return 200, {"title": "qdrant - vector search engine", "version": self.version, "commit": None}
            if self.key is not None and key != self.key:
                return 401, {"status": {"error": "Must provide an API key or an Authorization bearer token"}}
            for verb, pattern, call in self._routes():
                match = re.fullmatch(pattern, path)
                if verb == method and match:
                    return self._called(call, [*match.groups()], json.loads(body) if body else {})
            return 404, {}

    def _called(self, call: Callable[..., Any], names: list[str], body: Body) -> tuple[int, Body]:
        try:
            result = call(*names, body)
        except ValueError as error:  # the in-process mode's one error
            return _status(str(error)), {"status": {"error": str(error)}}
        return 200, {"result": _plain(result), "status": "ok", "time": 0.0}

    def _routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        one, holds = r"/collections/([^/]+)", self.holds
        return [
            ("GET", "/collections", lambda _: holds.get_collections()),
            ("GET", "/aliases", lambda _: holds.get_aliases()),
            ("POST", "/collections/aliases", self._aliases),
            ("GET", one, self._info),
            ("GET", f"{one}/exists", lambda name, _: {"exists": holds.collection_exists(name)}),
            ("PUT", one, self._create),
            ("DELETE", one, self._delete),
            ("PUT", f"{one}/index", self._index),
            ("PUT", f"{one}/points", self._upsert),
            ("POST", f"{one}/points", self._retrieve),
            ("POST", f"{one}/points/batch", self._batch),
            ("POST", f"{one}/points/query/batch", self._query),
            ("POST", f"{one}/points/scroll", self._scroll),
            ("POST", f"{one}/points/count", self._count),
            ("POST", f"{one}/facet", self._facet),
        ]

    def _aliases(self, body: Body) -> bool:
        return self.holds.update_collection_aliases(models.ChangeAliasesOperation(**body).actions)

    def _info(self, name: str, _: Body) -> Any:
        return {**_plain(self.holds.get_collection(name)), "payload_schema": self.indexes.get(name, {})}

    def _create(self, name: str, body: Body) -> bool:
        asked = models.CreateCollection(**body)
        self.holds.create_collection(name, vectors_config=asked.vectors, sparse_vectors_config=asked.sparse_vectors)
        self.created[name] = body
        return True

    def _delete(self, name: str, _: Body) -> bool:
        self.indexes.pop(name, None)
        return self.holds.delete_collection(name)

    def _index(self, name: str, body: Body) -> Body:
        self.holds.get_collection(name)
        schema = body["field_schema"]
        noted = {"data_type": schema["type"], "params": schema, "points": 0}
        self.indexes.setdefault(name, {})[body["field_name"]] = noted
        return _DONE

    def _upsert(self, name: str, body: Body) -> Body:
        self.holds.upsert(name, models.PointsList(**body).points)
        return _DONE

    def _retrieve(self, name: str, body: Body) -> Any:
        asked = models.PointRequest(**body)
        return self.holds.retrieve(
            name, asked.ids, with_payload=asked.with_payload or False, with_vectors=asked.with_vector or False
        )

    def _batch(self, name: str, body: Body) -> Any:
        self.holds.batch_update_points(name, models.UpdateOperations(**body).operations)
        return [_DONE]

    def _query(self, name: str, body: Body) -> Any:
        self.searches.append(body)
        asked = models.QueryRequestBatch(**body).searches
        for search in asked:
            params = search.params or models.SearchParams()
            if params.idf is not None and isinstance(search.query, list):
                raise ValueError("idf is for sparse vectors")
            # Of the parameters the in-process mode has only this one, and warns of the others.
            search.params = models.SearchParams(idf=params.idf)
        return self.holds.query_batch_points(name, asked)

    def _scroll(self, name: str, body: Body) -> Any:
        asked = models.ScrollRequest(**body)
        records, following = self.holds.scroll(
            name,
            scroll_filter=asked.filter,
            limit=asked.limit or 10,
            offset=asked.offset,
            with_payload=asked.with_payload or False,
        )
        return {"points": _plain(records), "next_page_offset": following}

    def _count(self, name: str, body: Body) -> Any:
        asked = models.CountRequest(**body)
        return self.holds.count(name, asked.filter, exact=True)

    def _facet(self, name: str, body: Body) -> Any:
        asked = models.FacetRequest(**body)
        if asked.key not in self.indexes.get(name, {}):
            raise ValueError(f"No appropriate index for faceting: `{asked.key}`")
        return self.holds.facet(name, asked.key, facet_filter=asked.filter, limit=asked.limit or 10)


def _status(error: str) -> int:
    """Return the status of a server for a failure of the in-process mode."""
    if "must be unique" in error:
        return 422
    if "already exists" in error and not error.startswith("Alias"):
        return 409
    return 404 if "not found" in error and "vector" not in error else 400


_DONE: Body = {"operation_id": 0, "status": "completed"}


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return [_plain(entry) for entry in result]
    return result.model_dump(mode="json") if hasattr(result, "model_dump") else result


@cache
def _own_server() -> QdrantServer:
    """Start this process's server, which ends with it."""
    program = binary()
    assert program is not None
    server = QdrantServer(program)
    atexit.register(server.__exit__)
    return server


@contextmanager
def server_settings(**options: Any) -> Iterator[QdrantSettings]:
    """Yield settings with a prefix of their own for the server at QDRANT_URL, a built one, or a double of it."""
    prefix = f"test_{uuid.uuid4().hex[:12]}"
    url, key = os.environ.get("QDRANT_URL"), os.environ.get("QDRANT_API_KEY")
    if url is None and binary() is not None:
        url = _own_server().url
    if url is None:
        with QdrantDouble() as double:
            yield QdrantSettings(url=f"{double.url}?collection={prefix}", **options)
        return
    try:
        secret = None if key is None else SecretStr(key)
        yield QdrantSettings(url=f"{url}?collection={prefix}", api_key=secret, **options)
    finally:
        client = QdrantClient(url=url, headers={} if key is None else {"api-key": key}, check_compatibility=False)
        for entry in client.get_collections().collections:
            if entry.name.startswith((f"{prefix}-", f"{prefix}_")):
                client.delete_collection(entry.name)
        client.close()
