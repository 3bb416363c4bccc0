"""Fine reading with a real small model over HTTP: the wire, the examination and accounts, never its wisdom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.text.matching import addresses, numbers
from memos.core.types import DERIVED, Status, Task, TaskState
from memos.memcube.ledger import schema as t
from memos.reader.facts import llm as answer
from memos.reader.facts.llm import FactsAnswer
from tests.fakes import WordEmbedder
from tests.support.servers import llama_server
from tests.support.servers.fixtures import unavailable
from tests.support.servers.llama_server import LlamaServer

CONTEXT_TOKENS = 4_096
SAID = "I moved to Lyon last week, to my sister Eva, and I am allergic to peanuts."
# The standard template's ninety dimensions would be half of what a slow machine has to read.
TEMPLATE = {
    "name": "small",
    "groups": [
        {"id": "life", "name": "Life", "dimensions": [{"id": "life.residence", "name": "Residence", "about": "Home."}]}
    ],
}


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    missing = llama_server.missing()
    if missing is not None:
        unavailable(missing)
    with LlamaServer(CONTEXT_TOKENS) as started:
        yield started


def opened(home: Path, server: LlamaServer, max_tokens: int) -> MemOS:
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        chat_model=server.settings(max_tokens=max_tokens, timeout_s=600),
    )
    return MemOS.open(home, settings=settings, embedder=WordEmbedder())


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An answer has two facts at most and one of all else: a small model fills every list, at ten tokens a second."""
    monkeypatch.setattr(answer, "_LEAST_ROOM", 2)
    monkeypatch.setattr(answer, "_TOKENS_A_FACT", 1_000)
    answer._bounded.cache_clear()
    yield
    answer._bounded.cache_clear()


@pytest.mark.usefixtures("few")
def test_a_small_model_is_examined_before_it_reads_and_its_calls_are_counted(
    tmp_path: Path, server: LlamaServer
) -> None:
    with opened(tmp_path, server, max_tokens=250) as memos:
        memos.profiles.use_template("default", TEMPLATE)
        receipt = memos.add([{"role": "user", "name": "Ana", "content": SAID}], conversation="c", mode="fine")
        assert receipt.task is not None
        done = ended(memos, receipt.task)
        assert done.state is TaskState.DONE, done.error
        intact(memos, receipt.item_ids)
        [record] = memos.memories.extractions(receipt.item_ids[0])
        # It fails, can tell sentences, or passes, by chance of its weights.
        if record.reader == "model/2":
            FactsAnswer.model_validate_json(record.output or "")
        elif record.reader == "choosing/2":
            assert (record.model, done.note) == ("smollm2", None)
        else:
            assert (record.reader, record.model) == ("patterns/2", None)
            assert done.note == "the model smollm2 fails its examination; patterns read alone"
        if record.reader != "model/2":
            assert "Lyon" in {item.value for item in memos.memories.list(filter={"type": "user"})}
        with memos.ledger.read() as connection:
            [row] = connection.execute(sa.select(t.usage).where(t.usage.c.purpose == "read"))
            here = sa.select(t.items.c.reading).where(t.items.c.id == receipt.item_ids[0])
            assert connection.scalar(here) == "read"
        assert row.calls >= 2
        assert row.prompt_tokens + row.completion_tokens >= done.tokens > 1_000
        grounded(memos)


def ended(memos: MemOS, task: str) -> Task:
    for found in memos.tasks.follow(task, timeout_s=900):
        if found.ended:
            return found
    raise AssertionError("the task never ended")


def intact(memos: MemOS, item_ids: tuple[str, ...]) -> None:
    """Assert that what was said is there as it was, found, and at its first version."""
    assert [memos.get(item).memory for item in item_ids] == [SAID]
    assert [len(memos.memories.history(item)) for item in item_ids] == [1]
    assert item_ids[0] in {hit.item.id for hit in memos.search("moved to Lyon, allergic")}
    assert memos.maintenance.verify().clean


def grounded(memos: MemOS) -> None:
    """Assert that everything stored besides has a passage of what was said, and no number or address of its own."""
    statuses = [str(status) for status in Status if status is not Status.DELETED]
    kinds = {"and": [{"type": {"in": sorted(DERIVED)}}, {"status": {"in": statuses}}]}
    for item in memos.memories.list(filter=kinds):
        sources = memos.get(item.id).sources
        assert sources
        assert all(source.passage and source.passage in SAID for source in sources)
        assert addresses(item.memory) == set()
        year = {str(part) for source in sources for part in (source.at.year, source.at.month, source.at.day)}
        assert numbers(item.memory) <= numbers(SAID, words=True) | year | {str(n) for n in range(1, 32)}
