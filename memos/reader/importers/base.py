"""Shared parts of the chat export formats: records, dates, role and conversation names, content."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from memos.core.message_shapes import role_of
from memos.core.types import Json, Role
from memos.errors import InvalidInput, shown

# Epoch numbers above this are milliseconds: in seconds it would be the year 5138.
_MILLISECONDS_FROM = 1e11
_MOST_VALUES, _NAME_CHARS = 100, 100
_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_MONTH = r"(?P<month>[a-z]{3,9})\.?"
_DATES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<year>\d{4})[/.](?P<month>\d{1,2})[/.](?P<day>\d{1,2})",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[ -]{_MONTH}[ -](?P<year>\d{{4}})",
        rf"{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?P<year>\d{{4}})",
    )
)
_CLOCK = re.compile(
    r"(?<!\d)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d+)?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?(?: ?(?P<zone>[+-]\d{2}:?\d{2}|z|gmt|utc|ut)(?![a-z\d]))?"
)
_WEEKDAY = re.compile(r"\(?\b(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?\)?")
_NUMERIC = re.compile(r"\d{1,2}[/.-]\d{1,2}[/.-](?:\d{4}|\d{2})\b")


def read_date(value: Json) -> datetime:
    if isinstance(value, str) and _NUMERIC.match(value.strip()):
        raise InvalidInput(
            "chat_time",
            f"{shown(value)} is ambiguous, as the day or the month may come first; write it as ISO 8601, such as "
            "2023-04-03",
        )
    try:
        return _of_text(value.strip()) if isinstance(value, str) else _of_number(value)
    except (ValueError, OverflowError, OSError) as error:
        told = f"{shown(value)} is not a time; use ISO 8601 such as 2023-06-05T10:00:00+02:00 or epoch seconds"
        raise InvalidInput("chat_time", told) from error


def _of_number(value: Json) -> datetime:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a time")
    return datetime.fromtimestamp(value / 1000 if value >= _MILLISECONDS_FROM else value, UTC)


def _of_text(text: str) -> datetime:
    # Eight digits are an ISO date, 20230520; as an epoch they would lie in 1970.
    if len(text) != 8 and re.fullmatch(r"\d+(?:\.\d+)?", text):
        if not 9 <= len(text.partition(".")[0]) <= 13:
            raise ValueError("neither seconds nor milliseconds")
        return _of_number(float(text))
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return _of_words(" ".join(text.lower().replace(",", " ").split()))


def _of_words(text: str) -> datetime:
    clock = _CLOCK.search(text)
    if clock is not None:
        text = f"{text[: clock.start()]} {text[clock.end() :]}"
    words = [word for word in _WEEKDAY.sub(" ", text, count=1).split() if word not in ("on", "at")]
    for pattern in _DATES:
        if date := pattern.fullmatch(" ".join(words)):
            day = datetime(int(date["year"]), _month(date["month"]), int(date["day"]))  # noqa: DTZ001 - naive on purpose
            return day if clock is None else _at(day, clock)
    raise ValueError("not a date")


def _month(text: str) -> int:
    if text.isdigit():
        return int(text)
    for number, name in enumerate(_MONTHS, start=1):
        if name.startswith(text) or text == name[:4]:
            return number
    raise ValueError("not a month")


def _at(day: datetime, clock: re.Match[str]) -> datetime:
    hour = int(clock["hour"])
    if clock["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("not an hour")
        hour = hour % 12 + (12 if clock["half"] == "p" else 0)
    moment = day.replace(hour=hour, minute=int(clock["minute"]), second=int(clock["second"] or 0))
    zone = clock["zone"]
    if zone is None:
        return moment
    if zone[0] not in "+-":
        return moment.replace(tzinfo=UTC)
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return moment.replace(tzinfo=timezone(-offset if zone[0] == "-" else offset))


HIDDEN = "hidden or empty turns"
BRANCH = "branches that were not shown last"
REASONING = "reasoning, and results of tools inside an answer"
CONTENTS = "contents of attached files"
REMOVED = "messages that were deleted"
SERVICE = "notices of the program, such as who joined"

SPEAKER = "imported memory"
"""Who says a memory that another program made and of which it is not known who said it."""

_VALUE_CHARS = 4_096


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """A message of an export and its place; `problem` says why it cannot be read.

    Attributes:
        left_out: How much was left out here, for `reason`; a record with nothing else has an empty message.
        tags: Tags of the stored item.
        info: Further data of the stored item.
        owner: The user it belongs to where the other program had several; those of two never come into one cube.
        valid_from: When it began to hold, where the other program says so.
        valid_to: When it stopped to hold.
        revised: A text that the other program may change: one of the same id and another text is the newer version.
    """

    place: str
    conversation: str
    message: dict[str, Json]
    problem: str | None = None
    left_out: int = 0
    reason: str = HIDDEN
    tags: tuple[str, ...] = ()
    info: Mapping[str, Json] = field(default_factory=dict)
    owner: str = ""
    valid_from: Json = None
    valid_to: Json = None
    revised: bool = False


def left_out(reasons: Mapping[str, int]) -> Iterator[ExportRecord]:
    """Yield how much was left out for which reason."""
    for reason, count in reasons.items():
        if count:
            yield ExportRecord("the export", "export", {}, left_out=count, reason=reason)


def message_of(role: Json, **fields: Json) -> dict[str, Json]:
    return {"role": role_of(role), **{name: value for name, value in fields.items() if value is not None}}


def memory_record(  # noqa: PLR0913 - a memory has these properties
    place: str,
    conversation: str,
    text: Json,
    *,
    id_: str,
    tag: str,
    at: Json = None,
    name: str = SPEAKER,
    role: Role = Role.USER,
    tags: Sequence[str] = (),
    info: Mapping[str, Json] | None = None,
    owner: str = "",
    valid_from: Json = None,
    valid_to: Json = None,
) -> ExportRecord:
    """Return a memory that another program made as a record: `tag` says which program and what it is."""
    if not isinstance(text, str):
        return ExportRecord(place, conversation, {}, "has no text", owner=owner)
    if not text.strip():
        return ExportRecord(place, conversation, {}, left_out=1, owner=owner)
    message = message_of(role, content=text.strip(), name=name, message_id=id_, chat_time=at)
    if info := flat(info or {}):
        message["info"] = info
    return ExportRecord(
        place,
        conversation,
        message,
        tags=tuple(dict.fromkeys((tag, *tags))),
        owner=owner,
        valid_from=valid_from,
        valid_to=valid_to,
        revised=True,
    )


def flat(fields: Mapping[Any, Json]) -> dict[str, Json]:
    """Return fields of another program as `info`: nested values as JSON text, long ones cut, empty ones left out."""
    found: dict[str, Json] = {}
    for name, value in fields.items():
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, datetime):
            told: Json = value.isoformat()
        elif isinstance(value, bool) or (isinstance(value, int | float) and abs(value) <= 2**53):
            told = value
        elif isinstance(value, str):
            told = value[:_VALUE_CHARS]
        elif isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            told = [each[:_VALUE_CHARS] for each in value[:_MOST_VALUES]]
        else:
            told = _short_json(value)
        found[str(name)[:_NAME_CHARS] or "_"] = told
    return found


def _short_json(value: Json) -> str:
    """Return the beginning of a value as JSON; of one that shares its parts no more is written than that."""
    told = ""
    try:
        for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
            told += piece
            if len(told) > _VALUE_CHARS:
                break
    except (TypeError, ValueError, RecursionError):
        told = told or type(value).__name__
    return told[:_VALUE_CHARS]


def name_of(candidates: Sequence[Json], fallback: str) -> str:
    for candidate in candidates:
        if candidate and isinstance(candidate, str | int | float) and not isinstance(candidate, bool):
            return str(candidate)
    return fallback


def numbered(fallback: str, place: str) -> str:
    return f"{fallback}-{place.rsplit(maxsplit=1)[-1]}"


def mapping_in(raw: Json, field: str) -> Mapping[str, Any]:
    value = raw.get(field) if isinstance(raw, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def list_in(raw: Json, field: str) -> list[Json]:
    value = raw.get(field) if isinstance(raw, Mapping) else None
    return value if isinstance(value, list) else []


def text_in(raw: Json, field: str) -> str:
    value = raw.get(field) if isinstance(raw, Mapping) else None
    return value if isinstance(value, str) else ""


def image_part(url: Any = None) -> Json:
    was = url if isinstance(url, str) and url and not url.startswith("data:") else None
    # Where an image once was is nothing to fetch now: an import asks no server.
    return {"type": "image_url", "image_url": {}, **({} if was is None else {"was": was})}


def content_of(parts: Sequence[Json]) -> Json:
    parts = [part for part in parts if part["type"] != "text" or part["text"].strip()]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts
