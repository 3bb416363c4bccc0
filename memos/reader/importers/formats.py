"""Formats of chat exports: detect the format of a file and read it as records."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from memos.core.text.redaction import mask
from memos.core.text.validation import check_name
from memos.core.types import Json, Message, Role
from memos.errors import InvalidInput, shown
from memos.reader.importers.base import (
    ExportRecord,
    content_of,
    file_part,
    image_part,
    message_of,
    name_of,
    numbered,
    read_date,
    role_of,
    text_part,
    tool_call,
)
from memos.reader.importers.stream import read_entries
from memos.reader.messages import read_messages

# What the program tells the model, or the model itself, and nobody says.
_INNER = ("thoughts", "reasoning_recap", "model_editable_context", "user_editable_context")
_TEXT_FIELDS = ("text", "result")


def is_chatgpt(value: Json) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("mapping"), Mapping)


def chatgpt_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield messages from the root to `current_node`, without hidden ones and other branches."""
    if not is_chatgpt(entry):
        yield ExportRecord(place, fallback, {}, "is not a ChatGPT conversation: it has no mapping of messages")
        return
    mapping = entry["mapping"]
    own = (entry.get("conversation_id"), entry.get("id"), entry.get("title"))
    name = name_of(own, numbered(fallback, place))
    branch, problem = _branch(mapping, entry.get("current_node"))
    if problem:
        yield ExportRecord(place, name, {}, problem)
    # A message without a time was written no earlier than the one before it.
    time = entry.get("create_time")
    number = 0
    for node in branch:
        message = mapping[node].get("message")
        if message is not None:
            number += 1
            record = _chatgpt_record(message, node, name, f"{place}, message {number}", time)
            time = record.message.get("chat_time", time)
            yield record
    others = sum(_is_said(mapping[key]) for key in mapping.keys() - set(branch))
    if branch and others:
        yield ExportRecord(place, name, {}, left_out=others)


def _branch(mapping: Mapping[str, Json], current: Json) -> tuple[list[str], str | None]:
    if current is None:
        leaves = [key for key, node in mapping.items() if isinstance(node, Mapping) and not node.get("children")]
        current = leaves[0] if len(leaves) == 1 else None
    if current is None:
        return [], "has no current_node, so it is unknown which branch was shown"
    branch: dict[str, None] = {}
    while current is not None:
        node = mapping.get(current) if isinstance(current, str) else None
        if not isinstance(node, Mapping):
            return [*reversed(branch)], f"names the node {shown(current)}, which is missing"
        if current in branch:
            return [], f"has a cycle at the node {shown(current)}"
        branch[current] = None
        current = node.get("parent")
    return [*reversed(branch)], None


def _chatgpt_record(raw: Json, node: str, conversation: str, place: str, time: Json) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    author = _mapping(raw, "author")
    metadata = _mapping(raw, "metadata")
    content = raw.get("content")
    if not isinstance(content, Mapping | None):
        return ExportRecord(place, conversation, {}, f"has content that is {type(content).__name__}, not an object")
    kind = content.get("content_type") if content is not None else None
    if kind in _INNER or metadata.get("is_visually_hidden_from_conversation"):
        return ExportRecord(place, conversation, {}, left_out=1)
    if content is not None and not any(field in content for field in ("parts", *_TEXT_FIELDS)):
        return ExportRecord(place, conversation, {}, f"has the content type {shown(kind)}, which is unknown")
    text = content_of([*_parts(content), *_attachments(metadata)])
    if not text:
        return ExportRecord(place, conversation, {}, left_out=1)
    message = message_of(
        author.get("role"),
        content=text,
        name=author.get("name") or None,
        message_id=raw.get("id") or node,
        chat_time=raw.get("create_time") or time,
    )
    return ExportRecord(place, conversation, message)


def _parts(content: Json) -> Iterator[Json]:
    if not isinstance(content, Mapping):
        return
    for text_field in _TEXT_FIELDS:
        if isinstance(content.get(text_field), str):
            yield text_part(content[text_field])
    pieces = content.get("parts")
    for piece in pieces if isinstance(pieces, list) else ():
        if isinstance(piece, str):
            yield text_part(piece)
        elif isinstance(piece, Mapping) and isinstance(piece.get("text"), str):
            yield text_part(piece["text"])
        elif isinstance(piece, Mapping) and piece.get("content_type") == "image_asset_pointer":
            yield image_part(piece.get("asset_pointer"))
        elif piece is not None:
            yield file_part()


