"""Telegram's export as JSON (`result.json`): one chat, or all of an account; read message by message.

Source: what Telegram Desktop writes when "Machine-readable JSON" is chosen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from memos.core.message_shapes import file_part, text_part
from memos.core.types import Json, Role
from memos.errors import InvalidInput
from memos.reader.importers.base import (
    SERVICE,
    ExportRecord,
    content_of,
    flat,
    image_part,
    left_out,
    list_in,
    message_of,
    name_of,
    text_in,
)
from memos.reader.importers.sources import Export, SourceFile, printable
from memos.reader.importers.stream import read_lists

# Keys in a quotation have a backslash before their quotation mark, and match nowhere else.
_MESSAGES = re.compile(rb'(?<!\\)"messages"\s*:\s*\[')
_FIELD = re.compile(rb'(?<!\\)"(name|type|id)"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+|null)')
_CHAT_TYPES = (
    b'"personal_chat"',
    b'"private_group"',
    b'"private_supergroup"',
    b'"public_supergroup"',
    b'"public_channel"',
    b'"private_channel"',
    b'"saved_messages"',
    b'"bot_chat"',
)
_MISSING = "(File not included"


def is_telegram(export: Export) -> bool:
    return any(True for _ in _results(export))


def _results(export: Export) -> Iterator[SourceFile]:
    for file in export.files:
        if (export.single or file.name.rpartition("/")[2] == "result.json") and _is_result(file):
            yield file


def _is_result(file: SourceFile) -> bool:
    head = file.head()
    if head.lstrip()[:1] != b"{":
        return False
    return b'"chats"' in head or (b'"type"' in head and any(kind in head for kind in _CHAT_TYPES))


def telegram_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    files = [*_results(export)]
    if not files:
        yield ExportRecord("the export", fallback, {}, "is not an export of Telegram: it has no chats")
    for file in files:
        yield from _of_file(file, fallback, "" if len(files) == 1 else f"{file.label}: ")
    yield from left_out(export.others(files))


def _of_file(file: SourceFile, fallback: str, before: str) -> Iterator[ExportRecord]:
    conversation, chat, number = fallback, 0, 0
    try:
        for header, entry in read_lists(file, _MESSAGES):
            if entry is None:
                chat, number = chat + 1, 0
                conversation = _conversation(header, f"{fallback}-{chat}" if chat > 1 else fallback)
                continue
            number += 1
            place = f"{before}chat {chat}, message {number}"
            if entry.problem is not None:
                yield ExportRecord(place, conversation, {}, entry.problem)
            else:
                yield from _message(entry.value, conversation, place)
    except InvalidInput as error:  # damage in an archive
        yield ExportRecord(printable(file.name), conversation, {}, error.reason)


def _conversation(header: bytes, fallback: str) -> str:
    """Return the name of the chat that a header begins, with its id: two may have one name."""
    found: dict[bytes, Json] = {}
    for match in _FIELD.finditer(header[header.rfind(b"{") :]):
        with suppress(ValueError):  # a wrong escape, a number of 5,000 digits
            found[match[1]] = json.loads(match[2].decode("utf-8", "replace"))
    name = name_of((found.get(b"name"),), "Saved Messages" if found.get(b"type") == "saved_messages" else "")
    id_ = name_of((found.get(b"id"),), "")
    return " ".join(each for each in (name[:200], f"({id_})" if name and id_ else id_) if each) or fallback


def _message(raw: Json, conversation: str, place: str) -> Iterator[ExportRecord]:
    if not isinstance(raw, Mapping):
        yield ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
        return
    if raw.get("type") == "service":
        yield ExportRecord(place, conversation, {}, left_out=1, reason=SERVICE)
        return
    content = content_of([text_part(_text(raw)), *_files(raw)])
    if not content:
        yield ExportRecord(place, conversation, {}, left_out=1)
        return
    message = message_of(
        Role.USER,
        content=content,
        name=name_of((raw.get("from"), raw.get("actor"), raw.get("from_id")), "deleted account"),
        message_id=name_of((raw.get("id"),), "") or None,
        chat_time=raw.get("date_unixtime") or raw.get("date"),
    )
    about = {"forwarded_from": raw.get("forwarded_from"), "reply_to": raw.get("reply_to_message_id")}
    if info := flat(about):
        message["info"] = info
    yield ExportRecord(place, conversation, message, revised=True)


def _text(raw: Mapping[str, Any]) -> str:
    text = raw.get("text")
    if isinstance(text, str):
        return text
    return "".join(each if isinstance(each, str) else text_in(each, "text") for each in list_in(raw, "text"))


def _files(raw: Mapping[str, Any]) -> list[Json]:
    if raw.get("photo"):
        return [image_part(raw["photo"] if _MISSING not in str(raw["photo"]) else None)]
    if raw.get("sticker_emoji"):
        return [text_part(str(raw["sticker_emoji"]))]
    if raw.get("file"):
        name = text_in(raw, "file_name") or text_in(raw, "file").rpartition("/")[2]
        return [file_part(name if _MISSING not in name else raw.get("media_type"))]
    poll = raw.get("poll")
    if isinstance(poll, Mapping) and isinstance(poll.get("question"), str):
        return [text_part(f"Poll: {poll['question']}")]
    return []
