"""Checks the rows of a dump, one at a time: that each column can hold its value, and that a program can rely on it.

Knows no other row: what rows must be to each other, `memos.memcube.dump.load` sees.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from memos.core.types import ItemType
from memos.errors import InvalidInput
from memos.memcube.backup import rows
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.dump import kv as dump_kv
from memos.memcube.dump.container import DumpReader
from memos.memcube.dump.format import (
    CONTENTS,
    FILE,
    ID,
    POINTS,
    TABLES,
    VECTORS,
    DumpManifest,
    Part,
    bad,
    columns_of,
    object_of,
    part_of,
)
from memos.memcube.dump.ids import Ids, Kind
from memos.memcube.dump.write import safetensors_header
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.schema import UtcMicros
from memos.memcube.profiles.template import stored_template

_MOST = 1_000_000_000
_ID_CHARS = 36
# What somebody said happens at any time; what was recorded was recorded by now, or this ledger's clock would follow.
_TOLD_TIMES = frozenset({"said_at", "chat_time", "valid_from", "valid_to"})
_LONG_TEXTS = frozenset({"memory", "value", "text"})
_LENGTHS = {"events.salt": 16, "events.digest": 32, "events.chain": 32}
_WORDS = {"segments.state": frozenset({"open", "archived"}), "items.reading": frozenset({"wanted", "read"})}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a row may not exceed: the present in microseconds, a text's bytes, the numbers of a vector."""

    now: int
    text_bytes: int
    dimension: int


class RowReader:
    """Turns the lines of one table's part into rows of the ledger, of the cube and at the revision given."""

    def __init__(self, table: sa.Table, bounds: Bounds) -> None:
        self._name = part_of(table)
        self._columns = {column.name: column for column in columns_of(table)}
        self._every = [column.name for column in table.columns]
        known = dict(rows.checks(table))
        self._checks = {name: (known[name], _further(column, bounds)) for name, column in self._columns.items()}

    def read(self, raw: bytes, number: int) -> dict[str, Any]:
        """Return a line as a row by column. Raises: InvalidInput naming the part, the line and the column."""
        try:
            found = object_of(raw)
        except ValueError as error:
            raise bad(f"{self._name}, line {number} is no JSON object of plain values") from error
        if unknown := found.keys() - self._columns.keys():
            raise bad(f"{self._name}, line {number} has the unknown field {sorted(unknown)[0]!r:.60}")
        for name, column in self._columns.items():
            if name not in found:
                found[name] = self._default(column, number)
            for check in self._checks[name]:
                if (problem := _problem(check, found[name])) is not None:
                    raise bad(f"{self._name}, line {number}: {name} {problem}")
        return found

    def values(self, row: dict[str, Any], **added: Any) -> rows.Values:
        """Return a row in the order of its table's columns."""
        return [added[name] if name in added else row[name] for name in self._every]

    def _default(self, column: sa.Column[Any], number: int) -> Any:
        try:
            return rows.default_of(column)
        except LookupError as error:
            raise bad(f"{self._name}, line {number} lacks {column.name}") from error


class Chain:
    """Follows a cube's chain of events."""

    def __init__(self) -> None:
        self.seq, self.end = 0, bytes(32)

    def follow(self, row: dict[str, Any]) -> None:
        """See that an event is the next one, and as it was recorded. Raises: InvalidInput."""
        digest = base64.b64decode(row["digest"])
        self.seq += 1
        if row["seq"] != self.seq:
            raise bad(f"event {self.seq} is missing")
        if (row["body"] is None) != (row["salt"] is None):
            raise bad(f"event {self.seq} has half of what it should")
        if row["body"] is not None and digest_of(base64.b64decode(row["salt"]), row["body"]) != digest:
            raise bad(f"the body of event {self.seq} was changed")
        self.end = link(self.end, self.seq, digest)
        if self.end != base64.b64decode(row["chain"]):
            raise bad(f"event {self.seq} does not follow the one before it")


def digest_of(salt: bytes, body: str) -> bytes:
    """Return what stands for an event's body in the chain."""
    return hashlib.sha256(salt + body.encode()).digest()


def link(previous: bytes, seq: int, digest: bytes) -> bytes:
    """Return the chain's next value."""
    return hashlib.sha256(previous + seq.to_bytes(8, "big") + digest).digest()


def _problem(check: rows.Check, value: Any) -> str | None:
    try:
        return check(value)
    except (TypeError, ValueError, RecursionError, KeyError):
        return "is not of the kind it should be"


