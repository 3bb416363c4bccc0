"""What a `.memcube` file is made of: its parts, its rows as JSON objects, its manifest (docs/memcube-format.md).

Knows no zip and no ledger. Whatever a file says is checked here before anything believes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.core.types import CubeKind, Fingerprint
from memos.errors import InvalidInput
from memos.memcube.backup import rows
from memos.memcube.backup.files import signed, unsigned
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import HEAD
from memos.version import __version__

VERSION = 1
MANIFEST = "manifest.json"
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
    "identities", "memberships", "grants", "api_keys", "key_usage", "requests", "request_items", "repeats",
    "submissions",
    # Receipts of erasures; what was erased travels with nothing.
    "tombstones", "tombstone_items",
})  # fmt: skip
"""The tables of which nothing travels as rows; a cube's own row and its template stand in the manifest."""

# What a model computed from memories, and what it learnt; other names there are places of later versions.
RESERVED = re.compile(r"(?:kv|adapters)/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
FILE = re.compile(r"files/[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")

_FORMAT = "memcube"
_NESTING = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")
# How far an index is with an item is no content, and every row is of the one cube that the manifest names.
_LEFT_OUT = {"cube_id"}


def part_of(table: sa.Table) -> str:
    """Return the name of a table's part."""
    return f"{table.name}.jsonl"


KNOWN = frozenset({POINTS, VECTORS, CONTENTS, *map(part_of, TABLES)})
"""The parts besides the manifest that have a fixed name."""


def bad(what: str) -> InvalidInput:
    """Return the error for a file that cannot be loaded."""
    return InvalidInput("file", f"{what}; nothing was loaded. Dump the cube again, or take another copy of the file")


@dataclass(frozen=True, slots=True)
class Part:
    """One part as the manifest tells it; `rows` are its lines, None when it has none."""

    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class CubeHead:
    """What a cube is, besides its rows; times are microseconds, the end of its chain is hexadecimal."""

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
    """What a dump says of itself; `point_format` is how texts were rendered before they were embedded."""

    cube: CubeHead
    embedder: Fingerprint
    created_at: datetime
    point_format: int
    parts: Mapping[str, Part] = field(default_factory=dict)
    program: str = __version__
    schema: str = HEAD

    def rows(self, table: sa.Table) -> int:
        """Return how many rows of a table there are."""
        part = self.parts.get(part_of(table))
        return 0 if part is None else part.rows or 0

    @property
    def counts(self) -> dict[str, int]:
        """Return how many rows of each table there are."""
        return {table.name: self.rows(table) for table in TABLES}


def write_manifest(manifest: DumpManifest) -> bytes:
    """Return a manifest as JSON that holds its own digest."""
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
        raise bad(f"{MANIFEST} was changed, or is none of a dump")
    if told.get("version") != VERSION:
        raise InvalidInput(
            "file",
            f"is a dump of format version {told.get('version')!r:.20}, and this hippocube reads version {VERSION}: "
            "load it with a newer one; nothing was loaded",
        )
    try:
        manifest = DumpManifest(
            _head(told["cube"]),
            Fingerprint(**_typed(told["embedder"], name=str, dimension=int, prefix_rule=str, normalised=bool)),
            from_micros(_count(told["created_at"])),
            _count(told["point_format"]),
            {_text(name): _part(part) for name, part in told["parts"].items()},
            _text(told["program"]),
            _text(told["schema"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise bad(f"{MANIFEST} does not say what it should ({type(error).__name__})") from error
    if told.get("counts") != manifest.counts:
        raise bad(f"the counts in {MANIFEST} are not those of its parts")
    return manifest


def columns_of(table: sa.Table) -> list[sa.Column[Any]]:
    """Return the columns of a table that travel."""
    return [column for column in table.columns if column.name not in _LEFT_OUT and column is not t.items.c.revision]


def line_of(table: sa.Table, values: rows.Values) -> bytes:
    """Return a row as a line of JSON: an object of its columns."""
    by_name = dict(zip((column.name for column in table.columns), values, strict=True))
    told = {column.name: by_name[column.name] for column in columns_of(table)}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def object_of(raw: bytes) -> dict[str, Any]:
    """Return the object that a line is: finite numbers, no text twice named, not too deep. Raises: ValueError."""
    try:
        found = _DECODER.decode(raw.decode())
    except RecursionError as error:
        raise ValueError from error
    if not isinstance(found, dict) or _depth(found) > _NESTING:
        raise ValueError
    return found


def _head(told: Any) -> CubeHead:
    kinds: dict[str, Any] = {
        "id": str,
        "description": str,
        "time_zone": str,
        "kind": str,
        "redact_pii": bool,
        "created_at": int,
        "heat_tau_s": (int, float, type(None)),
        "lone_until": (int, type(None)),
        "template": (str, type(None)),
        "event_seq": int,
        "event_chain": str,
    }
    head = CubeHead(**_typed(told, **kinds))
    wrong = {name: check(getattr(head, name)) for name, check in _HEAD_CHECKS.items()}
    tau = head.heat_tau_s
    if any(wrong.values()) or not _DIGEST.fullmatch(head.event_chain) or head.kind not in set(CubeKind):
        raise ValueError
    if head.event_seq < 0 or (tau is not None and not (math.isfinite(tau) and tau > 0)):
        raise ValueError
    return head


_HEAD_CHECKS = {
    name: check
    for name, check in rows.checks(t.cubes)
    if name in {"id", "description", "time_zone", "created_at", "lone_until", "event_seq"}
}


def _typed(told: Any, **kinds: Any) -> dict[str, Any]:
    if not isinstance(told, dict) or told.keys() != kinds.keys():
        raise ValueError
    for name, kind in kinds.items():
        if not isinstance(told[name], kind) or (isinstance(told[name], bool) and kind is not bool):
            raise TypeError
        if isinstance(told[name], str):
            _text(told[name])
    return told


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


def _refused(_constant: str) -> None:
    raise ValueError


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


_DECODER = json.JSONDecoder(
    parse_constant=_refused, parse_float=_finite, parse_int=_whole, object_pairs_hook=_once
)  # fmt: skip


def _depth(value: Any) -> int:
    if isinstance(value, str | int | float) or not value:
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
