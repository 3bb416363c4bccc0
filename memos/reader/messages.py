"""Read OpenAI-shaped messages and plain strings into validated `Message` values and drafts of memories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from memos.core.aliases import resolve_aliases, unknown_name
from memos.core.message_shapes import FIELDS, MESSAGE_ALIASES, Shaped, shape_messages
from memos.core.text.matching import entities, keywords
from memos.core.text.statements import key_of, statements
from memos.core.text.times import time_expressions
from memos.core.text.validation import MAX_MESSAGE_BYTES, check_name, check_text, is_blank
from memos.core.types import Draft, Item, Json, Message, Picture, Role, Source, Status, ToolCall, Trust
from memos.errors import InvalidInput, shown
from memos.reader.arguments import info_of, read_time
from memos.reader.images import ImageParts, without_bytes

READER = "fast/3"
# Patterns look for what people say of themselves; a pasted megabyte is not that.
_SCAN_CHARS = 4_000


def read(messages: Sequence[Message], tags: Sequence[str], info: Mapping[str, Json], zone: ZoneInfo) -> list[Draft]:
    return [
        Draft(
            message=message,
            memory=message.text,
            start=0,
            end=len(message.text),
            reader=READER,
            tags=tuple(tags),
            info={**info, **message.info, **_info_of(message)},
            **stated(message.text, message.name or message.role, message.role, message.chat_time, zone),
        )
        for message in messages
    ]


def _info_of(message: Message) -> dict[str, Json]:
    """Return what a message itself adds to the info of its memory."""
    told: dict[str, Json] = {} if message.duration_s is None else {"duration_s": message.duration_s}
    told |= {} if message.recalled is None else {"recalled": list(message.recalled)}
    return told | ({"cited": list(message.cited)} if message.cited else {})


def unstored(draft: Draft, cube: str, conversation: str | None, number: int) -> Item:
    """Return a draft as the item it would be stored as; its id and position are the number."""
    message, id_ = draft.message, str(number)
    speaker = message.name or message.role
    said_at, text = message.chat_time, message.text
    source = Source(
        id_, draft.start, draft.end, speaker, said_at, text, conversation, message.message_id, message.trust
    )
    return Item(
        id=id_,
        cube=cube,
        version=1,
        version_id=id_,
        memory=draft.memory,
        type=draft.type,
        tier=draft.tier,
        status=draft.status,
        speaker=speaker,
        role=message.role,
        key=draft.key,
        value=draft.value,
        tags=draft.tags,
        info=draft.info,
        confidence=draft.confidence,
        entities=draft.entities,
        keywords=draft.keywords,
        conversation=conversation,
        position=number,
        page=None,
        session=None,
        said_at=said_at,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        created_at=said_at,
        updated_at=said_at,
        sources=(source,),
    )


def stated(text: str, speaker: str, role: Role, said_at: datetime | None, zone: ZoneInfo) -> dict[str, Any]:
    # The first time in it is when it holds; otherwise the time it was said.
    head = text[:_SCAN_CHARS]
    found = statements(head) if role is Role.USER else []
    first = found[0] if found else None
    times = time_expressions(head, said_at, zone) if said_at is not None and role is not Role.TOOL else ()
    return {
        "key": key_of(speaker, first.attribute) if first else None,
        "value": first.value if first else None,
        "entities": entities(head) if role is not Role.TOOL else (),
        "keywords": keywords(head) if role is not Role.TOOL else (),
        "valid_from": times[0].valid_from if times else said_at,
        "valid_to": times[0].valid_to if times else None,
    }


def restated(before: Item, text: str, zone: ZoneInfo) -> dict[str, Any]:
    """Return what the patterns read in a new text of an item, in place of what they read in its old one.

    An end that was not read there, such as that of a replaced statement, stays: other words do not make it hold again.
    """
    told = stated(text, before.speaker, before.role, before.said_at, zone)
    if before.valid_to is None:
        return told
    of_its_words = stated(before.memory, before.speaker, before.role, before.said_at, zone)["valid_to"]
    if before.status is Status.SUPERSEDED or (before.valid_to != of_its_words and told["valid_to"] is None):
        told["valid_to"] = before.valid_to
        if told["valid_from"] is not None and told["valid_from"] > before.valid_to:
            told["valid_from"] = before.valid_from
    return told


MAX_MESSAGES = 1_000
"""Most messages of one add."""

_DURATIONS = {"duration_s": 1.0, "duration_ms": 1_000.0}
_ANSWERED_FROM = ("recalled", "cited")
_MOST_RECALLED = 1_000
_MAX_NESTING = 64
_NO_OUTPUT = "[no output]"
_KNOWN = ", ".join(f"`{name}`" for name in sorted(FIELDS))
_LONGEST_S = 1e9


def read_messages(raw: Json | Shaped, zone: ZoneInfo, now: datetime, images: ImageParts | None = None) -> list[Message]:
    """Return the validated messages of one add, with `images` moved out of the content."""
    # A string is one user message. Times without an offset are in `zone`, a missing time is `now`.
    images = ImageParts() if images is None else images
    shaped = shape_messages(raw)
    given = [shaped.messages] if isinstance(shaped.messages, bytes) else shaped.messages
    if not isinstance(given, list):
        raise InvalidInput("messages", f"must be text, a message or a list of them, not {type(given).__name__}")
    if not given:
        told = "hold nothing that anybody said, only reasoning or results left out" if shaped.left_out else "is empty"
        raise InvalidInput("messages", f"{told}; give at least one message")
    if len(given) > MAX_MESSAGES:
        raise InvalidInput(
            "messages",
            f"has {len(given):,} messages, more than the limit of {MAX_MESSAGES:,}; add them in several calls",
        )
    places = shaped.places or (0,)
    return [
        _message(f"messages[{place}]", entry, zone, now, images) for place, entry in zip(places, given, strict=True)
    ]


def _message(where: str, raw: Json, zone: ZoneInfo, now: datetime, images: ImageParts) -> Message:
    if isinstance(raw, str | bytes):
        raw = {"role": "user", "content": raw}
    if not isinstance(raw, Mapping):
        raise InvalidInput(where, f"must be text or an object with role and content, not {type(raw).__name__}")
    if set(raw) - FIELDS:
        raw = resolve_aliases(raw, FIELDS, MESSAGE_ALIASES, where=f"{where}.")
    if unknown := sorted(map(str, set(raw) - FIELDS)):
        name = unknown[0] if unknown[0].isidentifier() else shown(unknown[0])
        raise InvalidInput(f"{where}.{name[:80]}", _unknown_field(unknown[0]))
    role = _role(f"{where}.role", raw.get("role", "user"))
    calls = _tool_calls(f"{where}.tool_calls", raw.get("tool_calls"))
    text, content, pictures = _content(f"{where}.content", raw.get("content"), images)
    if calls:
        text = "\n".join([*([text] if text.strip() else []), *(f"{call.name}({call.arguments})" for call in calls)])
        check_text(f"{where}.tool_calls", text, MAX_MESSAGE_BYTES)
    if is_blank(text) and role is Role.TOOL:
        text = _NO_OUTPUT  # that a tool had nothing to say is what it said
    if is_blank(text):
        told = "is required" if raw.get("content") is None else "is empty; leave the message out"
        raise InvalidInput(f"{where}.content", told)
    return Message(
        role=role,
        text=text,
        content=content,
        name=_optional(f"{where}.name", raw.get("name")),
        message_id=_optional(f"{where}.message_id", raw.get("message_id")),
        chat_time=read_time(f"{where}.chat_time", raw.get("chat_time"), zone, now),
        tool_calls=calls,
        tool_call_id=_optional(f"{where}.tool_call_id", raw.get("tool_call_id")),
        trust=_trust(f"{where}.trust", raw.get("trust"), role),
        duration_s=_duration(where, raw, role),
        pictures=pictures,
        info=info_of(raw.get("info"), f"{where}.info"),
        **{name: _answered_from(f"{where}.{name}", raw.get(name), role) for name in _ANSWERED_FROM},
    )


def _unknown_field(name: str) -> str:
    reason = unknown_name("field", name, [*sorted(FIELDS), *sorted(MESSAGE_ALIASES)])
    return reason if "known are" not in reason else f"unknown field; known are {_KNOWN}; put other data into `info`"


def _role(where: str, value: Json) -> Role:
    if not isinstance(value, str) or value not in set(Role):
        raise InvalidInput(where, f"{shown(value)} is unknown; use one of {', '.join(Role)}")
    return Role(value)


def _duration(where: str, raw: Mapping[str, Json], role: Role) -> float | None:
    given = [name for name in _DURATIONS if raw.get(name) is not None]
    if not given:
        return None
    name = given[0]
    if role is not Role.TOOL or len(given) > 1:
        raise InvalidInput(f"{where}.{name}", "belongs to a tool message, as duration_s or duration_ms")
    value = raw[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_S:
        raise InvalidInput(f"{where}.{name}", f"must be a number from 0, not {shown(value)}")
    return round(value / _DURATIONS[name], 6)


def _answered_from(where: str, value: Json, role: Role) -> tuple[str, ...] | None:
    """Return the ids of memories that an answer was made from, None if that is not told."""
    if value is None:
        return None
    if role is not Role.ASSISTANT:
        raise InvalidInput(where, "belongs to a message of the assistant")
    if not isinstance(value, list | tuple):
        raise InvalidInput(where, f"must be a list of ids of memories, not {type(value).__name__}")
    if len(value) > _MOST_RECALLED:
        raise InvalidInput(where, f"has {len(value):,} ids, more than the limit of {_MOST_RECALLED:,}")
    return tuple(dict.fromkeys(check_name(where, id_, 64) for id_ in value))


def _trust(where: str, value: Json, role: Role) -> Trust:
    if value is None:
        return Trust.UNTRUSTED if role is Role.TOOL else Trust.TRUSTED
    if not isinstance(value, str) or value not in set(Trust):
        raise InvalidInput(where, f"{shown(value)} is unknown; use one of {', '.join(Trust)}")
    return Trust(value)


def _optional(where: str, value: Json) -> str | None:
    return None if value is None else check_name(where, value)


def _content(where: str, content: Json, images: ImageParts) -> tuple[str, Json, tuple[Picture, ...]]:
    """Return the text, the parts to keep, and the images of a string or content parts."""
    # Parts other than text appear in it as a short mark.
    if content is None:
        return "", None, ()
    if isinstance(content, str | bytes):
        return check_text(where, content, MAX_MESSAGE_BYTES), content, ()
    if not isinstance(content, list):
        raise InvalidInput(where, f"must be text or a list of content parts, not {type(content).__name__}")
    pieces = []
    kept = []
    pictures = []
    for place, part in enumerate(content):
        here = f"{where}[{place}]"
        if not isinstance(part, Mapping):
            raise InvalidInput(here, "must be an object such as {'type': 'text', 'text': '…'}")
        match part.get("type"):
            case "text":
                pieces.append(check_text(f"{here}.text", part.get("text"), MAX_MESSAGE_BYTES))
            case "image_url" | "image":
                rest = without_bytes(part)
                _check_json(here, rest)
                image = images.read(here, part, rest)
                pieces.append(image.mark)
                kept.append(image.kept)
                pictures += [] if image.picture is None else [image.picture]
                continue
            case "file":
                file = part.get("file")
                name = file.get("filename") if isinstance(file, Mapping) else None
                pieces.append(f"[file {check_name(f'{here}.file.filename', name)}]" if name else "[file]")
            case other:
                raise InvalidInput(f"{here}.type", f"{shown(other)} is unknown; use text, image_url, image or file")
        kept.append(part)
    _check_json(where, kept)
    return check_text(where, "\n".join(pieces), MAX_MESSAGE_BYTES), kept, tuple(pictures)


def _check_json(where: str, value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(_MAX_NESTING):
        for entry in level:
            if isinstance(entry, str):
                check_text(where, entry, MAX_MESSAGE_BYTES)
        deeper: list[Json] = []
        for entry in level:
            if isinstance(entry, Mapping):
                deeper += [*entry, *entry.values()]
            elif isinstance(entry, list | tuple):
                deeper += entry
        level = deeper
    if level:
        raise InvalidInput(where, f"is nested deeper than {_MAX_NESTING} levels; flatten it")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(where, f"is not JSON ({error}); use strings, numbers, lists and objects") from error
    check_text(where, text, MAX_MESSAGE_BYTES)


def _tool_calls(where: str, raw: Json) -> tuple[ToolCall, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise InvalidInput(where, f"must be a list, not {type(raw).__name__}")
    calls = []
    for place, entry in enumerate(raw):
        here = f"{where}[{place}]"
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if not isinstance(function, Mapping):
            raise InvalidInput(here, "must look like {'id', 'type': 'function', 'function': {'name', 'arguments'}}")
        _check_json(here, entry)
        arguments = function.get("arguments")
        if arguments is None:
            arguments = ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        calls.append(
            ToolCall(
                id=check_name(f"{here}.id", entry.get("id") or f"call-{place}"),
                name=check_name(f"{here}.function.name", function.get("name")),
                arguments=check_text(f"{here}.function.arguments", arguments, MAX_MESSAGE_BYTES),
            )
        )
    return tuple(calls)


MOST_TOOLS = 512
"""Definitions one call takes."""

_MOST_BYTES = 65_536
_TOLD_CHARS = 1_000
_SHAPE = "must look like {'type': 'function', 'function': {'name', 'description', 'parameters'}}"


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    name: str
    description: str
    memory: str
    message: Message


def read_tools(raw: Json, now: datetime) -> list[ToolDefinition]:
    if raw is None:
        return []
    if isinstance(raw, str | bytes | Mapping) or not isinstance(raw, Sequence):
        raise InvalidInput("tools", f"must be a list of definitions, not {type(raw).__name__}")
    if len(raw) > MOST_TOOLS:
        raise InvalidInput(
            "tools", f"has {len(raw):,} definitions, more than the limit of {MOST_TOOLS}; add them in several calls"
        )
    read = [_tool(f"tools[{place}]", entry, now) for place, entry in enumerate(raw)]
    return list({tool.name: tool for tool in read}.values())


def _tool(where: str, raw: Json, now: datetime) -> ToolDefinition:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("function"), Mapping):
        raise InvalidInput(where, _SHAPE)
    if raw.get("type", "function") != "function":
        raise InvalidInput(f"{where}.type", "is unknown; use function")
    check_name(f"{where}.function.name", raw["function"].get("name"))
    try:
        text = json.dumps(raw["function"], ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(where, "is not JSON; use strings, numbers, lists and objects") from error
    check_text(where, text, _MOST_BYTES)
    # What holds for the text of any message holds for this one.
    [message] = read_messages([{"role": "system", "content": text, "trust": "untrusted"}], ZoneInfo("UTC"), now)
    function = _function(where, message.text)
    name = check_name(f"{where}.function.name", function.get("name"))
    description = function.get("description") or ""
    told = check_text(f"{where}.function.description", description, _MOST_BYTES).strip()
    memory = check_text(where, f"{name}({_parameters(where, function)}): {told or 'a tool'}", _MOST_BYTES)
    return ToolDefinition(name, told[:_TOLD_CHARS], memory, message)


def _function(where: str, text: str) -> Mapping[str, Json]:
    try:
        function = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(where, "is not JSON; use strings, numbers, lists and objects") from error
    if not isinstance(function, Mapping):
        raise InvalidInput(where, _SHAPE)
    return function


def _parameters(where: str, function: Mapping[str, Json]) -> str:
    """Return parameters as people write them: `from: string, date?: string`."""
    parameters = function.get("parameters")
    if parameters is None:
        return ""
    if not isinstance(parameters, Mapping):
        raise InvalidInput(f"{where}.function.parameters", "must be a JSON schema, an object")
    properties = parameters.get("properties", {})
    required = parameters.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, Sequence):
        raise InvalidInput(f"{where}.function.parameters", "must be a JSON schema with properties and required")
    return ", ".join(f"{name}{'' if name in required else '?'}: {_type(schema)}" for name, schema in properties.items())


def _type(schema: Json) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return kind if isinstance(kind, str) else "any"
