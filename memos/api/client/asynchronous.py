"""How the asynchronous client sends requests and waits. Knows no route. For one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Generic, ParamSpec, Self, TypeVar

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


class AsyncStreamed(Generic[T]):
    """Values that a server streams; iterate it once. Close it, or use `async with`, to end it early."""

    def __init__(self, response: httpx2.Response, each: Callable[[str, str], T | None], guard: Guarded) -> None:
        self._response, self._each, self._guard = response, each, guard
        self._events = aiter(httpx2.EventSource(response))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for the next value. Raises: ConnectionLost, BackendTimeout."""
        try:
            with self._guard():
                async for event in self._events:
                    if (found := self._each(event.event, event.data)) is not None:
                        return found
        except BaseException:
            await self.aclose()
            raise
        await self.aclose()
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release the connection."""
        await self._response.aclose()


class AsyncConnection:
    """A connection pool to one server, with the options it is used with."""

    def __init__(self, http: httpx2.AsyncClient, address: Address, options: Options) -> None:
        self._http, self._address, self._options = http, address, options

    @classmethod
    def to(cls, address: Address, options: Options) -> AsyncConnection:
        """Return a connection with a new pool; nothing is sent yet."""
        return cls(httpx2.AsyncClient(), address, options)

    @property
    def options(self) -> Options:
        """The options of its calls."""
        return self._options

    def using(self, options: Options) -> AsyncConnection:
        """Return a connection that shares the pool and has other options."""
        return AsyncConnection(self._http, self._address, options)

    async def aclose(self) -> None:
        """Close the pool for all that share it."""
        await self._http.aclose()

    async def do(self, described: Call[Any] | Stream[Any] | Download[Any] | Waiting[Any]) -> Any:
        """Send a request, again if needed and allowed, and return its result. Raises: MemosError."""
        if isinstance(described, Download):
            return await self._repeated(
                described.call, lambda id_: self._fetched(described.call, id_, described.target)
            )
        if isinstance(described, Stream):
            return await self._streamed(described)
        if isinstance(described, Waiting):
            return await self._waited(described)
        return await self._repeated(described, partial(self._once, described))

    async def _repeated(self, call: Call[T], once: Callable[[str], Awaitable[Reply]]) -> T:
        request_id = new_id()
        steps = exchange(call, self._options)
        pause = next(steps)
        while True:
            if pause:
                await asyncio.sleep(pause)
            outcome: Reply | MemosError
            try:
                with failures(self._address, request_id):
                    outcome = await once(request_id)
            except MemosError as error:
                outcome = error
            try:
                pause = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result

    async def _waited(self, waiting: Waiting[T]) -> T:
        turns = waiting.turns()
        call = next(turns)
        while True:
            found = await self._repeated(call, partial(self._once, call))
            try:
                call = turns.send(found)
            except StopIteration as done:
                result: T = done.value
                return result

    async def _once(self, call: Call[Any], request_id: str) -> Reply:
        if call.upload is not None:
            with reading(call.upload) as file:
                return await self._sent(call, request_id, content=_chunks(file))
        if call.files:
            with form_of(call.files) as form:
                return await self._sent(call, request_id, files=form)
        return await self._sent(call, request_id)

    async def _sent(self, call: Call[Any], request_id: str, **content: Any) -> Reply:
        request = request_of(self._http, call, self._address, self._options, request_id, **content)
        response = await self._http.send(request)
        return reply_of(response, response.content)

    async def _opened(self, call: Call[Any], request_id: str) -> httpx2.Response:
        request = request_of(self._http, call, self._address, self._options, request_id)
        response = await self._http.send(request, stream=True)
        if response.status_code >= 300:
            async with aclosing(response):
                raise refusal(response, await response.aread())
        return response

    async def _fetched(self, call: Call[Any], request_id: str, target: Path) -> Reply:
        async with aclosing(await self._opened(call, request_id)) as response:
            with appearing(target) as file:
                async for chunk in response.aiter_bytes(CHUNK_BYTES):
                    await asyncio.to_thread(file.write, chunk)
            return reply_of(response, b"")

    async def _streamed(self, stream: Stream[T]) -> AsyncStreamed[T]:
        opened: list[httpx2.Response] = []

        async def once(request_id: str) -> Reply:
            opened.append(await self._opened(stream.call, request_id))
            return Reply(200, {}, b"")

        await self._repeated(replace(stream.call, read=lambda _: None), once)
        response = opened[-1]
        id_ = response.request.headers["X-Request-Id"]
        return AsyncStreamed(response, stream.each, lambda: failures(self._address, id_))


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk
