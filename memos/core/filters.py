"""The filter language: JSON to an AST, and its meaning in Python; backends compile the AST.

Grammar: `{"and": [...]}`, `{"or": [...]}`, `{"not": ...}`, `{field: value}`, `{field: {op: value}}`; keys of one object
are AND-ed. A name that is not a field is an info key: `x` and `info.x` are the same, and so are `user_id`, `agent_id`,
`app_id` and `source`, which items have no column for. A name that looks like a mistyped field needs the `info.`.
`info.a.b` is the info key `a.b` if there is one, and otherwise the key `b` of the object `a`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from operator import ge, gt, le, lt

from memos.core.clock import to_micros
from memos.core.types import ItemType, Json, Role, Status, Tier
from memos.errors import InvalidInput, shown

Scalar = str | int | float | bool

_MAX_DEPTH = 20
_MAX_CONDITIONS = 500
# All values of all lists: each is a variable of one SQL statement, and SQLite takes 32,766 of them.
_MAX_VALUES = 10_000
# What info may hold, and what a float holds exactly: the indexes compare numbers as floats.
_MAX_NUMBER = 2**53
_NAME = re.compile(r"[\w.\-]{1,128}", re.ASCII)
# From this similarity on, an unknown name is a mistyped field; `user_id` and `source` are far below it.
_MISTYPED = 0.8

# Names a client may use -> the one field they mean (shared/api.md keeps both spellings alive).
_ALIASES = {"create_time": "created_at", "update_time": "updated_at", "cube_id": "cube"}
_ALIASES |= dict.fromkeys(("session_id", "conversation_id"), "conversation")
TEXT_FIELDS = frozenset(
    {"id", "memory", "type", "tier", "status", "key", "conversation", "cube", "role", "speaker", "record_id"}
)
LIST_FIELDS = frozenset({"tags", "entities", "keywords"})
NUMBER_FIELDS = frozenset({"confidence", "version"})
DATE_FIELDS = frozenset({"said_at", "created_at", "updated_at", "valid_from", "valid_to", "expires_at"})
_CHOICES: Mapping[str, type[StrEnum]] = {"role": Role, "status": Status, "tier": Tier, "type": ItemType}
FIELDS = TEXT_FIELDS | LIST_FIELDS | NUMBER_FIELDS | DATE_FIELDS
LEDGER_FIELDS = frozenset({"memory", "entities", "keywords", "tier", "expires_at"})
"""Fields that only the ledger can evaluate: texts, as a whole or by word, are in no index, and the tier and the time to
live change without an update of the index.
"""

TOLD_INFO = frozenset({"arguments", "result", "error", "lesson", "description", "skill", "recalled", "cited"})
"""Names in `info` that only the ledger has: tool memory and skills quote there what was said, and answers list the
memories that they were made from.
"""

SEPARATOR = "/"
"""Between the parts of a record's id."""


class Op(StrEnum):
    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NIN = "nin"
    CONTAINS = "contains"
    LIKE = "like"
    STARTSWITH = "startswith"
    EXISTS = "exists"


_COMPARE: Mapping[Op, Callable[[float, float], bool]] = {Op.GT: gt, Op.GTE: ge, Op.LT: lt, Op.LTE: le}


@dataclass(slots=True)
class _Count:
    conditions: int = 0
    values: int = 0


@dataclass(frozen=True, slots=True)
class Condition:
    """`field op value`; dates are already epoch microseconds, `in`/`nin` values a tuple."""

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class And:
    """True when every part is; True when there is none."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when at least one part is; False when there is none."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True when the part is not."""

    part: Node


Node = Condition | And | Or | Not


def parse(raw: Json) -> Node | None:
    if raw is None or raw == {}:
        return None
    return _parse(raw, 0, _Count())


