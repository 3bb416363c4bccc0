"""Reads LongMemEval: questions with the sessions they are asked of; sessions are read, questions are not.

Source: Wu et al. 2024, "LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory", and its data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memos.core.types import Json
from memos.reader.importers.base import ExportRecord, message_of, name_of


def matches(value: Json) -> bool:
    """Say whether an entry is a LongMemEval question."""
    return isinstance(value, Mapping) and isinstance(value.get("haystack_sessions"), list)


def records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the turns of every session.

    A turn's id is its number in the session: a session that several questions have is the same session.
    """
    if not matches(entry):
        yield ExportRecord(place, fallback, {}, "is not a LongMemEval question: it has no haystack_sessions")
        return
    sessions = entry["haystack_sessions"]
    names, dates = entry.get("haystack_session_ids"), entry.get("haystack_dates")
    for field, values in (("haystack_session_ids", names), ("haystack_dates", dates)):
        if not isinstance(values, list) or len(values) != len(sessions):
            told = f"has {len(sessions)} haystack_sessions and not as many {field}, so that they cannot be matched"
            yield ExportRecord(place, fallback, {}, told)
            return
    for number, (name, date, turns) in enumerate(zip(names, dates, sessions, strict=True), start=1):
        here = f"{place}, session {number}"
        conversation = name_of((name,), "")
        if not isinstance(turns, list) or not conversation:
            yield ExportRecord(here, fallback, {}, "is not a list of turns with a session id")
            continue
        for turn_number, turn in enumerate(turns, start=1):
            yield _turn(turn, conversation, f"{here}, message {turn_number}", turn_number, date)


def _turn(raw: Json, conversation: str, place: str, number: int, date: Json) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    if raw.get("content") is None:
        return ExportRecord(place, conversation, {}, "has no content")
    message = message_of(raw.get("role"), content=raw["content"], message_id=f"turn-{number}", chat_time=date)
    return ExportRecord(place, conversation, message)
