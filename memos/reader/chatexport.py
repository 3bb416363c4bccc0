"""Reads chat exports (JSON or JSONL) as batches of messages by conversation; reports each bad record with its place.

Shapes: a list of messages; a list of conversations `{id, messages}`; an object with `conversations` or `sessions`;
JSONL with one message or one conversation a line. A message may name its conversation itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from memos.errors import InvalidInput
from memos.model import Json
from memos.text.checks import decode

BATCH = 50
"""Messages of one transaction: small enough to show progress, large enough to share a flush."""

_KEPT = ("role", "content", "name", "chat_time", "message_id", "tool_calls", "tool_call_id")
_RENAMED = {
    "speaker": "name",
    "text": "content",
    "timestamp": "chat_time",
    "time": "chat_time",
    "create_time": "chat_time",
}


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """One message of an export, with where it stands; `problem` says why it cannot be read."""

    place: str
    conversation: str
    message: dict[str, Json]
    problem: str | None = None


def read_export(path: Path, conversation: str | None = None) -> list[ExportRecord]:
    """Return every record of an export in order, bad ones marked. Raises: InvalidInput when nothing can be read."""
    text = decode(str(path), _bytes(path))
    if not text.strip():
        raise InvalidInput(str(path), "is empty; give a JSON or JSONL chat export")
    fallback = conversation or path.stem
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix != ".jsonl" and not _is_json(text.lstrip().split("\n", 1)[0]):
            raise InvalidInput(str(path), f"is not JSON: {_why(error)}; a cut-off download perhaps") from error
        return list(_of_lines(text, fallback))
    if not isinstance(document, list | dict):
        raise InvalidInput(str(path), f"must hold a list or an object, not {type(document).__name__}")
    return list(_of_document(document, fallback))


def batches(records: list[ExportRecord]) -> Iterator[list[ExportRecord]]:
    """Yield readable records in runs of one conversation, at most `BATCH` together."""
    readable = [record for record in records if record.problem is None]
    for _, run in groupby(readable, key=lambda record: record.conversation):
        entries = list(run)
        for start in range(0, len(entries), BATCH):
            yield entries[start : start + BATCH]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read ({error.strerror})") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _why(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} in line {error.lineno}"
        case RecursionError():
            return "nested too deeply"
    return "a number has too many digits"


def _of_lines(text: str, fallback: str) -> Iterator[ExportRecord]:
    # Only a line feed ends a line of JSONL: other separators may stand inside a message.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield ExportRecord(place, fallback, {}, f"is not JSON ({getattr(error, 'msg', _why(error))})")
            continue
        yield from _of_entry(entry, fallback, place)


def _of_document(document: Any, fallback: str) -> Iterator[ExportRecord]:
    if isinstance(document, Mapping):
        for name in ("conversations", "sessions"):
            if isinstance(document.get(name), list):
                document = document[name]
                break
        else:
            document = [document]
    for number, entry in enumerate(document, start=1):
        yield from _of_entry(entry, fallback, f"entry {number}")


def _of_entry(entry: Any, fallback: str, place: str) -> Iterator[ExportRecord]:
    if not isinstance(entry, Mapping):
        yield ExportRecord(place, fallback, {}, f"is {type(entry).__name__}, not an object")
        return
    named = entry.get("conversation") or entry.get("conversation_id") or entry.get("id") or entry.get("title")
    if isinstance(entry.get("messages"), list):
        name = str(named or f"{fallback}-{place.rsplit(maxsplit=1)[-1]}")
        for number, message in enumerate(entry["messages"], start=1):
            yield _of_message(message, name, f"{place}, message {number}")
    else:
        own = entry.get("conversation") or entry.get("conversation_id")
        yield _of_message(entry, str(own or fallback), place)


def _of_message(raw: Any, conversation: str, place: str) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    message: dict[str, Json] = {}
    for given, value in raw.items():
        name = _RENAMED.get(str(given), str(given))
        if name in _KEPT and value is not None and (given == name or name not in message):
            message[name] = value
    if "content" not in message and "tool_calls" not in message:
        return ExportRecord(place, conversation, {}, "has no content")
    return ExportRecord(place, conversation, message)
