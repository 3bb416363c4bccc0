"""Passages of long memories: which part a hit shows, and what of it a prompt has room for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.core.text.rendering import with_ellipses
from memos.core.tokens import estimate_tokens
from memos.errors import BackendUnavailable
from memos.search import passages
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
    assert hit.passage in short.context
    assert "user: … " in short.context
    assert LONG not in short.context
    assert estimate_tokens(short.context) <= short.context_tokens <= room // 2
    assert "I keep two falcons." in short.context
    assert LONG in memos.search("How long does the brewing of ginger beer take?", token_budget=2 * room).context


def test_a_prompt_with_room_shows_more_than_the_passage(memos: MemOS) -> None:
    asked = "How long does the brewing of ginger beer take?"
    passage = next(hit.passage for hit in memos.search(asked) if hit.item.memory == LONG)
    assert passage is not None
    room = estimate_tokens(LONG)
    wider = memos.search(asked, token_budget=room * 3 // 4, top_k=1)
    assert passage in wider.context
    assert len(wider.context) > len(passage) * 1.5
    assert wider.context_tokens <= room * 3 // 4


def test_a_small_budget_shows_the_sentences_that_answer(memos: MemOS) -> None:
    for topic in TOPICS:
        found = memos.search(f"How long does step 9 of {topic} take?", token_budget=60)
        assert f"Step 9 of {topic} takes 9 hours." in found.context
        assert 0 < found.context_tokens <= 60


def test_a_rare_word_decides_between_two_passages(memos: MemOS) -> None:
    filler = "The team met and talked about the plan for the week. " * 9
    text = f"{filler}The badge was found. {filler}\n\n{filler}KX-88 is closed. {filler}"
    memos.add([{"role": "user", "content": text}])
    for asked, told in (("Which plan was KX-88 of?", "KX-88"), ("Was the badge of the team found?", "badge")):
        [hit] = [hit for hit in memos.search(asked) if "KX-88" in hit.item.memory]
        assert hit.passage is not None
        assert told in hit.passage


def test_text_that_the_embedder_does_not_read_has_short_passages_too(tmp_path: Path) -> None:
    with MemOS.open(tmp_path, clock=FixedClock()) as memos:
        memos.add([{"role": "user", "content": "สวัสดีครับวันนี้อากาศดี" * 200 + " The gate code is 4471. " + "ขอบคุณ" * 200}])
        [hit] = memos.search("What is the gate code?", token_budget=1_500)
        assert hit.passage is not None
        assert "4471" in hit.passage
        assert len(hit.passage) <= 1_500


def test_a_search_reads_no_more_than_so_much_of_long_memories(memos: MemOS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "_MOST_READ", len(LONG) - 1)
    [hit] = [hit for hit in memos.search("the repair of clocks") if hit.item.memory == LONG]
    assert hit.passage is None


def test_an_ellipsis_stands_where_something_is_left_out() -> None:
    chorus = "We sing along the river. " * 20
    for memory, passage, shown in (
        ("One. Two. Three.\n", "Three.", "… Three."),
        ("One. Two. Three.\n", "Two.", "… Two. …"),
        (f"{chorus}Verse.\n{chorus}", chorus, f"{chorus} …"),
        ("One.\n", "One.", "One."),
    ):
        assert with_ellipses(passage, memory) == shown


def test_words_alone_choose_the_passage_while_the_index_is_away(memos: MemOS, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise BackendUnavailable("The vector index is away.")

    monkeypatch.setattr(QdrantEdgeIndex, "turns", away)
    [hit] = [hit for hit in memos.search("the training of falcons") if hit.item.memory == LONG]
    assert hit.passage is not None
    assert "the training of falcons" in hit.passage
