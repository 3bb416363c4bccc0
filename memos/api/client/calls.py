"""What a request is and what becomes of its answer, without sending anything: both clients share this."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import SystemRandom
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from memos.api.client.address import Misused, Options
from memos.api.client.failures import failure, strange
from memos.clock import new_id
from memos.errors import BackendUnavailable, MemosError
from memos.model import Json

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

_IDEMPOTENCY_KEY = "Idempotency-Key"
_random = SystemRandom()


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
    parts of a form, `upload` as the body.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = False
    files: tuple[Path, ...] = ()
    upload: Path | None = None


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """A request whose answer comes as events; `each` reads one, None when it tells the caller nothing."""

    call: Call[Any]
    each: Callable[[str, str], T | None]
    """Takes an event's name and its data."""


@dataclass(frozen=True, slots=True)
class Download(Generic[T]):
    """A request whose answer goes to a file, which appears when it is whole; `told` is read from it afterwards."""

    call: Call[T]
    target: Path


def exchange(call: Call[T], options: Options) -> Generator[float, Reply | MemosError, T]:
    """Yield how long to wait before the request is sent (again), take what came of it, return the result.

    Raises: MemosError.
    """
    pause, attempt = 0.0, 0
    while True:
        outcome = yield pause
        attempt += 1
        error = outcome if isinstance(outcome, MemosError) else problem(outcome)
        if error is None:
            assert isinstance(outcome, Reply)
            return call.read(outcome)
        again = pause_before(attempt, error, options) if call.repeatable else None
        if again is None:
            raise error
        pause = again


def problem(reply: Reply) -> MemosError | None:
    """Return the error an answer's status tells of, None when it is none."""
    if 300 <= reply.status < 400:
        return strange(reply.status, reply.headers, "a redirection, which is not followed with a key")
    return None if reply.status < 400 else failure(reply.status, reply.headers, reply.body)


def pause_before(attempt: int, error: MemosError, options: Options) -> float | None:
    """Return how long to wait before the next attempt, None when there is none to make.

    Pauses double, and each is drawn between half and the whole, so that clients which failed together do not return
    together.
    """
    if attempt > options.retries or not isinstance(error, BackendUnavailable) or error.permanent:
        return None
    doubled = min(options.pause_s * 2 ** min(attempt - 1, 60), options.most_pause_s)
    pause = _random.uniform(doubled / 2, doubled)
    if error.retry_after_s is None:
        return pause
    return None if error.retry_after_s > options.most_pause_s else error.retry_after_s + pause


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
