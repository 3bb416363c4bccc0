"""Compile filters and points for Qdrant, embedded or server, with the meaning of `memos.core.filters.matches`.

Both engines have the same conditions in different Python classes; a `Dialect` builds them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from qdrant_edge import FieldCondition, Filter, HasIdCondition, IsEmptyCondition, MatchAny, MatchValue, RangeFloat

from memos.core.filters import DATE_FIELDS, LEDGER_FIELDS, And, Condition, Node, Not, Op, Or, Scalar, values_of
from memos.core.types import Arm, Json

_NOTHING = Filter(must=[HasIdCondition(set())])


class EdgeDialect:
    """The `Dialect` of `qdrant_edge`."""

    def group(self, *, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()) -> Filter:
        return Filter(must=list(must), should=list(should) or None, must_not=list(must_not))

    def among(self, key: str, values: Sequence[str] | Sequence[int]) -> FieldCondition:
        """Return a match; one value is matched in half the time of a list of one."""
        several: Any = list(values)
        match = MatchValue(several[0]) if len(several) == 1 else MatchAny(several)
        return FieldCondition(key, match=match)

    def within(self, key: str, **bounds: float) -> FieldCondition:
        return FieldCondition(key, range=RangeFloat(**bounds))

    def empty(self, key: str) -> IsEmptyCondition:
        return IsEmptyCondition(key)

    def nothing(self) -> Filter:
        return _NOTHING


FOREVER = 2**53 - 1
"""`recorded_to` of a current version: the largest integer a float range holds exactly."""

DENSE = (Arm.TURN.value, Arm.WINDOW.value)
ASKED = dict.fromkeys((arm.value for arm in (Arm.STANDING, Arm.OF_SELF, Arm.NAMED, Arm.DATED)), Arm.TURN.value)
"""The arms without vectors of their own, and the vectors that they search."""

AT_LEAST = {Arm.TURN_BM25.value: 0.0, Arm.WINDOW_BM25.value: 0.0, Arm.DATED.value: float("-inf")}
"""Scores above which an arm finds a point, where that is not the noise of a vector's arithmetic."""

SPARSE = (Arm.TURN_BM25.value, Arm.WINDOW_BM25.value)

# Of 13,712 texts' vectors a search finds 99.3 % of the true ten and 97.7 % of the true fifty (docs/development/log.md).
BUILD_WIDTH = 200
SEARCH_WIDTH = 64
# Of the least telling arm 97 % of the true ten of 10,386 are enough, and 98 % of the first four.
SEARCH_WIDTHS = {arm.value: 32 if arm is Arm.OF_SELF else SEARCH_WIDTH for arm in Arm}

KEYWORDS = ("item", "type", "status", "tags", "conversation", "key", "role", "speaker", "record_folders")
INTEGERS = (*sorted(DATE_FIELDS - LEDGER_FIELDS), "recorded_from", "recorded_to", "revision", "version", "live")

STANDING = "standing"
"""The field that names a point's standing arm and cube; other points have none. Each value has graphs of its own."""


def stored_payload(payload: Mapping[str, Json]) -> dict[str, Any]:
    info = payload.get("info")
    kept = {"recorded_to": FOREVER, **payload, **split_flags(info if isinstance(info, Mapping) else {})}
    if stands := kept.pop(STANDING, 0):
        kept[STANDING] = standing_value(stands, payload["cube"])
    return kept


def standing_value(stands: Any, cube: Any) -> str:
    return f"{stands}:{cube}"


