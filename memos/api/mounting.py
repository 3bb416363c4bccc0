"""Every family of routes of the server by its path, made at once or later, with what one needs while it runs."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from memos.kernel.memos import MemOS

# Applications that are made when they are first asked, or behind the back of those who ask others.

log = logging.getLogger("memos.api")


async def _nothing() -> None:
    pass


class LazyApp:
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


if TYPE_CHECKING:
    from memos.api.mcp.http import Mcp
    from memos.api.openai_proxy.upstream import Upstream

MCP = "/mcp"


class RouteGroups:
    """The families of one application."""

    def __init__(self, memos: MemOS, local_token: str | None, stopping: Callable[[], bool]) -> None:
        self._memos, self._token, self._stopping = memos, local_token, stopping
        self._upstream: Upstream | None = None
        self._mcp: Mcp | None = None
        self._group: TaskGroup | None = None
        made: Mapping[str, Callable[[], FastAPI]] = {
            "/api/v1": self._v1,
            "/api/openmem/v1": self._openmem,
            "/product": self._product,
            "/openai/v1": self._proxy,
        }
        self._made = {path: self._stopped(make) for path, make in made.items()}
        self._lazy = {path: LazyApp(make) for path, make in self._made.items()}
        # At this very path: a client does not follow from it to one with a slash at its end.
        self.mcp: ASGIApp = LazyApp(self._make_mcp, self._begin_mcp)

    def mounted(self, *, lazy: bool) -> Mapping[str, ASGIApp]:
        """Return the application of each path, or what makes it `later`."""
        return self._lazy if lazy else {path: make() for path, make in self._made.items()}

    @asynccontextmanager
    async def running(self, *, lazy: bool) -> AsyncIterator[None]:
        """Let them be asked until the end."""
        async with AsyncExitStack() as stack, anyio.create_task_group() as group:
            self._group = group
            stack.push_async_callback(self._close)
            if lazy:
                group.start_soon(self._prepare)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _prepare(self) -> None:
        for each in (*self._lazy.values(), self.mcp):
            assert isinstance(each, LazyApp)
            await each.prepare()
        # All that stays to the end is there: looking through it held every request up for a tenth of a second.
        gc.freeze()

    async def _close(self) -> None:
        if self._upstream is not None:
            await self._upstream.close()

    def _stopped(self, make: Callable[[], FastAPI]) -> Callable[[], FastAPI]:
        def made() -> FastAPI:
            app = make()
            app.state.stopping = self._stopping
            return app

        return made

    # Each loads what it needs itself: hundreds of classes of shapes, and the protocol's library.

    def _v1(self) -> FastAPI:
        from memos.api.v1.routes import create  # noqa: PLC0415 - see above

        return create(self._memos, self._token)

    def _openmem(self) -> FastAPI:
        from memos.api.openmem import create  # noqa: PLC0415 - see above

        return create(self._memos, self._token)

    def _product(self) -> FastAPI:
        from memos.api.product import create  # noqa: PLC0415 - see above

        return create(self._memos, self._token)

    def _proxy(self) -> FastAPI:
        from memos.api.openai_proxy import create  # noqa: PLC0415 - see above
        from memos.api.openai_proxy.upstream import Upstream  # noqa: PLC0415 - see above

        self._upstream = Upstream(self._memos.settings.chat_model, lambda: self._memos.models.local)
        return create(self._memos, self._token, self._upstream)

    def _make_mcp(self) -> ASGIApp:
        from memos.api.mcp.http import Mcp  # noqa: PLC0415 - see above

        self._mcp = Mcp(self._memos, self._token)
        return self._mcp.app

    async def _begin_mcp(self) -> None:
        """Let the protocol's end run until the application's."""
        assert self._group is not None  # the application's lifespan began it
        await self._group.start(self._run_mcp)

    async def _run_mcp(self, *, task_status: TaskStatus[None]) -> None:
        assert self._mcp is not None  # made before it is begun
        async with self._mcp.running():
            task_status.started()
            await anyio.sleep_forever()
