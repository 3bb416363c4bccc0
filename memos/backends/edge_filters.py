"""Compiles the filter AST to the Qdrant engine's filters, with exactly the meaning of `memos.filters.matches`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qdrant_edge import (
    FieldCondition,
    Filter,
    HasIdCondition,
    IsEmptyCondition,
    MatchAny,
    MatchValue,
    RangeFloat,
)

from memos.filters import DATE_FIELDS, LEDGER_FIELDS, And, Condition, Node, Not, Op, Or, Scalar
from memos.model import Json

_NOTHING = Filter(must=[HasIdCondition(set())])
# Whole numbers with an integer index, dates past the year 2255 among them, which no float tells apart.
_INTEGERS = DATE_FIELDS | {"version"}


def compile_filter(node: Node) -> Filter:
    """Return the engine's filter. Raises: ValueError for what only the ledger can judge (`LEDGER_FIELDS`, `like`)."""
    match node:
        case And():
            return Filter(must=[compile_filter(part) for part in node.parts])
        case Or():
            return Filter(should=[compile_filter(part) for part in node.parts]) if node.parts else _NOTHING
        case Not():
            return Filter(must_not=[compile_filter(node.part)])
        case Condition():
            return _condition(node)


def _condition(condition: Condition) -> Filter:
    key, value = payload_key(condition.field), condition.value
    match condition.op:
        case Op.EQ | Op.CONTAINS:
            return _any_of(key, (value,) if not isinstance(value, tuple) else value)
        case Op.NE:
            return Filter(must_not=[_any_of(key, (value,) if not isinstance(value, tuple) else value)])
        case Op.IN:
            return _any_of(key, value if isinstance(value, tuple) else (value,))
        case Op.NIN:
            return Filter(must_not=[_any_of(key, value if isinstance(value, tuple) else (value,))])
        case Op.EXISTS:
            empty = Filter(must=[IsEmptyCondition(key), IsEmptyCondition(flag_key(key))])
            return Filter(must_not=[empty]) if value else empty
        case Op.GT | Op.GTE | Op.LT | Op.LTE if isinstance(value, int | float) and key in _INTEGERS:
            return _integer_range(key, condition.op, value)
        case Op.GT | Op.GTE | Op.LT | Op.LTE if isinstance(value, int | float):
            return Filter(must=[FieldCondition(key, range=RangeFloat(**{condition.op.value: float(value)}))])
    raise ValueError(f"the index cannot judge {condition.field} {condition.op}")


def _any_of(key: str, values: tuple[Scalar, ...]) -> Filter:
    """Match one of the values; a number matches as a range, since 1 and 1.0 are equal and MatchValue is not."""
    texts = [value for value in values if isinstance(value, str)]
    conditions = [FieldCondition(key, match=MatchAny(texts))] if texts else []
    if key in _INTEGERS:
        whole = [int(value) for value in values if isinstance(value, int | float) and value == int(value)]
        return Filter(must=[FieldCondition(key, match=MatchAny(whole))]) if whole else _NOTHING
    for value in values:
        if isinstance(value, bool):
            # The engine's binding takes True for the integer 1: booleans are kept apart, as 0 and 1.
            conditions.append(FieldCondition(flag_key(key), match=MatchValue(int(value))))
        elif isinstance(value, int | float):
            conditions.append(FieldCondition(key, range=RangeFloat(gte=float(value), lte=float(value))))
    return Filter(should=list(conditions)) if conditions else _NOTHING


def _integer_range(key: str, op: Op, value: float) -> Filter:
    """Compare whole numbers exactly: a float's range up to the nearest float, and the few numbers after it by name."""
    if op in (Op.LT, Op.LTE):
        last = math.ceil(value) - 1 if op is Op.LT else math.floor(value)
        edge = int(float(last)) if float(last) <= last else int(math.nextafter(float(last), -math.inf))
        inside, between = RangeFloat(lte=float(edge)), range(edge + 1, last + 1)
    else:
        first = math.floor(value) + 1 if op is Op.GT else math.ceil(value)
        edge = int(float(first)) if float(first) >= first else int(math.nextafter(float(first), math.inf))
        inside, between = RangeFloat(gte=float(edge)), range(first, edge)
    named = [FieldCondition(key, match=MatchAny(list(between)))] if between else []
    return Filter(should=[FieldCondition(key, range=inside), *named])


def payload_key(field: str) -> str:
    """Return the payload path of a filter field; an info key is quoted, since it may contain dots."""
    if field == "id":
        return "item"
    if field in LEDGER_FIELDS:
        raise ValueError(f"{field} is not in the index")
    if field.startswith("info."):
        return f'info."{field.removeprefix("info.")}"'
    return field


def flag_key(key: str) -> str:
    """Return the payload path of an info key's boolean values."""
    return f"flags{key.removeprefix('info')}" if key.startswith("info.") else f"flags.{key}"


def split_flags(info: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return an info object as the payload keeps it: booleans apart from other values."""
    kept: dict[str, dict[str, Json]] = {"info": {}, "flags": {}}
    for name, value in info.items():
        values = value if isinstance(value, list | tuple) else [value]
        flags = [int(entry) for entry in values if isinstance(entry, bool)]
        others = [entry for entry in values if not isinstance(entry, bool)]
        if flags:
            kept["flags"][name] = flags
        if others:
            kept["info"][name] = others
    return kept
