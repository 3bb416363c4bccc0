"""Reads the published files of LoCoMo, PrefEval, BEAM and LongMemEval into plain values; refuses anything else.

A message's id is unique in its session; times are UTC-aware where the file has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_ADVERSARIAL = 5

_Model = TypeVar("_Model")


class BadData(Exception):
    """A file that cannot be measured; the message is one sentence for the person who gave it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}")


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the file has it; `name` is the speaker's, where there are names."""

    id: str
    role: str
    text: str
    at: datetime | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Messages said on one occasion, in order."""

    name: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One question; `gold` are message ids (LongMemEval: session names), oldest first.

    `answers` are the facts that a right answer contains; of an adversarial question or an abstention none.
    """

    text: str
    kind: str
    gold: tuple[str, ...]
    asked: datetime | None
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation; `left_out` is how many questions had no evidence, `abstentions` what it cannot answer."""

    name: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]
    left_out: int = 0
    abstentions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class Preferences:
    """PrefEval: pairs of a stated preference and a question it matters to, and what else was talked about."""

    pairs: tuple[tuple[str, str, str], ...]  # topic, preference, question
    distractors: tuple[Session, ...]


def first_questions(chats: Sequence[Chat], limit: int | None) -> list[Chat]:
    """Return the chats with the first `limit` questions alone; a chat without any is left out."""
    kept, left = [], sum(len(chat.questions) for chat in chats) if limit is None else limit
    for chat in chats:
        questions = chat.questions[:left]
        left -= len(questions)
        if questions:
            kept.append(Chat(chat.name, chat.sessions, questions, chat.left_out))
    return kept


def first_sessions(chat: Chat, count: int | None) -> Chat:
    """Return a chat's first sessions, with the questions whose evidence is in them; None for all."""
    sessions = chat.sessions[:count]
    known = {message.id for session in sessions for message in session.messages}
    questions = tuple(question for question in chat.questions if known.issuperset(question.gold))
    return replace(chat, sessions=sessions, questions=questions)


# LoCoMo


class _Turn(BaseModel):
    speaker: str
    dia_id: str
    text: str
    blip_caption: str | None = None


class _Qa(BaseModel):
    question: str
    category: Literal[1, 2, 3, 4, 5]
    evidence: Any = None
    answer: Any = None


class _Sample(BaseModel):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_Qa]


def load_locomo(path: Path) -> list[Chat]:
    """Return the conversations of a LoCoMo file. Raises: BadData."""
    samples = _parse(path, "LoCoMo", list[_Sample], _read(path))
    return _asked(path, "LoCoMo", [_locomo_chat(path, sample) for sample in samples])


def _locomo_chat(path: Path, sample: _Sample) -> Chat:
    numbers = sorted(
        int(found[1])
        for key, turns in sample.conversation.items()
        if (found := _SESSION.fullmatch(key)) and isinstance(turns, list)
    )
    sessions, at = [], None
    for number in numbers:
        name = f"session_{number}"
        turns = _parse(path, "LoCoMo", list[_Turn], sample.conversation[name])
        at = _time(path, sample.conversation.get(f"{name}_date_time"), "%I:%M %p on %d %B, %Y")
        messages = [
            Message(turn.dia_id, "user", _captioned(turn), at, turn.speaker) for turn in turns if _captioned(turn)
        ]
        sessions.append(Session(name, tuple(messages)))
    questions = []
    for qa in sample.qa:
        evidence = _EVIDENCE.findall(json.dumps(qa.evidence))
        gold = sorted({(int(session), int(turn)) for session, turn in evidence})
        names = tuple(f"D{session}:{turn}" for session, turn in gold)
        answers = () if qa.answer is None or qa.category == _ADVERSARIAL else (str(qa.answer),)
        questions.append(Question(qa.question, _CATEGORIES[qa.category], names, at, answers))
    return _chat(sample.sample_id, sessions, questions)


