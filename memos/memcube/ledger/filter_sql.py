"""Compiles the filter AST to SQL over the rows of `items`, with exactly the meaning of `memos.filters.matches`.

Every condition is true or false, never NULL, so that `not` means here what it means in Python. Values are bound
parameters; `memos.filters.parse` keeps a filter under SQLite's limits (32,766 variables, expressions 1,000 deep).
What only SQLite does that way is at the end: JSON is read with `json_each`, and `casefold` is Python's, registered by
`memos.memcube.ledger.engine`. PostgreSQL has `jsonb_array_elements` and, since version 18, a `casefold` of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from memos.filters import (
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
)
from memos.memcube.ledger.schema import conversations, items, versions

Sql = sa.ColumnElement[Any]
Bool = sa.ColumnElement[bool]
Value = Scalar | tuple[Scalar, ...]

_COLUMNS: Mapping[str, Sql] = {
    **{name: table.c[name] for table in (items, versions) for name in FIELDS if name in table.c},
    "id": versions.c.item_id,
    "cube": versions.c.cube_id,
    "conversation": conversations.c.name,
    "updated_at": versions.c.recorded_at,
}
_NEGATED = {Op.NE: Op.EQ, Op.NIN: Op.IN}
_COMPARE: Mapping[Op, Callable[[Any, Any], Sql]] = {
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.LT: operator.lt,
    Op.LTE: operator.le,
}


def compile_sql(node: Node | None) -> Bool:
    """Return the condition on versions joined with items and, outer, with conversations."""
    match node:
        case None:
            return sa.true()
        case And():
            return sa.and_(sa.true(), *(compile_sql(part) for part in node.parts))
        case Or():
            return sa.or_(sa.false(), *(compile_sql(part) for part in node.parts))
        case Not():
            return sa.not_(compile_sql(node.part))
        case Condition():
            return _condition(node)


def _condition(condition: Condition) -> sa.ColumnElement[bool]:
    field, op, value = condition.field, condition.op, condition.value
    if op in _NEGATED:
        return sa.not_(_condition(Condition(field, _NEGATED[op], value)))
    if op is Op.EXISTS and value is False:
        return sa.not_(_condition(Condition(field, op, True)))
    if field in LIST_FIELDS:
        return _any(_elements(_COLUMNS[field]), op, value)
    if field in TEXT_FIELDS:
        return _not_null(_COLUMNS[field], _text(_COLUMNS[field], op, value))
    if field in NUMBER_FIELDS | DATE_FIELDS:
        # Without the column's type: a filter's date is epoch microseconds already, as the ledger stores it.
        return _not_null(_COLUMNS[field], _number(sa.type_coerce(_COLUMNS[field], sa.types.NULLTYPE), op, value))
    return _any(_elements(versions.c.info, field.removeprefix("info.")), op, value)


def _not_null(column: Sql, holds: Bool) -> Bool:
    return sa.and_(column.is_not(None), holds)


def _text(text: Sql, op: Op, value: Value) -> Bool:
    """Say what a condition asks of a text that is there."""
    match op:
        case Op.EXISTS:
            return sa.true()
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _one_of(text, [entry for entry in _values(value) if isinstance(entry, str)])
        case Op.LIKE:
            return _has_folded(text, str(value))
    return sa.false()


def _number(number: Sql, op: Op, value: Value) -> Bool:
    """Say what a condition asks of a number that is there."""
    match op:
        case Op.EXISTS:
            return sa.true()
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _one_of(number, [entry for entry in _values(value) if _is_number(entry)])
        case Op.GT | Op.GTE | Op.LT | Op.LTE if _is_number(value):
            return _COMPARE[op](number, value)
    return sa.false()


def _flag(kind: Sql, op: Op, value: Value) -> Bool:
    """Say what a condition asks of a boolean that is there, known by its JSON type: `true` is not the number 1."""
    match op:
        case Op.EXISTS:
            return kind.in_(["true", "false"])
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _one_of(kind, ["true" if entry else "false" for entry in _values(value) if isinstance(entry, bool)])
    return sa.false()


def _any(elements: sa.TableValuedAlias, op: Op, value: Value) -> Bool:
    """Say that one of a list's elements is of the asked type and passes."""
    kind, element = elements.c.type, elements.c.value
    passes = sa.or_(
        sa.and_(kind == "text", _text(element, op, value)),
        sa.and_(kind.in_(["integer", "real"]), _number(element, op, value)),
        _flag(kind, op, value),
    )
    return sa.select(sa.literal(1)).select_from(elements).where(passes).exists()


def _one_of(column: Sql, values: Sequence[Scalar]) -> Bool:
    return column.in_(values) if values else sa.false()


def _values(value: Value) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _elements(column: Sql, key: str | None = None) -> sa.TableValuedAlias:
    """Return the elements of a JSON list, or what is under a key of a JSON object: its elements, or itself."""
    # A filter's field name has no quote and no backslash (`memos.filters`), so this is the key and nothing else.
    path = () if key is None else (f'$."{key}"',)
    return sa.func.json_each(column, *path).table_valued("value", "type")


def _has_folded(text: Sql, part: str) -> Bool:
    """Say that a text has a part, case folded as Python folds it: SQLite's own `lower` knows ASCII only."""
    return sa.func.instr(sa.func.casefold(text), part.casefold()) > 0