def _further(column: sa.Column[Any], bounds: Bounds) -> rows.Check:
    """Return what this program relies on besides what the column can hold."""
    check = _special(f"{column.table.name}.{column.name}", bounds) or _general(column, bounds)
    return lambda value: None if value is None and column.nullable else check(value)


def _general(column: sa.Column[Any], bounds: Bounds) -> rows.Check:
    kind = column.type
    if isinstance(kind, UtcMicros):
        latest = math.inf if column.name in _TOLD_TIMES else bounds.now
        return lambda value: (
            None if value <= latest else "is in the future: the clock here, or there, is wrong; wait, or set it right"
        )
    if isinstance(kind, sa.Integer) and not isinstance(kind, sa.BigInteger):
        return lambda value: None if 0 <= value <= _MOST else "is a number out of range"
    if isinstance(kind, sa.Float):
        return lambda value: None if isinstance(value, int | float) else "is not a number"
    if isinstance(kind, sa.String):
        if kind.length == _ID_CHARS:
            return lambda value: None if ID.fullmatch(value) else "is no id"
        most = bounds.text_bytes if column.name in _LONG_TEXTS else math.inf
        length = kind.length or math.inf
        return lambda value: None if len(value) <= length and len(value.encode()) <= most else "is too long"
    return lambda _: None


def _special(name: str, bounds: Bounds) -> rows.Check | None:
    if name in _LENGTHS:
        return lambda value: None if len(base64.b64decode(value)) == _LENGTHS[name] else "has another length"
    if name in _WORDS:
        return lambda value: None if value in _WORDS[name] else "is none of the known words"
    shapes: dict[str, Callable[[Any], bool]] = {
        "messages.content": lambda value: _list_of(value, lambda part: isinstance(part, dict)),
        "messages.tool_calls": lambda value: _list_of(value, _is_call),
        "segments.spans": lambda value: _list_of(value, _is_span),
        "segments.words": lambda value: _list_of(value, _is_counted),
        "segments.vector": lambda value: _is_vector(base64.b64decode(value), bounds.dimension),
        "events.body": lambda value: isinstance(object_of(value.encode()), dict),
    }
    if name not in shapes:
        return None
    return lambda value: None if value is None or shapes[name](value) else "does not have the form it should"


def _list_of(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"id", "name", "arguments"}


def _is_span(value: Any) -> bool:
    item, start, end = value
    return bool(ID.fullmatch(item)) and type(start) is int and type(end) is int and 0 <= start <= end


def _is_counted(value: Any) -> bool:
    word, count = value
    return isinstance(word, str) and type(count) is int and 0 <= count <= _MOST


def _is_vector(raw: bytes, dimension: int) -> bool:
    return len(raw) == dimension * 4 and bool(np.isfinite(np.frombuffer(raw, "<f4")).all())


# Reads a dump from its first byte to its last before anything of it is loaded, and remembers its ids.

OWN: dict[str, Kind] = {
    "conversations": Kind.CONVERSATION, "items": Kind.ITEM, "versions": Kind.VERSION, "messages": Kind.MESSAGE,
    "extractions": Kind.EXTRACTION, "files": Kind.FILE, "segments": Kind.SEGMENT, "pages": Kind.PAGE,
    "retention_rules": Kind.RULE,
}  # fmt: skip
"""What the ids of a table's rows are the ids of."""


def check(reader: DumpReader, bounds: Bounds, ids: Ids, ticker: ProgressReporter) -> None:
    """Read all of a dump. Raises: InvalidInput naming the part, and the line, that is wrong."""
    manifest = reader.manifest
    check_head(manifest, bounds)
    chain = Chain()
    for table in TABLES:
        for row in table_rows(reader, table, bounds):
            _remember(ids, table, row)
            if table is t.events:
                chain.follow(row)
            ticker.tick()
    if (chain.seq, chain.end.hex()) != (manifest.cube.event_seq, manifest.cube.event_chain):
        raise bad(f"its chain of events ends at event {chain.seq}, and not where the manifest says")
    listed = set()
    for name, part in contents(reader):
        if name in listed or not reader.has(name):
            raise bad(f"{CONTENTS} names {name!r:.60} twice, or it is missing")
        listed.add(name)
        for _ in reader.blocks(name, part):
            pass
    if reader.files != listed:
        raise bad(f"it has files that {CONTENTS} does not name")
    _check_vectors(reader)
    dump_adapters.check(reader)
    ours = set(dump_adapters.names(reader))
    for name in reader.reserved:
        if name not in ours:
            dump_kv.check(reader, name)
    ids.index_places()


