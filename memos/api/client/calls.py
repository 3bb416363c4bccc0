"""What a request is and what becomes of its answer, without sending anything: both clients share this."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from secrets import SystemRandom
from typing import Any, Generic, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from memos.core.clock import new_id
from memos.core.types import Json
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

# Where a client sends its requests, with which key, and how patiently. Knows no route and no transport.

LOCAL = "http://127.0.0.1:8765"
"""Where `memos serve` listens unless it is told otherwise."""

_FAMILIES = ("/api/openmem/v1", "/api/v1")
_YES = {"true", "1", "yes"}
_KEY = re.compile(r"[!-~]{1,4096}")
_LONGEST_S = 86_400.0


class ClientUsageError(InvalidInput, ValueError):
    """A call that cannot be made; also a ValueError, as clients of this protocol have always raised."""


class ClientOptions(TypedDict, total=False):
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

    def changed(self, **choices: Unpack[ClientOptions]) -> Options:
        """Return these options with some changed. Raises: InvalidInput."""
        unknown = sorted(choices.keys() - {field.name for field in fields(self)})
        if unknown:
            raise ClientUsageError(
                unknown[0], f"is no option; there are {', '.join(field.name for field in fields(self))}"
            )
        changed = replace(self, **choices)
        for name in ("timeout_s", "connect_timeout_s"):
            _check_seconds(name, getattr(changed, name), above=0.0)
        for name in ("pause_s", "most_pause_s"):
            _check_seconds(name, getattr(changed, name), none=False)
        if isinstance(changed.retries, bool) or not isinstance(changed.retries, int) or not 0 <= changed.retries <= 100:
            raise ClientUsageError("retries", "must be a whole number from 0 to 100")
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
        raise ClientUsageError("is_global", "there is no hosted service: give the base_url of a server")
    key = api_key or os.environ.get("MEMOS_API_KEY")
    if not key:
        raise ClientUsageError(
            "api_key", "is required: give one, or set MEMOS_API_KEY (`memos serve` prints the first one)"
        )
    if not isinstance(key, str) or not _KEY.fullmatch(key.strip()):
        raise ClientUsageError("api_key", "is no key: it holds characters that none has")
    return Address(_root(base_url or os.environ.get("MEMOS_BASE_URL") or LOCAL), key.strip())


def check_wait(name: str, value: float | None) -> float | None:
    """Return a time to wait for something, None for as long as it takes. Raises: InvalidInput."""
    _check_seconds(name, value)
    return value


def _root(url: str) -> str:
    """Cut off what names a family of routes: clients are given it with and without."""
    if not isinstance(url, str):
        raise ClientUsageError("base_url", f"must be a text, not {type(url).__name__}")
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise ClientUsageError("base_url", "must be like http://127.0.0.1:8765, without user, query or fragment")
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
        raise ClientUsageError(name, f"must be seconds, at most {_LONGEST_S:,.0f}")


# Makes of an answer that is an error the one that calls in Python raise, with its status and request id.

_BY_CODE: dict[str, type[MemosError]] = {
    kind.code: kind
    for kind in (
        InvalidInput,
        NotFound,
        Conflict,
        PermissionDenied,
        BackendUnavailable,
        BackendTimeout,
        LimitReached,
        ModelError,
        IntegrityError,
    )
}
_BY_NUMBER: dict[int, type[MemosError]] = {
    40000: InvalidInput,
    40002: InvalidInput,
    40130: PermissionDenied,
    40132: PermissionDenied,
    40305: InvalidInput,
    40306: PermissionDenied,
    40307: NotFound,
    40309: LimitReached,
    50120: NotFound,
    50131: NotFound,
}
_BY_STATUS: dict[int, type[MemosError]] = {
    400: InvalidInput,
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    408: BackendTimeout,
    409: Conflict,
    413: InvalidInput,
    422: InvalidInput,
    429: LimitReached,
    502: BackendUnavailable,
    503: BackendUnavailable,
    504: BackendTimeout,
}
_PASSING = {408, 425, 500, 502, 503, 504}
_NAMED = re.compile(r"No such (?P<what>[^:]{1,100}): (?P<quote>['\"])(?P<name>.*?)(?P=quote)\.")
_FIELD = re.compile(r"(?P<field>[\w.\[\]-]{1,100}): (?P<reason>.+)", re.DOTALL)
_LONGEST_TOLD = 2_000
# Between us and the server something else may limit requests without saying for how long.
_UNSAID_S = 1.0


def failure(status: int, headers: Mapping[str, str], body: bytes) -> MemosError:
    """Return the error that an answer tells of; `headers` are looked up by their names in small letters."""
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
    """Return an error with the status and the request id of the answer it is about."""
    error.status, error.request_id = status, headers.get("x-request-id")
    return error


def strange(status: int, headers: Mapping[str, str], what: str) -> MemosError:
    """Return the error for an answer that no server of ours gives."""
    message = f"The server's answer is {what}: check that base_url names a memstrata server, of a version like this."
    return seen(BackendUnavailable(message, permanent=True), status, headers)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the server asks to wait, None when it does not say so."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:  # a date counts from the server's own clock, where it tells that
        until, now = parsedate_to_datetime(asked), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _told(body: bytes) -> dict[str, Json]:
    """Return code, message and field, from whichever of the families' envelopes."""
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
Model = TypeVar("Model", bound=BaseModel)