def _captioned(turn: _Turn) -> str:
    caption = f" [image: {turn.blip_caption}]" if turn.blip_caption else ""
    return (turn.text + caption).strip()


class _Reworded(BaseModel):
    model_config = ConfigDict(extra="forbid")

    conversation: str
    question: str
    asked: str


def asked_instead(chats: Sequence[Chat], path: Path) -> list[Chat]:
    """Return the chats with the questions that a file names alone, in the words it gives them. Raises: BadData."""
    entries = _parse(path, "questions", list[_Reworded], _read(path))
    known = {(chat.name, question.text) for chat in chats for question in chat.questions}
    words: dict[tuple[str, str], str] = {}
    for entry in entries:
        key = (entry.conversation, entry.question)
        if key not in known:
            raise BadData(path, f"names no question with evidence in {entry.conversation!r}: {entry.question!r}")
        if key in words or not entry.asked.strip():
            raise BadData(path, f"needs words to ask, once, for {entry.question!r} in {entry.conversation!r}")
        words[key] = entry.asked
    if not words:
        raise BadData(path, "names no question")
    reworded = []
    for chat in chats:
        questions = tuple(
            replace(question, text=words[chat.name, question.text])
            for question in chat.questions
            if (chat.name, question.text) in words
        )
        if questions:
            reworded.append(Chat(chat.name, chat.sessions, questions))
    return reworded


# PrefEval


class _Pair(BaseModel):
    topic: str
    preference: str = Field(min_length=1)
    question: str = Field(min_length=1)


class _Said(BaseModel):
    role: Literal["user", "assistant", "system"]
    content: str


class _Distractor(BaseModel):
    conversation_id: str
    conversation: list[_Said]


class _PrefEval(BaseModel):
    pairs: list[_Pair] = Field(min_length=1)
    distractors: list[_Distractor]


class _Pairs(BaseModel):
    pairs: list[_Pair] = Field(min_length=1)


def load_prefeval(path: Path, others: Path | None = None) -> Preferences:
    """Return the distractors of a PrefEval file, and its pairs or those of another file. Raises: BadData."""
    raw = _parse(path, "PrefEval", _PrefEval, _read(path))
    pairs = raw.pairs if others is None else _parse(others, "pairs of preferences", _Pairs, _read(others)).pairs
    return Preferences(
        tuple((pair.topic, pair.preference, pair.question) for pair in pairs),
        tuple(
            Session(entry.conversation_id, _said(f"{place}", entry.conversation, None))
            for place, entry in enumerate(raw.distractors)
        ),
    )


def _said(prefix: str, turns: Sequence[_Said], at: datetime | None) -> tuple[Message, ...]:
    return tuple(
        Message(f"{prefix}:{place}", turn.role, turn.content, at)
        for place, turn in enumerate(turns)
        if turn.content.strip()
    )


# BEAM


class _BeamTurn(_Said):
    id: int
    time_anchor: str | None = None


class _Batch(BaseModel):
    batch_number: int
    turns: list[list[_BeamTurn]]
    time_anchor: str | None = None


class _BeamQuestion(BaseModel):
    question: str
    source_chat_ids: Any = None
    answer: Any = None


class _Beam(BaseModel):
    chat: list[_Batch]
    questions: dict[str, list[_BeamQuestion]]


def load_beam(path: Path) -> list[Chat]:
    """Return the chats of a BEAM file or folder; of a folder, `beam*.json` or else every JSON file. Raises: BadData."""
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("beam*.json")) or sorted(path.glob("*.json"))
        if not files:
            raise BadData(path, "has no .json file in it; give the folder of BEAM chats with --data")
    return _asked(path, "BEAM", [_beam_chat(file) for file in files])


