"""Exports of programs for chats with models of one's own: Open WebUI, LibreChat and LM Studio.

Sources: the JSON that "Export chats" of Open WebUI writes, "Export conversation" of LibreChat, and the
`*.conversation.json` files in LM Studio's folder `conversations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.message_shapes import file_part, text_part, tool_call
from memos.core.types import Json, Role
from memos.errors import shown
from memos.reader.importers.base import (
    BRANCH,
    HIDDEN,
    REASONING,
    ExportRecord,
    content_of,
    image_part,
    list_in,
    mapping_in,
    message_of,
    name_of,
    numbered,
    text_in,
)

_END = "</details>"
_INNER = re.compile(r'<details type="(?:reasoning|code_interpreter|tool_calls)"')


def is_open_webui(value: Json) -> bool:
    chat = value.get("chat") if isinstance(value, Mapping) else None
    return isinstance(chat, Mapping) and (
        isinstance(mapping_in(chat, "history").get("messages"), Mapping) or isinstance(chat.get("messages"), list)
    )


def open_webui_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of the branch that a chat shows."""
    if not is_open_webui(entry):
        yield ExportRecord(place, fallback, {}, "is not a chat of Open WebUI: it has no chat with messages")
        return
    chat = entry["chat"]
    name = name_of((entry.get("id"), chat.get("id"), entry.get("title")), numbered(fallback, place))
    owner, time = name_of((entry.get("user_id"),), ""), entry.get("created_at")
    history = mapping_in(chat, "history")
    tree = history.get("messages")
    if isinstance(tree, Mapping) and tree:
        branch, problem = _branch(tree, history.get("currentId"), "parentId")
        if problem:
            yield ExportRecord(place, name, {}, problem, owner=owner)
        said = [tree[id_] for id_ in branch]
        others = len(tree) - len(branch) if branch else 0
    else:
        said, others = list_in(chat, "messages"), 0
    for number, raw in enumerate(said, start=1):
        record = _open_webui_message(raw, name, f"{place}, message {number}", time, owner)
        time = record.message.get("chat_time", time)
        yield record
    if others:
        yield ExportRecord(place, name, {}, left_out=others, reason=BRANCH, owner=owner)


def _branch(tree: Mapping[str, Json], current: Json, parent: str) -> tuple[list[str], str | None]:
    """Return the ids from the root to the current message, and what is wrong with them."""
    branch: dict[str, None] = {}
    while current is not None:
        node = tree.get(current) if isinstance(current, str) else None
        if not isinstance(node, Mapping):
            return [*reversed(branch)], f"names the message {shown(current)}, which is missing"
        if current in branch:
            return [], f"has a cycle at the message {shown(current)}"
        branch[current] = None
        current = node.get(parent)
    return ([*reversed(branch)], None) if branch else ([], "does not say which message was shown last")


def _without_reasoning(text: str) -> str:
    """Return an answer without the blocks in which Open WebUI keeps thoughts and calls."""
    kept: list[str] = []
    at = 0
    while found := _INNER.search(text, at):
        end = text.find(_END, found.start())
        if end < 0:
            break
        kept.append(text[at : found.start()])
        at = end + len(_END)
    return "".join([*kept, text[at:]]).strip() if kept else text


def _open_webui_message(raw: Json, conversation: str, place: str, time: Json, owner: str) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message", owner=owner)
    content = raw.get("content")
    pieces = content if isinstance(content, list) else [content]
    parts: list[Json] = []
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(text_part(_without_reasoning(piece)))
        elif isinstance(piece, Mapping) and piece.get("type") == "text" and isinstance(piece.get("text"), str):
            parts.append(text_part(piece["text"]))
        elif isinstance(piece, Mapping):
            parts.append(image_part() if piece.get("type") == "image_url" else file_part())
    for file in list_in(raw, "files"):
        if isinstance(file, Mapping):
            parts.append(image_part() if file.get("type") == "image" else file_part(file.get("name")))
    told = content_of(parts)
    if not told:
        reasoned = isinstance(content, str) and content.strip()
        return ExportRecord(place, conversation, {}, left_out=1, reason=REASONING if reasoned else HIDDEN, owner=owner)
    message = message_of(
        raw.get("role"),
        content=told,
        message_id=raw.get("id"),
        chat_time=raw.get("timestamp") or time,
    )
    return ExportRecord(place, conversation, message, owner=owner)


def is_librechat(value: Json) -> bool:
    return isinstance(value, Mapping) and "conversationId" in value and isinstance(value.get("messages"), list)


