"""Compiles the filter AST to SQL over the rows of `items`, with exactly the meaning of `memos.filters.matches`.

Every condition is true or false, never NULL, so that `not` means here what it means in Python. Values are bound
parameters; `memos.filters.parse` keeps a filter under SQLite's limits (32,766 variables, expressions 1,000 deep).
How a database reads JSON and folds case is in `json_sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

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
)
from memos.memcube.ledger.json_sql import Bool, Elements, JsonSql, Number, Sql
from memos.memcube.ledger.schema import conversations, items, versions

Value = Scalar | tuple[Scalar, ...]

_COLUMNS: Mapping[str, Sql] = {
    **{name: table.c[name] for table in (items, versions) for name in FIELDS if name in table.c},
    "id": versions.c.item_id,
    "cube": versions.c.cube_id,
    "conversation": conversations.c.name,
    "updated_at": versions.c.recorded_at,
}
_NEGATED = {Op.NE: Op.EQ, Op.NIN: Op.IN}


def compile_sql(node: Node | None, ways: JsonSql) -> Bool:
    """Return the condition on versions joined with items and, outer, with conversations."""
    match node:
        case None:
            return sa.true()
        case And():
            return sa.and_(sa.true(), *(compile_sql(part, ways) for part in node.parts))
        case Or():
            return sa.or_(sa.false(), *(compile_sql(part, ways) for part in node.parts))
        case Not():
            return sa.not_(compile_sql(node.part, ways))
        case Condition():
            return _condition(node, ways)


def _condition(condition: Condition, ways: JsonSql) -> Bool:
    field, op, value = condition.field, condition.op, condition.value
    if op in _NEGATED:
        return sa.not_(_condition(Condition(field, _NEGATED[op], value), ways))
    if op is Op.EXISTS and value is False:
        return sa.not_(_condition(Condition(field, op, True), ways))
    if field in LIST_FIELDS:
        return _any(ways.elements(_COLUMNS[field], None), op, value, ways)
    if field in TEXT_FIELDS:
        return _not_null(_COLUMNS[field], _text(_COLUMNS[field], op, value, ways))
    if field in NUMBER_FIELDS | DATE_FIELDS:
        column = _COLUMNS[field]
        return _not_null(
            column,
            _number(
                lambda op, number: ways.compare(column, op, number),
                lambda numbers: ways.one_of(column, numbers),
                op,
                value,
            ),
        )
    return _any(ways.elements(versions.c.info, field.removeprefix("info.")), op, value, ways)


def _not_null(column: Sql, holds: Bool) -> Bool:
    return sa.and_(column.is_not(None), holds)


def _text(text: Sql, op: Op, value: Value, ways: JsonSql) -> Bool:
    """Say what a condition asks of a text that is there."""
    match op:
        case Op.EXISTS:
            return sa.true()
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _one_of(text, [entry for entry in _values(value) if isinstance(entry, str)])
        case Op.LIKE:
            return ways.has_folded(text, str(value))
    return sa.false()


def _number(
    compare: Callable[[Op, Number], Bool], one_of: Callable[[Sequence[Number]], Bool], op: Op, value: Value
) -> Bool:
    """Say what a condition asks of a number that is there."""
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
    """Say what a condition asks of a boolean that is there, known by its JSON type: `true` is not the number 1."""
    match op:
        case Op.EXISTS:
            return flag.in_(["true", "false"])
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _one_of(flag, ["true" if entry else "false" for entry in _values(value) if isinstance(entry, bool)])
    return sa.false()


def _any(elements: Elements, op: Op, value: Value, ways: JsonSql) -> Bool:
    """Say that one of a list's elements is of the asked type and passes."""
    passes = sa.or_(
        sa.and_(elements.is_text, _text(elements.text, op, value, ways)),
        sa.and_(elements.is_number, _number(elements.compare, elements.one_of, op, value)),
        _flag(elements.flag, op, value),
    )
    return sa.select(sa.literal(1)).select_from(elements.rows).where(passes).exists()


def _one_of(column: Sql, values: Sequence[Scalar]) -> Bool:
    return column.in_(values) if values else sa.false()


def _values(value: Value) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Value) -> TypeGuard[Number]:
    return isinstance(value, int | float) and not isinstance(value, bool)
