"""A response of lines of JSON that a thread tells while it works, each end seeing when the other is gone.

Knows nothing of what is told.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import anyio
from anyio import from_thread, to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_BEAT, _BEAT_S = b"\n", 0.5
_LINES_AHEAD = 100


@dataclass(frozen=True, slots=True)
class Telling:
    """How a call in its thread tells lines, and learns that nobody listens any more."""

    line: Callable[[bytes], None]
    stop: threading.Event


class Lines(Response):
    """Runs a call in a thread and sends its lines; an empty one now and then, so that either end sees the other go."""

    media_type = "application/x-ndjson"

    def __init__(
        self, work: Callable[[Telling], None], limiter: anyio.CapacityLimiter, stopping: Callable[[], bool]
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

        self._work(Telling(line, stop))


async def _with_beats(told: MemoryObjectReceiveStream[bytes]) -> AsyncIterator[bytes]:
    while True:
        line = _BEAT
        with anyio.move_on_after(_BEAT_S):
            try:
                line = await told.receive()
            except anyio.EndOfStream:
                return
        yield line
