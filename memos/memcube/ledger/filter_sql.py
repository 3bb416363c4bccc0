"""Compile filters to SQL conditions with the semantics of `memos.core.filters.matches`.

Every condition is true or false, never NULL, so that `not` has the same meaning as in Python. Values are bound
parameters; `memos.core.filters.parse` keeps a filter below SQLite's limits (32,766 variables, depth 1,000).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeGuard

import sqlalchemy as sa

from memos.core.filters import (
    DATE_FIELDS,
    FIELDS,
    LIST_FIELDS,
    NUMBER_FIELDS,
    TEXT_FIELDS,
    And,
    Condition,
    Node,
    Not,
    Op,
    Or,
    Scalar,
    info_paths,
    matches,
    steps_of,
)
from memos.memcube.ledger.columns import is_sealed
from memos.memcube.ledger.schema import conversations, items, versions

Sql = sa.ColumnElement[Any]
Bool = sa.ColumnElement[bool]
Number = int | float

_COMPARE: Mapping[Op, Callable[[Any, Any], Any]] = {
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.LT: operator.lt,
    Op.LTE: operator.le,
}


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a JSON list or of a single value: `text` is null for non-text, `flag` is 'true' or 'false'.

    Where `is_own` is not None, rows may also be the values in an object, and are elements only where it holds.
    """

    rows: sa.FromClause
    is_text: Bool
    is_number: Bool
    text: Sql
    flag: Sql
    is_null: Bool
    compare: Callable[[Op, Number], Bool]
    one_of: Callable[[Sequence[Number]], Bool]
    is_own: Bool | None = None


class JsonSql(Protocol):
    def elements(self, column: Sql, key: str | None) -> Elements: ...

    def compare(self, column: Sql, op: Op, value: Number) -> Bool: ...

    def one_of(self, column: Sql, values: Sequence[Number]) -> Bool: ...

    def has_folded(self, text: Sql, part: str) -> Bool: ...

    def starts_with(self, text: Sql, prefix: str) -> Bool: ...


class SqliteJson:
    def elements(self, column: Sql, key: str | None) -> Elements:
        path = () if key is None else (_sqlite_path(column, key),)
        rows = sa.func.json_each(column, *path).table_valued("value", "type")
        kind, value = rows.c.type, rows.c.value
        numbers = (partial(self.compare, value), partial(self.one_of, value))
        own = None if key is None else sa.func.json_type(column, *path) != "object"
        return Elements(rows, kind == "text", kind.in_(["integer", "real"]), value, kind, kind == "null", *numbers, own)

    def compare(self, column: Sql, op: Op, value: Number) -> Bool:
        """Compare a column with a number; SQLite compares integers and floats exactly."""
        # Without the column's type, since dates in filters are epoch microseconds already, as in the ledger.
        holds: Bool = _COMPARE[op](sa.type_coerce(column, sa.types.NULLTYPE), value)
        return holds

    def one_of(self, column: Sql, values: Sequence[Number]) -> Bool:
        return sa.type_coerce(column, sa.types.NULLTYPE).in_(values)

    def has_folded(self, text: Sql, part: str) -> Bool:
        """Match with Python's case folding; SQLite's `lower` only covers ASCII, and is much faster for that."""
        is_ascii = sa.func.length(text) == sa.func.length(sa.cast(text, sa.LargeBinary))
        folded = sa.case((is_ascii, sa.func.lower(text)), else_=sa.func.casefold(text))
        return sa.func.instr(folded, part.casefold()) > 0

    def starts_with(self, text: Sql, prefix: str) -> Bool:
        return sa.func.substr(text, 1, len(prefix)) == prefix


def _sqlite_path(column: Sql, key: str) -> Sql:
    # Field names contain no quotes or backslashes (`memos.core.filters`), so the path needs no escaping.
    own = sa.literal(f'$."{key}"')
    if not (steps := steps_of(key)):
        return own
    inside = "$" + "".join(f'."{step}"' for step in steps)
    return sa.case((sa.func.json_type(column, own).is_(None), inside), else_=own)


