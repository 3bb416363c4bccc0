"""The ledger's rows as plain values, whatever table: read, checked, digested and written without being interpreted.

Times are microseconds, bytes base64, JSON itself. Knows no files and no second ledger. What is this database's own
business, its outbox, its marks of the indexes and its adapters, is no content and left out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.retention import RetentionAction
from memos.core.types import (
    DEFAULT_CUBE,
    CubeKind,
    FileKind,
    FileState,
    ItemType,
    LinkKind,
    Role,
    Status,
    TaskState,
    Tier,
    Trust,
)
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.columns import CUBE, UtcMicros, is_sealed, kind_of
from memos.memcube.ledger.schema import RECORD_ID_CHARS

Row = dict[str, Any]
"""A row by column, in the order of its table's columns, as written to a file."""

# An adapter's weights are files that go into no copy, and its rows alone would promise what is not there; it is trained
# again from the memories. The consent to that is its owner's word and travels.
_OWN = frozenset({t.outbox, t.mentions, t.adapters, t.adapter_items})

COPYING = "copying"
"""The `meta` key of a ledger that version 0.1 began to fill from another; it is not whole."""

# A row may hold a message of 1 MiB, so few are held at a time.
_FETCHED = 100
# A part of a file is 1 MiB always.
_PARTS_FETCHED = 8
_BATCH_ROWS = 500
_BATCH_CHARS = 4 << 20
_EARLIEST = to_micros(datetime.min.replace(tzinfo=UTC))
_LATEST = to_micros(datetime.max.replace(tzinfo=UTC))
_LISTS = frozenset({"tags", "entities", "keywords", "item_ids", "duplicates", "rebuilt", "types", "statuses", "made"})
_OBJECTS = frozenset({"info", "removed", "stores", "forms", "scope", "payload"})
# What somebody said happens at any time; what was recorded was recorded by now, or this ledger's clock would follow.
_TOLD_TIMES = frozenset({"said_at", "chat_time", "valid_from", "valid_to", "expires_at"})
_LONG_TEXTS = frozenset({"memory", "value", "text"})
_LENGTHS = {"events.salt": 16, "events.digest": 32, "events.chain": 32}
_WORDS = {"segments.state": frozenset({"open", "archived"}), "items.reading": frozenset({"wanted", "read"})}
_MOST = 1_000_000_000
_MOST_USES, _MOST_HEAT = 30, 1e305
_ID_CHARS = 36
_LONGEST_TTL_S = 10**9
_NESTING = 64
_CHOICES: dict[str, type[StrEnum]] = {
    "versions.type": ItemType,
    "versions.tier": Tier,
    "versions.status": Status,
    "versions.role": Role,
    "messages.role": Role,
    "messages.trust": Trust,
    "links.kind": LinkKind,
    "cubes.kind": CubeKind,
    "files.kind": FileKind,
    "files.state": FileState,
    "tasks.state": TaskState,
    "retention_rules.action": RetentionAction,
    "retention_rules.types": ItemType,
    "retention_rules.statuses": Status,
}


def tables() -> list[sa.Table]:
    return [table for table in t.metadata.sorted_tables if table not in _OWN]


def stream(
    connection: sa.Connection, table: sa.Table, *, ordered: bool = False, cube: str | None = None
) -> Iterator[Row]:
    plain = _plain(table)
    query = sa.select(*plain.c)
    if cube is not None:
        query = query.where(_of_cube(plain, table, cube))
    if table is t.meta:
        query = query.where(plain.c.key != COPYING, ~plain.c.key.like("mark:%"))
    if ordered:
        query = query.order_by(*(plain.c[column.name] for column in table.primary_key))
    fetched = _PARTS_FETCHED if table is t.file_parts else _FETCHED
    names = [column.name for column in table.columns]
    for row in connection.execute(query, execution_options={"yield_per": fetched}):
        yield dict(zip(names, map(_encoded, row), strict=True))


