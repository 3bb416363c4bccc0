"""An embedder behind an endpoint: what is sent, what comes back, and what a search and an add do when it is away."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr, ValidationError

from memos import MemOS, Settings
from memos.backends.encoders.endpoint import EndpointEmbedder
from memos.core.settings import ChatSettings, EmbedSettings, IndexSettings
from memos.errors import BackendTimeout, BackendUnavailable, Conflict, ModelError
from tests.support.servers.openai_server import Asked, OpenAIServer, Said, error

DIMENSION = 16


def vector_of(text: str, dimension: int) -> list[float]:
    """Return a vector of the words of a text."""
    vector = np.full(dimension, 0.01)
    for word in text.lower().replace(".", "").replace("?", "").split():
        vector[zlib.crc32(word.encode()) % dimension] += 1
    return [float(number) for number in vector]


def embedded(asked: Asked, dimension: int = DIMENSION) -> Said:
    """Answer as the protocol says; the order of the entries is anyone's."""
    data = [
        {"object": "embedding", "index": place, "embedding": vector_of(text, dimension)}
        for place, text in enumerate(asked.body["input"])
    ]
    return Said(body={"object": "list", "data": data[::-1], "model": asked.body["model"]})


@contextmanager
def embedder(server: OpenAIServer, key: str | None = "sk-test") -> Iterator[EndpointEmbedder]:
    settings = EmbedSettings(model=f"openai:m@{server.url}")
    with closing(EndpointEmbedder(settings, None if key is None else SecretStr(key), first_wait_s=0.01)) as made:
        yield made


def test_it_sends_what_the_protocol_says_in_batches_and_puts_vectors_in_order() -> None:
    with OpenAIServer(embedded) as server, embedder(server) as made:
        texts = [f"word{number}" for number in range(40)] + ["", "a\0\ud800"]
        vectors = made.embed_documents(texts)
        assert vectors.shape == (42, DIMENSION)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        assert np.allclose(vectors[39], made.embed_query("word39"), atol=1e-5)
        assert "sk-test" not in repr(made)
    assert [asked.path for asked in server.asked[:2]] == ["/v1/embeddings"] * 2
    assert [len(asked.body["input"]) for asked in server.asked] == [1, 32, 10, 1]
    assert server.asked[2].body["input"][-2:] == [" ", "a\ufffd\ufffd"]
    assert server.asked[0].headers["authorization"] == "Bearer sk-test"
    assert made.fingerprint.name == "openai:m"


def test_what_may_pass_is_asked_again_and_what_is_away_is_not_asked_for_a_moment() -> None:
    answers = iter([error(503, "busy"), error(429, "slow down")])
    with OpenAIServer(lambda asked: next(answers, None) or embedded(asked)) as server, embedder(server) as made:
        assert made.embed_query("hello").shape == (DIMENSION,)
        assert len(server.asked) == 3
    with OpenAIServer(lambda _: error(503, "busy")) as server, embedder(server) as made:
        for _ in range(3):
            with pytest.raises(BackendUnavailable, match="503"):
                made.embed_query("hello")
        assert len(server.asked) == 3
        made.pin(DIMENSION)
        with pytest.raises(BackendUnavailable, match="503"):
            made.embed_documents(["hello"])  # nobody waits for those
        assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (error(401, "no"), BackendUnavailable, "OPENAI_API_KEY"),
        (error(404, "no"), BackendUnavailable, "no model m or no path /embeddings"),
        (error(400, "bad input"), ModelError, "refused the request"),
        (Said(body="no json"), ModelError, "not a list of 1 embeddings"),
        (Said(body={"data": []}), ModelError, "not a list of 1 embeddings"),
        (Said(body={"data": [{"embedding": ["x"]}]}), ModelError, "not a list of 1 embeddings"),
        (Said(body={"data": [{"embedding": [1e999]}]}), ModelError, "not a list of 1 embeddings"),
        (Said(body={"data": [{"embedding": [0, 0]}]}), ModelError, "zeros"),
        (Said(body={"data": [{"index": 1, "embedding": [1]}]}), ModelError, "not a list of 1 embeddings"),
    ],
)
def test_what_is_no_answer_is_an_error(said: Said, kind: type[Exception], message: str) -> None:
    with OpenAIServer(lambda _: said) as server, embedder(server) as made, pytest.raises(kind, match=message):
        made.embed_query("hello")


def test_a_text_that_the_model_finds_too_long_is_sent_in_parts() -> None:
    def short(asked: Asked) -> Said:
        long = any(len(text) > 300 for text in asked.body["input"])
        return error(400, "maximum context length exceeded") if long else embedded(asked)

    with OpenAIServer(short) as server, embedder(server) as made:
        vectors = made.embed_documents(["bees " * 100, "hello"])
        assert float(vectors[0] @ made.embed_query("bees")) > 0.99
        assert float(vectors[1] @ made.embed_query("hello")) > 0.99