def _parse(raw: Json, depth: int, count: _Count) -> Node:
    if depth > _MAX_DEPTH:
        raise InvalidInput("filter", f"is nested deeper than {_MAX_DEPTH} levels; flatten it")
    if not isinstance(raw, dict):
        raise InvalidInput("filter", f"must be an object such as {{'type': 'message'}}, not {type(raw).__name__}")
    if not raw:
        raise InvalidInput("filter", "contains an empty object; remove it or name a field")
    parts: list[Node] = []
    for name, value in raw.items():
        if name in ("and", "or"):
            if not isinstance(value, list) or not value:
                raise InvalidInput("filter", f"'{name}' takes a non-empty list of filters")
            nodes = tuple(_parse(part, depth + 1, count) for part in value)
            parts.append(And(nodes) if name == "and" else Or(nodes))
        elif name == "not":
            parts.append(Not(_parse(value, depth + 1, count)))
        else:
            parts.extend(_conditions(name, value, count))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _conditions(name: str, value: Json, count: _Count) -> list[Condition]:
    field = _field(name)
    pairs = value.items() if isinstance(value, dict) else [("eq", value)]
    if not pairs:
        raise InvalidInput(f"filter.{name}", f"has no operator; use one of {', '.join(Op)}")
    conditions = []
    for op_name, operand in pairs:
        if op_name not in set(Op):
            raise InvalidInput(f"filter.{name}", f"unknown operator {op_name!r}; use one of {', '.join(Op)}")
        op = Op(op_name)
        count.conditions += 1
        if count.conditions > _MAX_CONDITIONS:
            raise InvalidInput("filter", f"has more than {_MAX_CONDITIONS} conditions; use 'in' with a list")
        count.values += len(operand) if isinstance(operand, list) else 1
        if count.values > _MAX_VALUES:
            raise InvalidInput("filter", f"has more than {_MAX_VALUES:,} values; split it into several calls")
        conditions.append(Condition(field, op, _operand(name, field, op, operand)))
    return conditions


