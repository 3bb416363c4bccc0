"""The formats of chat exports: which there are, which one a file is in, and reading it as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path

from memos.core.types import Json
from memos.reader.importers import chatgpt, claude, generic, langchain, locomo, longmemeval
from memos.reader.importers.record import ExportRecord
from memos.reader.importers.stream import read_entries

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
