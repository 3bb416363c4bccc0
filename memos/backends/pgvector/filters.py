"""Compile filters into SQL conditions over the table of points, with the meaning of `memos.core.filters.matches`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Jsonb

from memos.core.filters import DATE_FIELDS, LEDGER_FIELDS, And, Condition, Node, Not, Op, Or, Scalar

TEXTS = ("type", "status", "key", "conversation", "role", "speaker", "record_id")
LISTS = ("tags", "record_folders")
DATES = tuple(sorted(DATE_FIELDS - LEDGER_FIELDS))
NUMBERS = ("confidence",)
"""Fields of a point's payload that have columns of their names; what users store in `info` is in one of JSON."""

_COLUMNS = {"id": "item", "cube": "cube", "version": "version"} | {
    name: name for name in (*TEXTS, *LISTS, *DATES, *NUMBERS)
}
_COMPARISONS = {Op.GT: ">", Op.GTE: ">=", Op.LT: "<", Op.LTE: "<="}


def condition(node: Node, values: list[Any]) -> str:
    """Return a condition, and append the values of its placeholders; a NULL of it counts as false."""
    match node:
        case And():
            return "(" + " AND ".join(["TRUE", *(condition(part, values) for part in node.parts)]) + ")"
        case Or():
            return "(" + " OR ".join(["FALSE", *(condition(part, values) for part in node.parts)]) + ")"
        case Not():
            return f"({condition(node.part, values)} IS NOT TRUE)"
        case Condition():
            return _condition(node, values)


def _condition(given: Condition, values: list[Any]) -> str:
    field, op, value = given.field, given.op, given.value
    if field in LEDGER_FIELDS:
        raise ValueError(f"{field} is not in the index")
    if op in (Op.NE, Op.NIN):
        return f"({_condition(Condition(field, Op.IN, tuple(_several(value))), values)} IS NOT TRUE)"
    if op is Op.STARTSWITH and field == "record_id":
        field, op = "record_folders", Op.EQ
    if field in _COLUMNS:
        return _on_column(_COLUMNS[field], op, value, values)
    return _on_info(field.removeprefix("info."), op, value, values)


def _on_column(column: str, op: Op, value: Any, values: list[Any]) -> str:
    if op is Op.EXISTS:
        return f"({column} IS {'NOT ' if value else ''}NULL)"
    if op in _COMPARISONS:
        values.append(value)
        return f"({column} {_COMPARISONS[op]} %s)"
    wanted = list(_several(value))
    if column in LISTS:
        values.append(wanted)
        return f"({column} && %s::text[])"
    if len(wanted) == 1:
        values.append(wanted[0])
        return f"({column} = %s)"
    values.append(wanted)
    # Dates may be whole numbers beyond those that a float tells apart, and are never compared as such.
    kind = "text" if isinstance(wanted[0], str) else "bigint" if column in DATES else "double precision"
    return f"({column} = ANY(%s::{kind}[]))"


def _on_info(name: str, op: Op, value: Any, values: list[Any]) -> str:
    """Return a condition on a list of values in `info`; an empty one is not stored."""
    values.append(name)
    if op is Op.EXISTS:
        return "(info ? %s)" if value else "(NOT info ? %s)"
    if op in _COMPARISONS:
        # JSON paths compare numbers with numbers only: of anything else the answer is unknown.
        values.append(Jsonb({"value": value}))
        return f"jsonb_path_exists(info -> %s, '$[*] ? (@ {_COMPARISONS[op]} $value)', %s)"
    wanted = _several(value)
    if all(isinstance(each, str) for each in wanted):
        values.append(list(wanted))
        return "((info -> %s) ?| %s::text[])"
    values.append([Jsonb(each) for each in wanted])
    return "EXISTS (SELECT FROM jsonb_array_elements(info -> %s) AS held(value) WHERE held.value = ANY(%s::jsonb[]))"


def _several(value: Scalar | tuple[Scalar, ...]) -> Sequence[Scalar]:
    return value if isinstance(value, tuple) else (value,)
