"""Reads OpenAI-shaped messages and plain strings into validated `Message` values; refuses what is malformed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from memos.core.settings import LimitSettings
from memos.core.text.invisible import is_blank
from memos.core.text.validation import check_name, check_text
from memos.core.types import Json, Message, Picture, Role, ToolCall, Trust
from memos.errors import InvalidInput, shown
from memos.reader.images import ImageParts, without_bytes

_KEYS = frozenset({"role", "content", "name", "chat_time", "message_id", "tool_calls", "tool_call_id", "trust"})
_DURATIONS = {"duration_s": 1.0, "duration_ms": 1_000.0}
# Epoch numbers above this are milliseconds: in seconds it would be the year 5138.
_MILLISECONDS_FROM = 1e11
_MAX_NESTING = 64
_NO_OUTPUT = "[no output]"
_LONGEST_S = 1e9


def read_messages(
    raw: Json, zone: ZoneInfo, now: datetime, limits: LimitSettings, images: ImageParts | None = None
) -> list[Message]:
    """Return the messages of one add, in order, with their `images`, whose bytes are left out of the content.

    A string is one user message. Times without an offset are in `zone`, a missing time is `now`.
    Raises: InvalidInput naming the message and field; nothing is dropped or repaired silently.
    BackendUnavailable, BackendTimeout where an image is fetched.
    """
    images = ImageParts() if images is None else images
    if isinstance(raw, str | bytes | Mapping):
        raw = [raw]
    if not isinstance(raw, Sequence):
        raise InvalidInput("messages", f"must be text, a message or a list of them, not {type(raw).__name__}")
    if not raw:
        raise InvalidInput("messages", "is empty; give at least one message")
    if len(raw) > limits.messages_per_add:
        raise InvalidInput(
            "messages", f"has {len(raw):,} messages, at most {limits.messages_per_add:,} are taken; add them in parts"
        )
    return [_message(f"messages[{place}]", entry, zone, now, limits, images) for place, entry in enumerate(raw)]


def _message(
    where: str, raw: Json, zone: ZoneInfo, now: datetime, limits: LimitSettings, images: ImageParts
) -> Message:
    if isinstance(raw, str | bytes):
        raw = {"role": "user", "content": raw}
    if not isinstance(raw, Mapping):
        raise InvalidInput(where, f"must be text or an object with role and content, not {type(raw).__name__}")
    if unknown := set(raw) - _KEYS - set(_DURATIONS):
        raise InvalidInput(where, f"has unknown fields {sorted(map(str, unknown))}; put extra data into info")
    role = _role(f"{where}.role", raw.get("role", "user"))
    calls = _tool_calls(f"{where}.tool_calls", raw.get("tool_calls"), limits)
    text, content, pictures = _content(f"{where}.content", raw.get("content"), limits, images)
    if calls:
        text = "\n".join([*([text] if text.strip() else []), *(f"{call.name}({call.arguments})" for call in calls)])
        check_text(f"{where}.tool_calls", text, limits.message_bytes)
    if is_blank(text) and role is Role.TOOL:
        text = _NO_OUTPUT  # that a tool had nothing to say is what it said
    if is_blank(text):
        raise InvalidInput(f"{where}.content", "is empty, or shows nothing; leave the message out")
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
    )


def _role(where: str, value: Json) -> Role:
    if not isinstance(value, str) or value not in set(Role):
        raise InvalidInput(where, f"{shown(value)} is unknown; use one of {', '.join(Role)}")
    return Role(value)


def _duration(where: str, raw: Mapping[str, Json], role: Role) -> float | None:
    """Return how long the call took that a tool's message answers."""
    given = [name for name in _DURATIONS if raw.get(name) is not None]
    if not given:
        return None
    name = given[0]
    if role is not Role.TOOL or len(given) > 1:
        raise InvalidInput(f"{where}.{name}", "is for a tool's message, in duration_s or duration_ms")
    value = raw[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_S:
        raise InvalidInput(f"{where}.{name}", f"must be a number from 0, not {shown(value)}")
    return round(value / _DURATIONS[name], 6)


def _trust(where: str, value: Json, role: Role) -> Trust:
    """Return what the message says, else untrusted for what a tool gave back: a web page may say anything."""
    if value is None:
        return Trust.UNTRUSTED if role is Role.TOOL else Trust.TRUSTED
    if not isinstance(value, str) or value not in set(Trust):
        raise InvalidInput(where, f"{shown(value)} is unknown; use one of {', '.join(Trust)}")
    return Trust(value)


def _optional(where: str, value: Json) -> str | None:
    return None if value is None else check_name(where, value)


def _content(
    where: str, content: Json, limits: LimitSettings, images: ImageParts
) -> tuple[str, Json, tuple[Picture, ...]]:
    """Return the written text of a string or of content parts, the parts to keep, and the images among them.

    Parts that are no text stand in it as a short mark.
    """
    if content is None:
        return "", None, ()
    if isinstance(content, str | bytes):
        return check_text(where, content, limits.message_bytes), content, ()
    if not isinstance(content, list):
        raise InvalidInput(where, f"must be text or a list of content parts, not {type(content).__name__}")
    pieces, kept, pictures = [], [], []
    for place, part in enumerate(content):
        here = f"{where}[{place}]"
        if not isinstance(part, Mapping):
            raise InvalidInput(here, "must be an object such as {'type': 'text', 'text': '…'}")
        match part.get("type"):
            case "text":
                pieces.append(check_text(f"{here}.text", part.get("text"), limits.message_bytes))
            case "image_url" | "image":
                rest = without_bytes(part)
                _check_json(here, rest, limits)
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
    _check_json(where, kept, limits)
    return check_text(where, "\n".join(pieces), limits.message_bytes), kept, tuple(pictures)


def _check_json(where: str, value: Json, limits: LimitSettings) -> None:
    """Refuse what JSON, or a store that keeps it, cannot hold: odd types, text with NUL, endless nesting."""
    level: list[Json] = [value]
    for _ in range(_MAX_NESTING):
        for entry in level:
            if isinstance(entry, str):
                check_text(where, entry, limits.message_bytes)
        level = [
            inner
            for entry in level
            if isinstance(entry, Mapping | list | tuple)
            for inner in ([*entry, *entry.values()] if isinstance(entry, Mapping) else entry)
        ]
    if level:
        raise InvalidInput(where, f"is nested deeper than {_MAX_NESTING} levels; flatten it")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(where, f"cannot be kept as JSON ({error}); use text, numbers, lists and objects") from error
    check_text(where, text, limits.message_bytes)


def _tool_calls(where: str, raw: Json, limits: LimitSettings) -> tuple[ToolCall, ...]:
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
        _check_json(here, entry, limits)
        arguments = function.get("arguments")
        if arguments is None:
            arguments = ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        calls.append(
            ToolCall(
                id=check_name(f"{here}.id", entry.get("id") or f"call-{place}"),
                name=check_name(f"{here}.function.name", function.get("name")),
                arguments=check_text(f"{here}.function.arguments", arguments, limits.message_bytes),
            )
        )
    return tuple(calls)


def read_time(where: str, value: Json, zone: ZoneInfo, now: datetime) -> datetime:
    """Return an aware UTC time from a datetime, ISO 8601 text or an epoch number; a naive one is in `zone`."""
    if value is None:
        return now
    try:
        moment = _parse_time(value)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            where, f"{shown(value)} is not a time; use ISO 8601 such as 2023-06-05T10:00:00+02:00 or epoch seconds"
        ) from error


def _parse_time(value: Json) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        return datetime.fromisoformat(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a time")
    return datetime.fromtimestamp(value / 1000 if value >= _MILLISECONDS_FROM else value, UTC)
