"""Messages in plain JSON, and LangChain's: whatever shape a message has, it is read as everywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.message_shapes import FIELDS, MESSAGE_ALIASES, is_langchain, shape_message
from memos.core.types import Json
from memos.errors import InvalidInput, shown
from memos.reader.importers.base import REASONING, ExportRecord, content_of, flat, image_part, name_of, numbered

# An id in a row may be that of anything: what is said in it names it by its own content.
_ALIASES = {alias: words[0] for alias, words in MESSAGE_ALIASES.items() if alias not in ("id", "uuid")}
_OF_CONVERSATION = ("conversation", "conversation_id")
_LANGCHAIN_TYPES = "human, ai, system, tool, function, chat"


def generic_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    if isinstance(entry, list) and len(entry) == 2 and all(isinstance(each, str) for each in entry):
        entry = {"role": entry[0], "content": entry[1]}
    if not isinstance(entry, Mapping):
        yield ExportRecord(place, fallback, {}, f"is {type(entry).__name__}, not an object")
        return
    own = tuple(entry.get(name) for name in _OF_CONVERSATION)
    if isinstance(entry.get("messages"), list):
        name = name_of((*own, entry.get("id"), entry.get("title")), numbered(fallback, place))
        for number, message in enumerate(entry["messages"], start=1):
            yield from _messages(message, name, f"{place}, message {number}")
    else:
        yield from _messages(entry, name_of(own, fallback), place)


def _messages(raw: Json, conversation: str, place: str) -> Iterator[ExportRecord]:
    if isinstance(raw, list) and len(raw) == 2 and isinstance(raw[0], str):
        raw = {"role": raw[0], "content": raw[1]}
    if not isinstance(raw, Mapping):
        yield ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
        return
    typed = isinstance(raw.get("type"), str) or "lc" in raw  # items of Responses, LangChain: their ids are messages'
    found, left_out = shape_message(dict(raw) if typed else _renamed(raw), place)
    for message in found:
        yield _record(message, conversation, place)
    if left_out:
        yield ExportRecord(place, conversation, {}, left_out=left_out, reason=REASONING)


def _renamed(raw: Mapping[str, Json]) -> dict[str, Json]:
    """Return a row with our names of fields; of two words for one, ours counts, then the first."""
    message: dict[str, Json] = {}
    for given, value in raw.items():
        name = _ALIASES.get(str(given), str(given))
        if value is not None and (given == name or name not in message):
            message[name] = value
    for alias in ("id", "uuid"):
        if alias in message:
            message["info"] = {alias: message.pop(alias), **_info(message)}
    return message


def _info(message: Mapping[str, Json]) -> dict[str, Json]:
    info = message.get("info")
    return dict(info) if isinstance(info, Mapping) else {}


def _record(shaped: Json, conversation: str, place: str, *, pictures: bool = True) -> ExportRecord:
    """Return a message as a record: what is no field of one goes into its info."""
    message = {str(name): value for name, value in shaped.items() if name in FIELDS and value is not None}
    more = {name: value for name, value in shaped.items() if name not in FIELDS and name not in _OF_CONVERSATION}
    if "content" not in message and not message.get("tool_calls") and message.get("role") != "tool":
        return ExportRecord(place, conversation, {}, "has no content")
    if info := flat({**more, **_info(message)}):
        message["info"] = info
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [_part(part, pictures=pictures) for part in content]
    return ExportRecord(place, conversation, message)


def _part(part: Json, *, pictures: bool) -> Json:
    if not isinstance(part, Mapping) or part.get("type") != "image_url":
        return part
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else given
    if pictures and (not isinstance(url, str) or url[:5].lower() == "data:"):
        return part
    return image_part(url)


def _is_text(part: Mapping[str, Json]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def is_langchain_entry(value: Json) -> bool:
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    return is_langchain(value[0] if isinstance(value, list) and value else value)


def langchain_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    name, messages = numbered(fallback, place), entry
    if isinstance(entry, Mapping) and isinstance(entry.get("messages"), list):
        own = (*(entry.get(name) for name in _OF_CONVERSATION), entry.get("id"), entry.get("title"))
        name, messages = name_of(own, name), entry["messages"]
    if not isinstance(messages, list):
        yield from _langchain_messages(entry, fallback, place)
        return
    for number, message in enumerate(messages, start=1):
        yield from _langchain_messages(message, name, f"{place}, message {number}")


def _langchain_messages(raw: Json, conversation: str, place: str) -> Iterator[ExportRecord]:
    if not is_langchain(raw):
        told = "is not a LangChain message: it has no type with data or kwargs"
        yield ExportRecord(place, conversation, {}, told)
        return
    try:
        found, left_out = shape_message(raw, place)
    except InvalidInput as error:
        yield ExportRecord(place, conversation, {}, error.reason)
        return
    for message in found:
        if "role" not in message:
            kind = message.get("type") or message.get("message_id") or message.get("id")
            told = f"is of the type {shown(kind)}, which is unknown; use {_LANGCHAIN_TYPES}"
            yield ExportRecord(place, conversation, {}, told)
            continue
        kept: dict[str, Any] = {
            name: value
            for name, value in message.items()
            if value or name not in ("name", "message_id", "tool_call_id", "tool_calls")
        }
        content = kept.get("content")
        if isinstance(content, list) and all(isinstance(part, Mapping) and _is_text(part) for part in content):
            kept["content"] = content_of(content)
        yield _record(kept, conversation, place, pictures=False)
    if left_out:
        yield ExportRecord(place, conversation, {}, left_out=left_out, reason=REASONING)
