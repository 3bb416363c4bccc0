"""Benchmarks of conversational memory: samples of LoCoMo and questions of LongMemEval, without what is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from memos.core.types import Json, Role
from memos.reader.importers.base import ExportRecord, message_of, name_of, numbered

_SESSION = re.compile(r"session_(\d{1,6})")


def is_locomo(value: Json) -> bool:
    held = value.get("conversation") if isinstance(value, Mapping) else None
    return isinstance(held, Mapping) and any(_SESSION.fullmatch(str(key)) for key in held)


def locomo_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    if not is_locomo(entry):
        yield ExportRecord(place, fallback, {}, "is not a LoCoMo sample: its conversation has no session_1")
        return
    sample = name_of((entry.get("sample_id"),), numbered(fallback, place))
    held = entry["conversation"]
    sessions = sorted((int(found[1]), key) for key in held if (found := _SESSION.fullmatch(str(key))))
    for _, key in sessions:
        here, turns = f"{place}, {key}", held[key]
        if not isinstance(turns, list):
            yield ExportRecord(here, sample, {}, f"is {type(turns).__name__}, not a list of turns")
            continue
        for number, turn in enumerate(turns, start=1):
            yield _locomo_turn(turn, f"{sample}/{key}", f"{here}, message {number}", held.get(f"{key}_date_time"))


def _locomo_turn(raw: Json, conversation: str, place: str, time: Json) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    text, caption = raw.get("text"), raw.get("blip_caption")
    if isinstance(caption, str) and caption.strip() and isinstance(text or "", str):
        text = f"{text or ''} [image: {caption}]".lstrip()
    if text is None:
        return ExportRecord(place, conversation, {}, "has no text")
    # Both speakers are people.
    message = message_of(Role.USER, content=text, name=raw.get("speaker"), message_id=raw.get("dia_id"), chat_time=time)
    return ExportRecord(place, conversation, message)


def is_longmemeval(value: Json) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("haystack_sessions"), list)


def longmemeval_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the turns of every session."""
    # A turn's id is its number in the session, so a session shared by several questions is stored once.
    if not is_longmemeval(entry):
        yield ExportRecord(place, fallback, {}, "is not a LongMemEval question: it has no haystack_sessions")
        return
    sessions = entry["haystack_sessions"]
    names, dates = entry.get("haystack_session_ids"), entry.get("haystack_dates")
    for session_field, values in (("haystack_session_ids", names), ("haystack_dates", dates)):
        if not isinstance(values, list) or len(values) != len(sessions):
            told = (
                f"has {len(sessions)} haystack_sessions but another number of {session_field}, so they cannot be "
                "matched"
            )
            yield ExportRecord(place, fallback, {}, told)
            return
    for number, (name, date, turns) in enumerate(zip(names, dates, sessions, strict=True), start=1):
        here = f"{place}, session {number}"
        conversation = name_of((name,), "")
        if not isinstance(turns, list) or not conversation:
            yield ExportRecord(here, fallback, {}, "is not a list of turns with a session id")
            continue
        for turn_number, turn in enumerate(turns, start=1):
            yield _longmemeval_turn(turn, conversation, f"{here}, message {turn_number}", turn_number, date)


def _longmemeval_turn(raw: Json, conversation: str, place: str, number: int, date: Json) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    if raw.get("content") is None:
        return ExportRecord(place, conversation, {}, "has no content")
    message = message_of(raw.get("role"), content=raw["content"], message_id=f"turn-{number}", chat_time=date)
    return ExportRecord(place, conversation, message)
