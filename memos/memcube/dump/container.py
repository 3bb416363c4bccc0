"""The zip of a dump: written as a stream, read with distrust. Knows names, sizes and digests, not what they mean.

No name in it is ever a path here, nothing is unpacked to disk, and nothing is read that was not declared and allowed.
"""

from __future__ import annotations

import hashlib
import os
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Self

from memos.errors import BackendUnavailable, InvalidInput
from memos.memcube.dump.format import (
    FILE,
    KNOWN,
    LINE_BYTES,
    MANIFEST,
    MANIFEST_BYTES,
    RESERVED,
    DumpManifest,
    Part,
    bad,
    read_manifest,
)

MOST_FILES = 50_000
"""Documents and pictures of one dump: what a reader has to hold of each is not little."""

_DIRECTORY_BYTES = 16 << 20
_BLOCK = 1 << 20
# What unpacks to more than this many times its size, beyond the first 256 MiB, is no honest dump: the writer then
# leaves it unpacked.
_MOST_TIMES, _UNSUSPECTED = 100, 256 << 20
_END = struct.Struct("<4s4H2LH")
_END64_PLACE = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError)


class PartWriter:
    """One part while it is written; counts and digests what goes through it."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._digest = out, hashlib.sha256()
        self.rows, self.bytes = 0, 0

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes."""
        self._digest.update(data)
        self.bytes += len(data)
        self._out.write(data)

    def write_line(self, line: bytes) -> None:
        """Write one line, its end included."""
        self.rows += 1
        self.write(line)

    def told(self, *, lines: bool) -> Part:
        """Return what the manifest says of the part."""
        return Part(self.bytes, self._digest.hexdigest(), self.rows if lines else None)


class DumpWriter:
    """A dump while it is written, part after part; a context manager. `out` need not be able to seek."""

    def __init__(self, out: Any, *, packed: bool) -> None:
        method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
        self._zip = zipfile.ZipFile(out, "w", method, allowZip64=True, compresslevel=6 if packed else None)
        self._packed = packed
        self.parts: dict[str, Part] = {}
        self.unpacked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What was not finished goes anyway; a zip left open would try to end itself much later.
        with suppress(OSError, ValueError):
            self._zip.close()

    @contextmanager
    def part(self, name: str, *, lines: bool = True, listed: bool = True) -> Iterator[PartWriter]:
        """Write one part; what is `listed` stands in the manifest."""
        entry = zipfile.ZipInfo(name)  # of no time: the same cube gives the same names, and 1980 is no secret
        entry.external_attr = 0o600 << 16
        # Vectors and most documents do not get smaller.
        entry.compress_type = zipfile.ZIP_DEFLATED if self._packed and lines else zipfile.ZIP_STORED
        with self._zip.open(entry, "w", force_zip64=True) as out:
            writer = PartWriter(out)
            yield writer
        self.unpacked += writer.bytes
        if listed:
            self.parts[name] = writer.told(lines=lines)

    def finish(self, manifest: bytes) -> None:
        """Write the manifest and the directory, without which it is no dump."""
        with self.part(MANIFEST, listed=False) as out:
            out.write(manifest)
        self._zip.close()


def is_zip_bomb(unpacked: int, size: int) -> bool:
    """Say whether a file unpacks to so much that it is refused."""
    return unpacked > _UNSUSPECTED + _MOST_TIMES * size


