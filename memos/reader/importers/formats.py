"""The formats of chat exports: which there are, which one a file is in, and reading it as records."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from memos.core.text.redaction import mask
from memos.core.text.validation import check_name
from memos.core.types import Json, Message
from memos.errors import InvalidInput
from memos.reader.importers import chatgpt, claude, generic, langchain, locomo, longmemeval
from memos.reader.importers.base import ExportRecord, read_date
from memos.reader.importers.stream import read_entries
from memos.reader.messages import read_messages

# Checks an export's records the way `add` will, gives each an id, and notes wrong order; stores nothing.


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """A record ready to be stored, with its id and time, or with its problem.

    `late` says that its time is earlier than that of the message before it in its conversation.
    """

    record: ExportRecord
    late: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was in the file so far: digests, not words."""

    said: Counter[bytes] = field(default_factory=Counter)
    ids: dict[bytes, tuple[bytes, str]] = field(default_factory=dict)
    last: dict[str, datetime] = field(default_factory=dict)


def checked(records: Iterable[ExportRecord], zone: ZoneInfo, now: datetime) -> Iterator[CheckedRecord]:
    """Yield the records with what `add` would refuse marked, so that each is named by its own place.

    A message without an id gets one made of what it says, the same in every import.
    """
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
        first, same = _first_place(record, message, seen)
        if first is None:
            yield CheckedRecord(dated, _late(record, message, seen))
        elif same:
            yield CheckedRecord(dated)
        else:
            told = f"has the message id {message.message_id!r} of {first} and other text"
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


def _first_place(record: ExportRecord, message: Message, seen: _Seen) -> tuple[str | None, bool]:
    """Return where the file had this message id before, and whether with the same text."""
    key = _digest(f"{record.conversation}\0{message.message_id}")
    text = _digest(message.text)
    if key not in seen.ids:
        seen.ids[key] = (text, record.place)
        return None, False
    before, place = seen.ids[key]
    return place, before == text


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
    """How an export is laid out."""

    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    LOCOMO = "locomo"
    LONGMEMEVAL = "longmemeval"
    LANGCHAIN = "langchain"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class _Reader:
    """What a format's module offers: whether an entry is in it, and the records of an entry."""

    matches: Callable[[Json], bool]
    records: Callable[[Json, str, str], Iterator[ExportRecord]]


_READERS = {
    Format.CHATGPT: _Reader(chatgpt.matches, chatgpt.records),
    Format.CLAUDE: _Reader(claude.matches, claude.records),
    Format.LOCOMO: _Reader(locomo.matches, locomo.records),
    Format.LONGMEMEVAL: _Reader(longmemeval.matches, longmemeval.records),
    Format.LANGCHAIN: _Reader(langchain.matches, langchain.records),
    Format.GENERIC: _Reader(generic.matches, generic.records),
}


def detect(path: Path) -> Format:
    """Return the format of a file's first entry that is an object or a list. Raises: InvalidInput."""
    for entry in islice(read_entries(path), _LOOKED_AT):
        if isinstance(entry.value, dict | list):
            return next(format for format, reader in _READERS.items() if reader.matches(entry.value))
    return Format.GENERIC


def read_export(path: Path, format: Format, conversation: str | None = None) -> Iterator[ExportRecord]:
    """Yield every message of an export in the file's order, bad ones marked; `conversation` is for those without.

    Raises: InvalidInput when nothing in the file can be read.
    """
    fallback = conversation or path.stem
    records = _READERS[format].records
    for entry in read_entries(path):
        if entry.problem is not None:
            yield ExportRecord(entry.place, fallback, {}, entry.problem)
        else:
            yield from records(entry.value, entry.place, fallback)