class PostgresJson:
    """JSON in PostgreSQL, where floats are recognised by their notation."""

    def elements(self, column: Sql, key: str | None) -> Elements:
        value: Sql = sa.type_coerce(column, sa.JSON)
        if key is not None:
            under = _postgres_value(value, key)
            # An object stands for itself, unless there is nothing but null in it.
            is_empty = sa.cast(sa.func.json_strip_nulls(under), sa.Text) == "{}"
            whole = sa.func.json_build_array(under)
            own = sa.case((is_empty, sa.cast(sa.literal_column("'[]'"), sa.JSON)), else_=whole)
            value = sa.case({"array": under, "object": own}, value=sa.func.json_typeof(under), else_=whole)
        rows = sa.func.json_array_elements(value).table_valued(sa.column("value", sa.JSON), name="element")
        element = rows.c.value
        kind = sa.func.json_typeof(element)
        plain = element.op("#>>", return_type=sa.Text())(sa.literal_column("'{}'::text[]"))
        text = sa.case((kind == "string", plain), else_=None)
        number = sa.case((kind == "number", plain), else_=None)
        flag = sa.case((kind == "boolean", plain), else_=None)
        numbers = (partial(_compare_written, number), partial(_one_of_written, number))
        is_null = sa.func.coalesce(kind, "null") == "null"
        return Elements(rows, kind == "string", kind == "number", text, flag, is_null, *numbers)

    def compare(self, column: Sql, op: Op, value: Number) -> Bool:
        plain = sa.type_coerce(column, sa.types.NULLTYPE)
        if isinstance(column.type, sa.Float):
            return _compare_float(plain, op, value)
        holds: Bool = _COMPARE[op](sa.cast(plain, sa.Numeric), _exactly(value))
        return holds

    def one_of(self, column: Sql, values: Sequence[Number]) -> Bool:
        plain = sa.type_coerce(column, sa.types.NULLTYPE)
        if isinstance(column.type, sa.Float):
            return plain.in_(_floats(values))
        return sa.cast(plain, sa.Numeric).in_([_exactly(value) for value in values])

    def has_folded(self, text: Sql, part: str) -> Bool:
        return sa.func.strpos(sa.func.memos_casefold(text), sa.cast(part.casefold(), sa.Text)) > 0

    def starts_with(self, text: Sql, prefix: str) -> Bool:
        holds: Bool = sa.func.starts_with(sa.cast(text, sa.Text), sa.cast(prefix, sa.Text))
        return holds


def _postgres_value(value: Sql, key: str) -> Sql:
    def step(of: Sql, name: str) -> Sql:
        return of.op("->", return_type=sa.JSON())(sa.cast(name, sa.Text))

    own = step(value, key)
    if not (steps := steps_of(key)):
        return own
    inside = value
    for name in steps:
        inside = step(inside, name)
    return sa.func.coalesce(own, inside, type_=sa.JSON())


class SealedJson(PostgresJson):
    """PostgreSQL with columns of text that it cannot look into: conditions on them are evaluated here.

    Args:
        connection: The ledger.
        cubes: The cubes that are filtered.
        among: Which versions of them.
    """

    def __init__(self, connection: sa.Connection, cubes: Sequence[str], among: Bool) -> None:
        self._connection = connection
        self._versions = versions.c.cube_id.in_(cubes), among

    def holds(self, node: Node) -> Bool:
        """Read the versions that could pass, and return the condition to be one of those that do."""
        fields = {condition.field for condition in _conditions(node)}
        columns = {name: versions.c["info" if name.startswith("info.") else name] for name in fields}
        query = sa.select(versions.c.id, *dict.fromkeys(columns.values())).where(*self._versions)
        passing = []
        for row in self._connection.execute(query, execution_options={"yield_per": 1000}):
            told = row._asdict()
            record = {name: told.get(name) for name in fields}
            record |= {f"info.{path}": value for path, value in info_paths(told.get("info") or {})}
            if matches(node, record):
                passing.append(row.id)
        return versions.c.id == sa.any_(sa.literal(passing, sa.ARRAY(sa.Text)))


