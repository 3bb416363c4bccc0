"""Repeats calls that only read when the ledger's connection broke under them; knows no call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from memos.errors import ConnectionLost

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def repeated(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Make a method that only reads try once more when the ledger's connection broke under it."""

    @wraps(method)
    def twice(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        try:
            return method(*given, **named)
        except ConnectionLost:
            return method(*given, **named)

    return twice
