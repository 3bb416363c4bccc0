"""The ledger's rows as plain values, whatever table: read, checked, digested and written without being interpreted.

Times are microseconds, bytes base64, JSON itself. Knows no files and no second ledger. What is this database's own
business, its outbox, its marks of the indexes and its adapters, is no content and left out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.types import (
    DEFAULT_CUBE,
    CubeKind,
    FileKind,
    FileState,
    ItemType,
    LinkKind,
    RetentionAction,
    Role,
    Status,
    TaskState,
    Tier,
    Trust,
)
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.schema import UtcMicros

Values = list[Any]
"""One row in the order of its table's columns, as it is written into a file."""

# An adapter's weights are files that go into no copy, and its rows alone would promise what is not there; it is trained
# again from the memories. The consent to that is its owner's word and travels.
_OWN = frozenset({t.outbox, t.adapters, t.adapter_items})

COPYING = "copying"
"""The `meta` key of a ledger that is being filled from another and not whole yet."""

# A row may hold a message of 1 MiB, so few are held at a time.
_FETCHED = 100
# A part of a file is 1 MiB always.
_PARTS_FETCHED = 8
_BATCH_ROWS = 500
_BATCH_CHARS = 4 << 20
_EARLIEST = to_micros(datetime.min.replace(tzinfo=UTC))
_LATEST = to_micros(datetime.max.replace(tzinfo=UTC))
_LISTS = frozenset({"tags", "entities", "keywords", "item_ids", "duplicates", "rebuilt", "types", "statuses", "made"})
_OBJECTS = frozenset({"info", "removed", "stores", "scope", "payload"})
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
    """Return the tables with content, each after those it refers to."""
    return [table for table in t.metadata.sorted_tables if table not in _OWN]


def stream(
    connection: sa.Connection,
    table: sa.Table,
    *,
    ordered: bool = False,
    after: Sequence[Any] | None = None,
    cube: str | None = None,
) -> Iterator[Values]:
    """Yield a table's rows, all or those of a `cube`; `ordered` by primary key, and then only those `after` a key."""
    plain = _plain(table)
    query = sa.select(*plain.c)
    if cube is not None:
        query = query.where(_of_cube(plain, table, cube))
    if table is t.meta:
        query = query.where(plain.c.key != COPYING, ~plain.c.key.like("mark:%"))
    if ordered:
        keys = [plain.c[column.name] for column in table.primary_key]
        query = query.order_by(*keys)
        if after is not None:
            last = [sa.literal(value, key.type) for value, key in zip(after, keys, strict=True)]
            query = query.where(sa.tuple_(*keys) > sa.tuple_(*last))
    fetched = _PARTS_FETCHED if table is t.file_parts else _FETCHED
    for row in connection.execute(query, execution_options={"yield_per": fetched}):
        yield [_encoded(value) for value in row]


def key_of(table: sa.Table, values: Values) -> Values:
    """Return a row's primary key."""
    return [value for column, value in zip(table.columns, values, strict=True) if column.primary_key]


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Values]) -> None:
    """Write rows as `stream` gave them."""
    if rows:
        plain = _plain(table)
        names = [column.name for column in table.columns]
        binary = {place for place, column in enumerate(table.columns) if isinstance(column.type, sa.LargeBinary)}
        entries = [
            {
                name: base64.b64decode(value) if place in binary and value is not None else value
                for place, (name, value) in enumerate(zip(names, row, strict=True))
            }
            for row in rows
        ]
        connection.execute(sa.insert(plain), entries)


def batches(rows: Iterable[Values]) -> Iterator[list[Values]]:
    """Yield rows in lists that one statement takes well: not many, and not much text."""
    batch: list[Values] = []
    size = 0
    for values in rows:
        batch.append(values)
        size += sum(len(value) for value in values if isinstance(value, str))
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def count(connection: sa.Connection, table: sa.Table) -> int:
    """Return how many rows a table has."""
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def is_blank(connection: sa.Connection) -> bool:
    """Say whether nothing was ever stored: no item, message, file or erasure, and no cube but the one made at opening.

    What is being filled from another ledger is not blank.
    """
    if connection.scalar(sa.select(t.meta.c.key).where(t.meta.c.key == COPYING)) is not None:
        return False
    for table in (t.items, t.messages, t.files, t.tombstones):
        if connection.scalar(sa.select(sa.literal(1)).select_from(table).limit(1)) is not None:
            return False
    return connection.scalar(sa.select(sa.literal(1)).where(t.cubes.c.id != DEFAULT_CUBE).limit(1)) is None