def librechat_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of the branch that ends with the newest message."""
    if not is_librechat(entry):
        yield ExportRecord(place, fallback, {}, "is not a conversation of LibreChat: it has no conversationId")
        return
    name = name_of((entry.get("conversationId"), entry.get("title")), numbered(fallback, place))
    owner = name_of((entry.get("user"),), "")
    said: list[Json] = []
    waiting = [*reversed(entry["messages"])]
    while waiting:  # a recursive export has answers as `children`
        raw = waiting.pop()
        said.append(raw)
        waiting += reversed(list_in(raw, "children"))
    ids = {raw["messageId"]: raw for raw in said if isinstance(raw, Mapping) and isinstance(raw.get("messageId"), str)}
    parents = {_known(raw.get("parentMessageId"), ids) for raw in ids.values()}
    leaves = [id_ for id_ in ids if id_ not in parents]
    kept = [*ids]
    if len(leaves) > 1:
        last = max(leaves, key=lambda id_: text_in(ids[id_], "createdAt"))
        known = {id_: {**raw, "_parent": _known(raw.get("parentMessageId"), ids)} for id_, raw in ids.items()}
        kept, problem = _branch(known, last, "_parent")
        if problem:
            yield ExportRecord(place, name, {}, problem, owner=owner)
    branch = set(kept)
    number = others = 0
    for raw in said:
        id_ = _known(raw.get("messageId"), ids) if isinstance(raw, Mapping) else None
        if id_ is not None and id_ not in branch:
            others += 1
            continue
        number += 1
        yield from _librechat_message(raw, name, f"{place}, message {number}", owner)
    if others:
        yield ExportRecord(place, name, {}, left_out=others, reason=BRANCH, owner=owner)


def _known(id_: Json, ids: Mapping[str, Json]) -> str | None:
    return id_ if isinstance(id_, str) and id_ in ids else None


def _librechat_message(raw: Json, conversation: str, place: str, owner: str) -> Iterator[ExportRecord]:
    if not isinstance(raw, Mapping):
        yield ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message", owner=owner)
        return
    if raw.get("error"):
        yield ExportRecord(place, conversation, {}, left_out=1, reason="errors of models", owner=owner)
        return
    parts = [text_part(raw["text"])] if text_in(raw, "text").strip() else []
    calls: list[Json] = []
    inner = 0
    for piece in list_in(raw, "content"):
        kind = piece.get("type") if isinstance(piece, Mapping) else None
        if kind == "text":
            given = piece.get("text")
            text = given.get("value") if isinstance(given, Mapping) else given
            parts += [text_part(text)] if isinstance(text, str) and text_part(text) not in parts else []
        elif kind == "tool_call":
            call = mapping_in(piece, "tool_call")
            calls.append(tool_call(call.get("name"), call.get("args") or "", call.get("id") or None))
            inner += bool(call.get("output"))
        elif kind == "think":
            inner += 1
        elif kind is not None:
            parts.append(image_part() if "image" in str(kind) else file_part())
    parts += [file_part(file.get("filename")) for file in list_in(raw, "files") if isinstance(file, Mapping)]
    content = content_of(parts)
    if not content and not calls:
        yield ExportRecord(
            place, conversation, {}, left_out=max(1, inner), reason=REASONING if inner else HIDDEN, owner=owner
        )
        return
    message = message_of(
        Role.USER if raw.get("isCreatedByUser") else Role.ASSISTANT,
        content=content,
        message_id=raw.get("messageId"),
        chat_time=raw.get("createdAt"),
        tool_calls=calls or None,
    )
    yield ExportRecord(place, conversation, message, left_out=inner, reason=REASONING, owner=owner)


def is_lm_studio(value: Json) -> bool:
    messages = value.get("messages") if isinstance(value, Mapping) else None
    first = messages[0] if isinstance(messages, list) and messages else None
    return isinstance(first, Mapping) and isinstance(first.get("versions"), list)


def lm_studio_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield the selected version of each message; LM Studio notes the time of a conversation alone."""
    if not is_lm_studio(entry):
        yield ExportRecord(place, fallback, {}, "is not a conversation of LM Studio: its messages have no versions")
        return
    name = name_of((fallback.removesuffix(".conversation"), entry.get("name")), numbered(fallback, place))
    for number, raw in enumerate(entry["messages"], start=1):
        here = f"{place}, message {number}"
        versions = list_in(raw, "versions")
        chosen = raw.get("currentlySelected") if isinstance(raw, Mapping) else None
        at = chosen if isinstance(chosen, int) and 0 <= chosen < len(versions) else len(versions) - 1
        version = versions[at] if versions else None
        if not isinstance(version, Mapping):
            yield ExportRecord(here, name, {}, "has no version that can be read")
            continue
        parts, inner = _lm_studio_parts(version)
        content = content_of(parts)
        if not content:
            yield ExportRecord(here, name, {}, left_out=max(1, inner), reason=REASONING if inner else HIDDEN)
            continue
        message = message_of(version.get("role"), content=content, chat_time=entry.get("createdAt"))
        yield ExportRecord(here, name, message, left_out=inner, reason=REASONING)
        if len(versions) > 1:
            yield ExportRecord(here, name, {}, left_out=len(versions) - 1, reason=BRANCH)


def _lm_studio_parts(version: Mapping[str, Any]) -> tuple[list[Json], int]:
    blocks: list[Json] = list_in(version, "content")
    inner = 0
    for step in list_in(version, "steps"):
        if not isinstance(step, Mapping) or step.get("type") != "contentBlock":
            inner += isinstance(step, Mapping) and step.get("type") == "toolStatus"
        elif mapping_in(step, "style").get("type") == "thinking":
            inner += 1
        else:
            blocks = [*blocks, *list_in(step, "content")]
    parts: list[Json] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text" and isinstance(block.get("text"), str):
            parts.append(text_part(block["text"]))
        elif kind == "file":
            image = str(block.get("fileType")).startswith("image")
            parts.append(image_part() if image else file_part(block.get("fileIdentifier") or block.get("name")))
        elif kind is not None:
            inner += 1
    return parts, inner
