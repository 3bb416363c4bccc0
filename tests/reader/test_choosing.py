"""A model is examined before its first reading: it writes facts, or chooses among sentences, or is not used at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from memos.core.ports import ChatReply, ChatRequest
from memos.core.tokens import Tokens
from memos.core.types import ItemType, Role, Span, Trust
from memos.errors import BackendUnavailable, InvalidAnswer
from memos.llm import examination
from memos.llm.client import LLMClient, ResponseCache
from memos.llm.usage import UsageMeter
from memos.reader.facts import extractor as choosing
from memos.reader.facts import extractor as facts
from memos.reader.facts.extractor import KNOWN, WRITTEN, FactReader, choice_question
from tests.reader.talk import said
from tests.support.scripted_chat import PASSING, Answer, ScriptedChat, is_writing_examination

ZONE = ZoneInfo("UTC")
SNAPSHOT = Path(__file__).parent / "snapshots" / "choosing-2.txt"
# Patterns find the first; the second only a model takes for lasting, the third nobody.
TALK = "I live in Lyon. Sundays are for the choir, always were. Well, here we go."
CHOIR = "Sundays are for the choir, always were."
EMPTY = json.dumps({"facts": []})


def asked(request: ChatRequest) -> str | None:
    """Return the sentence a request is about, None when it asks for facts."""
    return request.messages[-1].content.removeprefix("Sentence: ") if request.words else None


def sorter(kind_of: Callable[[str], Answer], whole: Answer = "I cannot do this.") -> Callable[[ChatRequest], Answer]:
    """A model that says `whole` when asked for facts, and the kind of a sentence when asked for that."""

    def answer(request: ChatRequest) -> Answer:
        if "That answer cannot be used" in request.messages[-1].content:
            return "Nor this."
        text = asked(request)
        return whole if text is None else kind_of(text)

    return answer


def able(text: str) -> str:
    lasts = dict(KNOWN).get(text, "choir" in text)
    return "Preference" if lasts else "Nothing"


def reader(script: Callable[[ChatRequest], Answer], *, writes: bool = False) -> tuple[FactReader, ScriptedChat]:
    model = ScriptedChat(script, writes=writes)
    asker = LLMClient(model, ResponseCache(0))
    return FactReader(lambda: asker), model


def whole_questions(model: ScriptedChat) -> int:
    """Count the questions for facts, the examination and repairs apart."""
    return sum(
        asked(request) is None and len(request.messages) == 2 and not is_writing_examination(request)
        for request in model.requests
    )


def examined(model: ScriptedChat) -> int:
    return sum(is_writing_examination(request) and len(request.messages) == 2 for request in model.requests)


def written(changed: Callable[[dict[str, object]], dict[str, object]]) -> str:
    """Return an answer to the examination of writing, each of its facts changed."""
    return json.dumps({"facts": [changed(fact) for fact in json.loads(PASSING)["facts"]]})


def test_a_model_is_examined_before_its_first_reading_however_well_its_answers_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    junk = [
        {"type": "user", "subject": "Ada", "text": text, "quote": text, "message": number}
        for number, (text, _) in enumerate(WRITTEN, start=1)
    ]
    for bad in (
        json.dumps({"facts": junk}),
        EMPTY,
        written(lambda fact: fact | {"text": "Ada said something."}),
        written(lambda fact: fact | {"attribute": "residence", "value": "Turin"}),
        PASSING.replace(
            '"Ada", "text": "Ada said: My sister', '"Ada", "attribute": "job", "value": "maths", "text": "My sister'
        ),
    ):
        read, model = reader(sorter(lambda text: "Fact" if dict(KNOWN).get(text) else "Nothing", bad))
        found = read.read([said(TALK)], ZONE, UsageMeter("reading"))
        assert [(fact.value, fact.reader) for fact in found.facts] == [("Lyon", "patterns/2")]
        assert (found.reader, found.note) == ("choosing/2", None)
        assert (examined(model), whole_questions(model)) == (1, 0)
    assert "does not write facts down well enough" in caplog.text


def test_a_model_that_writes_is_examined_once_a_day_and_another_one_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: ChatRequest) -> str:
        if (text := asked(request)) is not None:
            return able(text)
        return PASSING if is_writing_examination(request) else EMPTY

    models = [ScriptedChat(answer, name=name, writes=False) for name in ("one", "one", "other")]
    askers = [LLMClient(model, ResponseCache(0)) for model in models]
    now = iter([askers[0], askers[0], askers[1], askers[2], askers[0]])
    read = FactReader(lambda: next(now))
    for _ in range(4):
        assert read.read([said(TALK)], ZONE, UsageMeter("reading")).reader == "model/2"
    assert [examined(model) for model in models] == [1, 0, 1]
    later = examination.time.monotonic() + examination.HOLDS_S + 1
    monkeypatch.setattr(examination.time, "monotonic", lambda: later)
    read.read([said(TALK)], ZONE, UsageMeter("reading"))
    assert [examined(model) for model in models] == [2, 0, 1]


def test_a_model_that_is_away_during_its_examination_is_examined_later() -> None:
    away: list[Answer] = [BackendUnavailable("away"), PASSING, EMPTY]
    read, _ = reader(lambda request: able(text) if (text := asked(request)) else away.pop(0))
    with pytest.raises(BackendUnavailable):
        read.read([said(TALK)], ZONE, UsageMeter("reading"))
    assert read.read([said(TALK)], ZONE, UsageMeter("reading")).reader == "model/2"


def test_what_patterns_leave_is_chosen_by_a_model_that_can_tell() -> None:
    read, model = reader(sorter(able))
    message = said(TALK)
    found = read.read([message], ZONE, UsageMeter("reading"))
    lyon, choir = sorted(found.facts, key=lambda fact: fact.spans[0].start)
    assert (lyon.reader, lyon.value) == ("patterns/2", "Lyon")
    at = TALK.index(CHOIR)
    assert (choir.memory, choir.spans) == (CHOIR, (Span(message.id, at, at + len(CHOIR)),))
    assert (choir.type, choir.reader, choir.subject, choir.tags) == (
        ItemType.PREFERENCE, "choosing/2", "Ana", ("explicit",),
    )  # fmt: skip
    assert (choir.key, choir.trust, choir.confidence) == (None, Trust.TRUSTED, 0.6)
    assert (found.reader, found.model, found.note) == ("choosing/2", "scripted", None)
    assert json.loads(found.output or "") == {CHOIR: "preference", "Well, here we go.": None}
    assert [asked(request) for request in model.requests[-2:]] == [CHOIR, "Well, here we go."]


def test_a_sentence_is_kept_only_where_the_model_is_sure() -> None:
    def kept(**probabilities: float) -> bool:
        def answer(text: str) -> Answer:
            return ChatReply("Fact", Tokens(9, 1), probabilities=probabilities) if text == CHOIR else able(text)

        read, _ = reader(sorter(answer))
        return CHOIR in [fact.memory for fact in read.read([said(TALK)], ZONE, UsageMeter("reading")).facts]

    assert kept(Fact=0.5, Preference=0.32, Instruction=0.0, Nothing=0.18)
    assert not kept(Fact=0.6, Preference=0.0, Instruction=0.0, Nothing=0.4)


@pytest.mark.parametrize("always", ["Fact", "Nothing", "Perhaps, as the moon is full."])
def test_a_model_that_cannot_tell_is_not_believed_and_asked_no_more(
    always: str, caplog: pytest.LogCaptureFixture
) -> None:
    read, model = reader(sorter(lambda _: always))
    first = read.read([said(TALK)], ZONE, UsageMeter("reading"))
    assert [(fact.value, fact.reader) for fact in first.facts] == [("Lyon", "patterns/2")]
    assert (first.reader, first.model, first.output) == ("patterns/2", None, None)
    assert "cannot tell lasting facts" in caplog.text
    assert "choir" not in caplog.text
    calls = len(model.requests)
    assert [fact.value for fact in read.read([said(TALK)], ZONE, UsageMeter("reading")).facts] == ["Lyon"]
    assert len(model.requests) == calls


def test_a_window_is_first_tried_with_fewer_messages() -> None:
    read, model = reader(sorter(able), writes=True)
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

    def answer(request: ChatRequest) -> Answer:
        return sorter(able, whole=next(answers) if len(request.messages) == 2 and asked(request) is None else "")(
            request
        )

    read, model = reader(answer, writes=True)
    for number in range(4):
        found = read.read([said(TALK)], ZONE, UsageMeter("reading"))
        assert found.reader == ("model/2" if number % 2 else "choosing/2")
    assert whole_questions(model) == 4


def test_now_and_again_a_model_is_asked_for_facts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_AGAIN", 5)
    useless = ["useless", "useless"]

    def answer(request: ChatRequest) -> Answer:
        first = asked(request) is None and len(request.messages) == 2
        return sorter(able, useless.pop() if first and useless else EMPTY)(request)

    read, model = reader(answer, writes=True)
    for _ in range(4):
        assert read.read([said(TALK)], ZONE, UsageMeter("reading")).reader == "choosing/2"
    assert whole_questions(model) == 2
    assert [read.read([said(TALK)], ZONE, UsageMeter("reading")).reader for _ in range(3)] == ["model/2"] * 3


def test_a_model_that_can_write_and_answers_nonsense_costs_nothing_that_patterns_find() -> None:
    read, _ = reader(lambda _: "Certainly!", writes=True)
    found = read.read([said(TALK)], ZONE, UsageMeter("reading"))
    assert [fact.value for fact in found.facts] == ["Lyon"]
    assert found.reader == "choosing/2"


def test_only_a_users_own_statements_are_asked_about() -> None:
    read, model = reader(sorter(lambda text: able(text) if text in dict(KNOWN) else "Fact"))
    quiet = [
        said("Sundays are for the choir, always were.", Role.ASSISTANT),
        said("Sundays are for the choir, always were.", Role.TOOL),
        said("Is the choir on Sundays?"),
        said("```\nSundays are for the choir.\n```"),
        said("Translate this: Sundays are for the choir, always were."),
        said("If Sundays are for the choir I will come."),
        said("Dad keeps telling me 'Sundays are for the choir'."),
        said("我妈总说“choir”。"),
        said("Yes!"),
        said("choir " * 200),
    ]
    for message in quiet:
        assert read.read([message], ZONE, UsageMeter("reading")).facts == (), message.memory
    for request in model.requests:
        assert "choir" not in (asked(request) or "")


def test_hostile_sentences_stay_sentences() -> None:
    read, model = reader(sorter(lambda text: able(text) if text in dict(KNOWN) else "Fact"))
    lines = [f"Number {n}: the choir sings \u202e\x85 </s> {{}} 2. in round {n}." for n in range(40)]
    text = "\n".join(lines)
    found = read.read([said(text)], ZONE, UsageMeter("reading"))
    assert [fact.memory for fact in found.facts if fact.memory not in text] == []
    assert {len((asked(request) or "").splitlines()) for request in model.requests if request.words} == {1}
    assert len(found.facts) >= 40


def test_the_known_sentences_are_balanced_and_those_of_no_benchmark() -> None:
    assert len(KNOWN) == len(dict(KNOWN)) == 40
    assert sum(lasts for _, lasts in KNOWN) == 20
    labelled = Path(__file__).parents[2].joinpath("benchmarks/labelled_messages.json").read_text(encoding="utf-8")
    texts = [text for text, _ in (*KNOWN, *WRITTEN)]
    assert [text for text in texts if text in labelled] == []
    prompts = Path(choosing.__file__).parents[1] / "prompts"
    shown = "".join(each.read_text(encoding="utf-8") for each in sorted(prompts.glob("*.txt")))
    assert [text for text in texts if text in shown] == []


def test_the_prompt_is_as_it_was() -> None:
    """A change of the prompt is a new version: another file, another READER, another snapshot."""
    talk = "\n".join(f"{message.role}: {message.content}" for message in choice_question("I moved\nto Lyon."))
    assert f"{choosing.READER}\n{talk}\n" == SNAPSHOT.read_text(encoding="utf-8")
