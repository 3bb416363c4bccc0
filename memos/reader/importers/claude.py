"""Claude's export: conversations, projects with their documents, and what Claude itself remembers.

Source: `conversations.json`, `projects.json` and `memories.json` in the archive that is sent by mail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.message_shapes import file_part, text_part, tool_call
from memos.core.types import Json
from memos.reader.importers.base import (
    CONTENTS,
    HIDDEN,
    REASONING,
    ExportRecord,
    content_of,
    image_part,
    list_in,
    memory_record,
    message_of,
    name_of,
    numbered,
    text_in,
)

PROJECT, MEMORY = "claude:project", "claude:memory"


def is_claude(value: Json) -> bool:
    return isinstance(value, Mapping) and (
        isinstance(value.get("chat_messages"), list) or _is_project(value) or _is_memory(value)
    )


def _is_project(value: Mapping[str, Json]) -> bool:
    return "uuid" in value and "prompt_template" in value and isinstance(value.get("docs", []), list)


def _is_memory(value: Mapping[str, Json]) -> bool:
    return isinstance(value.get("conversations_memory"), str) or isinstance(value.get("project_memories"), Mapping)


def claude_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    if not is_claude(entry):
        yield ExportRecord(place, fallback, {}, "is not a Claude conversation: it has no chat_messages")
    elif isinstance(entry.get("chat_messages"), list):
        name = name_of((entry.get("uuid"), entry.get("name")), numbered(fallback, place))
        for number, raw in enumerate(entry["chat_messages"], start=1):
            yield from _message(raw, name, f"{place}, message {number}")
    elif _is_project(entry):
        yield from _project(entry, place)
    else:
        yield from _memories(entry, place)


def _message(raw: Json, conversation: str, place: str) -> Iterator[ExportRecord]:
    if not isinstance(raw, Mapping):
        yield ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
        return
    blocks = [block for block in list_in(raw, "content") if isinstance(block, Mapping)]
    parts, calls, inner = _blocks(blocks)
    if not any(part["type"] == "text" and part["text"].strip() for part in parts) and not calls:
        # `text` repeats the blocks, with a remark in place of what is not text.
        parts = [*([text_part(raw["text"])] if isinstance(raw.get("text"), str) else []), *parts]
    attached = [file for file in (*list_in(raw, "attachments"), *list_in(raw, "files")) if isinstance(file, Mapping)]
    parts += [file_part(file.get("file_name")) for file in attached]
    contents = sum(bool(file.get("extracted_content")) for file in attached)
    content = content_of(parts)
    if not content and not calls:
        yield ExportRecord(place, conversation, {}, left_out=max(1, inner), reason=REASONING if inner else HIDDEN)
        return
    message = message_of(
        raw.get("sender"),
        content=content,
        message_id=raw.get("uuid"),
        chat_time=raw.get("created_at"),
        tool_calls=calls or None,
    )
    yield ExportRecord(place, conversation, message, left_out=inner, reason=REASONING)
    if contents:
        yield ExportRecord(place, conversation, {}, left_out=contents, reason=CONTENTS)


def _blocks(blocks: list[Mapping[str, Any]]) -> tuple[list[Json], list[Json], int]:
    """Return text, tool calls, and the number of blocks left out (reasoning, tool results)."""
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


def _project(entry: Mapping[str, Json], place: str) -> Iterator[ExportRecord]:
    """Yield what a project is about and its instructions, then its documents."""
    id_, name = name_of((entry.get("uuid"),), place), text_in(entry, "name")
    conversation = f"project {id_}"
    told = [text for text in (text_in(entry, "description"), text_in(entry, "prompt_template")) if text.strip()]
    text = "\n\n".join([f"Project {name or id_}", *told])
    about = {"project": name}
    at = entry.get("created_at")
    yield memory_record(place, conversation, text, id_=f"{PROJECT}:{id_}", tag=PROJECT, at=at, info=about)
    for number, file in enumerate(list_in(entry, "docs"), start=1):
        here = f"{place}, document {number}"
        if not isinstance(file, Mapping):
            yield ExportRecord(here, conversation, {}, f"is {type(file).__name__}, not a document")
            continue
        doc = name_of((file.get("uuid"), file.get("filename")), str(number))
        info = {**about, "file": file.get("filename")}
        yield memory_record(
            here,
            conversation,
            file.get("content"),
            id_=f"{PROJECT}:{id_}:{doc}",
            tag=PROJECT,
            at=file.get("created_at"),
            info=info,
        )


def _memories(entry: Mapping[str, Json], place: str) -> Iterator[ExportRecord]:
    account = name_of((entry.get("account_uuid"),), "account")
    conversation, at = "claude memories", entry.get("updated_at") or entry.get("created_at")
    if entry.get("conversations_memory") is not None:
        text = entry["conversations_memory"]
        yield memory_record(place, conversation, text, id_=f"{MEMORY}:{account}", tag=MEMORY, at=at)
    projects = entry.get("project_memories")
    for id_, text in projects.items() if isinstance(projects, Mapping) else ():
        here = f"{place}, project {str(id_)[:80]}"
        info = {"project_id": str(id_)}
        yield memory_record(here, conversation, text, id_=f"{MEMORY}:{account}:{id_}", tag=MEMORY, at=at, info=info)