def _field(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput("filter", f"field name {str(name)[:80]!r} may have only letters, digits, '_', '.' and '-'")
    if name == "info.":
        raise InvalidInput("filter", "field name 'info.' has no key; write info.colour, or colour")
    name = _ALIASES.get(name, name)
    if name in FIELDS or name.startswith("info."):
        return name
    if (meant := _meant_field(name.lower())) is not None:
        raise InvalidInput(
            f"filter.{name}", f"unknown field; did you mean `{meant}`? Own fields are written `info.{name}`"
        )
    return f"info.{name}"


def _meant_field(name: str) -> str | None:
    known = [*sorted(FIELDS), *_ALIASES]
    # Two letters in each other's place make a short name unlike itself: `teir` and `tier` have a similarity of 0.75.
    swapped = {name[:at] + name[at + 1] + name[at] + name[at + 2 :] for at in range(len(name) - 1)}
    close = [field for field in known if field in swapped] or difflib.get_close_matches(name, known, 1, _MISTYPED)
    return close[0] if close else None


def _operand(name: str, field: str, op: Op, value: Json) -> Scalar | tuple[Scalar, ...]:
    where = f"filter.{name}"
    if op is Op.EXISTS:
        if not isinstance(value, bool):
            raise InvalidInput(where, "'exists' takes true or false")
        return value
    if op in (Op.IN, Op.NIN):
        if not isinstance(value, list) or not value:
            raise InvalidInput(where, f"'{op}' takes a non-empty list")
        return tuple(_scalar(where, field, op, v) for v in value)
    if op in (Op.LIKE, Op.STARTSWITH):
        if not isinstance(value, str) or not value:
            raise InvalidInput(where, f"'{op}' takes a non-empty string")
        if field in NUMBER_FIELDS | DATE_FIELDS:
            raise InvalidInput(where, f"'{op}' works on text fields only")
        return _text(where, value)
    if op is Op.CONTAINS and field in FIELDS - LIST_FIELDS:
        raise InvalidInput(where, "'contains' works on lists (tags, entities, info lists); use 'like' for text")
    if op in _COMPARE and field in TEXT_FIELDS | LIST_FIELDS:
        raise InvalidInput(where, f"'{op}' works on numbers and dates only")
    return _scalar(where, field, op, value)


def _scalar(where: str, field: str, op: Op, value: Json) -> Scalar:
    if field in DATE_FIELDS:
        return parse_date(where, value)
    if field in NUMBER_FIELDS:
        return _number(where, value)
    if field in TEXT_FIELDS | LIST_FIELDS:
        if not isinstance(value, str):
            raise InvalidInput(where, f"takes a string, not {type(value).__name__}")
        if field in _CHOICES and value not in set(_CHOICES[field]):
            known = ", ".join(_CHOICES[field])
            raise InvalidInput(where, f"unknown {field} {shown(value)}; expected one of {known}")
        return _text(where, value)
    if op in _COMPARE:
        return _number(f"{where}.{op}", value)
    if isinstance(value, str):
        return _text(where, value)
    if not isinstance(value, int | float):
        raise InvalidInput(where, f"takes a string, number or boolean, not {type(value).__name__}")
    return value if isinstance(value, bool) else _number(where, value)


def _number(where: str, value: Json) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_NUMBER:
        raise InvalidInput(where, f"takes a number up to 2^53, not {shown(value)}")
    return value


def _text(where: str, value: str) -> str:
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInput(where, "contains a NUL character or a lone surrogate, which no stored text has; remove it")
    return value


def parse_date(where: str, value: Json) -> int:
    """Return epoch microseconds of an ISO 8601 string (naive means UTC) or of epoch milliseconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidInput(where, f"takes an ISO 8601 date or epoch milliseconds, not {shown(value)}")
    if isinstance(value, int | float):
        if not 0 <= value < 253_402_300_800_000:  # the year 10000
            raise InvalidInput(where, f"{shown(value)} is not a moment in epoch milliseconds")
        return round(value * 1000)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise InvalidInput(where, f"{shown(value)} is not an ISO 8601 date such as 2023-06-05T10:00:00Z") from error
    try:
        return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except OverflowError as error:
        raise InvalidInput(where, f"{shown(value)} is out of range") from error


def fields_of(node: Node | None) -> set[str]:
    match node:
        case None:
            return set()
        case Condition():
            return {node.field}
        case Not():
            return fields_of(node.part)
        case And() | Or():
            return set().union(*(fields_of(part) for part in node.parts))


def is_ledgers(condition: Condition) -> bool:
    """Return True if only the ledger can evaluate a condition, since the indexes hold too little for it."""
    field, op = condition.field, condition.op
    if field in LEDGER_FIELDS or op is Op.LIKE or field.removeprefix("info.").split(".")[0] in TOLD_INFO:
        return True
    return op is Op.STARTSWITH and not (field == "record_id" and str(condition.value).endswith(SEPARATOR))


def folders_of(record_id: str) -> list[str]:
    """Return the prefixes of a record's id that end with a separator, the shortest first: `a/`, `a/b/` of `a/b/c`."""
    return [record_id[: place + 1] for place, sign in enumerate(record_id) if sign == SEPARATOR]


def info_paths(info: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Yield the paths by which filters find something in `info`, with what is there.

    A path goes through objects, not through lists. A key of `info` itself has precedence over a path of the same name;
    a key inside an object is found if it is neither empty nor has a dot.
    """
    for key, value in info.items():
        yield key, value
        if isinstance(value, Mapping) and _is_step(key):
            yield from ((path, inner) for path, inner in _inside(key, value) if path not in info)


def _inside(path: str, value: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for key, inner in value.items():
        if _is_step(key):
            here = f"{path}.{key}"
            yield here, inner
            if isinstance(inner, Mapping):
                yield from _inside(here, inner)


def _is_step(key: str) -> bool:
    return bool(key) and "." not in key


def steps_of(key: str) -> tuple[str, ...]:
    """Return the keys of the objects that an info path leads through; empty if it can only be a key of `info`."""
    steps = tuple(key.split("."))
    return steps if len(steps) > 1 and all(steps) else ()


def values_of(value: Json) -> list[Json]:
    """Return what conditions compare: the elements of a list, or the one value; null is none.

    An object stands for itself, unless there is nothing but null in it.
    """
    if isinstance(value, list | tuple):
        return [entry for entry in value if entry is not None]
    if isinstance(value, Mapping):
        return [value] if any(entry is not None for entry in value.values()) else []
    return [] if value is None else [value]


def matches(node: Node | None, record: Mapping[str, Json]) -> bool:
    """Return True if a flat record (dates as epoch microseconds, info keys as `info.x`) passes: the meaning."""
    match node:
        case None:
            return True
        case And():
            return all(matches(part, record) for part in node.parts)
        case Or():
            return any(matches(part, record) for part in node.parts)
        case Not():
            return not matches(node.part, record)
        case Condition():
            return _holds(node, record.get(node.field))


def _holds(condition: Condition, have: Json) -> bool:
    op, want = condition.op, condition.value
    values = values_of(have)
    if op is Op.EXISTS:
        return bool(values) is want
    if op is Op.EQ or op is Op.CONTAINS:
        return any(_same(v, want) for v in values)
    if op is Op.NE:
        return not any(_same(v, want) for v in values)
    if op in (Op.IN, Op.NIN):
        assert isinstance(want, tuple)
        found = any(_same(v, w) for v in values for w in want)
        return found if op is Op.IN else not found
    if op is Op.LIKE:
        return any(isinstance(v, str) and str(want).casefold() in v.casefold() for v in values)
    if op is Op.STARTSWITH:
        return any(isinstance(v, str) and v.startswith(str(want)) for v in values)
    return any(_is_number(v) and _COMPARE[op](v, want) for v in values)  # type: ignore[arg-type]


def _same(have: Json, want: Json) -> bool:
    return isinstance(have, bool) is isinstance(want, bool) and bool(have == want)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