def _attachments(metadata: Mapping[str, Any]) -> Iterator[Json]:
    files = metadata.get("attachments")
    for file in files if isinstance(files, list) else ():
        if isinstance(file, Mapping) and not str(file.get("mime_type") or file.get("mimeType")).startswith("image/"):
            yield file_part(file.get("name"))


def _mapping(raw: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = raw.get(field)
    return value if isinstance(value, Mapping) else {}


def _is_said(node: Json) -> bool:
    message = node.get("message") if isinstance(node, Mapping) else None
    return isinstance(message, Mapping) and bool(content_of([*_parts(message.get("content"))]))


def is_claude(value: Json) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("chat_messages"), list)


def claude_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    if not is_claude(entry):
        yield ExportRecord(place, fallback, {}, "is not a Claude conversation: it has no chat_messages")
        return
    name = name_of((entry.get("uuid"), entry.get("name")), numbered(fallback, place))
    for number, raw in enumerate(entry["chat_messages"], start=1):
        yield _claude_record(raw, name, f"{place}, message {number}")


def _claude_record(raw: Json, conversation: str, place: str) -> ExportRecord:
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


def _list(raw: Mapping[str, Any], field: str) -> list[Json]:
    value = raw.get(field)
    return value if isinstance(value, list) else []


_KEPT = ("role", "content", "name", "chat_time", "message_id", "tool_calls", "tool_call_id", "trust")
_RENAMED = {"speaker": "name", "text": "content", **dict.fromkeys(("timestamp", "time", "create_time"), "chat_time")}


def generic_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
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


_ROLES = {"human": Role.USER, "ai": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.TOOL, "function": Role.TOOL}
_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image_url", "image", "input_image")
_FILES = ("file", "input_file", "document")


def is_langchain(value: Json) -> bool:
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    first = value[0] if isinstance(value, list) and value else value
    return _unwrapped(first) is not None


def langchain_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    name, messages = numbered(fallback, place), entry
    if isinstance(entry, Mapping) and isinstance(entry.get("messages"), list):
        own = (entry.get("conversation"), entry.get("conversation_id"), entry.get("id"), entry.get("title"))
        name, messages = name_of(own, name), entry["messages"]
    if not isinstance(messages, list):
        yield _langchain_record(entry, fallback, place)
        return
    for number, message in enumerate(messages, start=1):
        yield _langchain_record(message, name, f"{place}, message {number}")


def _unwrapped(value: Json) -> tuple[str, Mapping[str, Any]] | None:
    if not isinstance(value, Mapping):
        return None
    kind, fields = value.get("type"), value.get("data")
    if "lc" in value:
        path, fields = value.get("id"), value.get("kwargs")
        kind = path[-1] if isinstance(path, list) and path else None
    if not isinstance(kind, str) or not isinstance(fields, Mapping):
        return None
    return re.sub(r"message(chunk)?$", "", kind.casefold()), fields


def _langchain_record(raw: Json, conversation: str, place: str) -> ExportRecord:
    found = _unwrapped(raw)
    if found is None:
        return ExportRecord(place, conversation, {}, "is not a LangChain message: it has no type with data or kwargs")
    kind, fields = found
    role = fields.get("role", kind) if kind == "chat" else _ROLES.get(kind)
    if role is None:
        known = ", ".join((*_ROLES, "chat"))
        return ExportRecord(place, conversation, {}, f"is of the type {shown(kind)}, which is unknown; use {known}")
    content, left_out = _content(fields.get("content"))
    message = message_of(
        role,
        content=content,
        name=fields.get("name") or None,
        message_id=fields.get("id") or None,
        tool_calls=_calls(fields) or None,
        tool_call_id=fields.get("tool_call_id") or None,
    )
    return ExportRecord(place, conversation, message, left_out=left_out)