def split_flags(info: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    kept: dict[str, dict[str, Json]] = {"info": {}, "flags": {}}
    for name, value in info.items():
        values = values_of(value)
        flags = [int(entry) for entry in values if isinstance(entry, bool)]
        # An object inside is there for `exists`, and equals nothing; what is in it has paths of its own.
        others = [
            {} if isinstance(entry, Mapping | list | tuple) else entry
            for entry in values
            if not isinstance(entry, bool)
        ]
        if flags:
            kept["flags"][name] = flags
        if others:
            kept["info"][name] = others
    return kept


def point_key(payload: Any) -> str:
    return f"{payload['item']}:{payload['version']}"


# Whole numbers with an integer index, dates past the year 2255 among them, which no float tells apart.
_INTEGERS = DATE_FIELDS - LEDGER_FIELDS | {"version"}


class Dialect(Protocol):
    """Builds conditions with the classes of one engine; a group may be part of another group."""

    def group(self, *, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()) -> Any:
        """Pass what meets all of `must`, one of `should` unless there are none, and none of `must_not`."""

    def among(self, key: str, values: Sequence[str] | Sequence[int]) -> Any: ...

    def within(self, key: str, **bounds: float) -> Any:
        """Match a field that has a number within `gt`, `gte`, `lt`, `lte`."""

    def empty(self, key: str) -> Any: ...

    def nothing(self) -> Any: ...


def compile_search(
    to: Dialect, cubes: Sequence[str], node: Node | None, as_of: int | None, live: bool, stands: int | None = None
) -> Any:
    """Return the filter of a search: its cubes, its moment, and what the caller filters by."""
    # `stands` is what `STANDING_OF` says of an arm that asks a part of its cubes alone. That is one condition, not two:
    # in the engine's graphs of that part alone all that is near is linked, and little of it in those of a whole cube.
    values = cubes if stands is None else [standing_value(stands, cube) for cube in cubes]
    where = to.among("cube" if stands is None else STANDING, values)
    moment = [to.among("live", [1])] if live and as_of is None else _moment(to, as_of)
    return to.group(must=[where, *moment, *([] if node is None else [compile_filter(to, node)])])


def _moment(to: Dialect, as_of: int | None) -> list[Any]:
    if as_of is None:
        return [to.among("recorded_to", [FOREVER])]
    as_of = min(as_of, FOREVER - 1)
    return [to.within("recorded_from", lte=float(as_of)), to.within("recorded_to", gt=float(as_of))]


def compile_filter(to: Dialect, node: Node) -> Any:
    match node:
        case And():
            return to.group(must=[compile_filter(to, part) for part in node.parts])
        case Or():
            return to.group(should=[compile_filter(to, part) for part in node.parts]) if node.parts else to.nothing()
        case Not():
            return to.group(must_not=[compile_filter(to, node.part)])
        case Condition():
            return _condition(to, node)


def _condition(to: Dialect, condition: Condition) -> Any:
    key, value = payload_key(condition.field), condition.value
    match condition.op:
        case Op.EQ | Op.CONTAINS | Op.IN:
            return _any_of(to, key, value if isinstance(value, tuple) else (value,))
        case Op.NE | Op.NIN:
            return to.group(must_not=[_any_of(to, key, value if isinstance(value, tuple) else (value,))])
        case Op.EXISTS:
            empty = to.group(must=[to.empty(key), to.empty(flag_key(key))])
            return to.group(must_not=[empty]) if value else empty
        case Op.GT | Op.GTE | Op.LT | Op.LTE if isinstance(value, int | float) and key in _INTEGERS:
            return _integer_range(to, key, condition.op, value)
        case Op.GT | Op.GTE | Op.LT | Op.LTE if isinstance(value, int | float):
            return to.group(must=[to.within(key, **{condition.op.value: float(value)})])
        case Op.STARTSWITH if key == "record_id" and isinstance(value, str):
            return to.group(must=[to.among("record_folders", [value])])
    raise ValueError(f"the index cannot evaluate {condition.field} {condition.op}")


def _any_of(to: Dialect, key: str, values: tuple[Scalar, ...]) -> Any:
    """Match one of the values; a number matches as a range, since 1 and 1.0 are equal and no engine's match says so."""
    if key in _INTEGERS:
        whole = [int(value) for value in values if isinstance(value, int | float) and value == int(value)]
        return to.group(must=[to.among(key, whole)]) if whole else to.nothing()
    texts = [value for value in values if isinstance(value, str)]
    conditions = [to.among(key, texts)] if texts else []
    for value in values:
        if isinstance(value, bool):
            # The embedded engine's binding takes True for the integer 1: booleans are kept apart, as 0 and 1.
            conditions.append(to.among(flag_key(key), [int(value)]))
        elif isinstance(value, int | float):
            conditions.append(to.within(key, gte=float(value), lte=float(value)))
    return to.group(should=conditions) if conditions else to.nothing()


def _integer_range(to: Dialect, key: str, op: Op, value: float) -> Any:
    """Compare whole numbers exactly: a float's range up to the nearest float, and the few numbers after it by name."""
    if op in (Op.LT, Op.LTE):
        last = math.ceil(value) - 1 if op is Op.LT else math.floor(value)
        edge = int(float(last)) if float(last) <= last else int(math.nextafter(float(last), -math.inf))
        inside, between = to.within(key, lte=float(edge)), range(edge + 1, last + 1)
    else:
        first = math.floor(value) + 1 if op is Op.GT else math.ceil(value)
        edge = int(float(first)) if float(first) >= first else int(math.nextafter(float(first), math.inf))
        inside, between = to.within(key, gte=float(edge)), range(first, edge)
    return to.group(should=[inside, *([to.among(key, list(between))] if between else [])])


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
    return f"flags{key.removeprefix('info')}" if key.startswith("info.") else f"flags.{key}"
