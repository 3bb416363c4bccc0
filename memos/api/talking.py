"""Runs chats for routes: in threads of their own, so that slow models hold up no other request; knows no shape."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, TypeVar
from weakref import WeakKeyDictionary

import anyio
from anyio import CancelScope, to_thread
from fastapi import Depends, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from memos.chatting.chat import ChatStream
from memos.chatting.results import ChatResult
from memos.kernel import MemOS

_Given = TypeVar("_Given")
_LEAST_THREADS = 8
_KNOWN: WeakKeyDictionary[MemOS, Talks] = WeakKeyDictionary()


class Talks:
    """The chats of one installation that are under way; those beyond what the model takes at once wait for a thread."""

    def __init__(self, memos: MemOS) -> None:
        model = memos.settings.model_for("chat")
        self._limiter = anyio.CapacityLimiter(max(_LEAST_THREADS, 2 * model.parallel if model else 0))

    async def run(self, call: Callable[[], _Given]) -> _Given:
        """Make a call that may ask the model, such as `lambda: memos.chat(…)`. Raises: what it raises."""
        return await to_thread.run_sync(call, limiter=self._limiter)

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
