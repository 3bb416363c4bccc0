"""Reads Claude's `conversations.json`: a list of conversations with `chat_messages`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.types import Json
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


def matches(value: Json) -> bool:
    """Say whether an entry is a Claude conversation."""
    return isinstance(value, Mapping) and isinstance(value.get("chat_messages"), list)


def records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of one conversation; empty ones are left out."""
    if not matches(entry):
        yield ExportRecord(place, fallback, {}, "is not a Claude conversation: it has no chat_messages")
        return
    name = name_of((entry.get("uuid"), entry.get("name")), numbered(fallback, place))
    for number, raw in enumerate(entry["chat_messages"], start=1):
        yield _record(raw, name, f"{place}, message {number}")


def _record(raw: Json, conversation: str, place: str) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    blocks = [block for block in _list(raw, "content") if isinstance(block, Mapping)]
    parts, calls, left_out = _blocks(blocks)
    if not any(part["type"] == "text" and part["text"].strip() for part in parts) and not calls:
        # `text` repeats the blocks, with a remark in place of what is not text.
        parts = [*([text_part(raw["text"])] if isinstance(raw.get("text"), str) else []), *parts]
    for file in (*_list(raw, "attachments"), *_list(raw, "files")):
        if isinstance(file, Mapping):
            parts.append(file_part(file.get("file_name")))
            left_out += bool(file.get("extracted_content"))
    content = content_of(parts)
    if not content and not calls:
        return ExportRecord(place, conversation, {}, left_out=max(1, left_out))
    message = message_of(
        raw.get("sender"),
        content=content,
        message_id=raw.get("uuid"),
        chat_time=raw.get("created_at"),
        tool_calls=calls or None,
    )
    return ExportRecord(place, conversation, message, left_out=left_out)


def _blocks(blocks: list[Mapping[str, Any]]) -> tuple[list[Json], list[Json], int]:
    """Return what was said, the tools called, and how many blocks (reasoning, results of tools) are left out."""
    parts: list[Json] = []
    calls: list[Json] = []
    left_out = 0
    for block in blocks:
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                parts.append(text_part(block["text"]))
            case "image":
                parts.append(image_part())
            case "tool_use":
                calls.append(tool_call(block.get("name"), block.get("input") or {}, block.get("id")))
            case _:
                left_out += 1
    return parts, calls, left_out


def _list(raw: Mapping[str, Any], field: str) -> list[Json]:
    value = raw.get(field)
    return value if isinstance(value, list) else []
