"""Validate arguments of calls: tags, info, ids, numbers, edits of an item."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from memos.core.text.validation import MAX_MESSAGE_BYTES, check_name, check_text, is_blank
from memos.core.types import ItemType, Json, Status, Tier
from memos.errors import InvalidInput, shown

_Choice = TypeVar("_Choice", bound=StrEnum)

_MAX_TAGS = 100
_MAX_IDS = 10_000
INFO_BYTES = 65_536
"""Most bytes of an item's `info`, as JSON."""

_INFO_LEVELS = 32
_LONGEST_S = 10**9
# Epoch numbers above this are milliseconds: in seconds it would be the year 5138.
_MILLISECONDS_FROM = 1e11


def tags_of(raw: Json) -> tuple[str, ...]:
    if isinstance(raw, str) or not isinstance(raw, Sequence):
        raise InvalidInput("tags", "must be a list of strings")
    if len(raw) > _MAX_TAGS:
        raise InvalidInput("tags", f"has {len(raw)} tags, more than the limit of {_MAX_TAGS}")
    return tuple(dict.fromkeys(check_name("tags", tag, 128) for tag in raw))


def members_of(name: str, raw: Json, kind: type[_Choice]) -> tuple[_Choice, ...]:
    if isinstance(raw, str) or not isinstance(raw, Sequence | Set):
        raise InvalidInput(name, "must be a list of strings")
    if len(raw) > _MAX_TAGS:
        raise InvalidInput(name, f"has {len(raw)} entries, more than the limit of {_MAX_TAGS}")
    return tuple(sorted({member_of(name, value, kind) for value in raw}))


def info_of(raw: Json, where: str = "info") -> dict[str, Json]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidInput(where, f"must be an object, not {type(raw).__name__}")
    for name, value in raw.items():
        _check_json(f"{where}.{check_name(where, name, 128)}", value, _INFO_LEVELS)
    checked = json_copy(dict(raw))
    check_text(where, json.dumps(checked, ensure_ascii=False), INFO_BYTES)
    return dict(checked)


def _check_json(where: str, value: Json, levels: int) -> None:
    if isinstance(value, Mapping | list | tuple):
        if not levels:
            raise InvalidInput(where, f"is nested deeper than {_INFO_LEVELS} levels; flatten it")
        if isinstance(value, Mapping):
            for name in value:
                check_text(where, name, INFO_BYTES)
        for entry in value.values() if isinstance(value, Mapping) else value:
            _check_json(where, entry, levels - 1)
    elif isinstance(value, str):
        check_text(where, value, INFO_BYTES)
    elif value is not None and (not isinstance(value, bool | int | float) or value != value or abs(value) > 2**53):
        raise InvalidInput(
            where,
            f"must be JSON: a string, a boolean, a number up to 2^53, null, a list or an object; got {shown(value)}",
        )


def json_copy(value: Any) -> Json:
    def as_text(value: Any) -> str:
        if isinstance(value, bytes | bytearray | memoryview):
            return hashlib.sha256(value).hexdigest()  # an image's bytes
        return value.isoformat() if isinstance(value, datetime) else str(value)

    return json.loads(json.dumps(value, ensure_ascii=False, default=as_text))


def ids_of(raw: str | Collection[str], least: int = 1) -> list[str]:
    if isinstance(raw, bytes) or not isinstance(raw, Collection):
        raise InvalidInput("item_ids", f"must be an id or a list of ids, not {type(raw).__name__}")
    ids = [raw] if isinstance(raw, str) else list(raw)
    if len(ids) < least:
        raise InvalidInput("item_ids", "must not be empty; give at least one id")
    if len(ids) > _MAX_IDS:
        raise InvalidInput("item_ids", f"has {len(ids):,} ids, more than the limit of {_MAX_IDS:,}")
    return list(dict.fromkeys(check_name("item_ids", item_id, 64) for item_id in ids))


def within(where: str, value: Json, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(where, f"must be a whole number from {low:,} to {high:,}, not {shown(value)}")
    return value


def fraction_of(where: str, value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(where, "must be a number from 0 to 1")
    return float(value)


def switch(where: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(where, f"must be true or false, not {shown(value)}")
    return value


def ttl_of(value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST_S:
        raise InvalidInput("ttl_s", f"must be a number of seconds above 0, at most {_LONGEST_S:,}, not {shown(value)}")
    return float(value)


def version_of(where: str, value: Json) -> int:
    return within(where, value, 0, 2**31 - 1)


def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(check_name("time_zone", name, 64))
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInput("time_zone", f"{name!r} is unknown; use a name such as Europe/Paris") from error


def read_time(where: str, value: Json, zone: ZoneInfo, now: datetime) -> datetime:
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


def edits_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    if not raw:
        raise InvalidInput("memory", "nothing to change; give a new text or another field")
    return {name: _edit(name, value) for name, value in raw.items()}


def _edit(name: str, value: Any) -> Any:
    match name:
        case "memory":
            text = check_text(name, value, MAX_MESSAGE_BYTES)
            if is_blank(text):
                raise InvalidInput(name, "must not be empty; to delete the memory, use delete")
            return text
        case "tags":
            return tags_of(value)
        case "info":
            return info_of(value)
        case "key" | "value":
            return None if value is None else check_name(name, value)
        case "confidence":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise InvalidInput(name, f"must be a number from 0 to 1, not {shown(value)}")
            return float(value)
        case "tier":
            return member_of(name, value, Tier)
        case "type":
            return member_of(name, value, ItemType)
        case "status":
            status = member_of(name, value, Status)
            if status is Status.DELETED:
                raise InvalidInput(name, "cannot be set to deleted by an update; use delete")
            return status
        case "valid_from" | "valid_to":
            return None if value is None else read_time(name, value, ZoneInfo("UTC"), datetime.now(UTC))
    raise InvalidInput(
        name,
        "cannot be changed; you can change memory, tags, info, key, value, confidence, tier, type, status, "
        "valid_from, valid_to",
    )


def member_of(name: str, value: Json, kind: type[_Choice]) -> _Choice:
    if not isinstance(value, str) or value not in set(kind):
        raise InvalidInput(name, f"{shown(value)} is unknown; use one of {', '.join(kind)}")
    return kind(value)


def seconds_of(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_S:
        raise InvalidInput(name, f"must be a number from 0 to {_LONGEST_S:,}, not {shown(value)}")
    return value
