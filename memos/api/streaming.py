"""Polling without a thread per request, chats in threads of their own, and responses that stream."""

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

_T = TypeVar("_T")

# Few: the other threads are for requests that do something, and a poll takes about a millisecond.
_POLLS_AT_ONCE = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_KEEP_ALIVE_S = 15.0
_LEAST_CHAT_THREADS = 8
_HEARTBEAT, _HEARTBEAT_S = b"\n", 0.5
_LINES_AHEAD = 100

STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of a stream: no proxy may keep it or hold it back."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    event: str
    data: Json
    id: str | None = None


async def poll(request: Request, call: Callable[[], _T]) -> _T:
    """Return the result of a short call, made in a thread for polling. Raises: Unauthenticated (revoked)."""
    state = request.app.state
    if not hasattr(state, "polling"):
        state.polling = anyio.CapacityLimiter(_POLLS_AT_ONCE)

    def checked() -> _T:
        found = call()
        check_key(state.memos, request.state.caller)  # after the call, so that nothing newer is shown
        return found

    return await to_thread.run_sync(checked, limiter=state.polling)


async def poll_for(request: Request, call: Callable[[], _T], timeout_s: float) -> AsyncIterator[_T]:
    """Yield results of a short call, ever more rarely, until the time is over or the server is to stop."""
    stopping = getattr(request.app.state, "stopping", lambda: False)
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while True:
        yield await poll(request, call)
        left = deadline - time.monotonic()
        if left <= 0 or stopping():
            return
        await anyio.sleep(min(pause, left))
        pause = min(_LONGEST_PAUSE_S, pause * 1.5)


def encode_event(data: Json, *, event: str | None = None, id: str | None = None) -> str:
    lines = [] if id is None else [f"id: {id}"]
    if event is not None:
        lines.append(f"event: {event}")
    return "\n".join([*lines, f"data: {json.dumps(data)}"]) + "\n\n"


def event_stream(events: AsyncIterator[ServerEvent | None]) -> StreamingResponse:
    """Return server-sent events.

    None stands for a poll that found nothing; after many of them a comment keeps the connection alive. An error
    becomes an event `error` and ends the stream.
    """
    return StreamingResponse(_encoded(events), media_type="text/event-stream", headers=STREAM_HEADERS)


async def _encoded(events: AsyncIterator[ServerEvent | None]) -> AsyncIterator[str]:
    sent_at = time.monotonic()
    yield ": begun\n\n"
    try:
        async with aclosing(events) as entries:  # type: ignore[type-var] # an async generator
            async for entry in entries:
                if entry is not None:
                    yield encode_event(entry.data, event=entry.event, id=entry.id)
                elif time.monotonic() - sent_at < _KEEP_ALIVE_S:
                    continue
                else:
                    yield ": alive\n\n"
                sent_at = time.monotonic()
    except MemosError as error:
        yield encode_event(error_view(error)["error"], event="error")


class ClientDisconnected(RequestRefused):
    """The client closed the connection before there was an answer; status 499 in the log, sent to nobody."""

    def __init__(self) -> None:
        super().__init__(499, "The client closed the connection before it was answered.")


class ChatRunner:
    """Runs an installation's chats in threads of their own, so that a slow model holds up no other request."""

    def __init__(self, memos: MemOS) -> None:
        model = memos.settings.model_for("chat")
        self._limiter = anyio.CapacityLimiter(max(_LEAST_CHAT_THREADS, 2 * model.parallel if model else 0))

    async def complete(self, request: Request, start: Callable[[], ChatStream]) -> ChatResult:
        """Return the result of a chat, cancelling it between two steps if the client disconnects."""
        return await cancel_on_disconnect(request, partial(self.finish, start))

    async def finish(self, start: Callable[[], ChatStream]) -> ChatResult:
        """Return the result of a chat, even if the client disconnects."""
        async with aclosing(await self.start(start)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatResult):
                    return piece
        raise AssertionError("a chat ends with its result")

    async def start(self, start: Callable[[], ChatStream]) -> AsyncGenerator[str | ChatResult]:
        """Return a chat's pieces, then its result, once its first step is done: a failure can still be a status."""
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
            with CancelScope(shield=True):  # the client disconnected: store nothing, release the model
                await self.run(stream.close)

    async def run(self, call: Callable[[], _T]) -> _T:
        return await to_thread.run_sync(call, limiter=self._limiter)


