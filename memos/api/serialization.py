"""Convert values and errors to JSON and back; types that JSON lacks become objects with a type name under `$`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from memos import errors
from memos.core.message_shapes import as_mapping
from memos.core.tokens import Tokens
from memos.core.types import Json
from memos.errors import InvalidInput, MemosError

_KIND, _IS, _OF = "$", "is", "of"

_ERRORS = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MemosError)
}

Rebuild = Callable[[str, dict[str, Any]], Any]
"""Makes a value of a class by its name out of its fields."""


def as_json(value: Any, where: str = "arguments") -> bytes:
    try:
        return json.dumps(packed(value), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        told = "is nested too deep or has a number too large" if not isinstance(error, TypeError) else str(error)
        raise InvalidInput(where, f"{told} and cannot be sent to the server; use strings, numbers and lists") from error


def packed(value: Any) -> Json:
    match value:
        case None | str() | int() | float():
            return value
        case datetime():
            return {_KIND: "time", _IS: value.isoformat()}
        case bytes():
            return {_KIND: "bytes", _IS: base64.b64encode(value).decode()}
        case Path():
            return {_KIND: "path", _IS: str(value)}
        case list():
            return [packed(entry) for entry in value]
        case tuple():
            return {_KIND: "tuple", _IS: [packed(entry) for entry in value]}
        case Set():
            return {_KIND: "set", _IS: [packed(entry) for entry in value]}
        case Mapping():
            if _KIND not in value and all(isinstance(key, str) for key in value):
                return {key: packed(entry) for key, entry in value.items()}
            return {_KIND: "map", _IS: [[packed(key), packed(entry)] for key, entry in value.items()]}
    if type(value).__module__.startswith("memos."):
        return {_KIND: "value", _OF: type(value).__name__, _IS: packed(_fields(value))}
    told = as_mapping("arguments", value)  # a message of another library
    if not isinstance(told, Mapping):
        raise TypeError(f"has a {type(value).__name__}")
    return packed(told)


def _fields(value: Any) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if (described := getattr(type(value), "model_fields", None)) is not None:  # pydantic, which takes long to import
        return {name: getattr(value, name) for name in described}
    raise TypeError(f"has a {type(value).__name__}")


def unpacked(told: Json, rebuild: Rebuild = lambda _, its: its) -> Any:
    """Return the value of JSON; `rebuild` makes objects from their fields. Raises: ValueError, KeyError, TypeError."""
    if isinstance(told, list):
        return [unpacked(entry, rebuild) for entry in told]
    if not isinstance(told, dict):
        return told
    match told.get(_KIND):
        case None:
            return {key: unpacked(entry, rebuild) for key, entry in told.items()}
        case "time":
            return datetime.fromisoformat(told[_IS])
        case "bytes":
            return base64.b64decode(told[_IS], validate=True)
        case "path":
            return Path(told[_IS])
        case "tuple":
            return tuple(unpacked(told[_IS], rebuild))
        case "set":
            return frozenset(unpacked(told[_IS], rebuild))
        case "map":
            return {unpacked(key, rebuild): unpacked(entry, rebuild) for key, entry in told[_IS]}
        case "value":
            return rebuild(told[_OF], {key: unpacked(entry, rebuild) for key, entry in told[_IS].items()})
    raise ValueError("unknown kind of value")


def error_told(error: MemosError) -> dict[str, Any]:
    """Return an error as JSON; a class outside `memos.errors` becomes its nearest base there."""
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    return {"class": name, "message": str(error), "has": dict(vars(error))}


def error_of(told: Mapping[str, Any]) -> MemosError:
    kind, has = _ERRORS.get(told["class"], MemosError), dict(told["has"])
    if isinstance(has.get("tokens"), dict):
        has["tokens"] = Tokens(**has["tokens"])
    error = kind.__new__(kind)
    Exception.__init__(error, told["message"])  # the arguments of the classes are not all kept
    error.__dict__.update(has)
    return error


def view(value: Any) -> Json:
    """Return a value, or a list or mapping of values, as plain JSON: names as they are, times in ISO 8601."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: view(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): view(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [view(entry) for entry in value]
    return value


def error_view(error: MemosError) -> Json:
    told: dict[str, Json] = {"code": error.code, "message": str(error)}
    if isinstance(error, InvalidInput):
        told["field"] = error.field
    return {"error": told}
