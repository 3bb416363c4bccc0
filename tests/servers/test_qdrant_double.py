"""The double of a Qdrant server answers what a server answers: one list of calls and answers, asked of both.

The server is asked where `scripts/build_qdrant.sh` has built one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.servers.qdrant_rest import QdrantDouble
from tests.support.servers.qdrant_server import QdrantServer, binary

KEY = "the right one"
COLLECTION = "/collections/t"
DENSE = {"size": 4, "distance": "Cosine"}
LAYOUT = {"vectors": {"turn": DENSE, "window": DENSE}, "sparse_vectors": {"turn_bm25": {"modifier": "idf"}}}
OF_CUBE_A = {"must": [{"key": "cube", "match": {"value": "a"}}]}
INDEX = {"field_name": "cube", "field_schema": {"type": "keyword", "is_tenant": True}}


def writes(vectors: dict[str, Any], number: int | str = 1) -> dict[str, Any]:
    return {"points": [{"id": number, "vector": vectors, "payload": {"cube": "a", "n": 1}}]}


def asks(query: object, using: str = "turn", **more: object) -> dict[str, Any]:
    return {"searches": [{"query": query, "using": using, "limit": 5, "with_payload": ["cube"], **more}]}


def words(*indices: int) -> dict[str, Any]:
    return {"indices": list(indices), "values": [1.0] * len(indices)}


X = [1, 0, 0, 0]
IDF = {"idf": {"corpus": OF_CUBE_A}}
CALLS: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("GET", COLLECTION, None, 404),
    ("PUT", f"{COLLECTION}/points?wait=true", writes({"turn": X}), 404),
    ("PUT", f"{COLLECTION}/index?wait=true", INDEX, 404),
    ("PUT", COLLECTION, LAYOUT, 200),
    ("PUT", COLLECTION, LAYOUT, 409),
    ("PUT", f"{COLLECTION}/points?wait=true", writes({"turn": X, "turn_bm25": words(1, 4_000_000_000)}), 200),
    ("PUT", f"{COLLECTION}/points?wait=true", writes({}, 2), 200),
    ("PUT", f"{COLLECTION}/points?wait=true", writes({"turn": [1, 0]}), 400),
    ("PUT", f"{COLLECTION}/points?wait=true", writes({"other": X}), 400),
    ("PUT", f"{COLLECTION}/points?wait=true", writes({"turn_bm25": words(1, 1)}), 422),
    ("PUT", f"{COLLECTION}/points?wait=true", writes({"turn": X}, "no uuid"), 400),
    ("POST", f"{COLLECTION}/points/query/batch", asks(X), 200),
    ("POST", f"{COLLECTION}/points/query/batch", asks([1, 0]), 400),
    ("POST", f"{COLLECTION}/points/query/batch", asks(X, "other"), 400),
    ("POST", f"{COLLECTION}/points/query/batch", asks(X, params=IDF), 400),
    ("POST", f"{COLLECTION}/points/query/batch", asks(words(1), "turn_bm25", params=IDF), 200),
    ("POST", f"{COLLECTION}/facet", {"key": "cube", "limit": 10, "exact": True}, 400),
    ("PUT", f"{COLLECTION}/index?wait=true", INDEX, 200),
    ("PUT", f"{COLLECTION}/index?wait=true", INDEX, 200),
    ("POST", f"{COLLECTION}/facet", {"key": "cube", "limit": 10, "exact": True}, 200),
    ("POST", "/collections/aliases", {"actions": [{"delete_alias": {"alias_name": "gone"}}]}, 200),
    ("POST", "/collections/aliases",
     {"actions": [{"create_alias": {"alias_name": "x", "collection_name": "t"}}]}, 200),
    ("POST", "/collections/aliases",
     {"actions": [{"create_alias": {"alias_name": "x", "collection_name": "none"}}]}, 404),
    ("PUT", "/collections/x", LAYOUT, 400),
    ("GET", "/nowhere", None, 404),
]  # fmt: skip


@pytest.fixture(params=["double", "server"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Yield a client of a double or of a server that asks for a key."""
    if request.param == "double":
        running: QdrantDouble | QdrantServer = QdrantDouble(key=KEY)
    elif (program := binary()) is None:
        pytest.skip("no Qdrant server: sh scripts/build_qdrant.sh builds one")
    else:
        running = QdrantServer(program, {"service": {"api_key": KEY}})
    with running, httpx.Client(base_url=running.url, headers={"api-key": KEY}, timeout=60) as client:
        yield client


def test_each_call_has_the_status_of_a_server(http: httpx.Client) -> None:
    answered = [http.request(method, path, json=body).status_code for method, path, body, _ in CALLS]
    assert answered == [status for *_, status in CALLS]
    keys = [http.get("/collections", headers={"api-key": key}).status_code for key in (KEY, "another", "")]
    assert keys == [200, 401, 401]
    assert http.get("/", headers={"api-key": ""}).status_code == 200


def test_answers_have_what_was_asked_for(http: httpx.Client) -> None:
    def result(path: str, body: dict[str, Any]) -> Any:
        return http.post(f"{COLLECTION}{path}", json=body).json()["result"]

    http.put(COLLECTION, json=LAYOUT)
    http.put(f"{COLLECTION}/index?wait=true", json=INDEX)
    http.put(f"{COLLECTION}/points?wait=true", json=writes({"turn": X, "turn_bm25": words(1)}))
    http.put(f"{COLLECTION}/points?wait=true", json=writes({}, 2))
    one, two = result("/points", {"ids": [1, 2, 3], "with_payload": ["cube"], "with_vector": ["turn"]})
    assert (one["payload"], one["vector"]) == ({"cube": "a"}, {"turn": X})
    assert (two["id"], two["vector"]) == (2, {})
    [[hit]] = [each["points"] for each in result("/points/query/batch", asks(words(1), "turn_bm25", params=IDF))]
    assert hit["payload"] == {"cube": "a"}
    assert hit["score"] == pytest.approx(0.2877, abs=1e-4)
    page = result("/points/scroll", {"limit": 1, "with_payload": ["cube"], "filter": OF_CUBE_A})
    assert ([point["id"] for point in page["points"]], page["next_page_offset"]) == ([1], 2)
    counted = [
        result("/points/count", {"exact": True, "filter": condition})["count"]
        for condition in ({"must": [{"has_id": []}]}, {"must": []}, {"must": [{"key": "cube", "range": {"gte": 1}}]})
    ]
    assert counted == [0, 2, 0]
    assert result("/facet", {"key": "cube", "limit": 10, "exact": True})["hits"] == [{"value": "a", "count": 2}]
