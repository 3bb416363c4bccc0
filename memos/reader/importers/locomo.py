"""Reads LoCoMo: samples of two people's sessions; each session becomes a conversation, questions are not read.

Source: Maharana et al. 2024, "Evaluating Very Long-Term Conversational Memory of LLM Agents", and its data file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from memos.core.types import Json, Role
from memos.reader.importers.base import ExportRecord, message_of, name_of, numbered

_SESSION = re.compile(r"session_(\d{1,6})")


def matches(value: Json) -> bool:
    """Say whether an entry is a LoCoMo sample."""
    held = value.get("conversation") if isinstance(value, Mapping) else None
    return isinstance(held, Mapping) and any(_SESSION.fullmatch(str(key)) for key in held)


def records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the turns of every session of a sample, in the order of the sessions' numbers."""
    if not matches(entry):
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
            yield _turn(turn, f"{sample}/{key}", f"{here}, message {number}", held.get(f"{key}_date_time"))


def _turn(raw: Json, conversation: str, place: str, time: Json) -> ExportRecord:
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
