"""A `.memcube` file (docs/reference/memcube-format.md): its parts, its manifest, its zip, and the seal around that.

The zip is written as a stream and read with distrust: no name in it is ever a path here, nothing is unpacked to disk,
and nothing is read that was not declared and allowed. Knows no ledger.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.core.types import Fingerprint
from memos.errors import BackendUnavailable, InvalidInput
from memos.memcube.backup.archive import BLOCK, MANIFEST, Part, PartWriter, RowArchive
from memos.memcube.backup.files import signed, unsigned
from memos.memcube.backup.rows import ID, Bounds, Row, RowReader, object_of
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import HEAD
from memos.version import __version__

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION = 1
MANIFEST_BYTES = 4 << 20
LINE_BYTES = 32 << 20
POINTS, VECTORS = "points.jsonl", "vectors.safetensors"
CONTENTS = "contents.jsonl"

TABLES: tuple[sa.Table, ...] = (
    t.conversations, t.items, t.versions, t.messages, t.extractions, t.sources, t.links, t.files, t.file_items,
    t.extraction_items, t.segments, t.pages, t.warmth, t.retention_rules, t.events,
)  # fmt: skip
"""The tables of a cube that travel, each after those it refers to."""

STAYING: frozenset[str] = frozenset({
    # The installation's own, and what its indexes, its queues and its background are doing.
    "alembic_version", "meta", "outbox", "tasks", "queues", "usage", "leases", "backups", "tombstone_backups",
    "prefix_entries",
    # What was learned of it is learned again, if who takes it in allows that.
    "adapter_consents", "adapter_exclusions", "adapters", "adapter_items",
    # Who may do what, how much, and what calls were made.
    "identities", "memberships", "grants", "api_keys", "console_sessions", "access_log", "key_usage", "requests",
    "request_items", "repeats", "submissions",
    # What is read from versions again.
    "mentions",
    # Receipts of erasures; what was erased travels with nothing.
    "tombstones", "tombstone_items",
})  # fmt: skip
"""The tables of which nothing travels as rows; a cube's own row and its template stand in the manifest."""

# What a model computed from memories, and what it learnt; other names there are places of later versions.
RESERVED = re.compile(r"(?:kv|adapters)/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
FILE = re.compile(f"files/{ID.pattern}")

_FORMAT = "memcube"
_DIGEST = re.compile(r"[0-9a-f]{64}")

MOST_FILES = 50_000
"""Documents and pictures of one dump: what a reader has to hold of each is not little."""

_DIRECTORY_BYTES = 16 << 20
# What unpacks to more than this many times its size, beyond the first 256 MiB, is no honest dump: the writer then
# leaves it unpacked.
_MOST_TIMES, _UNSUSPECTED = 100, 256 << 20
_END = struct.Struct("<4s4H2LH")
_END64_PLACE = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError)


def part_of(table: sa.Table) -> str:
    return f"{table.name}.jsonl"


NAMES = part_of(t.entity_aliases)
"""Names that were merged; missing if there are none, so that earlier versions can read the file."""

KNOWN = frozenset({POINTS, VECTORS, CONTENTS, NAMES, *map(part_of, TABLES)})
"""The parts besides the manifest that have a fixed name."""


def bad(what: str) -> InvalidInput:
    return InvalidInput("file", f"{what}; nothing was loaded. Export the cube again, or use another copy of the file")


@dataclass(frozen=True, slots=True)
class CubeHead:
    """Properties of a cube besides its rows; times are microseconds, the end of its chain is hexadecimal."""

    id: str
    description: str
    time_zone: str
    kind: str
    redact_pii: bool
    created_at: int
    heat_tau_s: float | None
    lone_until: int | None
    template: str | None
    event_seq: int
    event_chain: str


@dataclass(frozen=True, slots=True)
class DumpManifest:
    cube: CubeHead
    embedder: Fingerprint
    created_at: datetime
    point_format: int
    parts: Mapping[str, Part] = field(default_factory=dict)
    program: str = __version__
    schema: str = HEAD

    def rows(self, table: sa.Table) -> int:
        part = self.parts.get(part_of(table))
        return 0 if part is None else part.rows or 0

    @property
    def counts(self) -> dict[str, int]:
        return {table.name: self.rows(table) for table in TABLES}


def write_manifest(manifest: DumpManifest) -> bytes:
    told = asdict(manifest) | {
        "format": _FORMAT,
        "version": VERSION,
        "created_at": to_micros(manifest.created_at),
        "counts": manifest.counts,
    }
    return signed(told)


