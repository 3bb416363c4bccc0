"""Look for texts in every byte of files and in every row of a ledger, in the encodings they may be in.

A text is known, and looked for in all its forms, or only its passages' fingerprints are: then every word in the files
is digested. Compressed parts (zlib, gzip, zip, bzip2, xz, and the LZ4 blocks of Qdrant's payloads) are read, too.
"""

from __future__ import annotations

import base64
import bz2
import hashlib
import html
import json
import lzma
import os
import re
import stat
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import numpy as np
import sqlalchemy as sa

from memos.core.erasures import Trace
from memos.core.ports import Vector
from memos.errors import MemosError
from memos.memcube.encryption.files import MAGIC
from memos.memcube.ledger.schema import metadata
from memos.memcube.receipts import PASSAGE_BYTES, fingerprint, word_starts

if TYPE_CHECKING:
    from memos.memcube.encryption.opening import SealedContents

LEAST_BYTES = 4
"""Shorter texts are anywhere by chance."""

_CHUNK = 16 << 20
_OVERLAP = 64 << 10
_PIECE = 16 << 10
_MOST_UNPACKED = 64 << 20
_DEPTH = 3
_MOST_TRACES = 1_000
_BLOCK = 128  # bytes, of Qdrant's payload pages
_PACKED = re.compile(rb"\x78[\x01\x5e\x9c\xda]|\x1f\x8b\x08|PK\x03\x04|BZh[1-9]1AY&SY|\xfd7zXZ\x00")
_WIDE = re.compile(rb"(?:[\x20-\xff]\x00){12,}")
_ESCAPED = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{24,}")

Progress = Callable[[int, int], None]


class Needles(Protocol):
    """What is looked for."""

    def __len__(self) -> int: ...

    def find(self, data: bytes) -> Iterator[tuple[int, str, int]]:
        """Yield number, encoding and offset of what is found in bytes."""


class Texts:
    """Texts that are known: each is looked for in every form it may be stored in."""

    def __init__(self, texts: Sequence[str], vectors: Sequence[Vector] = ()) -> None:
        self._forms = [_forms(text) for text in texts]
        for forms, vector in zip(self._forms, vectors, strict=False):
            forms[np.asarray(vector, "<f4").tobytes()] = "float32 vector"

    def __len__(self) -> int:
        return len(self._forms)

    def find(self, data: bytes) -> Iterator[tuple[int, str, int]]:
        for number, forms in enumerate(self._forms):
            for raw, encoding in forms.items():
                if (place := data.find(raw)) >= 0:
                    yield number, encoding, place


class Passages:
    """Passages of which only the fingerprints are known, under the secret of their receipt."""

    def __init__(self, secret: bytes, fingerprints: Sequence[str]) -> None:
        self._secret = secret
        self._known = {known: number for number, known in enumerate(fingerprints)}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, data: bytes) -> Iterator[tuple[int, str, int]]:
        for encoding, read in _read(data):
            for start in word_starts(read):
                passage = read[start : start + PASSAGE_BYTES]
                number = self._known.get(fingerprint(self._secret, passage))
                if number is not None:
                    yield number, encoding, start


