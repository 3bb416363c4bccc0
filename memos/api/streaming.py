"""Chats in threads of their own, streamed responses, and waiting without holding a thread. Knows no route."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar
from weakref import WeakKeyDictionary

import anyio
from anyio import CancelScope, from_thread, to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastapi import Depends, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from memos.api.auth import check_key
from memos.api.families import RequestRefused
from memos.api.serialization import error_view
from memos.core.types import Json
from memos.errors import MemosError
from memos.kernel.chat.chat import ChatStream
from memos.kernel.chat.results import ChatResult
from memos.kernel.memos import MemOS

_Seen = TypeVar("_Seen")

# Few, since the others are for requests that do something; a look takes about a millisecond.
_LOOKS_AT_ONCE = 4
_PAUSES_S = (0.05, 1.0)
_ALIVE_EVERY_S = 15.0

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Of a stream: no proxy may keep it, nor hold it back."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream; `id` is where a client that comes back goes on."""

    event: str
    data: Json
    id: str | None = None


async def poll(request: Request, call: Callable[[], _Seen]) -> _Seen:
    """Return what a short call says, made in one of the threads that are for waiting.

    Raises: Unauthenticated when the request's key was ended by then: what waits or is streamed may last an hour.
    """
    state = request.app.state
    if not hasattr(state, "looking"):
        state.looking = anyio.CapacityLimiter(_LOOKS_AT_ONCE)

    def seen() -> _Seen:
        found = call()
        check_key(state.memos, request.state.caller)  # behind it, so that nothing of what comes later is told
        return found

    return await to_thread.run_sync(seen, limiter=state.looking)


async def poll_for(request: Request, call: Callable[[], _Seen], timeout_s: float) -> AsyncIterator[_Seen]:
    """Yield what a call says now and again, more and more rarely, for so long; the last time at the end of it.

    A server that is about to stop ends it early: a stop waits for requests.
    """
    stopping = getattr(request.app.state, "stopping", lambda: False)
    deadline, (pause, slowest) = time.monotonic() + timeout_s, _PAUSES_S
    while True:
        yield await poll(request, call)
        left = deadline - time.monotonic()
        if left <= 0 or stopping():
            return
        await anyio.sleep(min(pause, left))
        pause = min(slowest, pause * 1.5)


def event_stream(told: AsyncIterator[ServerEvent | None]) -> StreamingResponse:
    """Return server-sent events; None is a look that found nothing, after many of which the line is kept alive.

    An error ends the stream with an event `error`. The stream ends when the client goes.
    """
    return StreamingResponse(_lines(told), media_type="text/event-stream", headers=HEADERS)


async def _lines(told: AsyncIterator[ServerEvent | None]) -> AsyncIterator[str]:
    spoke = time.monotonic()
    yield ": begun\n\n"
    try:
        async with aclosing(told) as entries:  # type: ignore[type-var] # an async generator
            async for entry in entries:
                if entry is not None:
                    yield _written(entry)
                elif time.monotonic() - spoke < _ALIVE_EVERY_S:
                    continue
                else:
                    yield ": alive\n\n"
                spoke = time.monotonic()
    except MemosError as error:
        yield _written(ServerEvent("error", error_view(error)["error"]))


def _written(entry: ServerEvent) -> str:
    number = "" if entry.id is None else f"id: {entry.id}\n"
    return f"{number}event: {entry.event}\ndata: {json.dumps(entry.data)}\n\n"


_Given = TypeVar("_Given")
_LEAST_THREADS = 8
_KNOWN: WeakKeyDictionary[MemOS, ChatRunner] = WeakKeyDictionary()


class ClientDisconnected(RequestRefused):
    """The client closed the connection before there was an answer: 499 in the server's log, told to nobody."""

    def __init__(self) -> None:
        super().__init__(499, "The client closed the connection before there was an answer.")


