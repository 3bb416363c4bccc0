"""Finds JSON in what a model wrote: bare, fenced, after an introduction, before an afterword. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from memos.core.types import Json

# A text with more openings than this is no answer, and trying each could take time that grows with their square.
_MOST_TRIES = 64
_OPENING = re.compile(r"[{\[]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def json_values(text: str) -> Iterator[str]:
    """Yield the JSON objects and lists in a text, outermost ones, in order, each as strict JSON.

    NaN and infinities are no JSON; NUL characters and lone surrogates in strings become U+FFFD.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = 0
    for _ in range(_MOST_TRIES):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        try:
            value, at = decoder.raw_decode(text, opening.start())
            found = json.dumps(_storable(value), allow_nan=False)  # 1e999 is read as infinity
        except (ValueError, RecursionError):  # also a number of 5,000 digits, and brackets nested too deep
            at = opening.end()
        else:
            yield found


def _storable(value: Json) -> Json:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, dict):
        return {_storable(name): _storable(each) for name, each in value.items()}
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