def _forms(text: str) -> dict[bytes, str]:
    """Return the bytes a text may be stored as, and the name of each encoding."""
    found: dict[bytes, str] = {}
    spellings = [text, text.casefold(), text.lower(), text.upper()]
    spellings += [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    for spelling in dict.fromkeys(spellings):
        raw = spelling.encode("utf-8", "surrogatepass")
        forms = {
            "utf-8": raw,
            "utf-16-le": spelling.encode("utf-16-le", "surrogatepass"),
            "utf-16-be": spelling.encode("utf-16-be", "surrogatepass"),
            "json": json.dumps(spelling)[1:-1].encode(),
            "json, escaped twice": json.dumps(json.dumps(spelling)[1:-1])[1:-1].encode(),
            "json in utf-8": json.dumps(spelling, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass"),
            "html": html.escape(spelling).encode("utf-8", "surrogatepass"),
            "url": quote(raw, safe="").encode(),
            "hex": raw.hex().encode(),
            "sha-256": hashlib.sha256(raw).digest(),
            "sha-256 in hex": hashlib.sha256(raw).hexdigest().encode(),
        }
        for name, form in (*forms.items(), *_in_base64(raw)):
            if len(form) >= LEAST_BYTES:
                found.setdefault(form, name)
    return found


def _in_base64(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what bytes look like inside of something in base64, wherever in it they begin."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + raw)
        form = whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield "base64", form
        yield "base64", form.replace(b"+", b"-").replace(b"/", b"_")


def _read(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield bytes as they are, and what they are if they are encoded text."""
    yield "utf-8", data
    for run in _WIDE.finditer(data):
        yield "utf-16-le", run[0].decode("utf-16-le", "replace").encode()
    if b"\\u" in data:
        yield "json", _ESCAPED.sub(_unescaped, data)
    for run in _BASE64.finditer(data):
        text = run[0].translate(bytes.maketrans(b"-_", b"+/"))
        for start in range(4):
            part = text[start : start + (len(text) - start) // 4 * 4]
            yield "base64", base64.b64decode(part)


def _unescaped(escapes: re.Match[bytes]) -> bytes:
    text: str = json.loads(b'"' + escapes[0] + b'"')
    return text.encode("utf-8", "replace")


# What is packed


def _packed(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Yield how something in these bytes is packed, where it begins, and what is in it."""
    for found in _PACKED.finditer(data):
        start = found.start()
        kind, unpacked = _unpacked(data, start)
        if unpacked:
            yield kind, start, unpacked


def _unpacked(data: bytes, start: int) -> tuple[str, bytes]:
    rest = memoryview(data)[start:]
    try:
        match data[start : start + 2]:
            case b"\x1f\x8b":
                return "gzip", _inflated(rest, 31)
            case b"PK":
                names = int.from_bytes(data[start + 26 : start + 28], "little")
                more = int.from_bytes(data[start + 28 : start + 30], "little")
                is_deflated = data[start + 8 : start + 10] == b"\x08\x00"
                return "zip", _inflated(rest[30 + names + more :], -15) if is_deflated else b""
            case b"BZ":
                return "bzip2", bz2.BZ2Decompressor().decompress(rest, _MOST_UNPACKED)
            case b"\xfd7":
                return "xz", lzma.LZMADecompressor().decompress(rest, _MOST_UNPACKED)
            case _:
                return "zlib", _inflated(rest, 15)
    except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError):
        return "", b""


def _inflated(data: memoryview, bits: int) -> bytes:
    """Return what a stream holds, also one that is cut off; nothing if it is none."""
    stream = zlib.decompressobj(bits)
    found = bytearray()
    try:
        for start in range(0, len(data), _OVERLAP):
            found += stream.decompress(data[start : start + _OVERLAP], _MOST_UNPACKED)
            if stream.eof or len(found) >= _MOST_UNPACKED:
                break
    except zlib.error:
        return bytes(found) if len(found) >= PASSAGE_BYTES else b""
    return bytes(found)


def _payloads(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Yield the payloads of a page of Qdrant: each begins with its size, in a block of its own, and is LZ4."""
    whole = data[: len(data) // 4 * 4]
    sizes = np.frombuffer(whole, "<u4")[:: _BLOCK // 4]
    for block in np.flatnonzero((sizes >= LEAST_BYTES) & (sizes <= _OVERLAP * 64)):
        start = int(block) * _BLOCK
        unpacked = unpack_lz4(memoryview(data)[start + 4 :], int(sizes[block]))
        if unpacked:
            yield "lz4", start, unpacked


def unpack_lz4(data: memoryview, size: int) -> bytes:
    """Return the content of an LZ4 block of a known size; nothing if it is none.

    Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
    """
    found, place = bytearray(), 0
    try:
        while len(found) < size:
            token = data[place]
            place += 1
            literals, place = _length(data, place, token >> 4)
            found += data[place : place + literals]
            place += literals
            if len(found) >= size:
                break
            distance = data[place] | data[place + 1] << 8
            copied, place = _length(data, place + 2, token & 15)
            if not 0 < distance <= len(found):
                return b""
            for _ in range(copied + 4):
                found.append(found[-distance])
    except IndexError:
        return b""
    return bytes(found) if len(found) == size else b""


def _length(data: memoryview, place: int, first: int) -> tuple[int, int]:
    if first < 15:
        return first, place
    while True:
        more = data[place]
        first, place = first + more, place + 1
        if more < 255:
            return first, place


def search(data: bytes, needles: Needles, *, depth: int = _DEPTH) -> Iterator[tuple[int, str, int]]:
    """Yield number, encoding and offset of what bytes have, also inside of what is packed in them."""
    yield from needles.find(data)
    if depth:
        for kind, start, unpacked in _packed(data):
            for number, encoding, _ in search(unpacked, needles, depth=depth - 1):
                yield number, f"{kind}: {encoding}", start


# Files and rows


@dataclass(slots=True)
class Scan:
    """Looks in files and rows, and remembers what it found and how much it read."""

    needles: Needles
    files: int = 0
    read_bytes: int = 0
    rows: int = 0
    traces: dict[tuple[str, str, int], Trace] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    contents: SealedContents | None = None
    """Decrypts files; if None, encrypted files are listed in `unread`."""

    def folder(self, folder: Path, on_progress: Progress | None = None) -> None:
        """Look into every file below a folder, or into one file; follow no link out of it."""
        paths = sorted(folder.rglob("*")) if folder.is_dir() and not folder.is_symlink() else [folder]
        for number, path in enumerate(paths):
            if on_progress is not None:
                on_progress(number, len(paths))
            shown = str(path)
            self._look(shown, os.fsencode(path.name), 0)  # a name may tell something, too
            try:
                told = path.lstat()
                if stat.S_ISREG(told.st_mode):
                    self._file(path, told.st_size)
                elif stat.S_ISLNK(told.st_mode):
                    self._look(shown, os.fsencode(path.readlink()), 0)
                elif not stat.S_ISDIR(told.st_mode):
                    self.unread.append(f"{shown}: is neither a file nor a folder")
            except FileNotFoundError:  # gone meanwhile
                continue
            except OSError as error:
                self.unread.append(f"{shown}: {error.strerror}")

    def ledger(self, connection: sa.Connection) -> None:
        """Look into every value of every table."""
        for table in metadata.sorted_tables:
            columns = [column.name for column in table.columns]
            for row in connection.execute(sa.select(table), execution_options={"yield_per": 100}):
                self.rows += 1
                for name, value in zip(columns, row, strict=True):
                    if (raw := _raw(value)) is not None:
                        self._look(f"ledger: {table.name}.{name}", raw, 0)

    def _file(self, path: Path, size: int, shown: str | None = None) -> None:
        self.files += 1
        place_name = shown or str(path)
        paged = path.suffix == ".dat" and path.name.startswith("page_")
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
            if head == MAGIC or (self.contents is not None and size and self.contents.is_database(path)):
                self._sealed(path)
                return
            if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ")) and size <= _MOST_UNPACKED * 4:
                file.seek(0)
                self._look(place_name, file.read(), 0)
                self.read_bytes += size
                return
            extents = _extents(file.fileno(), size)
            chunks = ((place, end) for start, end in extents for place in range(start, end, _CHUNK))
            for place, end in chunks:
                data = os.pread(file.fileno(), min(_CHUNK + _OVERLAP, end - place), place)
                self.read_bytes += min(len(data), _CHUNK)
                for start, part in _written(data):
                    self._look(place_name, part, place + start)
                    if paged:
                        self._pages(place_name, part, place + start)

    def _sealed(self, path: Path) -> None:
        if self.contents is None:
            self.unread.append(f"{path}: is encrypted, and the key is not set")
            return
        try:
            with self.contents.folder(path) as inside:
                if inside is not None:
                    for each in sorted(inside.rglob("*")):
                        if each.is_file():
                            shown = f"{path}: {each.relative_to(inside)}"
                            self._look(shown, os.fsencode(each.name), 0)
                            self._file(each, each.stat().st_size, shown)
                    return
            before = b""
            for part in self.contents.parts(path):
                self._look(str(path), before + part, 0)
                self.read_bytes += len(part)
                before = part[-_OVERLAP:]
        except MemosError as error:
            self.unread.append(f"{path}: {error}")

    def _pages(self, place: str, data: bytes, offset: int) -> None:
        for kind, start, unpacked in _payloads(data):
            for number, encoding, _ in search(unpacked, self.needles, depth=1):
                self._note(place, f"{kind}: {encoding}", offset + start, number)

    def _look(self, place: str, data: bytes, offset: int) -> None:
        for number, encoding, start in search(data, self.needles):
            self._note(place, encoding, offset + start, number)

    def _note(self, place: str, encoding: str, offset: int, number: int) -> None:
        if len(self.traces) < _MOST_TRACES:
            self.traces.setdefault((place, encoding, number), Trace(place, encoding, offset, number))


def _raw(value: Any) -> bytes | None:
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass")
        case bytes() | memoryview() | bytearray():
            return bytes(value)
        case list() | dict():
            return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") if value else None
        case Mapping():
            return _raw(dict(value))
    return None


def _written(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the parts of bytes that are not zeros, in whole pieces."""
    pieces = len(data) // _PIECE
    by_piece = np.frombuffer(data, np.uint8, pieces * _PIECE).reshape(pieces, _PIECE)
    some = np.asarray(by_piece.any(axis=1), np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], some, [False])).astype(np.int8)))
    for first, last in edges.reshape(-1, 2).tolist():
        # The rest that fills no piece belongs to the last one.
        yield first * _PIECE, data[first * _PIECE : None if last == pieces else last * _PIECE]
    if pieces == 0 or not some[-1]:
        yield pieces * _PIECE, data[pieces * _PIECE :]


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that hold anything: an index reserves much more than it has written."""
    place = 0
    while place < size:
        try:
            start = os.lseek(descriptor, place, os.SEEK_DATA)
        except OSError:  # nothing behind it
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        # On a block's edge, so that payloads are found where they begin.
        yield start // _BLOCK * _BLOCK, end
        place = end
