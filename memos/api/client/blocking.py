"""How the blocking client sends requests and waits. Knows no route. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar

import httpx2

from memos.api.client.calls import (
    Address,
    Call,
    Download,
    Options,
    Reply,
    Stream,
    Waiting,
    exchange,
)
from memos.api.client.transport import (
    CHUNK_BYTES,
    appearing,
    failures,
    form_of,
    reading,
    refusal,
    reply_of,
    request_of,
)
from memos.core.clock import new_id
from memos.errors import MemosError

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

Guarded = Callable[[], AbstractContextManager[None]]


class Streamed(Generic[T]):
    """Values that a server streams; iterate it once. Close it, or use `with`, to end it early."""

    def __init__(self, response: httpx2.Response, each: Callable[[str, str], T | None], guard: Guarded) -> None:
        self._response, self._each, self._guard = response, each, guard
        self._events = iter(httpx2.EventSource(response))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Wait for the next value. Raises: ConnectionLost, BackendTimeout."""
        try:
            with self._guard():
                for event in self._events:
                    if (found := self._each(event.event, event.data)) is not None:
                        return found
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the connection."""
        self._response.close()


class Connection:
    """A connection pool to one server, with the options it is used with."""

    def __init__(self, http: httpx2.Client, address: Address, options: Options) -> None:
        self._http, self._address, self._options = http, address, options

    @classmethod
    def to(cls, address: Address, options: Options) -> Connection:
        """Return a connection with a new pool; nothing is sent yet."""
        return cls(httpx2.Client(), address, options)

    @property
    def options(self) -> Options:
        """The options of its calls."""
        return self._options

    def using(self, options: Options) -> Connection:
        """Return a connection that shares the pool and has other options."""
        return Connection(self._http, self._address, options)

    def close(self) -> None:
        """Close the pool for all that share it."""
        self._http.close()

    def do(self, described: Call[Any] | Stream[Any] | Download[Any] | Waiting[Any]) -> Any:
        """Send a request, again if needed and allowed, and return its result. Raises: MemosError."""
        if isinstance(described, Download):
            return self._repeated(described.call, lambda id_: self._fetched(described.call, id_, described.target))
        if isinstance(described, Stream):
            return self._streamed(described)
        if isinstance(described, Waiting):
            return self._waited(described)
        return self._repeated(described, partial(self._once, described))

    def _repeated(self, call: Call[T], once: Callable[[str], Reply]) -> T:
        request_id = new_id()
        steps = exchange(call, self._options)
        pause = next(steps)
        while True:
            if pause:
                time.sleep(pause)
            outcome: Reply | MemosError
            try:
                with failures(self._address, request_id):
                    outcome = once(request_id)
            except MemosError as error:
                outcome = error
            try:
                pause = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result

    def _waited(self, waiting: Waiting[T]) -> T:
        turns = waiting.turns()
        call = next(turns)
        while True:
            found = self._repeated(call, partial(self._once, call))
            try:
                call = turns.send(found)
            except StopIteration as done:
                result: T = done.value
                return result

    def _once(self, call: Call[Any], request_id: str) -> Reply:
        if call.upload is not None:
            with reading(call.upload) as file:
                return self._sent(call, request_id, content=iter(lambda: file.read(CHUNK_BYTES), b""))
        if call.files:
            with form_of(call.files) as form:
                return self._sent(call, request_id, files=form)
        return self._sent(call, request_id)

    def _sent(self, call: Call[Any], request_id: str, **content: Any) -> Reply:
        response = self._http.send(request_of(self._http, call, self._address, self._options, request_id, **content))
        return reply_of(response, response.content)

    def _opened(self, call: Call[Any], request_id: str) -> httpx2.Response:
        request = request_of(self._http, call, self._address, self._options, request_id)
        response = self._http.send(request, stream=True)
        if response.status_code >= 300:
            with closing(response):
                raise refusal(response, response.read())
        return response

    def _fetched(self, call: Call[Any], request_id: str, target: Path) -> Reply:
        with closing(self._opened(call, request_id)) as response, appearing(target) as file:
            for chunk in response.iter_bytes(CHUNK_BYTES):
                file.write(chunk)
            return reply_of(response, b"")

    def _streamed(self, stream: Stream[T]) -> Streamed[T]:
        opened: list[httpx2.Response] = []

        def once(request_id: str) -> Reply:
            opened.append(self._opened(stream.call, request_id))
            return Reply(200, {}, b"")

        self._repeated(replace(stream.call, read=lambda _: None), once)
        response = opened[-1]
        id_ = response.request.headers["X-Request-Id"]
        return Streamed(response, stream.each, lambda: failures(self._address, id_))
