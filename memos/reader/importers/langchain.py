"""Reads LangChain's messages, as `messages_to_dict` and as `dumpd` write them: alone, in lists, under `messages`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.types import Json, Role
from memos.errors import shown
from memos.reader.importers.base import (
    ExportRecord,
    content_of,
    file_part,
    image_part,
    message_of,
    name_of,
    numbered,
    text_part,
    tool_call,
)

_ROLES = {
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image_url", "image", "input_image")
_FILES = ("file", "input_file", "document")


def matches(value: Json) -> bool:
    """Say whether an entry is a LangChain message, or a conversation of them."""
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    first = value[0] if isinstance(value, list) and value else value
    return _unwrapped(first) is not None


def records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of a list of them, or the one message."""
    name, messages = numbered(fallback, place), entry
    if isinstance(entry, Mapping) and isinstance(entry.get("messages"), list):
        own = (entry.get("conversation"), entry.get("conversation_id"), entry.get("id"), entry.get("title"))
        name, messages = name_of(own, name), entry["messages"]
    if not isinstance(messages, list):
        yield _record(entry, fallback, place)
        return
    for number, message in enumerate(messages, start=1):
        yield _record(message, name, f"{place}, message {number}")


def _unwrapped(value: Json) -> tuple[str, Mapping[str, Any]] | None:
    """Return a message's kind (`human`, `ai`) and fields, out of either way of writing it."""
    if not isinstance(value, Mapping):
        return None
    kind, fields = value.get("type"), value.get("data")
    if "lc" in value:
        path, fields = value.get("id"), value.get("kwargs")
        kind = path[-1] if isinstance(path, list) and path else None
    if not isinstance(kind, str) or not isinstance(fields, Mapping):
        return None
    return re.sub(r"message(chunk)?$", "", kind.casefold()), fields


def _record(raw: Json, conversation: str, place: str) -> ExportRecord:
    found = _unwrapped(raw)
    if found is None:
        return ExportRecord(place, conversation, {}, "is not a LangChain message: it has no type with data or kwargs")
    kind, fields = found
    role = fields.get("role", kind) if kind == "chat" else _ROLES.get(kind)
    if role is None:
        known = ", ".join((*_ROLES, "chat"))
        return ExportRecord(place, conversation, {}, f"is of the type {shown(kind)}, which is unknown; use {known}")
    content, left_out = _content(fields.get("content"))
    calls = _calls(fields)
    message = message_of(
        role,
        content=content,
        name=fields.get("name") or None,
        message_id=fields.get("id") or None,
        tool_calls=calls or None,
        tool_call_id=fields.get("tool_call_id") or None,
    )
    return ExportRecord(place, conversation, message, left_out=left_out)


def _content(raw: Json) -> tuple[Json, int]:
    """Return a message's content, and how many of its blocks (such as reasoning) are left out."""
    if not isinstance(raw, list):
        return raw, 0
    parts: list[Json] = []
    left_out = 0
    for block in raw:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if isinstance(block, str):
            parts.append(text_part(block))
        elif kind in _TEXTS and isinstance(block.get("text"), str):
            parts.append(text_part(block["text"]))
        elif kind in _IMAGES:
            given = block.get("image_url") or block.get("url")
            parts.append(image_part(given.get("url") if isinstance(given, Mapping) else given))
        elif kind in _FILES:
            parts.append(file_part(block.get("filename")))
        elif kind != "tool_use":  # those are the message's tool_calls
            left_out += 1
    return content_of(parts), left_out


def _calls(fields: Mapping[str, Any]) -> Json:
    """Return the calls of tools; older programs wrote OpenAI's own form into `additional_kwargs`."""
    calls = fields.get("tool_calls")
    broken = fields.get("invalid_tool_calls")
    if isinstance(calls, list | None) and isinstance(broken, list | None) and (calls or broken):
        entries = [*(calls or []), *(broken or [])]
        return [
            tool_call(call.get("name"), call.get("args") or "", call.get("id")) if isinstance(call, Mapping) else call
            for call in entries
        ]
    if calls:
        return calls
    extra = fields.get("additional_kwargs")
    extra = extra if isinstance(extra, Mapping) else {}
    if isinstance(older := extra.get("function_call"), Mapping):
        return [tool_call(older.get("name"), older.get("arguments") or "", None)]
    return extra.get("tool_calls")