def clear(connection: sa.Connection) -> None:
    """Remove every row of every table."""
    for table in reversed(t.metadata.sorted_tables):
        connection.execute(sa.delete(table))


def ledger_id(connection: sa.Connection) -> str:
    """Return what names this ledger's history; a copy of it has the same."""
    return connection.scalar(sa.select(t.meta.c.value).where(t.meta.c.key == "ledger_id")) or ""


def line(values: Values) -> bytes:
    """Return a row as one line of JSON, without its end."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(slots=True)
class Tally:
    """Count and digest of rows in any order: the sum of their SHA-256, which no database's sorting changes."""

    rows: int = 0
    total: int = 0

    def add(self, values: Values) -> None:
        """Count one row."""
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        self.rows += 1
        self.total = (self.total + int.from_bytes(hashlib.sha256(text.encode()).digest())) % (1 << 256)


def tally(connection: sa.Connection, table: sa.Table) -> Tally:
    """Return count and digest of a table."""
    found = Tally()
    for values in stream(connection, table):
        found.add(values)
    return found


Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, None when its column can hold it."""


def checks(table: sa.Table) -> list[tuple[str, Check]]:
    """Return name and check of every column, for rows that come from a file."""
    return [(column.name, _check(table, column)) for column in table.columns]


def default_of(column: sa.Column[Any]) -> Any:
    """Return what a row of an older schema gets in a column it lacks. Raises: LookupError when there is no default."""
    if isinstance(column.server_default, sa.DefaultClause):
        told = str(column.server_default.arg)
        if isinstance(column.type, sa.Boolean):
            return False
        return told if isinstance(column.type, sa.String) else json.loads(told)
    if column.nullable:
        return None
    raise LookupError(column.name)


def _plain(table: sa.Table) -> sa.TableClause:
    """Return the table with the types its values are stored as."""
    return sa.table(
        table.name,
        *(
            sa.column(column.name, sa.BigInteger() if isinstance(column.type, UtcMicros) else column.type)
            for column in table.columns
        ),
    )


def _of_cube(plain: sa.TableClause, table: sa.Table, cube: str) -> sa.ColumnElement[bool]:
    if "cube_id" in table.c:
        return plain.c.cube_id == cube
    parent, column = (t.items, plain.c.item_id) if "item_id" in table.c else (t.files, plain.c.file_id)
    return column.in_(sa.select(parent.c.id).where(parent.c.cube_id == cube))


def _encoded(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview | bytearray) else value


def _check(table: sa.Table, column: sa.Column[Any]) -> Check:
    sort = _sort_of(table, column)

    def check(value: Any) -> str | None:
        if value is None:
            return None if column.nullable else "is empty"
        return sort(value)

    return check


def _sort_of(table: sa.Table, column: sa.Column[Any]) -> Check:
    known = frozenset(_CHOICES.get(f"{table.name}.{column.name}", ()))
    match column.type:
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


def _whole(value: Any, low: int, high: int) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "is not a whole number"
    return None if low <= value <= high else "is a number out of range"


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "is not text"
    try:
        return "has a NUL character" if b"\0" in value.encode() else None
    except UnicodeEncodeError:
        return "has a lone surrogate"


def _words(values: list[Any], known: frozenset[StrEnum]) -> str | None:
    fine = all(isinstance(value, str) and value in known for value in values)
    return None if fine else "is none of the known words"


def _zone(value: Any) -> str | None:
    try:
        return _text(value) or (None if ZoneInfo(value) else "")
    except (KeyError, ValueError, OSError):
        return "is no time zone"


def _base64(value: Any) -> str | None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return "is not base64"
    return None


def _json(name: str, value: Any) -> str | None:
    if name in _LISTS and not (isinstance(value, list) and all(isinstance(entry, str) for entry in value)):
        return "is not a list of texts"
    if name in _OBJECTS and not isinstance(value, dict):
        return "is not an object"
    return _text(_texts(value))


def _texts(value: Any) -> str:
    """Return every text inside a JSON value, joined."""
    if isinstance(value, dict):
        return "".join(str(key) + _texts(inner) for key, inner in value.items())
    if isinstance(value, list):
        return "".join(map(_texts, value))
    return value if isinstance(value, str) else ""
