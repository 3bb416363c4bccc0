"""Whatever a model answers, fine reading finds at least what patterns find on the labelled messages."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from benchmarks import labelled
from benchmarks.reading_quality import ZONE, facts_of, item_of
from memos.core.ports import ChatReply, ChatRequest
from memos.core.tokens import Tokens
from memos.core.types import Fact
from memos.errors import InvalidAnswer
from memos.llm.client import LLMClient, ResponseCache
from memos.llm.usage import UsageMeter
from memos.reader.facts.extractor import KNOWN, FactReader
from tests.support.scripted_chat import Answer, ScriptedChat

MESSAGES = labelled.load()[::2]


def figures_of(found: Sequence[tuple[labelled.Labelled, Sequence[Fact]]]) -> dict[str, dict[str, Any]]:
    scores = labelled.score(found).items()
    return {part: score.figures() for (part, language), score in scores if language == "all"}


SCORES = figures_of([(message, facts_of(message)) for message in MESSAGES])


def nonsense(request: ChatRequest) -> Answer:
    """Answer with anything: words, JSON of other shapes, facts about nothing, refusals, nothing at all."""
    dice = random.Random(request.messages[-1].content)
    wrong = {"type": "user", "subject": "Ana", "text": "Zork lives on Mars.", "quote": "zork", "message": 1}
    kinds: list[Any] = ["Certainly!", "Fact", "Nothing", [], {}, {"facts": [wrong] * 9}, {"facts": "none"}, " ", "�\0"]
    # A model that has passed its examination and then says "Fact" to everything is no longer the one that passed.
    answer = dice.choice([kind for kind in kinds if kind != "Fact"] if request.words else kinds)
    return answer if isinstance(answer, str) else json.dumps(answer)


def as_a_task(reader: FactReader, message: labelled.Labelled) -> Sequence[Fact]:
    """Read a message as often as a task is tried: after useless answers patterns read alone."""
    for _ in range(4):
        with suppress(InvalidAnswer):
            return reader.read([item_of(message, 0)], ZONE, UsageMeter("test")).facts
    return reader.read([item_of(message, 0)], ZONE, UsageMeter("test")).facts


def read(script: Callable[[ChatRequest], Answer], *, writes: bool) -> dict[str, dict[str, Any]]:
    asker = LLMClient(ScriptedChat(script, writes=writes), ResponseCache(0))
    reader, found = FactReader(lambda: asker), []
    for message in MESSAGES:
        found.append((message, as_a_task(reader, message)))
    return figures_of(found)


@pytest.mark.parametrize("writes", [False, True], ids=["from the start", "after the examination"])
def test_with_nonsense_the_figures_are_those_of_patterns(writes: bool) -> None:
    assert read(nonsense, writes=writes) == SCORES


def test_a_model_that_denies_or_repeats_everything_costs_nothing_that_patterns_find() -> None:
    def denies(request: ChatRequest) -> Answer:
        return "Nothing" if request.words else json.dumps({"facts": []})

    assert read(denies, writes=True) == SCORES

    def repeats(request: ChatRequest) -> Answer:
        """Write each message down as one fact without a key."""
        lines = [json.loads(line) for line in request.messages[-1].content.splitlines() if line.startswith("{")]
        facts = [
            {"type": "user", "subject": line["speaker"], "text": line["text"], "quote": line["text"], "message": number}
            for number, line in enumerate(lines, start=1)
        ]
        return json.dumps({"facts": facts})

    for part, figures in read(repeats, writes=True).items():
        assert figures["recall"] >= SCORES[part]["recall"]
        assert figures["keys"] >= SCORES[part]["keys"]


def test_a_chooser_that_turns_to_nonsense_after_its_examination_adds_nothing() -> None:
    known = dict(KNOWN)

    def answer(request: ChatRequest) -> Answer:
        sentence = request.messages[-1].content.removeprefix("Sentence: ")
        if sentence in known:
            return "Fact" if known[sentence] else "Nothing"
        undecided = {"Fact": 0.4, "Preference": 0.1, "Instruction": 0.1, "Nothing": 0.4}
        return ChatReply("Banana", Tokens(1, 1), probabilities=undecided) if request.words else "Banana"

    assert read(answer, writes=False) == SCORES
