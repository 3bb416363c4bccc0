"""Runs chats for routes: in threads of their own, so that slow models hold up no other request; knows no shape."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, TypeVar
from weakref import WeakKeyDictionary

import anyio
from anyio import CancelScope, to_thread
from fastapi import Depends, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from memos.api.families import Refused
from memos.kernel.chat.chat import ChatStream
from memos.kernel.chat.results import ChatResult
from memos.kernel.memos import MemOS

_Given = TypeVar("_Given")
_LEAST_THREADS = 8
_KNOWN: WeakKeyDictionary[MemOS, Talks] = WeakKeyDictionary()


class Gone(Refused):
    """The client closed the connection before there was an answer: 499 in the server's log, told to nobody."""

    def __init__(self) -> None:
        super().__init__(499, "The client closed the connection before there was an answer.")


class Talks:
    """The chats of one installation that are under way; those beyond what the model takes at once wait for a thread."""

    def __init__(self, memos: MemOS) -> None:
        model = memos.settings.model_for("chat")
        self._limiter = anyio.CapacityLimiter(max(_LEAST_THREADS, 2 * model.parallel if model else 0))

    async def whole(self, request: Request, start: Callable[[], ChatStream]) -> ChatResult:
        """Return the result of `memos.chat.steps(…)`; a client that goes away meanwhile ends it, where steps are told.

        Raises: what the chat raises, Gone.
        """
        return await while_there(request, partial(self.finished, start))

    async def finished(self, start: Callable[[], ChatStream]) -> ChatResult:
        """Return the result, whoever still waits for it. Raises: what the chat raises."""
        async with aclosing(await self.begin(start)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatResult):
                    return piece
        raise AssertionError("a chat ends with its result")

    async def begin(self, start: Callable[[], ChatStream]) -> AsyncGenerator[str | ChatResult]:
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


async def while_there(request: Request, work: Callable[[], Awaitable[_Given]]) -> _Given:
    """Return what work gives; it is cancelled when the client goes away. Raises: what it raises, Gone.

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
        raise Gone
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _step(stream: ChatStream) -> str | None:
    try:
        return stream.step()
    except StopIteration:
        return None


class Streamed(StreamingResponse):
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


async def _talks(request: Request) -> Talks:
    memos: MemOS = request.app.state.memos
    if (known := _KNOWN.get(memos)) is None:
        known = _KNOWN[memos] = Talks(memos)
    return known


Talking = Annotated[Talks, Depends(_talks)]