def stream_with_cube(connection: sa.Connection, table: sa.Table) -> Iterator[tuple[Row, str | None]]:
    """Yield every row with the cube it belongs to, None for what belongs to the installation."""
    if "cube_id" in table.c or table is t.cubes or {"item_id", "file_id"}.isdisjoint(table.c.keys()):
        named = "id" if table is t.cubes else "cube_id"
        yield from ((row, row.get(named)) for row in stream(connection, table))
        return
    parent, column = (t.files, "file_id") if "file_id" in table.c else (t.items, "item_id")
    plain = _plain(table)
    query = sa.select(*plain.c, parent.c.cube_id.label("of_cube"))
    query = query.select_from(plain.outerjoin(parent, parent.c.id == plain.c[column]))
    names = [column.name for column in table.columns]
    fetched = _PARTS_FETCHED if table is t.file_parts else _FETCHED
    for *values, cube in connection.execute(query, execution_options={"yield_per": fetched}):
        yield dict(zip(names, map(_encoded, values), strict=True)), cube


def key_of(table: sa.Table, row: Row) -> list[Any]:
    return [row[column.name] for column in table.primary_key]


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    binary = [column.name for column in table.columns if isinstance(kind_of(column), sa.LargeBinary)]
    raw = [{name: base64.b64decode(row[name]) for name in binary if row[name] is not None} for row in rows]
    entries = [row | of_it for row, of_it in zip(rows, raw, strict=True)]
    if table is not t.file_parts or not is_sealed(connection):
        connection.execute(sa.insert(_plain(table)), entries)
        return
    # A part is sealed with the key of its file's cube, which it does not name.
    query = sa.select(t.files.c.id, t.files.c.cube_id).where(t.files.c.id.in_({row["file_id"] for row in rows}))
    cube_of = {row.id: row.cube_id for row in connection.execute(query)}
    for entry in entries:
        connection.execute(sa.insert(_plain(table)), [entry], execution_options={CUBE: cube_of[entry["file_id"]]})


def insert_all(
    connection: sa.Connection, table: sa.Table, rows: Iterable[Row], ticker: ProgressReporter | None = None
) -> int:
    count = 0
    for batch in batches(rows):
        insert(connection, table, batch)
        count += len(batch)
        if ticker is not None:
            ticker.tick(len(batch))
    return count


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in lists that one statement takes well: not many, and not much text."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def count(connection: sa.Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def is_blank(connection: sa.Connection) -> bool:
    """Return True if nothing was ever stored: no item, message, file, erasure, or cube but the one made at opening.

    What version 0.1 began to fill from another ledger is not blank.
    """
    if connection.scalar(sa.select(t.meta.c.key).where(t.meta.c.key == COPYING)) is not None:
        return False
    for table in (t.items, t.messages, t.files, t.tombstones):
        if connection.scalar(sa.select(sa.literal(1)).select_from(table).limit(1)) is not None:
            return False
    return connection.scalar(sa.select(sa.literal(1)).where(t.cubes.c.id != DEFAULT_CUBE).limit(1)) is None


def clear(connection: sa.Connection) -> None:
    """Remove every row but the keys of an encrypted ledger."""
    for table in reversed(t.metadata.sorted_tables):
        rest = sa.delete(table)
        connection.execute(rest.where(~t.meta.c.key.startswith("mark:keys")) if table is t.meta else rest)


def ledger_id(connection: sa.Connection) -> str:
    return connection.scalar(sa.select(t.meta.c.value).where(t.meta.c.key == "ledger_id")) or ""