class ChatRunner:
    """The chats of one installation that are under way; those beyond what the model takes at once wait for a thread."""

    def __init__(self, memos: MemOS) -> None:
        model = memos.settings.model_for("chat")
        self._limiter = anyio.CapacityLimiter(max(_LEAST_THREADS, 2 * model.parallel if model else 0))

    async def complete(self, request: Request, start: Callable[[], ChatStream]) -> ChatResult:
        """Return the result of `memos.chat.steps(…)`; a client that goes away meanwhile ends it, where steps are told.

        Raises: what the chat raises, ClientDisconnected.
        """
        return await cancel_on_disconnect(request, partial(self.finish, start))

    async def finish(self, start: Callable[[], ChatStream]) -> ChatResult:
        """Return the result, whoever still waits for it. Raises: what the chat raises."""
        async with aclosing(await self.start(start)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatResult):
                    return piece
        raise AssertionError("a chat ends with its result")

    async def start(self, start: Callable[[], ChatStream]) -> AsyncGenerator[str | ChatResult]:
        """Start a streamed chat and wait for its first step; then the pieces come, and last the result.

        So a failure before the first step can still be the status of a response. Raises: as `MemOS.chat.stream`.
        """
        stream = await self.run(start)
        try:
            first = await self.run(partial(_step, stream))
        except BaseException:
            stream.close()
            raise
        return self._pieces(stream, first)

    async def _pieces(self, stream: ChatStream, piece: str | None) -> AsyncGenerator[str | ChatResult]:
        try:
            while piece is not None:
                if piece:
                    yield piece
                piece = await self.run(partial(_step, stream))
            if stream.result is not None:
                yield stream.result
        finally:
            with CancelScope(shield=True):  # a client that went away: nothing is stored, the model is let go
                await self.run(stream.close)

    async def run(self, call: Callable[[], _Given]) -> _Given:
        """Return what a call gives that asks the model, made in a thread of chats. Raises: what it raises."""
        return await to_thread.run_sync(call, limiter=self._limiter)


async def cancel_on_disconnect(request: Request, work: Callable[[], Awaitable[_Given]]) -> _Given:
    """Return what work gives; it is cancelled when the client goes away. Raises: what it raises, ClientDisconnected.

    For requests whose bodies are read.
    """
    outcome: list[_Given | Exception] = []
    async with anyio.create_task_group() as both:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            both.cancel_scope.cancel()

        both.start_soon(watch)
        try:
            outcome.append(await work())
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            outcome.append(error)
        both.cancel_scope.cancel()
    if not outcome:
        raise ClientDisconnected
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _step(stream: ChatStream) -> str | None:
    try:
        return stream.step()
    except StopIteration:
        return None


class ClosingStreamResponse(StreamingResponse):
    """A response whose source is closed, also when the client has gone away; then `end` is called."""

    def __init__(
        self, source: AsyncGenerator[str] | AsyncGenerator[bytes], status_code: int = 200,
        headers: Mapping[str, str] | None = None, media_type: str | None = None,
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(source, status_code, headers, media_type)
        self._source = source
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await self._source.aclose()
                if self._end is not None:
                    await self._end()


async def _chat_runner(request: Request) -> ChatRunner:
    memos: MemOS = request.app.state.memos
    if (known := _KNOWN.get(memos)) is None:
        known = _KNOWN[memos] = ChatRunner(memos)
    return known


CurrentRunner = Annotated[ChatRunner, Depends(_chat_runner)]


_BEAT, _BEAT_S = b"\n", 0.5
_LINES_AHEAD = 100


@dataclass(frozen=True, slots=True)
class ProgressWriter:
    """How a call in its thread tells lines, and learns that nobody listens any more."""

    line: Callable[[bytes], None]
    stop: threading.Event


class NdjsonResponse(Response):
    """Runs a call in a thread and sends its lines; an empty one now and then, so that either end sees the other go."""

    media_type = "application/x-ndjson"

    def __init__(
        self, work: Callable[[ProgressWriter], None], limiter: anyio.CapacityLimiter, stopping: Callable[[], bool]
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._work = work
        self._limiter = limiter
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines until the call ends or the client is gone; in the second case the call ends soon."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        stop = threading.Event()
        lines, told = anyio.create_memory_object_stream[bytes](_LINES_AHEAD)

        async def work() -> None:
            async with lines:
                await to_thread.run_sync(self._in_thread, lines, stop, limiter=self._limiter)

        async with anyio.create_task_group() as working:
            working.start_soon(work)
            try:
                await self._send(told, receive, send, stop)
            finally:
                # What is at work is not broken off: it is told to stop where it waits, and that nobody listens.
                stop.set()
                told.close()

    async def _send(
        self, told: MemoryObjectReceiveStream[bytes], receive: Receive, send: Send, stop: threading.Event
    ) -> None:
        async with anyio.create_task_group() as watching:

            async def gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                watching.cancel_scope.cancel()

            watching.start_soon(gone)
            try:
                async for line in _with_beats(told):
                    if line == _BEAT and self._stopping():
                        stop.set()
                    await send({"type": "http.response.body", "body": line, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except OSError:  # the client went while it was sent to
                pass
            watching.cancel_scope.cancel()

    def _in_thread(self, lines: MemoryObjectSendStream[bytes], stop: threading.Event) -> None:
        def line(said: bytes) -> None:
            # Waits while the client is slow; who is gone is not told.
            try:
                from_thread.run(lines.send, said)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                stop.set()

        self._work(ProgressWriter(line, stop))


async def _with_beats(told: MemoryObjectReceiveStream[bytes]) -> AsyncIterator[bytes]:
    while True:
        line = _BEAT
        with anyio.move_on_after(_BEAT_S):
            try:
                line = await told.receive()
            except anyio.EndOfStream:
                return
        yield line
