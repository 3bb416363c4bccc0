"""Edit one member of a JSON text, which may have comments and trailing commas, and leave all else as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from json.decoder import JSONDecoder
from typing import Any

_DECODER = JSONDecoder(strict=True)
_SPACE = re.compile(r"[ \t\r\n\ufeff]*(?://[^\n]*|/\*.*?\*/|[ \t\r\n]+)*", re.DOTALL)
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DEEPEST = 200


@dataclass(slots=True)
class _Node:
    start: int
    end: int = 0
    value: Any = None
    members: list[_Member] | None = None  # of an object


@dataclass(slots=True)
class _Member:
    key: str
    start: int
    node: _Node
    comma: int | None = field(default=None)  # where the comma after it stands


class Malformed(ValueError):
    """The text is not JSON; says where."""


def parse(text: str) -> Any:
    """Return the value of a JSON text with comments; that of an empty one is an empty object. Raises: Malformed."""
    return _read(text).value


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a member set, and the objects on the way to it made where they are missing.

    Raises: Malformed (also if something on the way is not an object).
    """
    node = _read(text)
    if not text.strip("\ufeff \t\r\n"):
        text, node = "{}\n", _read("{}\n")
    for depth, key in enumerate(path):
        if node.members is None:
            raise Malformed(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        found = _find(node, key)
        if found is None:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _inserted(text, node, key, value, depth)
        node = found.node
    if node.value == value:
        return text
    indent = _unit(text) * len(path)
    return text[: node.start] + _dumped(text, value, indent) + text[node.end :]


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without a member; as it was if there is none. Raises: Malformed."""
    node = _read(text)
    for key in path[:-1]:
        found = _find(node, key)
        if found is None:
            return text
        node = found.node
    member = _find(node, path[-1])
    if member is None:
        return text
    place = node.members.index(member)  # type: ignore[union-attr]
    before = node.members[place - 1] if place else None  # type: ignore[index]
    start = len(text[: member.start].rstrip(" \t"))
    if text[start - 1 : start] == "\n":  # alone on its line
        start = len(text[: start - 1].rstrip("\r"))
    if member.comma is not None:
        return text[:start] + text[member.comma + 1 :]
    if before is not None and before.comma is not None:  # it was the last one: the one before it is now
        return text[: before.comma] + text[before.comma + 1 : start] + text[member.node.end :]
    rest = text[member.node.end :]
    if before is None and rest.lstrip().startswith("}"):
        rest = rest.lstrip()
    return text[:start] + rest


def _find(node: _Node, key: str) -> _Member | None:
    return next((each for each in reversed(node.members or []) if each.key == key), None)


def _inserted(text: str, node: _Node, key: str, value: Any, depth: int) -> str:
    assert node.members is not None
    unit, line = _unit(text), "\r\n" if "\r\n" in text else "\n"
    indent = unit * (depth + 1)
    told = f"{indent}{json.dumps(key, ensure_ascii=False)}: {_dumped(text, value, indent)}"
    last = node.members[-1] if node.members else None
    inside = node.end - 1  # of the closing brace
    kept = text[:inside].rstrip(" \t\r\n")
    if last is not None and last.comma is None:
        kept = f"{kept[: last.node.end]},{kept[last.node.end :]}"
    elif last is not None:
        told += ","  # as the one before has
    return f"{kept}{line}{told}{line}{unit * depth}{text[inside:]}"


def _dumped(text: str, value: Any, indent: str) -> str:
    line = "\r\n" if "\r\n" in text else "\n"
    return json.dumps(value, indent=_unit(text), ensure_ascii=False).replace("\n", line + indent)


def _unit(text: str) -> str:
    """Return what the text is indented by: that of its first indented line."""
    found = re.search(r"\n([ \t]+)[^\s/*]", text)
    return found[1] if found else "  "


def _read(text: str) -> _Node:
    place = _skip(text, 0)
    if place == len(text):
        return _Node(place, place, {}, [])
    node = _value(text, place, 0)
    if _skip(text, node.end) != len(text):
        raise _malformed(text, node.end, "the end")
    return node


def _value(text: str, place: int, depth: int) -> _Node:
    if depth > _DEEPEST:
        raise _malformed(text, place, f"at most {_DEEPEST} levels")
    sign = text[place : place + 1]
    if sign == "{":
        return _object(text, place, depth)
    if sign == "[":
        return _array(text, place, depth)
    if sign == '"':
        said, end = _string(text, place)
        return _Node(place, end, said)
    scalar = _SCALAR.match(text, place)
    if scalar is None:
        raise _malformed(text, place, "a value")
    return _Node(place, scalar.end(), json.loads(scalar[0]))


def _object(text: str, place: int, depth: int) -> _Node:
    node = _Node(place, members=[])
    at = _skip(text, place + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise _malformed(text, at, "a name in quotes or `}`")
        key, end = _string(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise _malformed(text, colon, "`:`")
        member = _Member(key, at, _value(text, _skip(text, colon + 1), depth + 1))
        node.members.append(member)  # type: ignore[union-attr]
        at = _skip(text, member.node.end)
        if text[at : at + 1] == ",":
            member.comma, at = at, _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise _malformed(text, at, "`,` or `}`")
    node.end = at + 1
    node.value = {each.key: each.node.value for each in node.members or []}
    return node


def _array(text: str, place: int, depth: int) -> _Node:
    node, values = _Node(place), []
    at = _skip(text, place + 1)
    while text[at : at + 1] != "]":
        entry = _value(text, at, depth + 1)
        values.append(entry.value)
        at = _skip(text, entry.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _malformed(text, at, "`,` or `]`")
    node.end, node.value = at + 1, values
    return node


def _string(text: str, place: int) -> tuple[str, int]:
    try:
        said, end = _DECODER.raw_decode(text, place)
    except ValueError as error:
        raise _malformed(text, place, "a string that ends") from error
    return said, end


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _malformed(text: str, place: int, expected: str) -> Malformed:
    line = text.count("\n", 0, place) + 1
    column = place - (text.rfind("\n", 0, place) + 1) + 1
    got = repr(text[place : place + 10]) if place < len(text) else "the end"
    return Malformed(f"line {line}, column {column}: expected {expected}, got {got}")
