"""Formats of exports: recognise what the files of an export are, and read them as records."""

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
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from memos.core.text.redaction import mask
from memos.core.text.validation import check_name
from memos.core.types import Json, Message
from memos.errors import InvalidInput
from memos.reader.importers.base import ExportRecord, left_out, read_date
from memos.reader.importers.chatgpt import chatgpt_records, is_chatgpt
from memos.reader.importers.claude import claude_records, is_claude
from memos.reader.importers.datasets import is_locomo, is_longmemeval, locomo_records, longmemeval_records
from memos.reader.importers.gemini import gemini_records, is_takeout
from memos.reader.importers.generic import generic_records, is_langchain_entry, langchain_records
from memos.reader.importers.graphiti import credentials_of, graphiti_records
from memos.reader.importers.langgraph import is_langgraph, is_store, langgraph_records, store_records
from memos.reader.importers.letta import is_letta, letta_records
from memos.reader.importers.local_chats import (
    is_librechat,
    is_lm_studio,
    is_open_webui,
    librechat_records,
    lm_studio_records,
    open_webui_records,
)
from memos.reader.importers.mem0 import (
    is_mem0,
    is_mem0_storage,
    mem0_records,
    mem0_server_records,
    mem0_storage_records,
)
from memos.reader.importers.mempalace import is_mempalace, mempalace_records
from memos.reader.importers.notes import is_basic_memory, is_notes, notes_records
from memos.reader.importers.slack import is_slack, slack_records
from memos.reader.importers.sources import Export, ExportOptions, Given, SourceFile, kind_of, open_export, printable
from memos.reader.importers.stream import read_entries
from memos.reader.importers.telegram import is_telegram, telegram_records
from memos.reader.importers.whatsapp import is_whatsapp, whatsapp_records
from memos.reader.messages import read_messages


class Format(StrEnum):
    """What an export may be of."""

    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    GEMINI = "gemini"
    OPEN_WEBUI = "open-webui"
    LIBRECHAT = "librechat"
    LM_STUDIO = "lm-studio"
    SLACK = "slack"
    WHATSAPP = "whatsapp"
    TELEGRAM = "telegram"
    NOTES = "notes"
    BASIC_MEMORY = "basic-memory"
    MEM0 = "mem0"
    ZEP = "zep"
    LETTA = "letta"
    MEMPALACE = "mempalace"
    LANGGRAPH = "langgraph"
    LOCOMO = "locomo"
    LONGMEMEVAL = "longmemeval"
    LANGCHAIN = "langchain"
    GENERIC = "generic"


_DEFAULTS = ExportOptions()
_LOOKED_AT = 20
_JSON = (".json", ".jsonl", ".ndjson", ".af", "")
_SERVERS = {
    "http": Format.MEM0,
    "https": Format.MEM0,
    **dict.fromkeys(("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc"), Format.ZEP),
}

# Formats of several files, or of files that are no JSON; those that are sure come before those that are not.
_BUNDLES: dict[Format, tuple[Callable[[Export], bool], Callable[[Export, str], Iterator[ExportRecord]]]] = {
    Format.SLACK: (is_slack, slack_records),
    Format.TELEGRAM: (is_telegram, telegram_records),
    Format.WHATSAPP: (is_whatsapp, whatsapp_records),
    Format.GEMINI: (is_takeout, gemini_records),
    Format.MEM0: (is_mem0_storage, mem0_storage_records),
    Format.LANGGRAPH: (is_store, store_records),
    Format.MEMPALACE: (is_mempalace, mempalace_records),
    Format.BASIC_MEMORY: (is_basic_memory, notes_records),
    Format.NOTES: (is_notes, notes_records),
}

# Formats of JSON: what recognises one of its entries, and what reads one.
_READERS: dict[Format, tuple[Callable[[Json], bool], Callable[[Json, str, str], Iterator[ExportRecord]]]] = {
    Format.CHATGPT: (is_chatgpt, chatgpt_records),
    Format.CLAUDE: (is_claude, claude_records),
    Format.OPEN_WEBUI: (is_open_webui, open_webui_records),
    Format.LIBRECHAT: (is_librechat, librechat_records),
    Format.LM_STUDIO: (is_lm_studio, lm_studio_records),
    Format.LETTA: (is_letta, letta_records),
    Format.LANGGRAPH: (is_langgraph, langgraph_records),
    Format.MEM0: (is_mem0, mem0_records),
    Format.LOCOMO: (is_locomo, locomo_records),
    Format.LONGMEMEVAL: (is_longmemeval, longmemeval_records),
    Format.LANGCHAIN: (is_langchain_entry, langchain_records),
    Format.GENERIC: (lambda _: True, generic_records),
}


def server_format(given: Given) -> Format | None:
    """Return the format of what is on the server that a URL names; None for files."""
    if not isinstance(given, str) or "://" not in given:
        return None
    scheme = urlsplit(given).scheme.lower()
    if scheme not in _SERVERS:
        raise InvalidInput(
            "file", f"{scheme}:// is no address of a store; give http(s):// for Qdrant, bolt:// for Neo4j"
        )
    return _SERVERS[scheme]


def label_of(given: Given) -> str:
    """Return what an export is called in errors: a path, or a URL without name and password."""
    if isinstance(given, str) and "://" in given:
        return credentials_of(given)[0]
    return str(given) if isinstance(given, str | Path) else ", ".join(map(str, given))[:200]


