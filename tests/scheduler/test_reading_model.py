"""Fine reading and the profile with a model that is away, answers nonsense, or fails its examination."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import IndexSettings, LimitSettings, TaskSettings
from memos.core.tokens import Tokens
from memos.core.types import Standing, Task, TaskState
from memos.errors import BackendUnavailable
from memos.memcube.ledger import reading
from memos.reader.facts.extractor import KNOWN, WRITTEN
from memos.scheduler.jobs import judge
from tests.fakes import WordEmbedder
from tests.scheduler.test_long_tier import facts, settled
from tests.support.scripted_chat import PASSING, Answer, ScriptedChat, is_known_sentence, is_writing_examination

LYON = {"role": "user", "name": "Ana", "content": "I live in Lyon.", "chat_time": "2026-03-01"}
PARIS = {"role": "user", "name": "Ana", "content": "I moved to Paris.", "chat_time": "2026-06-01"}
CHOIR = {"role": "user", "name": "Ana", "content": "Sundays are for the choir.", "chat_time": "2026-03-02"}
TALK = [LYON, CHOIR]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_GATHERING", timedelta(0))


@contextmanager
def opened(
    home: Path, script: Callable[[ChatRequest], Answer], tokens_per_day: int | None = None
) -> Iterator[tuple[MemOS, ScriptedChat]]:
    chat = ScriptedChat(script, writes=False)
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        tasks=TaskSettings(tokens_per_day=tokens_per_day),
    )
    with MemOS.open(home, settings=settings, embedder=WordEmbedder(), chat_model=chat) as memos:
        yield memos, chat


def read(memos: MemOS, *messages: dict[str, str]) -> Task:
    task = memos.add(list(messages), conversation="c", mode="fine").task
    assert task is not None
    settled(memos)
    return memos.tasks.get(task)


def asked(chat: ScriptedChat) -> int:
    """Count the questions of the reader, without those of the judge of relations."""
    return sum(request.messages[-1].content.startswith(("Sentence: ", "<messages>")) for request in chat.requests)


def residence(memos: MemOS) -> list[str | None]:
    return [trait.value for trait in memos.profiles.get("default", "Ana").traits if trait.dimension == "life.residence"]


def entry(text: str, message: int, **fields: object) -> dict[str, object]:
    return {"type": "user", "subject": "Ana", "text": text, "quote": text, "message": message, **fields}


def trait(value: str, quote: str) -> dict[str, object]:
    evidence = [{"message": 1, "quote": quote}]
    return {"subject": "Ana", "dimension": "life.residence", "value": value, "confidence": 0.9, "evidence": evidence}


def eager(request: ChatRequest) -> str:
    """Answer with what fits the schema: every message is a fact, and so is every sentence."""
    if request.words:
        return "Fact"
    texts = [text for text, _ in WRITTEN] if is_writing_examination(request) else [each["content"] for each in TALK]
    said = [entry(text, number) for number, text in enumerate(texts, start=1)]
    return json.dumps({"facts": said, "traits": [trait("Atlantis", LYON["content"])]})


def test_a_model_that_fails_writes_nothing_the_patterns_read_and_the_task_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, eager) as (memos, chat):
        task = read(memos, *TALK)
        assert (task.state, task.note) == (
            TaskState.DONE,
            "the model scripted fails its examination; patterns read alone",
        )
        assert task.tokens > 0
        assert [(item.value, item.type) for item in facts(memos)] == [("Lyon", "user")]
        assert residence(memos) == ["Lyon"]
        [record] = memos.memories.extractions(facts(memos)[0].id)
        assert (record.reader, record.model) == ("patterns/2", None)
        assert asked(chat) == len(KNOWN)
        read(memos, PARIS)
        assert asked(chat) == len(KNOWN)  # examined once
        assert residence(memos) == ["Paris"]
        assert memos.maintenance.verify().clean


def test_a_model_that_can_only_choose_adds_sentences_as_they_were_said(tmp_path: Path) -> None:
    def chooser(request: ChatRequest) -> str:
        if not request.words:
            return eager(request)
        text = request.messages[-1].content.removeprefix("Sentence: ")
        return "Fact" if dict(KNOWN).get(text, "choir" in text) else "Nothing"

    with opened(tmp_path, chooser) as (memos, _):
        task = read(memos, *TALK)
        assert (task.state, task.note) == (TaskState.DONE, None)
        assert {item.memory for item in facts(memos)} == {LYON["content"], CHOIR["content"]}
        [choir] = [item for item in facts(memos) if item.memory == CHOIR["content"]]
        assert (choir.key, choir.confidence) == (None, 0.6)
        [record] = memos.memories.extractions(choir.id)
        assert (record.reader, record.model) == ("choosing/2", "scripted")
        assert json.loads(record.output or "") == {CHOIR["content"]: "user"}
        assert residence(memos) == ["Lyon"]


def test_a_chosen_sentence_holds_as_long_as_the_message_it_is(tmp_path: Path) -> None:
    pairs = {(older, newer): changes for older, newer, changes in judge.KNOWN}
    phones = ("My phone is a Pixel 6.", "The Pixel drowned, an iPhone 15 it is.")

    def chooser(request: ChatRequest) -> str:
        shown = request.messages[-1].content
        if "Yes" in request.words:
            older, newer = (line.partition(": ")[2] for line in shown.splitlines()[:2])
            return "Yes" if pairs.get((older, newer), True) else "No"
        lasts = dict(KNOWN).get(shown.removeprefix("Sentence: "), True)
        return eager(request) if not request.words or lasts else "Nothing"

    chat = ScriptedChat(chooser, writes=False)
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    with MemOS.open(tmp_path, settings=settings, chat_model=chat) as memos:
        for day, text in enumerate(phones, start=1):
            said = {"role": "user", "name": "Sam", "content": text, "chat_time": f"2026-03-0{day}"}
            memos.add([said], conversation=str(day), mode="fine")
            settled(memos)
        assert {item.memory for item in facts(memos)} == set(phones)
        hits = memos.search("Which phone does Sam have?").hits
        assert [(hit.item.memory, hit.standing) for hit in hits] == [
            (phones[1], Standing.CURRENT),
            (phones[0], Standing.POSSIBLY_OUTDATED),
        ]


def able(request: ChatRequest) -> str:
    """Answer as a model that sorts sentences, and writes facts and traits well."""
    if (lasts := is_known_sentence(request)) is not None:
        return "Fact" if lasts else "Nothing"
    if is_writing_examination(request):
        return PASSING
    found = [city for city in ("Lyon", "Paris") if city in request.messages[-1].content]
    texts = {"Lyon": LYON["content"], "Paris": PARIS["content"]}
    lives = [entry(f"Ana lives in {city}.", 1, quote=texts[city], attribute="residence", value=city) for city in found]
    return json.dumps({"facts": lives[-1:], "traits": [trait(city, texts[city]) for city in found[-1:]]})


@pytest.mark.parametrize("away", ["examination", "reading"])
def test_a_model_that_is_away_is_asked_again_and_nothing_is_lost(tmp_path: Path, away: str) -> None:
    left = [2]

    def answer(request: ChatRequest) -> Answer:
        if is_writing_examination(request) is (away == "examination") and left[0] > 0:
            left[0] -= 1
            return BackendUnavailable("The model is away.")
        return able(request)

    with opened(tmp_path, answer) as (memos, _):
        task = memos.add([LYON], conversation="c", mode="fine").task or ""
        for found in memos.tasks.follow(task, timeout_s=120):
            if found.error is not None and not found.ended:
                assert "away" in found.error
                assert facts(memos, "active", "pending") == []
                assert len(memos.memories.list(filter={"type": "message"})) == 1
        done = memos.tasks.get(task)
        assert (done.state, done.attempts) == (TaskState.DONE, 3)
        assert [item.memory for item in facts(memos)] == ["Ana lives in Lyon."]
        assert residence(memos) == ["Lyon"]


def test_a_cubes_budget_is_kept_between_the_calls_of_one_task(tmp_path: Path) -> None:
    cost = 100

    def answer(request: ChatRequest) -> Answer:
        text = request.messages[-1].content.removeprefix("Sentence: ")
        return ChatReply("Fact" if dict(KNOWN).get(text) else "Nothing", Tokens(cost - 1, 1))

    with opened(tmp_path, answer, tokens_per_day=10 * cost) as (memos, chat):
        task = memos.add([LYON], conversation="c", mode="fine").task or ""
        for found in memos.tasks.follow(task, timeout_s=120):
            if found.note is not None or found.ended:
                break
        waiting = memos.tasks.get(task)
        assert waiting.state is TaskState.WAITING
        assert "budget" in (waiting.note or "")
        assert len(chat.requests) == 10
        assert facts(memos, "active", "pending") == []
        assert memos.search("Lyon").hits


def test_the_profile_by_a_model_holds_what_is_so_now_and_keeps_what_was(tmp_path: Path) -> None:
    with opened(tmp_path, able) as (memos, _):
        for message in (LYON, PARIS):
            assert read(memos, message).note is None
        assert residence(memos) == ["Paris"]
        rendered = memos.profiles.render("default", "Ana")
        assert "Paris" in rendered
        assert "Lyon" not in rendered
        history = memos.profiles.history("default", "life.residence", "Ana")
        assert {each.value for each in history} == {"Lyon", "Paris"}
        [now] = [item for item in facts(memos) if item.key == "ana|residence"]
        assert now.value == "Paris"


@pytest.mark.parametrize(
    "nonsense",
    [
        {"facts": [], "traits": "none"},
        {"facts": [], "traits": [{"dimension": "life.residence", "value": "unknown"}]},
        {"facts": [], "traits": [trait("unknown", PARIS["content"])]},
        {"facts": [], "traits": [trait("Atlantis", "I live in Atlantis.")]},
        {"facts": [], "traits": [trait("", PARIS["content"])]},
        "I am only a model.",
    ],
)
def test_nonsense_leaves_the_profile_to_the_patterns(tmp_path: Path, nonsense: object) -> None:
    def answer(request: ChatRequest) -> str:
        known = is_writing_examination(request) or is_known_sentence(request) is not None
        return able(request) if known or "Paris" not in request.messages[-1].content else json.dumps(nonsense)

    with opened(tmp_path, answer) as (memos, _):
        read(memos, LYON)
        task = memos.add([PARIS], conversation="other", mode="fine").task or ""
        for found in memos.tasks.follow(task, timeout_s=120):
            if found.ended or found.error is not None:
                break
        assert residence(memos) == ["Paris"]
        assert "Paris" in {hit.item.memory.removesuffix(".").rsplit(maxsplit=1)[-1] for hit in memos.search("moved")}
