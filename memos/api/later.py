"""Applications that are made when they are first asked, or behind the back of those who ask others.

What a family of routes loads takes longer than opening an installation, and most servers are never asked for all of
them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio
from anyio import to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("memos.api")


async def _nothing() -> None:
    pass


class Later:
    """An application that `make` makes, in a thread; `begin` is awaited once before it is asked anything."""

    def __init__(self, make: Callable[[], ASGIApp], begin: Callable[[], Awaitable[None]] = _nothing) -> None:
        self._make, self._begin = make, begin
        self._lock = anyio.Lock()
        self._app: ASGIApp | None = None

    async def ready(self) -> ASGIApp:
        """Return the application, made now if nobody asked for it before."""
        if self._app is None:
            async with self._lock:
                if self._app is None:
                    made = await to_thread.run_sync(self._make)
                    await self._begin()
                    self._app = made
        return self._app

    async def prepare(self) -> None:
        """Make it before somebody asks; what goes wrong is said to who asks."""
        try:
            await self.ready()
        except Exception:
            log.exception("a family of routes cannot be made")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await (await self.ready())(scope, receive, send)