def _step(stream: ChatStream) -> str | None:
    try:
        return stream.step()
    except StopIteration:
        return None


_RUNNERS: WeakKeyDictionary[MemOS, ChatRunner] = WeakKeyDictionary()


async def _chat_runner(request: Request) -> ChatRunner:
    memos: MemOS = request.app.state.memos
    runner = _RUNNERS.get(memos)
    if runner is None:
        runner = _RUNNERS[memos] = ChatRunner(memos)
    return runner


CurrentRunner = Annotated[ChatRunner, Depends(_chat_runner)]


async def cancel_on_disconnect(request: Request, work: Callable[[], Awaitable[_T]]) -> _T:
    """Return what `work` returns; cancel it if the client disconnects. Read the request's body first."""
    outcome: list[_T | Exception] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_at_disconnect, request.receive, group.cancel_scope)
        try:
            outcome.append(await work())
        except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
            outcome.append(error)
        group.cancel_scope.cancel()
    if not outcome:
        raise ClientDisconnected
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


async def _cancel_at_disconnect(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class ClosingStreamResponse(StreamingResponse):
    """A streaming response that closes its source and then awaits `end`, also if the client disconnects."""

    def __init__(
        self,
        source: AsyncGenerator[str] | AsyncGenerator[bytes],
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(source, status_code, headers, media_type)
        self._source = source
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await self._source.aclose()
                if self._end is not None:
                    await self._end()


@dataclass(frozen=True, slots=True)
class ProgressWriter:
    """Sends lines from the thread of a call; `stop` is set once nobody reads them."""

    line: Callable[[bytes], None]
    stop: threading.Event


class NdjsonResponse(Response):
    """Sends the lines of a call in a thread, and empty ones as a heartbeat: each end notices if the other is gone."""

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
        """Send lines until the call ends; if the client disconnects, ask the call to stop."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        stop = threading.Event()
        sender, receiver = anyio.create_memory_object_stream[bytes](_LINES_AHEAD)

        async def work() -> None:
            async with sender:
                await to_thread.run_sync(self._in_thread, sender, stop, limiter=self._limiter)

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            try:
                await self._send(receiver, receive, send, stop)
            finally:
                # A thread cannot be cancelled: it is asked to stop, and its lines are refused.
                stop.set()
                receiver.close()

    async def _send(
        self, lines: MemoryObjectReceiveStream[bytes], receive: Receive, send: Send, stop: threading.Event
    ) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_at_disconnect, receive, group.cancel_scope)
            try:
                async for line in _with_heartbeats(lines):
                    if line == _HEARTBEAT and self._stopping():
                        stop.set()
                    await send({"type": "http.response.body", "body": line, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except OSError:  # the client disconnected while it was sent to
                pass
            group.cancel_scope.cancel()

    def _in_thread(self, sender: MemoryObjectSendStream[bytes], stop: threading.Event) -> None:
        def write(line: bytes) -> None:
            # Waits while the client is slow, and drops the line if it is gone.
            try:
                from_thread.run(sender.send, line)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                stop.set()

        self._work(ProgressWriter(write, stop))


async def _with_heartbeats(lines: MemoryObjectReceiveStream[bytes]) -> AsyncIterator[bytes]:
    while True:
        line = _HEARTBEAT
        with anyio.move_on_after(_HEARTBEAT_S):
            try:
                line = await lines.receive()
            except anyio.EndOfStream:
                return
        yield line
