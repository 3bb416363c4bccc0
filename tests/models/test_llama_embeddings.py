"""An embedder behind a real llama.cpp server. Its small model is no embedder: the form of answers, not their wisdom."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
from pydantic import SecretStr

from memos import MemOS, Settings
from memos.backends.encoders.endpoint import EndpointEmbedder
from memos.core.settings import ChatSettings, EmbedSettings, IndexSettings
from tests.support.servers import llama_server
from tests.support.servers.fixtures import unavailable
from tests.support.servers.llama_server import KEY, LlamaServer


def test_vectors_of_a_llama_cpp_server(tmp_path: Path) -> None:
    missing = llama_server.missing()
    if missing is not None:
        unavailable(missing)
    with LlamaServer(embeds=True) as server:
        settings = EmbedSettings(model=f"openai:smollm2@{server.url}/v1")
        with closing(EndpointEmbedder(settings, SecretStr(KEY))) as embedder:
            texts = ["I keep bees in Lyon.", "The piano is out of tune.", "word " * 1_000]
            vectors = embedder.embed_documents(texts)
            assert vectors.shape == (3, embedder.fingerprint.dimension) == (3, 576)
            assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
            assert float(vectors[0] @ embedder.embed_query(texts[0])) > 0.999
        chat = ChatSettings(base_url=f"{server.url}/v1", model="smollm2", api_key=SecretStr(KEY))
        here = Settings(home=tmp_path, embed=settings, chat_model=chat, index=IndexSettings(wait_s=60))
        with MemOS.open(settings=here) as memos:
            assert memos.add(texts[:2]).indexed
            found = memos.search("Where do I keep bees?")
            assert found.missing_arms == ()
            assert found.hits[0].item.memory == texts[0]
