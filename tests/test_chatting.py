"""Chats: what a model is shown, what its answer counts as used, and that only finished answers are remembered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.ports import ChatReply, ChatRequest
from memos.settings import IndexSettings, LimitSettings
from memos.tokens import Tokens
from tests.fakes import WordEmbedder
from tests.scripted_chat import Answer, ScriptedChat

MARK = re.compile(r"\[(m\d+)\] (.*)")


class Installation:
    """An installation whose model says what a test tells it to."""

    def __init__(self, memos: MemOS, model: ScriptedChat, answers: list[Answer]) -> None:
        self.memos, self.model, self._answers = memos, model, answers

    def says(self, *answers: Answer) -> None:
        self._answers[:] = answers

    @property
    def asked(self) -> ChatRequest:
        return self.model.requests[-1]

    @property
    def system(self) -> str:
        return self.asked.messages[0].content

    def cube(self, name: str, *texts: str) -> str:
        self.memos.cubes.create(name)
        for text in texts:
            self.memos.add(text, cube=name)
        return name

    def stored(self, cube: str) -> list[tuple[str, str]]:
        return [(str(item.role), item.memory) for item in self.memos.list(cube=cube)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    answers: list[Answer] = []
    model = ScriptedChat(lambda _: answers.pop(0))
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home: Path = tmp_path_factory.mktemp("chatting")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder(), chat_model=model) as memos:
        yield Installation(memos, model, answers)


def test_an_answer_is_made_from_memory_and_the_exchange_is_remembered(here: Installation) -> None:
    cube = here.cube("a", "My sister Maria lives in Lyon.")
    here.says(ChatReply("Maria lives in Lyon [m1].", Tokens(40, 6)))
    result = here.memos.chat("Where does Maria live?", cubes=[cube], conversation="c1")
    assert "My sister Maria lives in Lyon." in here.system
    assert result.text == "Maria lives in Lyon."
    assert (result.prompt_tokens, result.completion_tokens, result.tokens_estimated) == (40, 6, False)
    assert [reference.memory for reference in result.cited] == ["My sister Maria lives in Lyon."]
    assert result.receipt is not None
    assert result.receipt.conversation == "c1"
    assert here.stored(cube)[1:] == [("user", "Where does Maria live?"), ("assistant", "Maria lives in Lyon.")]
    assert {"recall", "model", "store"} <= set(result.timings_ms)


def test_a_stream_gives_the_same_in_pieces_and_stores_at_its_end(here: Installation) -> None:
    cube = here.cube("b", "My sister Maria lives in Lyon.")
    here.says("Maria lives in Lyon [m1], I think [m1].")
    with here.memos.chat.stream("Where does Maria live?", cubes=[cube]) as stream:
        pieces = [next(stream)]
        assert stream.result is None
        assert len(here.stored(cube)) == 1
        pieces += stream
    assert "".join(pieces) == "Maria lives in Lyon, I think."
    assert stream.result is not None
    assert stream.result.text == "Maria lives in Lyon, I think."
    assert len(stream.result.cited_ids) == 1
    assert here.stored(cube)[-1] == ("assistant", "Maria lives in Lyon, I think.")