def _beam_chat(path: Path) -> Chat:
    raw = _parse(path, "BEAM", _Beam, _read(path))
    turns = [(batch, turn) for batch in raw.chat for run in batch.turns for turn in run]
    anchors = [anchor for batch, turn in turns if (anchor := turn.time_anchor or batch.time_anchor)]
    at = _time(path, anchors[0], "%B-%d-%Y") if anchors else None
    sessions: dict[str, list[Message]] = {}
    for batch, turn in turns:
        if turn.time_anchor or batch.time_anchor:
            at = _time(path, turn.time_anchor or batch.time_anchor, "%B-%d-%Y")
        if turn.content.strip():
            message = Message(str(turn.id), turn.role, turn.content, at)
            sessions.setdefault(f"batch_{batch.batch_number}", []).append(message)
    questions = [
        Question(
            asked.question,
            ability,
            tuple(map(str, sorted(set(_integers(asked.source_chat_ids))))),
            at,
            () if asked.answer is None else (str(asked.answer),),
        )
        for ability, entries in raw.questions.items()
        for asked in entries
    ]
    chat = _chat(path.stem, [Session(name, tuple(messages)) for name, messages in sessions.items()], questions)
    return replace(chat, abstentions=tuple(question for question in questions if question.kind == "abstention"))


def _integers(value: Any) -> Iterator[int]:
    """Yield the integers in a list, a mapping of lists, or anything nested of both."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _integers(inner)


# LongMemEval


class _Instance(BaseModel):
    question_id: str
    question_type: str
    question: str
    question_date: str
    haystack_session_ids: list[str]
    haystack_dates: list[str]
    haystack_sessions: list[list[_Said]]
    answer_session_ids: list[str]


def load_longmemeval(path: Path) -> list[Chat]:
    """Return one chat for each question of a LongMemEval file, abstentions left out. Raises: BadData."""
    raw = _parse(path, "LongMemEval", list[_Instance], _read(path))
    return _asked(path, "LongMemEval", [_instance_chat(path, entry) for entry in raw])


def _instance_chat(path: Path, entry: _Instance) -> Chat:
    if not len(entry.haystack_session_ids) == len(entry.haystack_dates) == len(entry.haystack_sessions):
        raise BadData(path, f"is not a LongMemEval file: {entry.question_id} has not one id and one date a session")
    sessions = []
    rows = zip(entry.haystack_session_ids, entry.haystack_dates, entry.haystack_sessions, strict=True)
    for place, (name, date, turns) in enumerate(rows):
        sessions.append(Session(name, _said(f"{place}", turns, _time(path, date, "%Y/%m/%d (%a) %H:%M"))))
    asked = _time(path, entry.question_date, "%Y/%m/%d (%a) %H:%M")
    gold = () if entry.question_id.endswith("_abs") else tuple(dict.fromkeys(entry.answer_session_ids))
    return _chat(entry.question_id, sessions, [Question(entry.question, entry.question_type, gold, asked)])


# Shared


def _chat(name: str, sessions: Sequence[Session], questions: Sequence[Question]) -> Chat:
    answerable = tuple(question for question in questions if question.gold and question.text.strip())
    full = tuple(session for session in sessions if session.messages)
    return Chat(name, full, answerable, len(questions) - len(answerable))


def _asked(path: Path, form: str, chats: list[Chat]) -> list[Chat]:
    if not any(chat.questions and chat.sessions for chat in chats):
        raise BadData(path, f"has no {form} question with evidence")
    if len({chat.name for chat in chats}) < len(chats):
        raise BadData(path, f"is not a {form} file: two of its conversations have the same name")
    return chats


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadData(path, "does not exist; give the path of your own copy with --data") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(path, f"cannot be read: {error}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadData(path, f"is not whole JSON, perhaps cut off: {error}") from error


def _parse(path: Path, form: str, kind: type[_Model], raw: Any) -> _Model:
    try:
        return TypeAdapter(kind).validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the top level"
        raise BadData(path, f"is not a {form} file: at {where}, {first['msg'].lower()}") from error


def _time(path: Path, text: Any, form: str) -> datetime:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except (TypeError, ValueError) as error:
        raise BadData(path, f"has a date that is not one: {text!r} ({error})") from error
