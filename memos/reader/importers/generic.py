"""Reads plain JSON and JSONL: messages, or conversations `{id, messages}`; a message may name its conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memos.core.types import Json
from memos.reader.importers.base import ExportRecord, name_of, numbered, role_of

_KEPT = ("role", "content", "name", "chat_time", "message_id", "tool_calls", "tool_call_id", "trust")
_RENAMED = {
    "speaker": "name",
    "text": "content",
    "timestamp": "chat_time",
    "time": "chat_time",
    "create_time": "chat_time",
}


def matches(value: Json) -> bool:
    """Say yes: this is what a file is read as when no other format fits."""
    return True


def records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of a conversation, or the one message."""
    if not isinstance(entry, Mapping):
        yield ExportRecord(place, fallback, {}, f"is {type(entry).__name__}, not an object")
        return
    own = (entry.get("conversation"), entry.get("conversation_id"))
    if isinstance(entry.get("messages"), list):
        name = name_of((*own, entry.get("id"), entry.get("title")), numbered(fallback, place))
        for number, message in enumerate(entry["messages"], start=1):
            yield _message(message, name, f"{place}, message {number}")
    else:
        yield _message(entry, name_of(own, fallback), place)


def _message(raw: Json, conversation: str, place: str) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    message: dict[str, Json] = {}
    for given, value in raw.items():
        name = _RENAMED.get(str(given), str(given))
        if name in _KEPT and value is not None and (given == name or name not in message):
            message[name] = value
    if "role" in message:
        message["role"] = role_of(message["role"])
    if "content" not in message and "tool_calls" not in message:
        return ExportRecord(place, conversation, {}, "has no content")
    return ExportRecord(place, conversation, message)
