"""Passages of long memories: which part a hit shows, and what of it a prompt has room for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.core.tokens import estimate_tokens
from memos.errors import BackendUnavailable
from tests.fakes import FixedClock, WordEmbedder

TOPICS = ("the harvest of olives", "the repair of clocks", "the training of falcons", "the brewing of ginger beer")
LONG = "\n\n".join(" ".join(f"Step {n} of {topic} takes {n} hours." for n in range(1, 16)) for topic in TOPICS)


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    with MemOS.open(tmp_path, embedder=WordEmbedder(), clock=FixedClock()) as opened:
        opened.add([{"role": "user", "content": LONG}, {"role": "user", "content": "I keep two falcons."}])
        yield opened


def test_a_hit_shows_the_passage_of_a_long_memory_that_answers(memos: MemOS) -> None:
    for topic in TOPICS:
        [hit] = [hit for hit in memos.search(f"What about {topic}?") if hit.item.memory == LONG]
        assert hit.passage is not None
        assert hit.passage in LONG
        assert topic in hit.passage
        assert len(hit.passage) < len(LONG) / 2


def test_a_short_memory_has_no_passage(memos: MemOS) -> None:
    [hit] = [hit for hit in memos.search("falcons") if hit.item.memory != LONG]
    assert hit.passage is None


def test_a_prompt_shows_passages_and_the_whole_where_there_is_room(memos: MemOS) -> None:
    room = estimate_tokens(LONG)
    short = memos.search("How long does the brewing of ginger beer take?", token_budget=room // 2)
    [hit] = [hit for hit in short if hit.item.memory == LONG]
    assert hit.passage is not None
    assert f"… {hit.passage}" in short.context
    assert LONG not in short.context
    assert estimate_tokens(short.context) <= short.context_tokens <= room // 2
    assert "I keep two falcons." in short.context
    assert LONG in memos.search("How long does the brewing of ginger beer take?", token_budget=2 * room).context


def test_words_alone_choose_the_passage_while_the_index_is_away(memos: MemOS, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise BackendUnavailable("The vector index is away.")

    monkeypatch.setattr(QdrantEdgeIndex, "turns", away)
    [hit] = [hit for hit in memos.search("the training of falcons") if hit.item.memory == LONG]
    assert hit.passage is not None
    assert "the training of falcons" in hit.passage