class DumpReader:
    """A dump that was checked for what its zip may be; each part is known to be whole when it was read to its end."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        """Look at directory and manifest. Raises: InvalidInput."""
        size = file.seek(0, os.SEEK_END)
        _check_end(file, size)
        try:
            self._zip = zipfile.ZipFile(file)
        except _BROKEN as error:
            raise bad(f"it is no zip, or was cut off ({type(error).__name__})") from error
        self._entries = _checked_entries(self._zip, size, most_bytes)
        raw = b"".join(self._blocks(MANIFEST, MANIFEST_BYTES))
        self.manifest: DumpManifest = read_manifest(raw)
        self.manifest_sha256 = hashlib.sha256(raw).hexdigest()
        fixed = {name for name in self._entries if not FILE.fullmatch(name)} - {MANIFEST}
        if fixed != self.manifest.parts.keys():
            other = sorted(fixed ^ self.manifest.parts.keys())[0]
            raise bad(f"{MANIFEST} and the zip do not have the same parts ({other!r:.60} is in one of them)")

    def has(self, name: str) -> bool:
        """Say whether there is such a part."""
        return name in self._entries

    @property
    def files(self) -> set[str]:
        """Return the names of documents and pictures."""
        return {name for name in self._entries if FILE.fullmatch(name)}

    @property
    def reserved(self) -> list[str]:
        """Return the parts that a later version knows what to do with."""
        return sorted(name for name in self._entries if RESERVED.fullmatch(name))

    def blocks(self, name: str, part: Part | None = None) -> Iterator[bytes]:
        """Yield a part's bytes; raise at the end when they are not what was declared. Raises: InvalidInput."""
        part = part or self.manifest.parts[name]
        digest, size = hashlib.sha256(), 0
        for block in self._blocks(name, part.bytes):
            digest.update(block)
            size += len(block)
            yield block
        if size != part.bytes or digest.hexdigest() != part.sha256:
            raise bad(f"{name} is not what {MANIFEST} says: it was changed or damaged")

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield a part's lines; raise at the end when they are not what was declared. Raises: InvalidInput."""
        part, held, count = self.manifest.parts[name], b"", 0
        for block in self.blocks(name):
            *whole, held = (held + block).split(b"\n")
            if len(held) > LINE_BYTES:
                raise bad(f"{name} has a line of more than {LINE_BYTES:,} bytes")
            count += len(whole)
            if count > (part.rows or 0):
                raise bad(f"{name} has more lines than {MANIFEST} says")
            yield from whole
        if held or count != part.rows:
            raise bad(f"{name} has not the lines that {MANIFEST} says")

    def _blocks(self, name: str, most: int) -> Iterator[bytes]:
        size = 0
        try:
            with self._zip.open(self._entries[name]) as part:
                while block := part.read(_BLOCK):
                    size += len(block)
                    if size > most:
                        raise bad(f"{name} is larger than it may be")
                    yield block
        except InvalidInput:
            raise
        except _BROKEN as error:
            raise bad(f"{name} cannot be unpacked: it was changed or damaged") from error


def _check_end(file: IO[bytes], size: int) -> None:
    """See that the zip's directory, which is read whole, is small. Raises: InvalidInput."""
    file.seek(max(0, size - _END.size - _END64_PLACE.size - _END64.size))
    tail = file.read()
    file.seek(0)
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise bad("it is no zip, was cut off, or something was appended to it")
    directory = _END.unpack(end)[5]
    place, end64 = tail[-_END.size - _END64_PLACE.size : -_END.size], tail[: -_END.size - _END64_PLACE.size]
    if place.startswith(b"PK\6\7"):
        if len(end64) < _END64.size or not end64.startswith(b"PK\6\6"):
            raise bad("the end of the zip is damaged")
        directory = max(_END64.unpack(end64)[8], 0 if directory == 0xFFFFFFFF else directory)
    if directory > _DIRECTORY_BYTES:
        raise bad("its zip has too many entries")


def _checked_entries(archive: zipfile.ZipFile, size: int, most_bytes: int) -> Mapping[str, zipfile.ZipInfo]:
    """Return the entries by name; each known, once, apart from the others, and together not too large."""
    found: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        name = entry.filename
        if entry.orig_filename != name or not _is_known(name):
            raise bad(f"it has a part that no dump has ({entry.orig_filename!r:.60})")
        if name in found:
            raise bad(f"it has the part {name!r:.60} twice")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise bad(f"its part {name!r:.60} is packed in a way that no dump uses")
        if entry.header_offset < end or (not found and entry.header_offset):
            raise bad("parts of it overlap, or something stands before them")
        end = entry.header_offset + len(name) + entry.compress_size
        found[name] = entry
    if MANIFEST not in found:
        raise bad(f"it has no {MANIFEST}")
    if end > size:
        raise bad("its parts are larger than the file")
    if len(found) > MOST_FILES + 100:
        raise bad("it has too many files")
    unpacked = sum(entry.file_size for entry in found.values())
    if unpacked > most_bytes:
        raise InvalidInput(
            "file",
            f"unpacks to {unpacked:,} bytes, at most {most_bytes:,} are taken (MEMOS_LIMITS__DUMP_BYTES); "
            "nothing was loaded",
        )
    if is_zip_bomb(unpacked, size):
        raise bad(f"it unpacks to {unpacked:,} bytes out of {size:,}")
    return found


def _is_known(name: Any) -> bool:
    return name == MANIFEST or name in KNOWN or bool(FILE.fullmatch(name) or RESERVED.fullmatch(name))


# Seals a stream with a passphrase, chunk by chunk, and opens it again; knows nothing of what is in it.

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"MEMCUBE-SEALED-1"

