"""What a request is and what becomes of its answer, without sending anything: both clients share this."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import SystemRandom
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from memos.api.client.address import Misused, Options
from memos.api.client.failures import failure, strange
from memos.core.clock import new_id
from memos.core.types import Json
from memos.errors import BackendTimeout, BackendUnavailable, Conflict, LimitReached, MemosError

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
                raise Misused(name, f"cannot be sent as JSON ({type(error).__name__})") from None
        raise


def repeatable_with(key: str | None) -> dict[str, str]:
    """Return the header by which a server knows a request that it had already; without a key, one of its own."""
    if key is None:
        return {_IDEMPOTENCY_KEY: new_id()}
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not 0 < len(key) <= 256:
        raise Misused("idempotency_key", "must be 1 to 256 printable ASCII characters")
    return {_IDEMPOTENCY_KEY: key}


def as_model(model: type[Model]) -> Callable[[Reply], Model]:
    """Return what reads an answer as a model."""

    def read(reply: Reply) -> Model:
        try:
            return model.model_validate_json(reply.body)
        except ValidationError:
            raise strange(reply.status, reply.headers, f"no {model.__name__}") from None

    return read
