"""Words of errors on each surface: the name of the parameter, and a remedy that works there. Imports no framework."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    IntegrityError,
    InvalidInput,
    LimitReached,
    MemosError,
    ModelError,
    NotFound,
    PermissionDenied,
)

STATUSES: Mapping[type[MemosError], int] = MappingProxyType(
    {
        InvalidInput: 400,
        NotFound: 404,
        Conflict: 409,
        PermissionDenied: 403,
        LimitReached: 429,
        BackendTimeout: 504,
        BackendUnavailable: 503,
        ModelError: 502,
        IntegrityError: 500,
    }
)
"""The HTTP status of each kind of error, a narrower kind before a wider one."""

_COMMAND = "`memos "
_CLAUSE = re.compile("(?<=[.;]) ")

REQUIRED = "is required"
_REASONS: Mapping[str, str] = {
    "missing": REQUIRED,
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "must be an object"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "must be a list"),
    "string_type": "must be text",
}


def reason_of(problem: Mapping[str, Any]) -> str:
    """Return why a value is refused, given a problem that pydantic reports."""
    if tuple(problem["loc"]) == ("body",) and isinstance(problem.get("input"), bytes):  # not taken for JSON
        return "is not declared as JSON; send it with the header Content-Type: application/json"
    return _REASONS.get(problem["type"]) or str(problem["msg"])


def message_of(error: MemosError, remedies: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return an error's message with the surface's own remedy, by what is missing, in place of a command's."""
    text = str(error)
    if not (isinstance(error, NotFound) and _COMMAND in text):
        return text
    first = f"No such {error.what}: {error.name!r}."
    kept = [clause.rstrip(".;") for clause in _CLAUSE.split(text.removeprefix(first).strip()) if _COMMAND not in clause]
    told = [f"{clause[0].upper()}{clause[1:]}." for clause in kept if clause]
    return " ".join(filter(None, (first, *told, remedies.get(error.what))))
