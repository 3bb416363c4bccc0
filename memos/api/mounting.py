"""The route groups of the server by path, built at once or lazily, and what they need while the server runs."""

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

if TYPE_CHECKING:
    from memos.api.mcp.http import Mcp
    from memos.api.openai_proxy.upstream import Upstream

log = logging.getLogger("memos.api")

MCP = "/mcp"


class LazyApp:
    """Builds an ASGI application lazily, in a thread, on its first request or in the background.

    `begin` is awaited once, before the first request.
    """

    def __init__(self, make: Callable[[], ASGIApp], begin: Callable[[], Awaitable[None]] | None = None) -> None:
        self._make = make
        self._begin = begin
        self._lock = anyio.Lock()
        self._app: ASGIApp | None = None

    async def ready(self) -> ASGIApp:
        """Return the application, building it if needed."""
        if self._app is None:
            async with self._lock:
                if self._app is None:
                    made = await to_thread.run_sync(self._make)
                    if self._begin is not None:
                        await self._begin()
                    self._app = made
        return self._app

    async def prepare(self) -> None:
        """Build the application in the background; an error is raised again by the first request."""
        try:
            await self.ready()
        except Exception:
            log.exception("a route group cannot be built")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await (await self.ready())(scope, receive, send)


class RouteGroups:
    """The route groups of one application."""

    def __init__(self, memos: MemOS, local_token: str | None, stopping: Callable[[], bool]) -> None:
        self._memos, self._token, self._stopping = memos, local_token, stopping
        self._upstream: Upstream | None = None
        self._mcp: Mcp | None = None
        self._group: TaskGroup | None = None
        builders: Mapping[str, Callable[[], FastAPI]] = {
            "/api/v1": self._v1,
            "/api/openmem/v1": self._openmem,
            "/product": self._product,
            "/openai/v1": self._proxy,
        }
        self._builders = {path: self._with_stopping(build) for path, build in builders.items()}
        self._lazy = {path: LazyApp(build) for path, build in self._builders.items()}
        # Not mounted: clients do not follow a redirect to a path with a slash at its end.
        self.mcp: ASGIApp = LazyApp(self._make_mcp, self._begin_mcp)

    def mounted(self, *, lazy: bool) -> Mapping[str, ASGIApp]:
        """Return the application of each path, lazy ones if asked."""
        return self._lazy if lazy else {path: build() for path, build in self._builders.items()}

    @asynccontextmanager
    async def running(self, *, lazy: bool) -> AsyncIterator[None]:
        """Run what the groups need for the duration of the block."""
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
        # Everything that stays is loaded: a garbage collection through it held up requests for a tenth of a second.
        gc.freeze()

    async def _close(self) -> None:
        if self._upstream is not None:
            await self._upstream.close()

    def _with_stopping(self, build: Callable[[], FastAPI]) -> Callable[[], FastAPI]:
        def built() -> FastAPI:
            app = build()
            app.state.stopping = self._stopping
            return app

        return built

    # Each imports what it needs itself: hundreds of models, and the MCP library.

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
        """Run the MCP server until the application ends."""
        assert self._group is not None  # set by `running`
        await self._group.start(self._run_mcp)

    async def _run_mcp(self, *, task_status: TaskStatus[None]) -> None:
        assert self._mcp is not None  # built before it is begun
        async with self._mcp.running():
            task_status.started()
            await anyio.sleep_forever()
