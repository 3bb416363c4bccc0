"""A model that people run themselves, of 1.5 billion parameters: what it is trusted with, and reading with it.

It is skipped where `make models` has not put the model into the cache. `make test-models` runs it alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS, Settings
from scripts import models
from tests.fakes import WordEmbedder
from tests.support.servers import llama_server
from tests.support.servers.llama_server import LlamaServer

NAME = "qwen2.5-coder-1.5b-instruct"


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    missing = llama_server.missing() or models.missing(NAME)
    if missing is not None:
        pytest.skip(missing)
    with LlamaServer(4096, model=models.path_of(NAME)) as started:
        yield started


def test_it_chooses_and_judges_and_adds_what_patterns_miss(server: LlamaServer, tmp_path: Path) -> None:
    settings = Settings(chat_model=server.settings(model=NAME, timeout_s=600))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        trial = memos.health.try_model()
        assert {each.task: each.trusted for each in trial.tasks} | {"answering": True} == {
            "choosing": True,
            "writing": False,
            "judging": True,
            "answering": True,
        }
        said = [
            {"role": "user", "name": "Ana", "content": text}
            for text in ("The vineyard belongs to three cousins and me.", "Ok.")
        ]
        receipt = memos.add(said, mode="fine")
        assert receipt.task is not None
        memos.tasks.wait(receipt.task, timeout_s=600)
        [fact] = memos.memories.list(filter={"tier": "long"})
        assert fact.memory == said[0]["content"]