def test_spans_cover_all_that_is_not_blank() -> None:
    made = EndpointEmbedder(EmbedSettings(model="ollama:m"))
    text = "我对花生过敏 " * 200 + "word " * 500
    spans = made.split(text, 50)
    assert "".join(text[start:end] for start, end in spans).split() == text.split()
    assert made.split("  \n", 50) == []
    made.close()


@pytest.mark.parametrize(
    ("model", "endpoint"),
    [
        ("minilm", None),
        ("ollama:nomic-embed-text:v1.5", ("nomic-embed-text:v1.5", "http://127.0.0.1:11434/v1")),
        ("ollama:m@http://box:11434", ("m", "http://box:11434/v1")),
        ("openai:org/m@http://box:8080/v1/", ("org/m", "http://box:8080/v1")),
        ("openai:@cf/baai/bge-m3@https://box/v1", None),
        ("openai:a@b@https://box/v1", ("a@b", "https://box/v1")),
    ],
)
def test_a_model_is_named_with_its_address(model: str, endpoint: Any) -> None:
    if endpoint is None and model != "minilm":
        with pytest.raises(ValidationError):
            EmbedSettings(model=model)
    else:
        assert EmbedSettings(model=model).endpoint == endpoint


@pytest.mark.parametrize("model", ["openai:m", "openai:m@box", "openai:m@http://u:p@box/v1", "ollama:", "other", ""])
def test_other_names_are_refused(model: str) -> None:
    with pytest.raises(ValidationError):
        EmbedSettings(model=model)


def test_the_key_is_the_chat_models_on_one_server_and_no_other_server_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = ChatSettings(base_url="https://box/v1", model="c", api_key=SecretStr("sk-chat"))

    def key(model: str) -> str | None:
        found = Settings(embed=EmbedSettings(model=model), chat_model=chat).embed_key
        return None if found is None else found.get_secret_value()

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert key("openai:m@https://box/v1") == "sk-chat"
    assert key("openai:m@https://other/v1") is None
    assert key("minilm") is None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env\n")
    assert key("openai:m@https://box/v1") == "sk-chat"
    assert key("openai:m@https://other/v1") == "sk-env"


def test_an_endpoint_goes_away_and_comes_back(tmp_path: Path) -> None:
    away = False

    def behaviour(asked: Asked) -> Said:
        return error(503, "away") if away else embedded(asked)

    with OpenAIServer(behaviour) as server:
        settings = Settings(
            home=tmp_path, embed=EmbedSettings(model=f"openai:m@{server.url}"), index=IndexSettings(wait_s=1)
        )
        with MemOS.open(settings=settings) as memos:
            assert memos.add("I keep bees in Lyon.").indexed
            assert memos.search("bees").missing_arms == ()
        away = True
        with MemOS.open(settings=settings) as memos:  # the dimension is known
            added = memos.add("The piano is out of tune.")
            assert not added.indexed
            found = memos.search("bees in Lyon")
            assert found.hits[0].item.memory == "I keep bees in Lyon."
            assert "turn" in found.missing_arms
            assert "turn_bm25" not in found.missing_arms
            assert memos.search("piano").hits[0].item.id == added.item_ids[0]
            away = False
            assert memos.maintenance.catch_up()
            assert memos.maintenance.verify().differences == ()
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        MemOS.open(settings=settings.model_copy(update={"home": tmp_path / "new"}))


def test_a_model_of_another_dimension_is_refused_until_all_is_embedded_again(tmp_path: Path) -> None:
    dimension = DIMENSION
    with OpenAIServer(lambda asked: embedded(asked, dimension)) as server:
        settings = Settings(home=tmp_path, embed=EmbedSettings(model=f"openai:m@{server.url}"))
        with MemOS.open(settings=settings) as memos:
            memos.add("I keep bees in Lyon.")
            dimension = 8
            with pytest.raises(BackendUnavailable, match="8 dimensions, but those here have 16"):
                memos.embedder.embed_query("asked for the first time")
        with MemOS.open(settings=settings) as memos:
            with pytest.raises(Conflict, match="memos data reembed"):
                memos.search("bees")
            assert memos.maintenance.reembed() == 1
            assert memos.search("bees").hits[0].item.memory == "I keep bees in Lyon."


def test_a_slow_endpoint_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memos.backends.encoders.endpoint._QUERY_S", 0.2)
    slow = OpenAIServer(lambda asked: Said(body=embedded(asked).body, drip=500))
    with slow as server, embedder(server) as made, pytest.raises(BackendTimeout, match="in time"):
        made.embed_query("hello")