def read_manifest(raw: bytes) -> DumpManifest:
    """Return what a dump says of itself. Raises: InvalidInput (changed, of a newer version, none)."""
    told = unsigned(raw)
    if told is None or told.get("format") != _FORMAT:
        raise bad(f"{MANIFEST} was changed, or is not that of a cube file")
    if told.get("version") != VERSION:
        raise InvalidInput(
            "file",
            f"has format version {told.get('version')!r:.20}, but this hippocube reads version {VERSION}; load it "
            "with another version of hippocube. Nothing was loaded",
        )
    try:
        manifest = DumpManifest(
            _head(told["cube"]),
            _embedder(told["embedder"]),
            from_micros(_count(told["created_at"])),
            _count(told["point_format"]),
            {_text(name): _part(part) for name, part in told["parts"].items()},
            _text(told["program"]),
            _text(told["schema"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise bad(f"{MANIFEST} has missing or invalid fields ({type(error).__name__})") from error
    if told.get("counts") != manifest.counts:
        raise bad(f"the counts in {MANIFEST} do not match its parts")
    return manifest


def left_out(table: sa.Table) -> list[str]:
    """Return the columns that do not travel: the cube is in the manifest, how far an index follows is nowhere."""
    return [column.name for column in table.columns if column.name == "cube_id" or column is t.items.c.revision]


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
        entry = zipfile.ZipInfo(name)  # of no time: the same cube gives the same names, and 1980 is no secret
        entry.external_attr = 0o600 << 16
        # Vectors and most documents do not get smaller.
        entry.compress_type = zipfile.ZIP_DEFLATED if self._packed and lines else zipfile.ZIP_STORED
        with self._zip.open(entry, "w", force_zip64=True) as out:
            writer = PartWriter(out)
            yield writer
        self.unpacked += writer.size
        if listed:
            self.parts[name] = writer.told(lines=lines)

    def finish(self, manifest: bytes) -> None:
        with self.part(MANIFEST, listed=False) as out:
            out.write(manifest)
        self._zip.close()


def is_zip_bomb(unpacked: int, size: int) -> bool:
    return unpacked > _UNSUSPECTED + _MOST_TIMES * size


class DumpReader(RowArchive):
    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self.line_bytes = LINE_BYTES
        size = file.seek(0, os.SEEK_END)
        _check_end(file, size)
        try:
            self._zip = zipfile.ZipFile(file)
        except _BROKEN as error:
            raise bad(f"it is not a zip file, or was cut off ({type(error).__name__})") from error
        self._entries = _checked_entries(self._zip, size, most_bytes)
        if self._entries[MANIFEST].file_size > MANIFEST_BYTES:
            raise bad(f"{MANIFEST} is larger than allowed")
        raw = b"".join(self.unpacked(MANIFEST))
        self.manifest: DumpManifest = read_manifest(raw)
        self.manifest_sha256 = hashlib.sha256(raw).hexdigest()
        fixed = {name for name in self._entries if not FILE.fullmatch(name)} - {MANIFEST}
        if fixed != self.manifest.parts.keys():
            other = sorted(fixed ^ self.manifest.parts.keys())[0]
            raise bad(f"{MANIFEST} and the zip have different parts ({other!r:.60} is in only one of them)")

    def has(self, name: str) -> bool:
        return name in self._entries

    @property
    def files(self) -> set[str]:
        return {name for name in self._entries if FILE.fullmatch(name)}

    @property
    def reserved(self) -> list[str]:
        return sorted(name for name in self._entries if RESERVED.fullmatch(name))

    def bad(self, what: str) -> InvalidInput:
        return bad(what)

    def part(self, name: str) -> Part:
        return self.manifest.parts[name]

    def unpacked(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(self._entries[name]) as part:
                while block := part.read(BLOCK):
                    yield block
        except InvalidInput:
            raise
        except _BROKEN as error:
            raise bad(f"{name} cannot be unpacked; it was changed or damaged") from error

    def rows(self, table: sa.Table, bounds: Bounds) -> Iterator[Row]:
        read = RowReader(table, bounds, left_out(table)).read
        return self.entries(part_of(table), lambda line: read(object_of(line)))


def _check_end(file: IO[bytes], size: int) -> None:
    """See that the zip's directory, which is read whole, is small. Raises: InvalidInput."""
    file.seek(max(0, size - _END.size - _END64_PLACE.size - _END64.size))
    tail = file.read()
    file.seek(0)
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\5\6"):
        raise bad("it is not a zip file, was cut off, or something was appended to it")
    directory = _END.unpack(end)[5]
    place, end64 = tail[-_END.size - _END64_PLACE.size : -_END.size], tail[: -_END.size - _END64_PLACE.size]
    if place.startswith(b"PK\6\7"):
        if len(end64) < _END64.size or not end64.startswith(b"PK\6\6"):
            raise bad("the end of the zip is damaged")
        directory = max(_END64.unpack(end64)[8], 0 if directory == 0xFFFFFFFF else directory)
    if directory > _DIRECTORY_BYTES:
        raise bad("its zip has too many entries")


def _checked_entries(archive: zipfile.ZipFile, size: int, most_bytes: int) -> Mapping[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        name = entry.filename
        if entry.orig_filename != name or not _is_known(name):
            raise bad(f"it has an unknown part ({entry.orig_filename!r:.60})")
        if name in found:
            raise bad(f"it has the part {name!r:.60} twice")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise bad(f"its part {name!r:.60} uses an unsupported compression or encryption")
        if entry.header_offset < end or (not found and entry.header_offset):
            raise bad("its parts overlap, or there is data before them")
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
            f"unpacks to {unpacked:,} bytes, more than the limit of {most_bytes:,}; nothing was loaded",
        )
    if is_zip_bomb(unpacked, size):
        raise bad(f"it unpacks from {size:,} to {unpacked:,} bytes, like a zip bomb")
    return found


def _is_known(name: Any) -> bool:
    return name == MANIFEST or name in KNOWN or bool(FILE.fullmatch(name) or RESERVED.fullmatch(name))


def _head(told: Mapping[str, Any]) -> CubeHead:
    apart = {name: told[name] for name in ("template", "event_chain")}
    row = _HEAD.read({name: value for name, value in told.items() if name not in apart})
    head = CubeHead(**row, **apart)
    wrong = told.keys() != CubeHead.__annotations__.keys() or not _DIGEST.fullmatch(head.event_chain)
    tau = head.heat_tau_s
    if wrong or head.event_seq < 0 or (tau is not None and not (math.isfinite(tau) and tau > 0)):
        raise ValueError
    if head.template is not None:
        _text(head.template)
    return head


_HEAD = RowReader(
    t.cubes, left_out={column.name for column in t.cubes.columns} - set(CubeHead.__annotations__) | {"event_chain"}
)


def _embedder(told: Mapping[str, Any]) -> Fingerprint:
    kinds = {"name": str, "dimension": int, "prefix_rule": str, "normalised": bool}
    if told.keys() != kinds.keys() or any(type(told[name]) is not kind for name, kind in kinds.items()):
        raise ValueError
    return Fingerprint(_text(told["name"]), told["dimension"], _text(told["prefix_rule"]), told["normalised"])


def _part(told: Any) -> Part:
    count = told["rows"]
    if told.keys() != {"bytes", "sha256", "rows"} or not _DIGEST.fullmatch(told["sha256"]):
        raise ValueError
    return Part(_count(told["bytes"]), told["sha256"], None if count is None else _count(count))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    value.encode()
    return value


# Seals a stream with a passphrase, chunk by chunk, and opens it again; knows nothing of what is in it.

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
        raise InvalidInput("passphrase", "contains a lone surrogate; use valid Unicode") from error
    if len(passphrase) < _LEAST_CHARS or len(raw) > _MOST_BYTES:
        raise InvalidInput(
            "passphrase", f"must have at least {_LEAST_CHARS} characters and at most {_MOST_BYTES} bytes"
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
        self._out.flush()

    def finish(self) -> None:
        self._seal(bytes(self._held), last=True)
        self._held.clear()

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, last=last)
        self._out.write(self._cipher.encrypt(nonce, chunk, self._header))
        self._number += 1


def is_sealed(beginning: bytes) -> bool:
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
        raise InvalidInput(
            "file", "is encrypted in a format this version does not support; use the program that wrote it"
        )
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
    return InvalidInput("passphrase", "is wrong, or the file was changed or cut off; nothing was loaded")


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    if number >= 1 << 32:
        raise InvalidInput(
            "file", "is too large to be encrypted; leave the passphrase out and encrypt the file with another tool"
        )
    return prefix + number.to_bytes(4, "big") + bytes([last])


def _key(passphrase: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(passphrase, salt=salt, n=1 << log_n, r=r, p=p, maxmem=2 * _SCRYPT_BYTES, dklen=32)


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BackendUnavailable(
            "A passphrase needs the extra `sealing`: pip install '.[sealing]' in the clone.", permanent=True
        ) from error
    return AESGCM(key)