def line(told: list[Any] | Row) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class Tally:
    """Count and digest of rows in any order: the sum of their SHA-256, which no database's sorting changes."""

    rows: int = 0
    total: int = 0

    def add(self, row: Row) -> None:
        text = json.dumps([*row.values()], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        self.rows += 1
        self.total = (self.total + int.from_bytes(hashlib.sha256(text.encode()).digest())) % (1 << 256)


def tally(connection: sa.Connection, table: sa.Table) -> Tally:
    found = Tally()
    for row in stream(connection, table):
        found.add(row)
    return found


# Rows that come from a file. Every check is here: a column holds what its type and its name allow, and in a dump, which
# may come from anybody, no more than `Bounds` and no other form than this program relies on.

ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")

Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, None when its column can hold it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a row of a dump: the present in microseconds, the bytes of a text, the dimension of a vector."""

    now: int
    text_bytes: int
    dimension: int


class RowReader:
    def __init__(self, table: sa.Table, bounds: Bounds | None = None, left_out: Collection[str] = ()) -> None:
        self._table = table
        self._columns = {column.name: column for column in table.columns if column.name not in left_out}
        self._checks = {name: check_of(column, bounds) for name, column in self._columns.items()}

    def read(self, found: Mapping[str, Any]) -> Row:
        """Return a row; a column that an older schema had not gets its default. Raises: ValueError saying why."""
        if unknown := found.keys() - self._columns.keys():
            raise ValueError(f"{self._table.name} has the unknown column {min(unknown)!r:.60}")
        row: Row = {}
        for name, column in self._columns.items():
            row[name] = value = found[name] if name in found else _default_of(column)
            if (problem := self._checks[name](value)) is not None:
                raise ValueError(f"{name} {problem}")
        return row


def check_of(column: sa.Column[Any], bounds: Bounds | None = None) -> Check:
    checks = [_type_check(column)]
    if bounds is not None:
        checks.append(_form_check(f"{column.table.name}.{column.name}", bounds) or _bounds_check(column, bounds))

    def check(value: Any) -> str | None:
        if value is None:
            return None if column.nullable else "is empty"
        try:
            for each in checks:
                if (problem := each(value)) is not None:
                    return problem
        except (TypeError, ValueError, RecursionError, KeyError):
            return "has the wrong type"
        return None

    return check


def object_of(raw: bytes) -> dict[str, Any]:
    """Return the object that a line is: finite numbers, no text twice named, not too deep. Raises: ValueError."""
    try:
        found = _DECODER.decode(raw.decode())
        if isinstance(found, dict) and _depth(found) <= _NESTING:
            return found
    except RecursionError:
        pass
    raise ValueError("is not a valid JSON object")


def _default_of(column: sa.Column[Any]) -> Any:
    if isinstance(column.server_default, sa.DefaultClause):
        told = str(column.server_default.arg)
        if isinstance(column.type, sa.Boolean):
            return told == "true"
        return told if isinstance(kind_of(column), sa.String) else json.loads(told)
    if column.nullable:
        return None
    raise ValueError(f"{column.table.name} lacks the column {column.name}")


def _plain(table: sa.Table) -> sa.TableClause:
    types = {each.name: sa.BigInteger() if isinstance(each.type, UtcMicros) else each.type for each in table.columns}
    return sa.table(table.name, *(sa.column(name, kind) for name, kind in types.items()))


def _of_cube(plain: sa.TableClause, table: sa.Table, cube: str) -> sa.ColumnElement[bool]:
    if "cube_id" in table.c or table is t.cubes:
        return (plain.c.id if table is t.cubes else plain.c.cube_id) == cube
    parent, column = (t.items, plain.c.item_id) if "item_id" in table.c else (t.files, plain.c.file_id)
    return column.in_(sa.select(parent.c.id).where(parent.c.cube_id == cube))


def _encoded(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview | bytearray) else value


def _type_check(column: sa.Column[Any]) -> Check:
    known = frozenset(_CHOICES.get(f"{column.table.name}.{column.name}", ()))
    match kind_of(column):
        case UtcMicros():
            return lambda value: _whole(value, _EARLIEST, _LATEST)
        case sa.BigInteger():
            return lambda value: _whole(value, -(1 << 63), (1 << 63) - 1)
        case sa.Integer():
            return lambda value: _whole(value, -(1 << 31), (1 << 31) - 1)
        case sa.Boolean():
            return lambda value: None if isinstance(value, bool) else "is not true or false"
        case sa.Float():
            return lambda value: "is not a number" if isinstance(value, bool | str | list | dict) else None
        case sa.LargeBinary():
            return _base64
        case sa.JSON():
            return lambda value: _json(column.name, value) or (_words(value, known) if known else None)
    if known:
        return lambda value: _words([value], known)
    return _zone if column is t.cubes.c.time_zone else _text


def _bounds_check(column: sa.Column[Any], bounds: Bounds) -> Check:
    kind = kind_of(column)
    if isinstance(kind, UtcMicros):
        latest = math.inf if column.name in _TOLD_TIMES else bounds.now
        return lambda value: (
            None if value <= latest else "is in the future; correct this machine's clock or that of the source"
        )
    if isinstance(kind, sa.Integer) and not isinstance(kind, sa.BigInteger):
        return lambda value: None if 0 <= value <= _MOST else "is a number out of range"
    if isinstance(kind, sa.String):
        if kind.length == _ID_CHARS:
            return lambda value: None if ID.fullmatch(value) else "is not an id"
        most = bounds.text_bytes if column.name in _LONG_TEXTS else math.inf
        length = kind.length or math.inf
        return lambda value: None if len(value) <= length and len(value.encode()) <= most else "is too long"
    return lambda _: None


def _form_check(name: str, bounds: Bounds) -> Check | None:
    if name in _LENGTHS:
        return lambda value: None if len(base64.b64decode(value)) == _LENGTHS[name] else "has another length"
    if name in _WORDS:
        return lambda value: None if value in _WORDS[name] else "is not one of the allowed values"
    forms: dict[str, Callable[[Any], bool]] = {
        "messages.content": lambda value: _list_of(value, lambda part: isinstance(part, dict)),
        "messages.tool_calls": lambda value: _list_of(value, _is_call),
        "segments.spans": lambda value: _list_of(value, _is_span),
        "segments.words": lambda value: _list_of(value, _is_counted),
        "segments.vector": lambda value: _is_vector(base64.b64decode(value), bounds.dimension),
        "warmth.history": lambda value: _list_of(value, _is_use) and len(value) <= _MOST_USES,
        "items.record_id": lambda value: bool(value.strip()) and len(value) <= RECORD_ID_CHARS,
        "items.ttl_s": lambda value: 0 < value <= _LONGEST_TTL_S,
        "events.body": lambda value: object_of(value.encode()) is not None,
    }
    if name not in forms:
        return None
    return lambda value: None if forms[name](value) else "has an invalid format"


def _whole(value: Any, low: int, high: int) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "is not a whole number"
    return None if low <= value <= high else "is a number out of range"


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "is not text"
    try:
        return "contains a NUL character" if b"\0" in value.encode() else None
    except UnicodeEncodeError:
        return "contains a lone surrogate"


def _words(values: list[Any], known: frozenset[StrEnum]) -> str | None:
    fine = all(isinstance(value, str) and value in known for value in values)
    return None if fine else "is not one of the allowed values"


def _zone(value: Any) -> str | None:
    try:
        return _text(value) or (None if ZoneInfo(value) else "")
    except (KeyError, ValueError, OSError):
        return "is not a time zone"


def _base64(value: Any) -> str | None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return "is not base64"
    return None


def _json(name: str, value: Any) -> str | None:
    if name in _LISTS and not (isinstance(value, list) and all(isinstance(entry, str) for entry in value)):
        return "is not a list of strings"
    if name in _OBJECTS and not isinstance(value, dict):
        return "is not an object"
    return _text(_texts(value))


def _texts(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(str(key) + _texts(inner) for key, inner in value.items())
    if isinstance(value, list):
        return "".join(map(_texts, value))
    return value if isinstance(value, str) else ""


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


def _is_use(value: Any) -> bool:
    second, *heats = value
    in_range = type(second) is int and 0 <= second <= _LATEST // 1_000_000
    return in_range and len(heats) == 2 and all(type(heat) in (int, float) and 0 <= heat < _MOST_HEAT for heat in heats)


def _is_vector(raw: bytes, dimension: int) -> bool:
    return len(raw) == dimension * 4 and bool(np.isfinite(np.frombuffer(raw, "<f4")).all())


def _refused(_constant: str) -> None:
    raise ValueError


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _int64(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_float=_finite, parse_int=_int64, object_pairs_hook=_once)


def _depth(value: Any) -> int:
    if isinstance(value, str | int | float) or not value:
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
