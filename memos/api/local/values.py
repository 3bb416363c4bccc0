"""Rebuild values of `memos.core.types` from JSON by their dataclasses alone, as most answers of a server are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, get_args, get_type_hints

from memos.api import serialization
from memos.core import types
from memos.core.types import Json


class NotPlain(Exception):
    """A result has a value of another module, or one whose type only the call says."""


def value_of(told: Json) -> Any:
    """Return a result that is a value, values, a number or nothing. Raises: NotPlain, ValueError, TypeError."""
    if isinstance(told, str) or (isinstance(told, dict) and told.get("$") != "value"):
        raise NotPlain
    found = serialization.unpacked(told, _rebuilt)
    if isinstance(found, list | tuple) and not all(is_dataclass(each) for each in found):
        raise NotPlain
    return found


def _rebuilt(kind: str, its: dict[str, Any]) -> Any:
    made = getattr(types, kind, None)
    if not (isinstance(made, type) and is_dataclass(made)):
        raise NotPlain
    members = _members(made)
    return made(**{name: _member(members.get(name), value) for name, value in its.items()})


@cache
def _members(made: type) -> dict[str, type[StrEnum]]:
    """Return the fields of a dataclass with members of an enumeration, which are texts in JSON."""
    return {name: found for name, hint in get_type_hints(made).items() if (found := _enumeration(hint)) is not None}


def _enumeration(hint: Any) -> type[StrEnum] | None:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return next((found for part in get_args(hint) if (found := _enumeration(part)) is not None), None)


def _member(kind: type[StrEnum] | None, value: Any) -> Any:
    if kind is None or value is None:
        return value
    if isinstance(value, str):
        return kind(value) if value in set(kind) else value
    if isinstance(value, tuple | list | frozenset):
        return type(value)(_member(kind, each) for each in value)
    if isinstance(value, Mapping):
        return {_member(kind, key): each for key, each in value.items()}
    return value
