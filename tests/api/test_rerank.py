"""Searches with a reranker through the families of routes, and texts put in order by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from memos import MemOS
from memos.api.app import create_app
from memos.errors import BackendUnavailable
from tests.api.conftest import Server
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder, WordReranker

ASKED = "Which tea does Ann like?"


@pytest.fixture(scope="module")
def reranker() -> WordReranker:
    return WordReranker(lambda _, texts: [float("oolong" in text) for text in texts], name="oolong-lover")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, reranker: WordReranker) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("server")
    with (
        MemOS.open(home, embedder=WordEmbedder(), reranker=reranker) as memos,
        TestClient(create_app(memos, local_token="local-token"), raise_server_exceptions=False) as http,
    ):
        made = Server(memos, http, *keys_of(memos))
        for text in ("Ann does like tea, which tea?", "It is oolong that she drinks"):
            post(made, "/api/v1/memories", {"messages": text})
        yield made


def post(server: Server, path: str, body: dict[str, Any], who: str = "ana") -> Any:
    answer = server.http.post(path, json=body, headers=server.headers(who))
    assert answer.is_success, answer.text
    return answer.json()


def first(found: Any) -> str:
    return str(found["hits"][0]["item"]["memory"])


@pytest.mark.parametrize("said", [{}, {"rerank": None}, {"rerank": True}])
def test_v1_reranks_unless_it_is_told_not_to(server: Server, said: dict[str, Any]) -> None:
    found = post(server, "/api/v1/search", {"query": ASKED, "explain": True, **said})
    assert "oolong" in first(found)
    assert "rerank" in {arm["arm"] for arm in found["hits"][0]["arms"]}
    assert "oolong" not in first(post(server, "/api/v1/search", {"query": ASKED, "rerank": False}))
    item = found["hits"][0]["item"]["id"]
    told = [
        post(server, "/api/v1/search/why-not", {"query": ASKED, "item": item, "top_k": 1, "rerank": rerank})["stage"]
        for rerank in (True, False)
    ]
    assert told == ["found", "rank"]


def test_v1_refuses_what_is_no_yes_or_no(server: Server) -> None:
    body = {"query": ASKED, "rerank": "perhaps"}
    answer = server.http.post("/api/v1/search", json=body, headers=server.headers("ana"))
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, "rerank")


def test_product_reranks_unless_it_is_told_not_to(server: Server) -> None:
    def best(**said: Any) -> str:
        found = post(server, "/product/search", {"query": ASKED, "user_id": "ana", **said})["data"]
        return str(found["text_mem"][0]["memories"][0]["memory"])

    assert "oolong" in best()
    assert "oolong" in best(rerank=True)
    assert "oolong" not in best(rerank=False)


def test_openmem_puts_texts_in_order_by_it(server: Server, reranker: WordReranker) -> None:
    body = {"query": "tea", "documents": ["green", "oolong"], "top_n": 1, "model": "another"}
    found = post(server, "/api/openmem/v1/rerank", body)["data"]
    assert found["model"] == "oolong-lover"
    assert found["results"] == [{"index": 1, "document": {"text": "oolong"}, "relevance_score": 1.0}]


def test_a_reranker_that_is_down_costs_a_search_nothing_and_is_told(
    server: Server, reranker: WordReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> list[float]:
        raise BackendUnavailable("down")

    monkeypatch.setattr(reranker, "_says", down)
    found = post(server, "/api/v1/search", {"query": ASKED})
    assert found["missing_arms"] == ["rerank"]
    assert len(found["hits"]) == 2
    body = {"query": "tea", "documents": ["green"]}
    answer = server.http.post("/api/openmem/v1/rerank", json=body, headers=server.headers("ana"))
    assert answer.status_code == 503
