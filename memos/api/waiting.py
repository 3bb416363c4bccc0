"""Waits without holding a thread: looks again and again in short calls of a few threads of its own. Knows no route."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import StreamingResponse

from memos.api.auth import check_still
from memos.api.serialization import error_view
from memos.core.types import Json
from memos.errors import MemosError

_Seen = TypeVar("_Seen")

# Few, since the others are for requests that do something; a look takes about a millisecond.
_LOOKS_AT_ONCE = 4
_PAUSES_S = (0.05, 1.0)
_ALIVE_EVERY_S = 15.0

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Of a stream: no proxy may keep it, nor hold it back."""


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a stream; `id` is where a client that comes back goes on."""

    event: str
    data: Json
    id: str | None = None


async def look(request: Request, call: Callable[[], _Seen]) -> _Seen:
    """Return what a short call says, made in one of the threads that are for waiting.

    Raises: NoKey when the request's key was ended by then: what waits or is streamed may last an hour.
    """
    state = request.app.state
    if not hasattr(state, "looking"):
        state.looking = anyio.CapacityLimiter(_LOOKS_AT_ONCE)

    def seen() -> _Seen:
        found = call()
        check_still(state.memos, request.state.caller)  # behind it, so that nothing of what comes later is told
        return found

    return await to_thread.run_sync(seen, limiter=state.looking)


async def looks(request: Request, call: Callable[[], _Seen], timeout_s: float) -> AsyncIterator[_Seen]:
    """Yield what a call says now and again, more and more rarely, for so long; the last time at the end of it.

    A server that is about to stop ends it early: a stop waits for requests.
    """
    stopping = getattr(request.app.state, "stopping", lambda: False)
    deadline, (pause, slowest) = time.monotonic() + timeout_s, _PAUSES_S
    while True:
        yield await look(request, call)
        left = deadline - time.monotonic()
        if left <= 0 or stopping():
            return
        await anyio.sleep(min(pause, left))
        pause = min(slowest, pause * 1.5)


def streamed(told: AsyncIterator[Told | None]) -> StreamingResponse:
    """Return server-sent events; None is a look that found nothing, after many of which the line is kept alive.

    An error ends the stream with an event `error`. The stream ends when the client goes.
    """
    return StreamingResponse(_lines(told), media_type="text/event-stream", headers=HEADERS)


async def _lines(told: AsyncIterator[Told | None]) -> AsyncIterator[str]:
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
        yield _written(Told("error", error_view(error)["error"]))


def _written(entry: Told) -> str:
    number = "" if entry.id is None else f"id: {entry.id}\n"
    return f"{number}event: {entry.event}\ndata: {json.dumps(entry.data)}\n\n"