def detect(given: Given, name: str | None = None) -> Format:
    """Return the format of an export. Raises: InvalidInput (it cannot be read, or nothing in it is known)."""
    server = server_format(given)
    if server is not None:
        return server
    with open_export(given, ExportOptions(name=name)) as export:
        if _is_cube(export):
            raise InvalidInput(
                export.label, "is a cube that was exported here; load it as a cube. Use `memos cube load`."
            )
        for format_, (matches, _) in _BUNDLES.items():
            if matches(export):
                return format_
        if export.single:
            return _format_of(export.files[0]) or Format.GENERIC
        found: list[Format | None] = []
        failed: InvalidInput | None = None
        for file in export.files:
            if file.suffix in _JSON:
                try:
                    found.append(_format_of(file))
                except InvalidInput as error:  # it is told when it is read
                    failed = failed or error
        known = next((each for each in found if each not in (None, Format.GENERIC)), None)
        if known is not None or Format.GENERIC in found:
            return known or Format.GENERIC
        if failed is not None:
            raise failed
        raise InvalidInput(export.label, f"holds nothing that is known; known are exports of {', '.join(Format)}")


def _is_cube(export: Export) -> bool:
    """Return True for what `memos export` writes, also if it is sealed."""
    if export.single:
        return export.files[0].head(len(_SEALED)) == _SEALED
    return {file.name for file in export.files} >= _OF_CUBES


_SEALED = b"MEMCUBE-SEALED"
_OF_CUBES = {"manifest.json", "items.jsonl", "versions.jsonl", "sources.jsonl"}


def _format_of(file: SourceFile) -> Format | None:
    """Return the format of a file's first entries, None if they are neither objects nor lists."""
    for entry in islice(read_entries(file), _LOOKED_AT):
        if isinstance(entry.value, dict | list):
            return next(format_ for format_, (matches, _) in _READERS.items() if matches(entry.value))
    return None


def read_export(
    given: Given, format: Format, conversation: str | None = None, options: ExportOptions = _DEFAULTS
) -> Iterator[ExportRecord]:
    """Yield every message of an export in order, bad ones marked; `conversation` names unnamed ones."""
    options = replace(options, conversation=conversation or options.conversation)
    if server_format(given) is not None:
        yield from _of_server(str(given), format, options)
        return
    with open_export(given, options) as export:
        fallback = options.conversation or _stem(options.name or Path(export.label).name)
        bundle = _BUNDLES.get(format)
        if bundle is not None and (format not in _READERS or bundle[0](export)):
            yield from bundle[1](export, fallback)
        else:
            yield from _of_entries(export, format, options.conversation, fallback)
        yield from left_out(export.left_out)


def _stem(name: str) -> str:
    return Path(name).stem[:200] or "export"


def _of_server(url: str, format: Format, options: ExportOptions) -> Iterator[ExportRecord]:
    if format is not _SERVERS[urlsplit(url).scheme.lower()]:
        raise InvalidInput("format", f"{format} is not read from a server; give its file")
    if format is Format.ZEP:
        yield from graphiti_records(url, options.collection)
        return
    address, login = credentials_of(url)
    yield from mem0_server_records(address, options.collection or "mem0", login[1] if login else None)


def _of_entries(export: Export, format: Format, conversation: str | None, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of all files of JSON that are of a format; others are left out and named."""
    matches, records = _READERS[format]
    for file in export.files:
        named = conversation or (fallback if export.single else file.stem[:200] or fallback)
        if not export.single and (file.suffix not in _JSON or not _is_of(file, matches, format)):
            yield ExportRecord(printable(file.name), named, {}, left_out=1, reason=_kind_of(file))
            continue
        before = "" if export.single else f"{file.label}: "
        try:
            for entry in read_entries(file):
                place = f"{before}{entry.place}"
                if entry.problem is not None:
                    yield ExportRecord(place, named, {}, entry.problem)
                else:
                    yield from records(entry.value, place, named)
        except InvalidInput as error:
            if export.single:
                raise
            yield ExportRecord(printable(file.name), named, {}, error.reason)


def _is_of(file: SourceFile, matches: Callable[[Json], bool], format: Format) -> bool:
    """Return True unless the first entries of a file are of something else; a damaged file is told when it is read."""
    try:
        if format is Format.GENERIC:
            return _format_of(file) in (Format.GENERIC, None)
        held = [entry.value for entry in islice(read_entries(file), _LOOKED_AT) if entry.problem is None]
    except InvalidInput:
        return file.suffix != ""
    return any(map(matches, held)) or not held


def _kind_of(file: SourceFile) -> str:
    if file.suffix in _JSON[:3]:
        return f"{file.name.rpartition('/')[2]}, which holds no conversations"
    return kind_of(file)


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
    if record.valid_from is not None or record.valid_to is not None:
        dated = replace(dated, valid_from=_moment(record.valid_from, zone), valid_to=_moment(record.valid_to, zone))
    [message] = read_messages([dated.message], zone, now)
    return dated, message


def _moment(value: Json, zone: ZoneInfo) -> datetime | None:
    if value is None:
        return None
    at = read_date(value)
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def _made_id(record: ExportRecord, seen: _Seen) -> str:
    said = {name: value for name, value in record.message.items() if name != "info"}
    told = json.dumps([record.conversation, said], sort_keys=True)
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