_SEALED_FIELDS = frozenset({"memory", *LIST_FIELDS})


def _conditions(node: Node) -> list[Condition]:
    match node:
        case Condition():
            return [node]
        case Not():
            return _conditions(node.part)
        case _:
            return [found for part in node.parts for found in _conditions(part)]


def _is_of_sealed(node: Node) -> bool:
    """Return True if a filter has conditions on sealed columns alone."""
    found = _conditions(node)
    return bool(found) and all(each.field in _SEALED_FIELDS or each.field not in FIELDS for each in found)


def of(connection: sa.Connection, cubes: Sequence[str] = (), among: Bool | None = None) -> JsonSql:
    """Return what compiles filters for a ledger; of a sealed one `cubes` are filtered, and `among` their versions.

    By default the current ones.
    """
    if is_sealed(connection):
        return SealedJson(connection, cubes, versions.c.recorded_to.is_(None) if among is None else among)
    return SqliteJson() if connection.dialect.name == "sqlite" else PostgresJson()


def _split(number: Sql) -> tuple[Sql, Sql]:
    """Return a JSON number as a float, if it has a point or an exponent, or as an integer; the other one is null."""
    is_float = number.regexp_match("[.eE]")
    as_float = sa.cast(sa.case((is_float, number), else_=None), sa.Double)
    return as_float, sa.cast(sa.case((is_float, None), else_=number), sa.Numeric)


def _compare_written(number: Sql, op: Op, value: Number) -> Bool:
    as_float, as_whole = _split(number)
    whole: Bool = _COMPARE[op](as_whole, _exactly(value))
    return sa.func.coalesce(_compare_float(as_float, op, value), whole)


def _one_of_written(number: Sql, values: Sequence[Number]) -> Bool:
    as_float, as_whole = _split(number)
    whole = as_whole.in_([_exactly(value) for value in values])
    return sa.func.coalesce(as_float.in_(_floats(values)), whole)


def _compare_float(number: Sql, op: Op, value: Number) -> Bool:
    """Compare a float with a number; an integer that no float equals is replaced by the nearest float."""
    near = _nearest(value)
    if near != value:
        # No float lies between the value and the nearest one.
        if_below, if_above = (Op.GT, Op.GTE) if op in (Op.GT, Op.GTE) else (Op.LTE, Op.LT)
        op = if_below if near < value else if_above
    holds: Bool = _COMPARE[op](number, sa.cast(near, sa.Double))
    return holds


def _floats(values: Sequence[Number]) -> list[sa.ColumnElement[Any]]:
    return [sa.cast(near, sa.Double) for value in values if (near := _nearest(value)) == value]


