"""Where a client sends its requests, with which key, and how patiently. Knows no route and no transport.

`MEMOS_BASE_URL` and `MEMOS_API_KEY` are read here: they are a client's, and no settings of an installation.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields, replace
from typing import TypedDict, Unpack
from urllib.parse import urlsplit

from memos.errors import InvalidInput

LOCAL = "http://127.0.0.1:8765"
"""Where `memos serve` listens unless it is told otherwise."""

_FAMILIES = ("/api/openmem/v1", "/api/v1")
_YES = {"true", "1", "yes"}
_KEY = re.compile(r"[!-~]{1,4096}")
_LONGEST_S = 86_400.0


class Misused(InvalidInput, ValueError):
    """A call that cannot be made; also a ValueError, as clients of this protocol have always raised."""


class Choices(TypedDict, total=False):
    """What may be chosen for a client, or for some of its calls."""

    timeout_s: float | None
    connect_timeout_s: float | None
    retries: int
    pause_s: float
    most_pause_s: float


@dataclass(frozen=True, slots=True)
class Options:
    """How patient a client is; None as a time limit is none.

    `timeout_s` limits each wait for the server, not the whole of a long answer. A request that may be repeated is,
    `retries` times, after pauses that begin near `pause_s` and double, or as long as the server says; one that would
    have to wait longer than `most_pause_s` fails at once.
    """

    timeout_s: float | None = 60.0
    connect_timeout_s: float | None = 5.0
    retries: int = 2
    pause_s: float = 0.5
    most_pause_s: float = 30.0

    def changed(self, **choices: Unpack[Choices]) -> Options:
        """Return these options with some changed. Raises: InvalidInput."""
        unknown = sorted(choices.keys() - {field.name for field in fields(self)})
        if unknown:
            raise Misused(unknown[0], f"is no option; there are {', '.join(field.name for field in fields(self))}")
        changed = replace(self, **choices)
        for name in ("timeout_s", "connect_timeout_s"):
            _check_seconds(name, getattr(changed, name), above=0.0)
        for name in ("pause_s", "most_pause_s"):
            _check_seconds(name, getattr(changed, name), none=False)
        if isinstance(changed.retries, bool) or not isinstance(changed.retries, int) or not 0 <= changed.retries <= 100:
            raise Misused("retries", "must be a whole number from 0 to 100")
        return changed


@dataclass(frozen=True, slots=True)
class Address:
    """A server's root, such as `http://127.0.0.1:8765`, and the key for it, which no message and no repr shows."""

    root: str
    key: str

    def __repr__(self) -> str:
        return f"Address({self.root!r})"


def address_of(api_key: str | None, base_url: str | None, is_global: str | bool) -> Address:
    """Return the address that was given, else the environment's, else the local server's. Raises: InvalidInput."""
    if str(is_global).lower() in _YES:
        raise Misused("is_global", "there is no hosted service: give the base_url of a server")
    key = api_key or os.environ.get("MEMOS_API_KEY")
    if not key:
        raise Misused("api_key", "is required: give one, or set MEMOS_API_KEY (`memos serve` prints the first one)")
    if not isinstance(key, str) or not _KEY.fullmatch(key.strip()):
        raise Misused("api_key", "is no key: it holds characters that none has")
    return Address(_root(base_url or os.environ.get("MEMOS_BASE_URL") or LOCAL), key.strip())


def check_wait(name: str, value: float | None) -> float | None:
    """Return a time to wait for something, None for as long as it takes. Raises: InvalidInput."""
    _check_seconds(name, value)
    return value


def _root(url: str) -> str:
    """Cut off what names a family of routes: clients are given it with and without."""
    if not isinstance(url, str):
        raise Misused("base_url", f"must be a text, not {type(url).__name__}")
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise Misused("base_url", "must be like http://127.0.0.1:8765, without user, query or fragment")
    root = parts.geturl().rstrip("/")
    for family in _FAMILIES:
        if root.endswith(family):
            return root.removesuffix(family).rstrip("/")
    return root


def _check_seconds(name: str, value: float | None, *, above: float | None = None, none: bool = True) -> None:
    if value is None and none:
        return
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LONGEST_S
    if not fine or value == above:
        raise Misused(name, f"must be seconds, at most {_LONGEST_S:,.0f}")
