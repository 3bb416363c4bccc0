"""A reranker behind an endpoint: what is sent, what comes back, and everything that can go wrong with both."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from memos.backends.encoders.rerank_endpoint import EndpointReranker
from memos.core.settings import RerankSettings
from memos.errors import BackendTimeout, BackendUnavailable, InvalidInput, ModelError
from tests.support.servers.openai_server import OpenAIServer, Said, error


def scored(*scores: Any, **more: Any) -> Said:
    return Said(body={"results": [{"index": n, "relevance_score": score} for n, score in enumerate(scores)], **more})


@contextmanager
def reranker(server: OpenAIServer, **changes: Any) -> Iterator[EndpointReranker]:
    timeout_s = changes.pop("timeout_s", 10.0)
    settings = RerankSettings(**{"model": "m", "base_url": server.url, "api_key": SecretStr("sk-test"), **changes})
    with closing(EndpointReranker(settings, first_wait_s=0.01, timeout_s=timeout_s)) as made:
        yield made


def test_it_sends_what_the_protocol_says_and_puts_scores_in_order() -> None:
    body = {
        "results": [
            {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}},
            {"index": 0, "relevance_score": -2},
        ]
    }
    with OpenAIServer([Said(body=body)]) as server, reranker(server, base_url=f"{server.url}/") as made:
        assert made.scores("q\0", ["a\ud800", "b"]) == [-2, 0.9]
        made.close()
    [asked] = server.asked
    assert asked.path == "/v1/rerank"
    assert asked.body == {"model": "m", "query": "q\ufffd", "documents": ["a\ufffd", "b"], "top_n": 2}
    assert asked.headers["authorization"] == "Bearer sk-test"
    assert "sk-test" not in repr(made)


@pytest.mark.parametrize(
    "body",
    [
        "no json", "[]", {}, {"results": {}}, {"results": []}, {"results": [{"index": 0, "relevance_score": 1}]},
        {"results": [{"index": 0, "relevance_score": 1}] * 2},
        {"results": [{"index": n, "relevance_score": 1} for n in (0, 2)]},
        {"results": [{"index": n, "relevance_score": 1} for n in (-1, 0)]},
        {"results": [{"index": n, "relevance_score": 1} for n in (True, False)]},
        {"results": [{"index": n, "relevance_score": "1"} for n in (0, 1)]},
        {"results": [{"index": n, "relevance_score": True} for n in (0, 1)]}, {"results": [None, None]},
        '{"results": [{"index": 0, "relevance_score": NaN}, {"index": 1, "relevance_score": 1}]}',
        '{"results": [{"index": 0, "relevance_score": 1e999}, {"index": 1, "relevance_score": 1}]}',
        '{"results": [{"index": 0, "relevance_score": 1' + "0" * 400 + '}, {"index": 1, "relevance_score": 1}]}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_an_error(body: Any) -> None:
    with OpenAIServer([Said(body=body)]) as server, reranker(server) as made, pytest.raises(ModelError):
        made.scores("q", ["a", "b"])


@pytest.mark.parametrize(
    ("said", "raised", "words"),
    [
        (error(401, "Incorrect key sk-test"), BackendUnavailable, "key"),
        (error(404, "no such page"), BackendUnavailable, "no path /rerank"),
        (error(400, "documents too many: a secret"), ModelError, "refused"),
        (error(504, "slow"), BackendTimeout, "time"),
    ],
)
def test_a_failure_says_what_to_look_at_and_quotes_nothing(said: Said, raised: type[Exception], words: str) -> None:
    with OpenAIServer([said]) as server, reranker(server) as made, pytest.raises(raised, match=words) as caught:
        made.scores("q", ["a"])
    assert "secret" not in str(caught.value)
    assert "sk-test" not in str(caught.value)
    assert len(server.asked) == 1


def test_a_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b'{"results": [{"index": 0, "relevance_score": 1}]}' + b" " * 10_000_000)
    said = Said(body=packed, headers={"Content-Encoding": "gzip"})
    with OpenAIServer([said] * 5) as server, reranker(server) as made, pytest.raises(BackendUnavailable):
        made.scores("q", ["a"])


def test_what_may_pass_is_asked_again() -> None:
    with OpenAIServer([error(503, "busy"), Said(cut=-1), scored(0.5)]) as server, reranker(server) as made:
        assert made.scores("q", ["a"]) == [0.5]
    assert len(server.asked) == 3


def test_it_waits_as_long_as_is_set_for_all_attempts_together() -> None:
    gate = threading.Event()
    with OpenAIServer([Said(gate=gate)]) as server, reranker(server, timeout_s=0.2) as made:
        with pytest.raises(BackendTimeout, match="use a smaller model"):
            made.scores("q", ["a"])
        gate.set()


def test_a_longer_pause_than_there_is_time_is_not_made() -> None:
    busy = error(429, "later", headers={"Retry-After": "60"})
    with OpenAIServer([busy]) as server, reranker(server) as made, pytest.raises(BackendUnavailable):
        made.scores("q", ["a"])
    assert len(server.asked) == 1


def test_nobody_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer([]) as server:
        pass
    with reranker(server, timeout_s=1) as made, pytest.raises(BackendUnavailable, match="cannot be reached"):
        made.scores("dark secret", ["a"])
    assert "dark secret" not in caplog.text


def test_it_needs_an_address() -> None:
    with pytest.raises(InvalidInput, match="base_url"):
        EndpointReranker(RerankSettings(model="judge"))