def _nearest(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _exactly(value: Number) -> sa.ColumnElement[Any]:
    return sa.cast(sa.literal(format(Decimal(value), "f"), sa.Text), sa.Numeric)


Value = Scalar | tuple[Scalar, ...]

_COLUMNS: Mapping[str, Sql] = {
    **{name: table.c[name] for table in (items, versions) for name in FIELDS if name in table.c},
    "id": versions.c.item_id,
    "cube": versions.c.cube_id,
    "conversation": conversations.c.name,
    "updated_at": versions.c.recorded_at,
}
_NEGATED = {Op.NE: Op.EQ, Op.NIN: Op.IN}


def compile_sql(node: Node | None, dialect: JsonSql) -> Bool:
    """Compile a filter to a condition on versions, joined with items and (outer join) conversations."""
    if isinstance(dialect, SealedJson) and node is not None and _is_of_sealed(node):
        return dialect.holds(node)
    match node:
        case None:
            return sa.true()
        case And():
            return sa.and_(sa.true(), *(compile_sql(part, dialect) for part in node.parts))
        case Or():
            return sa.or_(sa.false(), *(compile_sql(part, dialect) for part in node.parts))
        case Not():
            return sa.not_(compile_sql(node.part, dialect))
        case Condition():
            return _condition(node, dialect)


def _condition(condition: Condition, dialect: JsonSql) -> Bool:
    field, op, value = condition.field, condition.op, condition.value
    if op in _NEGATED:
        return sa.not_(_condition(Condition(field, _NEGATED[op], value), dialect))
    if op is Op.EXISTS and value is False:
        return sa.not_(_condition(Condition(field, op, True), dialect))
    if field in LIST_FIELDS:
        return _any(dialect.elements(_COLUMNS[field], None), op, value, dialect)
    if field == "record_id" and op is Op.STARTSWITH:
        return _not_null(items.c.record_id, between(items.c.record_id, str(value)))
    if field == "conversation" and op in (Op.EQ, Op.CONTAINS, Op.IN, Op.STARTSWITH):
        # By the ids of the few conversations with these names: their messages are found by an index.
        named = sa.select(conversations.c.id).where(_text(conversations.c.name, op, value, dialect))
        return _not_null(items.c.conversation_id, items.c.conversation_id.in_(named.correlate(None)))
    if field in TEXT_FIELDS:
        return _not_null(_COLUMNS[field], _text(_COLUMNS[field], op, value, dialect))
    if field in NUMBER_FIELDS | DATE_FIELDS:
        column = _COLUMNS[field]
        return _not_null(column, _number(partial(dialect.compare, column), partial(dialect.one_of, column), op, value))
    return _any(dialect.elements(versions.c.info, field.removeprefix("info.")), op, value, dialect)


def between(column: Sql, prefix: str) -> Bool:
    """Compile a prefix to a range, which an index finds; the column must sort by code points."""
    after = after_prefix(prefix)
    return column >= prefix if after is None else sa.and_(column >= prefix, column < after)


_LAST, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


def after_prefix(prefix: str) -> str | None:
    """Return the first text, by code points, after all that begin with the prefix; None if nothing comes after."""
    kept = prefix.rstrip(chr(_LAST))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _not_null(column: Sql, holds: Bool) -> Bool:
    return sa.and_(column.is_not(None), holds)


def _text(text: Sql, op: Op, value: Value, dialect: JsonSql) -> Bool:
    match op:
        case Op.EXISTS:
            return sa.true()
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _one_of(text, [entry for entry in _values(value) if isinstance(entry, str)])
        case Op.LIKE:
            return dialect.has_folded(text, str(value))
        case Op.STARTSWITH:
            return dialect.starts_with(text, str(value))
    return sa.false()


def _number(
    compare: Callable[[Op, Number], Bool], one_of: Callable[[Sequence[Number]], Bool], op: Op, value: Value
) -> Bool:
    match op:
        case Op.EXISTS:
            return sa.true()
        case Op.EQ | Op.CONTAINS | Op.IN:
            numbers = [entry for entry in _values(value) if _is_number(entry)]
            return one_of(numbers) if numbers else sa.false()
        case Op.GT | Op.GTE | Op.LT | Op.LTE if _is_number(value):
            return compare(op, value)
    return sa.false()


def _flag(flag: Sql, op: Op, value: Value) -> Bool:
    """Compile a condition on a boolean, recognised by its JSON type: `true` is not the number 1."""
    match op:
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _one_of(flag, ["true" if entry else "false" for entry in _values(value) if isinstance(entry, bool)])
    return sa.false()


def _any(elements: Elements, op: Op, value: Value, dialect: JsonSql) -> Bool:
    passes: Bool
    if op is Op.EXISTS:
        passes = sa.not_(elements.is_null)
    else:
        passes = sa.or_(
            sa.and_(elements.is_text, _text(elements.text, op, value, dialect)),
            sa.and_(elements.is_number, _number(elements.compare, elements.one_of, op, value)),
            _flag(elements.flag, op, value),
        )
        if elements.is_own is not None:
            # Asked only where something passes: telling objects apart for every row would double the time.
            passes = sa.case((passes, elements.is_own), else_=sa.false())
    return sa.select(sa.literal(1)).select_from(elements.rows).where(passes).exists()


def _one_of(column: Sql, values: Sequence[Scalar]) -> Bool:
    return column.in_(values) if values else sa.false()


def _values(value: Value) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Value) -> TypeGuard[Number]:
    return isinstance(value, int | float) and not isinstance(value, bool)
