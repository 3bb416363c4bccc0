"""Read a JSON or JSONL file entry by entry, holding one entry at a time.

A list is cut at its commas by bracket depth and each piece is decoded by itself, so one bad entry spoils no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import SEEK_CUR
from pathlib import Path
from typing import BinaryIO

from memos.core.text.validation import decode
from memos.core.types import Json
from memos.errors import InvalidInput
from memos.reader.importers.sources import SourceFile, file_on_disk

BLOCK = 262_144
"""Bytes read at once."""

# Possessive, so that no text makes them slow: whole strings and all else up to the next byte that may matter.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TO_COMMA_OR_BRACKET = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+", re.DOTALL)
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
_TO_QUOTE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class Window:
    """The part of a file being scanned: the current entry and the block after it."""

    # Of an oversized entry only the newest block is held.

    def __init__(self, file: BinaryIO, line: int, max_bytes: int, held: bytes = b"") -> None:
        self.line = line
        self.last = b""
        self._file = file
        self._max_bytes = max_bytes
        self._held = bytearray(held)
        self._start = 0
        self._at = 0
        self._too_large = False

    def skip(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self._held, self._at)
        self._at = found.end() if found else self._at

    def take(self) -> bytes:
        if self._at == len(self._held):
            self._fill()
        self.last = bytes(self._held[self._at : self._at + 1])
        self._at += len(self.last)
        return self.last

    def cut(self) -> tuple[bytearray | None, int]:
        """Return what was read since the last cut, without the last byte, and its first line number."""
        self._too_large |= self._at - self._start > self._max_bytes
        raw = None if self._too_large else self._held[self._start : self._at - len(self.last)]
        line = self.line
        self.line += self._held.count(b"\n", self._start, self._at)
        self._start, self._too_large = self._at, False
        return raw, line

    def rest(self) -> bytes:
        return bytes(self._held[self._at :])

    def rest_has_content(self) -> bool:
        rest = bytes(self._held[self._at :])
        while not rest.strip():
            if not (rest := self._file.read(BLOCK)):
                return False
        return True

    def _fill(self) -> None:
        self._too_large |= self._at - self._start > self._max_bytes
        if self._too_large:
            self.line += self._held.count(b"\n", self._start, self._at)
            self._start = self._at
        del self._held[: self._start]
        self._at -= self._start
        self._start = 0
        self._held += self._file.read(BLOCK)


def pieces(window: Window) -> Iterator[tuple[bytearray | None, int]]:
    """Yield the text between the commas of the current list, with line numbers."""
    # None is an oversized piece. Brackets are only counted; the decoder checks that they match.
    depth, quoted = 1, False
    while True:
        if quoted:
            window.skip(_TO_QUOTE)
        else:
            window.skip(_TO_COMMA_OR_BRACKET if depth == 1 else _TO_BRACKET)
        mark = window.take()
        if quoted:
            quoted = mark != b'"'
            if mark == b"\\":
                window.take()
        elif mark == b'"':
            quoted = True
        elif mark in (b"[", b"{"):
            depth += 1
        elif mark in (b"]", b"}"):
            depth -= 1
        if not mark or depth == 0 or (depth == 1 and not quoted and mark == b","):
            yield window.cut()
            if mark != b",":
                return


ENTRY_BYTES = 67_108_864
"""Largest entry of a list, line of JSONL, or single object; a whole file has no limit."""

_BOM = b"\xef\xbb\xbf"
_OTHER_FILES = {
    b"\x1f\x8b": "is compressed (gzip); unpack it first",
    b"\xff\xfe": "is not UTF-8: it begins as UTF-16 does; convert the file to UTF-8",
    b"\xfe\xff": "is not UTF-8: it begins as UTF-16 does; convert the file to UTF-8",
}
_HEADER_BYTES = 65_536
_CUT = "the download may be incomplete"


@dataclass(frozen=True, slots=True)
class Entry:
    place: str
    value: Json = None
    problem: str | None = None


def read_entries(given: SourceFile | Path, max_bytes: int = ENTRY_BYTES) -> Iterator[Entry]:
    """Yield the entries of a list, of a list under `conversations` or `sessions`, or of JSONL; or the one object."""
    source = given if isinstance(given, SourceFile) else file_on_disk(given)
    try:
        with source.open() as file:
            head, line = _begin(file)
            if not head:
                raise InvalidInput(source.label, "is empty; give a JSON or JSONL chat export")
            if reason := _OTHER_FILES.get(head):
                raise InvalidInput(source.label, reason)
            start = file.tell()
            jsonl = source.suffix in (".jsonl", ".ndjson")
            listed = head[:1] == b"["
            by_lines = (jsonl or not listed) and _by_lines(file, jsonl and not listed, max_bytes)
            file.seek(start)
            if by_lines:
                yield from _of_lines(file, line, max_bytes)
            elif listed:
                yield from _of_list(source.label, file, line, max_bytes)
            else:
                yield from _of_document(source.label, file, max_bytes)
    except OSError as error:
        raise InvalidInput(source.label, f"cannot be read ({error.strerror})") from error


def read_members(path: Path, opening: re.Pattern[bytes], max_bytes: int = ENTRY_BYTES) -> Iterator[Entry]:
    """Yield the members of the object after `opening`, each as an object of one member."""
    # Other files are read as by `read_entries`.
    try:
        with path.open("rb") as file:
            begin = opening.match(file.read(BLOCK))
            if begin is not None:
                file.seek(begin.end())
                yield from _of_object(file, 1 + begin[0].count(b"\n"), max_bytes)
                return
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read ({error.strerror})") from error
    yield from read_entries(path, max_bytes)


def read_lists(
    source: SourceFile, opening: re.Pattern[bytes], max_bytes: int = ENTRY_BYTES
) -> Iterator[tuple[bytes, Entry | None]]:
    """Yield the entries of each list behind a match of `opening`, with the text before that list; None begins one.

    `opening` has to match a key with its bracket, not preceded by a backslash, so that it matches inside no string.
    Of the text before a list the last 64 KiB are kept.
    """
    with source.open() as file:
        held, ended = b"", False
        while True:
            found = opening.search(held)
            if found is None:
                block = b"" if ended else file.read(BLOCK)
                if not block:
                    return
                held = held[-_HEADER_BYTES:] + block
                continue
            header = held[max(0, found.start() - _HEADER_BYTES) : found.start()]
            yield header, None
            window = Window(file, 1, max_bytes, held[found.end() :])
            for number, (raw, _) in enumerate(pieces(window), start=1):
                place = f"entry {number}"
                if not window.last:
                    ended = True
                    yield header, Entry(place, problem=f"is not JSON: the file ends there; {_CUT}")
                elif raw is None:
                    yield header, _too_large(place, max_bytes)
                elif raw.strip() or window.last == b",":
                    yield header, _parsed(place, raw)
            held = window.rest()


def _begin(file: BinaryIO) -> tuple[bytes, int]:
    line = 1
    if file.read(len(_BOM)) != _BOM:
        file.seek(0)
    while block := file.read(BLOCK):
        rest = block.lstrip()
        line += block.count(b"\n", 0, len(block) - len(rest))
        if rest:
            file.seek(-len(rest), SEEK_CUR)
            return rest[:2], line
    return b"", line


def _by_lines(file: BinaryIO, expected: bool, max_bytes: int) -> bool:
    """Return True if the file is JSONL: the first line is a value and more follow, or its name says so."""
    first = file.readline(max_bytes + 1)
    if len(first) <= max_bytes and _parsed("", first).problem is None:
        return any(block.strip() for block in iter(lambda: file.read(BLOCK), b""))
    return expected and first.strip() != b"{"


def _parsed(place: str, raw: bytes | bytearray, line: int | None = None) -> Entry:
    def at(number: int) -> str:
        return "" if line is None else f" in line {line + number}"

    try:
        return Entry(place, json.loads(raw.decode("utf-8")))
    except UnicodeDecodeError as error:
        where = at(raw.count(b"\n", 0, error.start))
        problem = f"is not UTF-8: byte 0x{raw[error.start]:02x}{where}; convert the file to UTF-8"
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg}{at(error.lineno - 1)})"
    except (ValueError, RecursionError) as error:
        blank_lines = raw.count(b"\n", 0, len(raw) - len(raw.lstrip()))
        problem = f"is not JSON ({_why(error)}{at(blank_lines)})"
    return Entry(place, problem=problem)


def _why(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} in line {error.lineno}"
        case RecursionError():
            return "nested too deeply"
    return "a number has too many digits"


def _too_large(place: str, max_bytes: int) -> Entry:
    return Entry(place, problem=f"is larger than {max_bytes:,} bytes; split it into conversations")


def _of_document(label: str, file: BinaryIO, max_bytes: int) -> Iterator[Entry]:
    file.seek(0)
    raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        reason = f"is one object of more than {max_bytes:,} bytes; give a list or JSONL, which are read entry by entry"
        if (begin := raw.lstrip()[:1]) != b"{":
            reason = f"is not JSON: it begins with {begin!r}"
        raise InvalidInput(label, reason)
    text = decode(label, raw)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(label, f"is not JSON: {_why(error)}; {_CUT}") from error
    if not isinstance(document, Mapping):
        raise InvalidInput(label, f"must hold a list or an object, not {type(document).__name__}")
    lists = [document[name] for name in ("conversations", "sessions") if isinstance(document.get(name), list)]
    for number, value in enumerate(lists[0] if lists else [document], start=1):
        yield Entry(f"entry {number}", value)


def _of_lines(file: BinaryIO, number: int, max_bytes: int) -> Iterator[Entry]:
    # Only a line feed ends a line of JSONL: other separators may stand inside a message.
    while line := file.readline(max_bytes + 1):
        if len(line) > max_bytes:
            yield _too_large(f"line {number}", max_bytes)
            while line and not line.endswith(b"\n"):
                line = file.readline(BLOCK)
        elif line.strip():
            yield _parsed(f"line {number}", line)
        number += 1


def _of_list(label: str, file: BinaryIO, line: int, max_bytes: int) -> Iterator[Entry]:
    file.read(1)
    window = Window(file, line, max_bytes)
    number = readable = 0
    for raw, begin in pieces(window):
        blank = raw is not None and not raw.strip()
        if blank and (not window.last or (window.last == b"]" and number == 0)):
            continue  # the file ends behind a comma; or `[]`
        place = f"entry {number + 1}"
        entry = _too_large(place, max_bytes) if raw is None else _parsed(place, raw, begin)
        if not window.last and entry.problem is not None:
            continue  # the truncation is reported below
        number += 1
        readable += entry.problem is None
        yield entry
    if not window.last:
        end = f"in line {window.line} after {file.tell():,} bytes; {_CUT}"
        if not readable:
            raise InvalidInput(label, f"is not JSON: the file ends inside entry {number + 1}, {end}")
        yield Entry(f"entry {number + 1}", problem=f"is not JSON: the file ends there, {end}")
    elif window.rest_has_content():
        yield Entry(f"entry {number + 1}", problem=f"comes after the end of the list, in line {window.line}; remove it")


def _of_object(file: BinaryIO, line: int, max_bytes: int) -> Iterator[Entry]:
    file.read(1)
    window = Window(file, line, max_bytes)
    for number, (raw, begin) in enumerate(pieces(window), start=1):
        place = f"member {number}"
        if not window.last:
            yield Entry(place, problem=f"is not JSON: the file ends there, in line {window.line}; {_CUT}")
        elif raw is None:
            yield _too_large(place, max_bytes)
        elif number > 1 or raw.strip() or window.last == b",":
            yield _parsed(place, b"{" + raw + b"}", begin)