_IDEMPOTENCY_KEY = "Idempotency-Key"
_random = SystemRandom()
_TURN_S = 20.0
_ANSWERING_S = 15.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer; names in `headers` are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how its answer is read; `path` begins at the server's root.

    Only what is `repeatable` is sent again: it changes nothing, or carries an idempotency key. `files` are sent as
    parts of a form, `upload` as the body. A server may be silent for `least_s` before the call's limit of time counts.
    What the server knows again only for a while may be sent again within `again_within_s`.
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
    """A request whose answer comes as events; `each` reads one, None when it tells the caller nothing."""

    call: Call[Any]
    each: Callable[[str, str], T | None]
    """Takes an event's name and its data."""


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """A request that lets the server wait some seconds, made until its answer is `done` or `timeout_s` are over."""

    call: Callable[[float], Call[T]]
    done: Callable[[T], bool]
    timeout_s: float | None
    what: str

    def turns(self) -> Generator[Call[T], T, T]:
        """Yield requests in which the server waits, take their answers, return the last. Raises: BackendTimeout."""
        until = None if self.timeout_s is None else time.monotonic() + self.timeout_s
        seconds = _TURN_S if self.timeout_s is None else min(_TURN_S, self.timeout_s)
        while True:
            found = yield replace(self.call(seconds), least_s=seconds + _ANSWERING_S)
            if self.done(found):
                return found
            seconds = _TURN_S if until is None else min(_TURN_S, until - time.monotonic())
            if seconds <= 0:
                raise BackendTimeout(
                    f"Not done within {self.timeout_s} seconds: {self.what}. Wait longer, or look again later."
                )


@dataclass(frozen=True, slots=True)
class Download(Generic[T]):
    """A request whose answer goes to a file, which appears when it is whole; `told` is read from it afterwards."""

    call: Call[T]
    target: Path


def exchange(
    call: Call[T], options: Options, clock: Callable[[], float] = time.monotonic
) -> Generator[float, Reply | MemosError, T]:
    """Yield how long to wait before the request is sent (again), take what came of it, return the result.

    Raises: MemosError.
    """
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
    """Return the error an answer's status tells of, None when it is none."""
    if 300 <= reply.status < 400:
        return strange(reply.status, reply.headers, "a redirection, which is not followed with a key")
    return None if reply.status < 400 else failure(reply.status, reply.headers, reply.body)


def pause_before(attempt: int, error: MemosError, options: Options) -> float | None:
    """Return how long to wait before the next attempt, None when there is none to make."""
    if isinstance(error, BackendUnavailable) and error.permanent:
        return None
    if not isinstance(error, BackendUnavailable | LimitReached):
        return None
    pause = _pause(attempt, options)
    if pause is None or error.retry_after_s is None:
        return pause
    return None if error.retry_after_s > options.most_pause_s else error.retry_after_s + pause


def _pause(attempt: int, options: Options) -> float | None:
    """Return a pause that doubles with attempts, None when they are used up.

    Each is drawn between half and the whole, so that clients which failed together do not return together.
    """
    if attempt > options.retries:
        return None
    doubled = min(options.pause_s * 2 ** min(attempt - 1, 60), options.most_pause_s)
    return _random.uniform(doubled / 2, doubled)


def encoded(fields: Mapping[str, Json]) -> bytes:
    """Return a body as JSON. Raises: InvalidInput, naming the field that cannot be JSON."""
    try:
        return json.dumps(fields, allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError):
        for name, value in fields.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                raise ClientUsageError(name, f"cannot be sent as JSON ({type(error).__name__})") from None
        raise


def repeatable_with(key: str | None) -> dict[str, str]:
    """Return the header by which a server knows a request that it had already; without a key, one of its own."""
    if key is None:
        return {_IDEMPOTENCY_KEY: new_id()}
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not 0 < len(key) <= 256:
        raise ClientUsageError("idempotency_key", "must be 1 to 256 printable ASCII characters")
    return {_IDEMPOTENCY_KEY: key}


def as_model(model: type[Model]) -> Callable[[Reply], Model]:
    """Return what reads an answer as a model."""

    def read(reply: Reply) -> Model:
        try:
            return model.model_validate_json(reply.body)
        except ValidationError:
            raise strange(reply.status, reply.headers, f"no {model.__name__}") from None

    return read