# Magic, log2 of scrypt's N, its r and p, salt, beginning of every nonce, bytes of a chunk; big-endian.
_HEADER = struct.Struct(">16sBII16s7sI")
_LOG_N, _R, _P = 17, 8, 1
_SCRYPT_BYTES = 256 << 20
_CHUNK = 1 << 20
_TAG = 16
_LEAST_CHARS = 8
_MOST_BYTES = 1024


def check_passphrase(passphrase: str) -> bytes:
    """Return a passphrase as bytes, its letters composed (NFC). Raises: InvalidInput (too short, unusable)."""
    if not isinstance(passphrase, str):
        raise InvalidInput("passphrase", f"must be text, not {type(passphrase).__name__}")
    try:
        raw = unicodedata.normalize("NFC", passphrase).encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("passphrase", "has a lone surrogate; write it in valid Unicode") from error
    if len(passphrase) < _LEAST_CHARS or len(raw) > _MOST_BYTES:
        raise InvalidInput(
            "passphrase", f"must have {_LEAST_CHARS} characters at least and {_MOST_BYTES} bytes at most"
        )
    return raw


class Encryptor:
    """A file to write into that seals what it is given; `finish` writes the end, without which nothing opens it."""

    def __init__(self, out: IO[bytes], passphrase: bytes) -> None:
        salt, self._prefix = os.urandom(16), os.urandom(7)
        self._header = _HEADER.pack(MAGIC, _LOG_N, _R, _P, salt, self._prefix, _CHUNK)
        self._cipher = _cipher(_key(passphrase, salt, _LOG_N, _R, _P))
        self._out, self._held, self._number = out, bytearray(), 0
        out.write(self._header)

    def write(self, data: Any) -> int:
        """Take bytes; whole chunks are written once it is known that they are not the last."""
        given = memoryview(data).cast("B")
        self._held += given
        while len(self._held) > _CHUNK:
            self._seal(bytes(self._held[:_CHUNK]), last=False)
            del self._held[:_CHUNK]
        return len(given)

    def flush(self) -> None:
        """Hand over what is written."""
        self._out.flush()

    def finish(self) -> None:
        """Write the last chunk."""
        self._seal(bytes(self._held), last=True)
        self._held.clear()

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, last=last)
        self._out.write(self._cipher.encrypt(nonce, chunk, self._header))
        self._number += 1


def is_sealed(beginning: bytes) -> bool:
    """Say whether a file that begins so is sealed."""
    return beginning.startswith(MAGIC)


def unseal(sealed: IO[bytes], out: IO[bytes], passphrase: bytes) -> None:
    """Write what is sealed into `out`; only when this returns is it known to be what was sealed, and all of it.

    Raises: InvalidInput (another passphrase, or changed, cut off, not sealed by this program).
    """
    raw = sealed.read(_HEADER.size)
    if len(raw) != _HEADER.size:
        raise _wrong()
    magic, log_n, r, p, salt, prefix, size = _HEADER.unpack(raw)
    costs_too_much = not 10 <= log_n <= 20 or r < 1 or 128 * r << log_n > _SCRYPT_BYTES or not 1 <= p <= 4
    if magic != MAGIC or costs_too_much or not 1024 <= size <= 16 << 20:
        raise InvalidInput("file", "is sealed in a way that this program does not open; use the one that made it")
    cipher = _cipher(_key(passphrase, salt, log_n, r, p))
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    number, chunk = 0, sealed.read(size + _TAG)
    while True:
        following = sealed.read(size + _TAG) if len(chunk) == size + _TAG else b""
        try:
            out.write(cipher.decrypt(_nonce(prefix, number, last=not following), chunk, raw))
        except (InvalidTag, ValueError) as error:
            raise _wrong() from error
        if not following:
            return
        number, chunk = number + 1, following


def _wrong() -> InvalidInput:
    return InvalidInput("passphrase", "does not open this file, or the file was changed or cut off; nothing was loaded")


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    if number >= 1 << 32:
        raise InvalidInput("file", "is too large to be sealed; leave the passphrase out and seal it otherwise")
    return prefix + number.to_bytes(4, "big") + bytes([last])


def _key(passphrase: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(passphrase, salt=salt, n=1 << log_n, r=r, p=p, maxmem=2 * _SCRYPT_BYTES, dklen=32)


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BackendUnavailable(
            "A passphrase needs the extra `sealing`: pip install '.[sealing]' in the clone.",
            permanent=True,
        ) from error
    return AESGCM(key)