def unknown(reader: DumpReader) -> tuple[str, ...]:
    """Return the parts of reserved names that a load does nothing with."""
    ours = set(dump_adapters.names(reader))
    return tuple(name for name in reader.reserved if name not in ours and not dump_kv.is_known(name))


def check_head(manifest: DumpManifest, bounds: Bounds) -> None:
    """See that what is told of the cube itself can be. Raises: InvalidInput."""
    head = manifest.cube
    if max(head.created_at, head.lone_until or head.created_at) > bounds.now:
        raise bad("the cube was made in the future: the clock here, or there, is wrong; wait, or set it right")
    if not head.id.strip() or len(head.id) > 128:
        raise bad("the cube's id is empty or too long")
    if head.template is not None:
        try:
            stored_template(head.template)
        except InvalidInput as error:
            raise bad("the cube's template is none") from error
    missing = [part_of(table) for table in TABLES if part_of(table) not in manifest.parts]
    if missing or CONTENTS not in manifest.parts:
        raise bad(f"it lacks {(missing or [CONTENTS])[0]}")
    if any((part.rows is None) != (not name.endswith(".jsonl")) for name, part in manifest.parts.items()):
        raise bad("the manifest counts no rows where there are some, or some where there are none")


def table_rows(reader: DumpReader, table: sa.Table, bounds: Bounds) -> Iterator[dict[str, Any]]:
    """Yield a table's rows by column, each checked. Raises: InvalidInput."""
    read = RowReader(table, bounds).read
    for number, line in enumerate(reader.lines(part_of(table)), start=1):
        yield read(line, number)


def contents(reader: DumpReader) -> Iterator[tuple[str, Part]]:
    """Yield the part of each file, and what it must be. Raises: InvalidInput."""
    for number, line in enumerate(reader.lines(CONTENTS), start=1):
        try:
            told = object_of(line)
            name, part = f"files/{told['file_id']}", Part(told["bytes"], told["sha256"])
            if told.keys() != {"file_id", "bytes", "sha256"} or not FILE.fullmatch(name) or type(part.bytes) is not int:
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise bad(f"{CONTENTS}, line {number} does not name a file") from error
        yield name, part


def points(reader: DumpReader) -> Iterator[tuple[str, int]]:
    """Yield (version, chunk) of each pair of vectors, in their order. Raises: InvalidInput."""
    for number, line in enumerate(reader.lines(POINTS), start=1):
        try:
            told = object_of(line)
            version, chunk = told["version_id"], told["chunk"]
            if told.keys() != {"version_id", "chunk"} or not ID.fullmatch(version) or not 0 <= chunk < 1 << 31:
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise bad(f"{POINTS}, line {number} does not name a vector") from error
        yield version, chunk


def _check_vectors(reader: DumpReader) -> None:
    if reader.has(POINTS) != reader.has(VECTORS):
        raise bad(f"it has one of {POINTS} and {VECTORS}, and needs both or none")
    if not reader.has(POINTS):
        return
    count, dimension = reader.manifest.parts[POINTS].rows or 0, reader.manifest.embedder.dimension
    if not 0 < dimension <= 1 << 16:
        raise bad("its vectors have an impossible number of dimensions")
    header = safetensors_header(count, dimension)
    if reader.manifest.parts[VECTORS].bytes != len(header) + 8 * count * dimension:
        raise bad(f"{VECTORS} has not the size of its vectors")
    beginning = b""
    for block in reader.blocks(VECTORS):
        if len(beginning) < len(header):
            beginning += block[: len(header) - len(beginning)]
    if beginning != header:
        raise bad(f"{VECTORS} does not begin as its vectors are told")
    for _ in points(reader):
        pass


def _remember(ids: Ids, table: sa.Table, row: dict[str, Any]) -> None:
    kind = OWN.get(table.name)
    if kind is not None and not ids.add(kind, row["id"]):
        raise bad(f"{part_of(table)} has an id twice")
    if table is t.sources:
        ids.add_part(Kind.MESSAGE, row["message_id"], row["item_id"])
    elif table is t.extraction_items:
        ids.add_part(Kind.EXTRACTION, row["extraction_id"], row["item_id"])
    elif table is t.versions and row["recorded_to"] is None and row["type"] == ItemType.MESSAGE:
        ids.add_spoken(row["item_id"], row["id"])
    elif table is t.items and row["conversation_id"] is not None and row["position"] is not None:
        ids.say(row["conversation_id"], row["position"], row["page"] or 0, row["session"] or 0, row["id"])
