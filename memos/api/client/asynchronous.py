"""How the asynchronous client sends what it is told; knows no route. For one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

import httpx2

from memos.api.client.address import Address, Options
from memos.api.client.calls import Call, Download, Reply, Stream, Waiting, exchange
from memos.api.client.results import ChatAnswer
from memos.api.client.transport import (
    CHUNK_BYTES,
    appearing,
    failures,
    form_of,
    reading,
    refusal,
    reply_of,
    request_of,
    told_like,
)
from memos.core.clock import new_id
from memos.errors import MemosError

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

Guarded = Callable[[], AbstractContextManager[None]]


class AsyncStreamed(Generic[T]):
    """What a server sends bit by bit; iterate it once. Ended early, it wants to be closed: `async with` does."""

    def __init__(self, response: httpx2.Response, each: Callable[[str, str], T | None], guard: Guarded) -> None:
        self._response, self._each, self._guard = response, each, guard
        self._events = aiter(httpx2.EventSource(response))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for the next. Raises: ConnectionLost, BackendTimeout."""
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
        """Let the connection go."""
        await self._response.aclose()


class AsyncConnection:
    """A pool of connections to one server, and how patiently it is used."""

    def __init__(self, http: httpx2.AsyncClient, address: Address, options: Options) -> None:
        self._http, self._address, self._options = http, address, options

    @classmethod
    def to(cls, address: Address, options: Options) -> AsyncConnection:
        """Return a connection with a pool of its own; nothing is sent yet."""
        return cls(httpx2.AsyncClient(), address, options)

    @property
    def options(self) -> Options:
        """How patiently it is used."""
        return self._options

    def using(self, options: Options) -> AsyncConnection:
        """Return the same pool with other options."""
        return AsyncConnection(self._http, self._address, options)

    async def aclose(self) -> None:
        """Close the pool, for all that use it."""
        await self._http.aclose()

    async def do(self, described: Call[Any] | Stream[Any] | Download[Any] | Waiting[Any]) -> Any:
        """Send a request, perhaps repeatedly, and return what its answer says. Raises: MemosError."""
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


class AsyncHolder(Protocol):
    """What has methods that send."""

    _connection: AsyncConnection


@overload
def sends(describe: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, T]]: ...
@overload
def sends(
    describe: Callable[P, Stream[S]],
) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, AsyncStreamed[S]]]: ...
@overload
def sends(describe: Callable[P, Waiting[T]]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, T]]: ...
@overload
def sends(describe: Callable[P, Download[T]]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, T]]: ...
def sends(describe: Callable[P, Any]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, Any]]:
    """Return the method that sends the request which a function describes."""

    async def method(self: AsyncHolder, /, *given: P.args, **named: P.kwargs) -> Any:
        return await self._connection.do(describe(*given, **named))

    told_like(method, describe)
    return method


def sends_chat(
    describe: Callable[P, Call[ChatAnswer] | Stream[str]],
) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, ChatAnswer | AsyncStreamed[str]]]:
    """Return what `sends` does, for a function whose parameters say whether its answer is streamed."""
    send: Any = sends
    method: Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, ChatAnswer | AsyncStreamed[str]]] = send(describe)
    return method


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk
