"""Descriptions of requests, their retries and their errors, without any I/O; shared by both clients."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from secrets import SystemRandom
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit
from uuid import uuid4

from memos.api.wording import STATUSES
from memos.core.message_shapes import as_mapping
from memos.core.types import Json
from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    InvalidInput,
    LimitReached,
    MemosError,
    ModelError,
    NotFound,
    PermissionDenied,
)

if TYPE_CHECKING:
    from pydantic import BaseModel  # at run time it is loaded with the first answer, see `values`

LOCAL = "http://127.0.0.1:8765"
"""Default address of `memos serve`."""

_FAMILIES = ("/api/openmem/v1", "/api/v1")
_YES = {"true", "1", "yes"}
_KEY = re.compile(r"[!-~]{1,4096}")
_LONGEST_S = 86_400.0


class ClientUsageError(InvalidInput, ValueError):
    """An argument of a client's call is wrong; also a ValueError, as this protocol's clients have always raised."""


class ClientOptions(TypedDict, total=False):
    """Options of a client, or of some of its calls."""

    timeout_s: float | None
    connect_timeout_s: float | None
    retries: int
    pause_s: float
    most_pause_s: float


@dataclass(frozen=True, slots=True)
class Options:
    """Timeouts and retries of a client.

    Attributes:
        timeout_s: Longest wait for the server to send something, not for the whole answer; None for no limit.
        connect_timeout_s: Longest wait for a connection; None for no limit.
        retries: How often a request that may be repeated is sent again.
        pause_s: First pause before that; later ones double, or last as long as the server says.
        most_pause_s: Longest pause; a request that would have to wait longer fails at once.
    """

    timeout_s: float | None = 60.0
    connect_timeout_s: float | None = 5.0
    retries: int = 2
    pause_s: float = 0.5
    most_pause_s: float = 30.0

    def changed(self, **choices: Unpack[ClientOptions]) -> Options:
        """Return a copy with some options changed. Raises: InvalidInput."""
        unknown = sorted(choices.keys() - {field.name for field in fields(self)})
        if unknown:
            known = ", ".join(f"`{field.name}`" for field in fields(self))
            raise ClientUsageError(unknown[0], f"unknown option; known are {known}")
        changed = replace(self, **choices)
        for name in ("timeout_s", "connect_timeout_s"):
            check_seconds(name, getattr(changed, name), above=0.0)
        for name in ("pause_s", "most_pause_s"):
            check_seconds(name, getattr(changed, name), none=False)
        if isinstance(changed.retries, bool) or not isinstance(changed.retries, int) or not 0 <= changed.retries <= 100:
            raise ClientUsageError("retries", "must be a whole number from 0 to 100")
        return changed


@dataclass(frozen=True, slots=True)
class Address:
    """A server's root, such as `http://127.0.0.1:8765`, and the key for it, which no message and no repr contains."""

    root: str
    key: str

    def __repr__(self) -> str:
        return f"Address({self.root!r})"


def address_of(api_key: str | None, base_url: str | None, is_global: str | bool) -> Address:
    """Return the given address, else that of the environment, else the local server's. Raises: InvalidInput."""
    if str(is_global).lower() in _YES:
        raise ClientUsageError("is_global", "hippocube has no hosted service; pass the base_url of your server")
    key = api_key or os.environ.get("MEMOS_API_KEY")
    if not key:
        raise ClientUsageError(
            "api_key", "is required; pass one or set MEMOS_API_KEY (`memos serve` prints the first one)"
        )
    if not isinstance(key, str) or not _KEY.fullmatch(key.strip()):
        raise ClientUsageError("api_key", "must consist of printable ASCII characters without spaces")
    return Address(_root(base_url or os.environ.get("MEMOS_BASE_URL") or LOCAL), key.strip())


def _root(url: str) -> str:
    """Return a URL without the path of a route group: callers give it with and without."""
    if not isinstance(url, str):
        raise ClientUsageError("base_url", f"must be a string, not {type(url).__name__}")
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise ClientUsageError(
            "base_url", "must be a URL such as http://127.0.0.1:8765, without user, query or fragment"
        )
    root = parts.geturl().rstrip("/")
    for family in _FAMILIES:
        if root.endswith(family):
            return root.removesuffix(family).rstrip("/")
    return root


def check_seconds(name: str, value: float | None, *, above: float | None = None, none: bool = True) -> float | None:
    """Return a time to wait, None for no limit. Raises: InvalidInput."""
    if value is None and none:
        return None
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LONGEST_S
    if not fine or value == above:
        raise ClientUsageError(name, f"must be a number of seconds, at most {_LONGEST_S:,.0f}")
    return value


_BY_CODE = {kind.code: kind for kind in STATUSES}
_BY_NUMBER: dict[int, type[MemosError]] = {
    **dict.fromkeys((40000, 40002, 40305), InvalidInput),
    **dict.fromkeys((40130, 40132, 40306), PermissionDenied),
    **dict.fromkeys((40307, 50120, 50131), NotFound),
    40309: LimitReached,
}
_BY_STATUS: dict[int, type[MemosError]] = {
    **dict(zip(STATUSES.values(), STATUSES, strict=True)),
    **dict.fromkeys((413, 422), InvalidInput),
    **dict.fromkeys((500, 502), BackendUnavailable),  # of something between us and the server
    401: PermissionDenied,
    408: BackendTimeout,
}
_PASSING = {408, 425, 500, 502, 503, 504}
_NAMED = re.compile(r"No such (?P<what>[^:]{1,100}): (?P<quote>['\"])(?P<name>.*?)(?P=quote)\.")
_FIELD = re.compile(r"(?P<field>[\w.\[\]-]{1,100}): (?P<reason>.+)", re.DOTALL)
_LONGEST_TOLD = 2_000
# Between us and the server something else may limit requests without saying for how long.
_UNSAID_S = 1.0


def failure(status: int, headers: Mapping[str, str], body: bytes) -> MemosError:
    """Return the error that an answer describes; names in `headers` are lower-case."""
    told = _told(body)
    message = str(told.get("message") or "")[:_LONGEST_TOLD] or f"The server answered with status {status}."
    kind, wait_s = _kind(status, told.get("code")), retry_after_s(headers)
    if issubclass(kind, LimitReached):
        return seen(LimitReached(message, retry_after_s=_UNSAID_S if wait_s is None else wait_s), status, headers)
    error = _made(kind, message, str(told.get("field") or ""))
    if isinstance(error, BackendUnavailable):
        error.retry_after_s, error.permanent = wait_s, status not in _PASSING
    return seen(error, status, headers)


def seen(error: MemosError, status: int, headers: Mapping[str, str]) -> MemosError:
    """Return an error with the status and request id of its answer."""
    error.status, error.request_id = status, headers.get("x-request-id")
    return error


def strange(status: int, headers: Mapping[str, str], what: str) -> MemosError:
    """Return the error for an answer that no hippocube server gives."""
    message = f"Unexpected answer from the server: {what}. Check that base_url is a hippocube server of this version."
    return seen(BackendUnavailable(message, permanent=True), status, headers)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the server asks to wait, None if it does not say."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:  # a date counts from the server's own clock, where it tells that
        until, now = parsedate_to_datetime(asked), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _told(body: bytes) -> dict[str, Json]:
    """Return the error's code, message and field from the envelope of any route group."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    inner = found.get("error")
    return inner if isinstance(inner, dict) else found


def _kind(status: int, code: Json) -> type[MemosError]:
    if isinstance(code, str) and code in _BY_CODE:
        return _BY_CODE[code]
    if isinstance(code, int) and code in _BY_NUMBER:
        return _BY_NUMBER[code]
    if isinstance(code, int) and status == 502:
        return ModelError
    return _BY_STATUS.get(status, BackendUnavailable if status >= 500 else MemosError)


def _made(kind: type[MemosError], message: str, field: str) -> MemosError:
    if issubclass(kind, InvalidInput):
        split = _FIELD.fullmatch(message)
        named, reason = (split["field"], split["reason"]) if split is not None else (field or "request", message)
        return InvalidInput(named, reason)
    if issubclass(kind, NotFound):
        name = _NAMED.search(message)
        missing = NotFound(*((name["what"], name["name"]) if name is not None else ("thing", "")))
        missing.args = (message,)
        return missing
    return kind(message)


T = TypeVar("T")
Model = TypeVar("Model", bound="BaseModel")

_IDEMPOTENCY_KEY = "Idempotency-Key"
_random = SystemRandom()
_TURN_S = 20.0
_ANSWERING_S = 15.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer; names in `headers` are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the way to read its answer.

    Attributes:
        path: Path from the server's root.
        repeatable: It may be sent again: it changes nothing, or has an idempotency key.
        files: Files sent as parts of a form.
        upload: File sent as the body.
        least_s: How long the server may be silent, whatever the client's timeout.
        again_within_s: How long the server recognises the request; after that it is not sent again.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = False
    files: tuple[Path, ...] = ()
    upload: Path | None = None
    least_s: float = 0.0
    again_within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """A request whose answer is a stream of events; `each` returns the value of one, None to skip it."""

    call: Call[Any]
    each: Callable[[str, str], T | None]
    """Takes an event's name and its data."""


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """A request in which the server waits some seconds, repeated until its answer is `done` or the time is over."""

    call: Callable[[float], Call[T]]
    done: Callable[[T], bool]
    timeout_s: float | None
    what: str

    def turns(self) -> Generator[Call[T], T, T]:
        """Yield requests, take their answers, and return the last one. Raises: BackendTimeout."""
        until = None if self.timeout_s is None else time.monotonic() + self.timeout_s
        seconds = _TURN_S if self.timeout_s is None else min(_TURN_S, self.timeout_s)
        while True:
            found = yield replace(self.call(seconds), least_s=seconds + _ANSWERING_S)
            if self.done(found):
                return found
            seconds = _TURN_S if until is None else min(_TURN_S, until - time.monotonic())
            if seconds <= 0:
                raise BackendTimeout(
                    f"Not done within {self.timeout_s} seconds: {self.what}. Pass a longer timeout or check again "
                    "later."
                )


