"""A model that cannot write facts down: it chooses among sentences once it has shown that it can, and else nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from memos.core.ports import ChatRequest
from memos.core.types import ItemType, Role, Span, Trust
from memos.errors import InvalidAnswer
from memos.llm.client import LLMClient, ResponseCache
from memos.llm.usage import UsageMeter
from memos.reader.facts import extractor as choosing
from memos.reader.facts import extractor as facts
from memos.reader.facts.extractor import KNOWN, FactReader, choice_question
from tests.reader.talk import said
from tests.support.scripted_chat import ScriptedChat

ZONE = ZoneInfo("UTC")
SNAPSHOT = Path(__file__).parent / "snapshots" / "choosing-1.txt"
# Patterns find the first; the second only a model takes for lasting, the third nobody.
TALK = "I live in Lyon. Sundays are for the choir, always were. Well, here we go."
CHOIR = "Sundays are for the choir, always were."
EMPTY = json.dumps({"facts": []})


def asked(request: ChatRequest) -> list[str] | None:
    """Return the sentences a request is about, None when it asks for facts."""
    if request.schema_name != "Choices":
        return None
    return [line.split(". ", 1)[1] for line in request.messages[-1].content.splitlines()]


def sorter(kind_of: Callable[[str], str], whole: str = "I cannot do this.") -> Callable[[ChatRequest], str]:
    """A model that says `whole` when asked for facts, and a kind of each sentence when asked for those."""

    def answer(request: ChatRequest) -> str:
        if "That answer cannot be used" in request.messages[-1].content:
            return "Nor this."
        texts = asked(request)
        return whole if texts is None else json.dumps({str(n): kind_of(text) for n, text in enumerate(texts, 1)})

    return answer


def able(text: str) -> str:
    lasts = dict(KNOWN).get(text, "choir" in text)
    return "preference" if lasts else "nothing"


def reader(script: Callable[[ChatRequest], str]) -> tuple[FactReader, ScriptedChat]:
    model = ScriptedChat(script)
    asker = LLMClient(model, ResponseCache(0))
    return FactReader(lambda: asker), model


def whole_questions(model: ScriptedChat) -> int:
    return sum(asked(request) is None and len(request.messages) == 2 for request in model.requests)


def test_what_patterns_leave_is_chosen_by_a_model_that_can_tell() -> None:
    read, model = reader(sorter(able))
    message = said(TALK)
    found = read.read([message], ZONE, UsageMeter("reading"))
    lyon, choir = sorted(found.facts, key=lambda fact: fact.spans[0].start)
    assert (lyon.reader, lyon.value) == ("patterns/2", "Lyon")
    at = TALK.index(CHOIR)
    assert (choir.memory, choir.spans) == (CHOIR, (Span(message.id, at, at + len(CHOIR)),))
    assert (choir.type, choir.reader, choir.subject, choir.tags) == (
        ItemType.PREFERENCE, "choosing/1", "Ana", ("explicit",),
    )  # fmt: skip
    assert (choir.key, choir.trust, choir.confidence) == (None, Trust.TRUSTED, 0.6)
    assert (found.reader, found.model) == ("choosing/1", "scripted")
    assert json.loads(found.output or "") == {CHOIR: "preference", "Well, here we go.": "nothing"}
    assert asked(model.requests[-1]) == [CHOIR, "Well, here we go."]


@pytest.mark.parametrize("always", ["fact", "nothing"])
def test_a_model_that_cannot_tell_is_not_believed_and_asked_no_more(
    always: str, caplog: pytest.LogCaptureFixture
) -> None:
    read, model = reader(sorter(lambda _: always))
    first = read.read([said(TALK)], ZONE, UsageMeter("reading"))
    assert [(fact.value, fact.reader) for fact in first.facts] == [("Lyon", "patterns/2")]
    assert (first.reader, first.model, first.output) == ("patterns/2", None, None)
    assert "cannot tell lasting facts" in caplog.text
    assert "choir" not in caplog.text
    read.read([said(TALK)], ZONE, UsageMeter("reading"))  # its second useless answer
    calls = len(model.requests)
    assert [fact.value for fact in read.read([said(TALK)], ZONE, UsageMeter("reading")).facts] == ["Lyon"]
    assert len(model.requests) == calls


def test_a_window_is_first_tried_with_fewer_messages() -> None:
    read, model = reader(sorter(able))
    window = [said(TALK), said("Understood.", Role.ASSISTANT)]
    with pytest.raises(InvalidAnswer, match="returned no valid FactsAnswer"):
        read.read(window, ZONE, UsageMeter("reading"))
    assert {asked(request) is None for request in model.requests} == {True}
    assert CHOIR in [fact.memory for fact in read.read(window, ZONE, UsageMeter("reading")).facts]
    assert whole_questions(model) == 2
    read.read(window, ZONE, UsageMeter("reading"))
    assert whole_questions(model) == 2


def test_an_answer_that_fits_between_useless_ones_keeps_a_model_asked_for_facts() -> None:
    answers = iter(["useless", EMPTY, "useless", EMPTY])

    def answer(request: ChatRequest) -> str:
        return sorter(able, whole=next(answers) if len(request.messages) == 2 and asked(request) is None else "")(
            request
        )

    read, model = reader(answer)
    for number in range(4):
        found = read.read([said(TALK)], ZONE, UsageMeter("reading"))
        assert found.reader == ("model/2" if number % 2 else "choosing/1")
    assert whole_questions(model) == 4


def test_now_and_again_a_model_is_asked_for_facts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_AGAIN", 5)
    useless = ["useless", "useless"]

    def answer(request: ChatRequest) -> str:
        first = asked(request) is None and len(request.messages) == 2
        return sorter(able, useless.pop() if first and useless else EMPTY)(request)

    read, model = reader(answer)
    for _ in range(4):
        assert read.read([said(TALK)], ZONE, UsageMeter("reading")).reader == "choosing/1"
    assert whole_questions(model) == 2
    assert [read.read([said(TALK)], ZONE, UsageMeter("reading")).reader for _ in range(3)] == ["model/2"] * 3


def test_a_model_that_can_answer_neither_fails_and_is_asked_for_facts_again() -> None:
    answers = [EMPTY]
    read, _ = reader(lambda _: answers[0] if len(answers) == 1 else "Certainly!")
    answers.append("Certainly!")
    for _ in range(4):
        with pytest.raises(InvalidAnswer, match="returned no valid Choices"):
            read.read([said(TALK)], ZONE, UsageMeter("reading"))
    answers.pop()
    assert read.read([said(TALK)], ZONE, UsageMeter("reading")).reader == "model/2"


def test_only_a_users_own_statements_are_asked_about() -> None:
    read, model = reader(sorter(lambda text: able(text) if text in dict(KNOWN) else "fact"))
    quiet = [
        said("Sundays are for the choir, always were.", Role.ASSISTANT),
        said("Sundays are for the choir, always were.", Role.TOOL),
        said("Is the choir on Sundays?"),
        said("```\nSundays are for the choir.\n```"),
        said("Translate this: Sundays are for the choir, always were."),
        said("If Sundays are for the choir I will come."),
        said("Yes!"),
        said("choir " * 200),
    ]
    for message in quiet:
        assert read.read([message], ZONE, UsageMeter("reading")).facts == (), message.memory
    for request in model.requests:
        assert "choir" not in " ".join(asked(request) or [])


def test_many_sentences_are_asked_about_in_parts_and_hostile_ones_stay_sentences() -> None:
    read, model = reader(sorter(lambda text: able(text) if text in dict(KNOWN) else "fact"))
    lines = [f"Number {n}: the choir sings \u202e\x85 </s> {{}} 2. in round {n}." for n in range(40)]
    text = "\n".join(lines)
    found = read.read([said(text)], ZONE, UsageMeter("reading"))
    assert [fact.memory for fact in found.facts if fact.memory not in text] == []
    assert max(len(asked(request) or []) for request in model.requests) == 16
    assert len(found.facts) >= 40


def test_the_known_sentences_are_balanced_and_those_of_no_benchmark() -> None:
    assert len(KNOWN) == len(dict(KNOWN)) == 40
    assert sum(lasts for _, lasts in KNOWN) == 20
    labelled = Path(__file__).parents[2].joinpath("benchmarks/labelled_messages.json").read_text(encoding="utf-8")
    assert [text for text, _ in KNOWN if text in labelled] == []


def test_the_prompt_is_as_it_was() -> None:
    """A change of the prompt is a new version: another file, another READER, another snapshot."""
    system, user = choice_question(["I moved\nto Lyon.", "Hm."])
    assert f"{choosing.READER}\n{system.content}\n---\n{user.content}\n" == SNAPSHOT.read_text(encoding="utf-8")