def _content(raw: Json) -> tuple[Json, int]:
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


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """A record ready to be stored, with its id and time, or with its problem."""

    # `late` says that its time is earlier than that of the message before it in its conversation.

    record: ExportRecord
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    said: Counter[bytes] = field(default_factory=Counter)
    ids: dict[bytes, tuple[bytes, str]] = field(default_factory=dict)
    last: dict[str, datetime] = field(default_factory=dict)


def checked(records: Iterable[ExportRecord], zone: ZoneInfo, now: datetime) -> Iterator[CheckedRecord]:
    """Yield records with an id, or with the problem for which `add` would refuse them."""
    # An id is derived from the content where missing, so repeated imports agree.
    seen = _Seen()
    for record in records:
        if record.problem is not None or not record.message:
            yield CheckedRecord(record)
            continue
        try:
            dated, message = _read(record, zone, now)
        except InvalidInput as error:
            told, _ = mask(f"is refused: {error.field.removeprefix('messages[0].')} {error.reason}")
            yield CheckedRecord(replace(record, message={}, problem=told, left_out=0))
            continue
        if message.message_id is None:
            named = replace(dated, message={**dated.message, "message_id": _made_id(record, seen)})
            yield CheckedRecord(named, _late(record, message, seen))
            continue
        key, text = _digest(f"{record.conversation}\0{message.message_id}"), _digest(message.text)
        if key not in seen.ids:
            seen.ids[key] = text, record.place
            yield CheckedRecord(dated, _late(record, message, seen))
        elif seen.ids[key][0] == text:
            yield CheckedRecord(dated)
        else:
            told = f"has the message id {message.message_id!r} of {seen.ids[key][1]} and other text"
            yield CheckedRecord(replace(record, message={}, problem=told, left_out=0))


def _read(record: ExportRecord, zone: ZoneInfo, now: datetime) -> tuple[ExportRecord, Message]:
    check_name("conversation", record.conversation)
    dated = record
    if "chat_time" in record.message:
        dated = replace(record, message={**record.message, "chat_time": read_date(record.message["chat_time"])})
    [message] = read_messages([dated.message], zone, now)
    return dated, message


def _made_id(record: ExportRecord, seen: _Seen) -> str:
    told = json.dumps([record.conversation, record.message], sort_keys=True)
    key = _digest(told)
    seen.said[key] += 1
    return f"import:{hashlib.sha256(f'{seen.said[key]} {told}'.encode()).hexdigest()[:32]}"


def _late(record: ExportRecord, message: Message, seen: _Seen) -> bool:
    if "chat_time" not in record.message:
        return False
    before = seen.last.get(record.conversation)
    seen.last[record.conversation] = message.chat_time
    return before is not None and message.chat_time < before


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


_LOOKED_AT = 20


class Format(StrEnum):
    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    LOCOMO = "locomo"
    LONGMEMEVAL = "longmemeval"
    LANGCHAIN = "langchain"
    GENERIC = "generic"


_READERS: dict[Format, tuple[Callable[[Json], bool], Callable[[Json, str, str], Iterator[ExportRecord]]]] = {
    Format.CHATGPT: (is_chatgpt, chatgpt_records),
    Format.CLAUDE: (is_claude, claude_records),
    Format.LOCOMO: (is_locomo, locomo_records),
    Format.LONGMEMEVAL: (is_longmemeval, longmemeval_records),
    Format.LANGCHAIN: (is_langchain, langchain_records),
    Format.GENERIC: (lambda _: True, generic_records),
}


def detect(path: Path) -> Format:
    for entry in islice(read_entries(path), _LOOKED_AT):
        if isinstance(entry.value, dict | list):
            return next(format for format, (matches, _) in _READERS.items() if matches(entry.value))
    return Format.GENERIC


def read_export(path: Path, format: Format, conversation: str | None = None) -> Iterator[ExportRecord]:
    """Yield every message of an export in order, bad ones marked; `conversation` names unnamed ones."""
    fallback = conversation or path.stem
    _, records = _READERS[format]
    for entry in read_entries(path):
        if entry.problem is not None:
            yield ExportRecord(entry.place, fallback, {}, entry.problem)
        else:
            yield from records(entry.value, entry.place, fallback)