@dataclass(frozen=True, slots=True)
class Download(Generic[T]):
    """A request whose answer is written to a file, which appears only once it is complete."""

    call: Call[T]
    target: Path


def exchange(
    call: Call[T], options: Options, clock: Callable[[], float] = time.monotonic
) -> Generator[float, Reply | MemosError, T]:
    """Yield the pause before each attempt, take its outcome, and return the result. Raises: MemosError."""
    pause, attempt, began = 0.0, 0, clock()
    while True:
        outcome = yield pause
        attempt += 1
        error = outcome if isinstance(outcome, MemosError) else problem(outcome)
        if error is None:
            assert isinstance(outcome, Reply)
            return call.read(outcome)
        if attempt > 1 and isinstance(error, Conflict) and _IDEMPOTENCY_KEY in call.headers:
            again = _pause(attempt, options)  # what was sent before is perhaps still being carried out
        else:
            again = pause_before(attempt, error, options) if call.repeatable else None
        late = call.again_within_s is not None and clock() - began + (again or 0.0) > call.again_within_s
        if again is None or late:
            raise error
        pause = again


def problem(reply: Reply) -> MemosError | None:
    """Return the error that an answer's status stands for, None if it is a success."""
    if 300 <= reply.status < 400:
        return strange(
            reply.status, reply.headers, "a redirect, which is not followed so that no other host gets the key"
        )
    return None if reply.status < 400 else failure(reply.status, reply.headers, reply.body)


def pause_before(attempt: int, error: MemosError, options: Options) -> float | None:
    """Return the pause before the next attempt in seconds, None if there is none."""
    if isinstance(error, BackendUnavailable) and error.permanent:
        return None
    if not isinstance(error, BackendUnavailable | LimitReached):
        return None
    pause = _pause(attempt, options)
    if pause is None or error.retry_after_s is None:
        return pause
    return None if error.retry_after_s > options.most_pause_s else error.retry_after_s + pause


def _pause(attempt: int, options: Options) -> float | None:
    """Return a doubling pause, None after the last attempt; its jitter parts clients that failed together."""
    if attempt > options.retries:
        return None
    doubled = min(options.pause_s * 2 ** min(attempt - 1, 60), options.most_pause_s)
    return _random.uniform(doubled / 2, doubled)


def encoded(fields: Mapping[str, Json]) -> bytes:
    """Return a body as JSON, times in ISO 8601. Raises: InvalidInput, naming the field that cannot be encoded."""
    try:
        return _json(fields)
    except (TypeError, ValueError, RecursionError):
        for name, value in fields.items():
            try:
                _json(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise ClientUsageError(name, f"cannot be sent as JSON ({type(error).__name__})") from None
        raise


def _json(value: Json) -> bytes:
    return json.dumps(value, allow_nan=False, default=_plain).encode("ascii")


def _plain(value: object) -> Json:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes | bytearray):
        return list(value)
    told = as_mapping("messages", value)  # a message of another library
    if isinstance(told, Mapping):
        return dict(told)
    raise TypeError


def repeatable_with(key: str | None) -> dict[str, str]:
    """Return the idempotency header of a key, or of a new one."""
    if key is None:
        return {_IDEMPOTENCY_KEY: str(uuid4())}
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not 0 < len(key) <= 256:
        raise ClientUsageError("idempotency_key", "must be 1 to 256 printable ASCII characters")
    return {_IDEMPOTENCY_KEY: key}


def as_model(model: type[Model]) -> Callable[[Reply], Model]:
    """Return a reader of answers as a model."""

    def read(reply: Reply) -> Model:
        try:
            return model.model_validate_json(reply.body)
        except ValueError:  # pydantic's ValidationError is one
            raise strange(reply.status, reply.headers, f"no {model.__name__}") from None

    return read


def as_field(model: type[Model], pick: Callable[[Model], T]) -> Callable[[Reply], T]:
    """Return a reader of one field of answers as a model."""
    read = as_model(model)
    return lambda reply: pick(read(reply))
