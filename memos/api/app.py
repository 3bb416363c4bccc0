"""The HTTP application over one open `MemOS`: its route groups, built now or lazily, health, metrics and middleware."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.abc import TaskGroup, TaskStatus
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from memos.api import mcp
from memos.api.endpoint import PATH as LOCAL
from memos.api.families import create_group, refusal_of
from memos.api.local import routes as local
from memos.api.loopback import LoopbackOnly
from memos.api.observability import Metrics, RequestLog
from memos.api.route_table import RouteTable
from memos.api.v1.common import error_response
from memos.errors import BackendUnavailable
from memos.kernel.memos import MemOS
from memos.version import __version__

if TYPE_CHECKING:
    from memos.api.mcp.http import Mcp
    from memos.api.proxy.upstream import Upstream
    from memos.api.tracing import Tracing


log = logging.getLogger("memos.api")

_API = "/api/v1"
_GROUPS = {
    _API: "memos.api.v1.routes",
    "/hooks": "memos.api.hooks.routes",
    "/api/openmem/v1": "memos.api.openmem",
    "/product": "memos.api.product",
}
_PROXIES = {"/openai/v1": "memos.api.proxy.openai", "/anthropic/v1": "memos.api.proxy.anthropic"}
_CONSOLE = "/console"


class LazyApp:
    """Builds an ASGI application in a thread, on its first request or in the background; then awaits `begin`."""

    def __init__(self, make: Callable[[], ASGIApp], begin: Callable[[], Awaitable[None]] | None = None) -> None:
        self._make = make
        self._begin = begin
        self._lock = anyio.Lock()
        self._app: ASGIApp | None = None

    async def ready(self) -> ASGIApp:
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
        await (await self.ready())(scope, receive, send)


class RouteGroups:
    def __init__(self, memos: MemOS, local_token: str | None, stopping: Callable[[], bool]) -> None:
        self._memos, self._token, self._stopping = memos, local_token, stopping
        self._upstream: Upstream | None = None
        self._making_upstream = threading.Lock()
        self._mcp: Mcp | None = None
        self._group: TaskGroup | None = None
        paths = (*_GROUPS, *_PROXIES, _CONSOLE)
        self._builders = {path: partial(self._built, path) for path in paths}
        self._lazy = {path: LazyApp(build) for path, build in self._builders.items()}
        self._ready: dict[str, ASGIApp] = {}
        # Not mounted: clients do not follow a redirect to a path with a slash at its end.
        self.mcp = LazyApp(self._make_mcp, self._begin_mcp)

    def mounted(self, *, lazy: bool) -> Mapping[str, ASGIApp]:
        if lazy:
            return self._lazy
        for path, build in self._builders.items():
            self._ready[path] = build()
        return self._ready

    @asynccontextmanager
    async def running(self, *, lazy: bool) -> AsyncIterator[None]:
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                if lazy:
                    group.start_soon(self._prepare)
                try:
                    yield
                finally:
                    group.cancel_scope.cancel()
        finally:
            if self._upstream is not None:
                await self._upstream.close()

    async def _prepare(self) -> None:
        # Not `mcp`: its library takes 20 MiB, and most servers are never asked for it.
        for group in self._lazy.values():
            await group.prepare()
        # Everything that stays is loaded: a garbage collection through it held up requests for a tenth of a second.
        gc.freeze()

    # Each imports what it needs itself: hundreds of models, and the MCP library.

    def _built(self, path: str) -> ASGIApp:
        if path == _CONSOLE:
            return self._console()
        if path in _PROXIES:
            app: FastAPI = import_module(_PROXIES[path]).create(self._memos, self._token, self._one_upstream())
        else:
            app = import_module(_GROUPS[path]).create(self._memos, self._token)
        app.state.stopping = self._stopping
        return app

    def _one_upstream(self) -> Upstream:
        """Return the endpoint of all proxies: together they have one limit of requests at once."""
        from memos.api.proxy.upstream import Upstream  # noqa: PLC0415 - see above

        with self._making_upstream:
            if self._upstream is None:
                self._upstream = Upstream(self._memos.settings.chat_model, lambda: self._memos.models.local)
            return self._upstream

    def _console(self) -> ASGIApp:
        from memos.api.console.app import create  # noqa: PLC0415 - see above

        return create(self._memos, self._ready.get(_API, self._lazy[_API]))

    def _make_mcp(self) -> ASGIApp:
        try:
            mcp.check_installed()
        except BackendUnavailable as missing:
            return self._without_mcp(str(missing))
        from memos.api.mcp.http import Mcp  # noqa: PLC0415 - see above

        self._mcp = Mcp(self._memos, self._token)
        return self._mcp.app

    def _without_mcp(self, missing: str) -> ASGIApp:
        log.warning("%s answers with an error: %s", mcp.PATH, missing)
        app = create_group("hippocube mcp", self._memos, error_response, local_token=self._token)

        async def refuse(_: Request) -> Response:
            raise BackendUnavailable(missing, permanent=True)

        app.router.routes.append(Route(mcp.PATH, refuse, methods=["GET", "POST", "DELETE"]))
        return app

    async def _begin_mcp(self) -> None:
        assert self._group is not None  # set by `running`
        if self._mcp is not None:
            await self._group.start(self._run_mcp)

    async def _run_mcp(self, *, task_status: TaskStatus[None]) -> None:
        assert self._mcp is not None  # built before it is begun
        async with self._mcp.running():
            task_status.started()
            await anyio.sleep_forever()


THREADS = 40
"""Requests that are worked on at once."""

_WATCHERS = 2


def create_app(
    memos: MemOS,
    *,
    local_token: str | None = None,
    tracing: Tracing | None = None,
    stopping: Callable[[], bool] = lambda: False,
    lazy: bool = False,
    loopback: bool = False,
) -> FastAPI:
    """Return the application over an installation, which stays the caller's to close.

    With `lazy` route groups are built after the start, or on their first request; `stopping` says that a stop is near.
    With `loopback` it answers requests for this machine alone (`memos.api.loopback`).
    """
    settings = memos.settings.server
    groups = RouteGroups(memos, local_token, stopping)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Routes that do not wait run in threads: the ledger and the models are not asynchronous.
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        async with groups.running(lazy=lazy):
            yield

    app = FastAPI(
        title="hippocube",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,  # else anyone is sent on to whatever address the request calls the server by
    )

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        # Also paths with a line break: mounted applications do not get them.
        response = error_response(refusal_of(error, request), error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.get(_CONSOLE)
    async def to_console(request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}{_CONSOLE}/")

    @app.get("/")
    async def root(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):  # a browser
            return await to_console(request)
        base = request.scope.get("root_path", "")
        return JSONResponse(
            {
                "name": "hippocube",
                "version": __version__,
                "console": f"{base}{_CONSOLE}/",
                "api": f"{base}{_API}",
                "docs": f"{base}{_API}/openapi.json",
                "mcp": f"{base}{mcp.PATH}",
                "health": f"{base}/health",
            }
        )

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    # Who asks how the server is must not wait for those it is busy with.
    watchers = CapacityLimiter(_WATCHERS)

    @app.get("/ready")
    async def ready() -> JSONResponse:
        try:
            await to_thread.run_sync(memos.maintenance.check_ready, limiter=watchers)
        except BackendUnavailable as error:
            return JSONResponse({"status": "unavailable", "message": str(error)}, 503)
        return JSONResponse({"status": "ok"})

    metrics = Metrics(memos)
    app.router.middleware_stack = RouteTable(app.router)

    @app.get("/metrics")
    async def numbers() -> Response:
        return await to_thread.run_sync(metrics.response, limiter=watchers)

    for path, group in groups.mounted(lazy=lazy).items():
        app.mount(path, group)
    app.router.routes.append(Route(mcp.PATH, endpoint=groups.mcp))
    if local_token is not None:
        app.mount(LOCAL, local.create(memos, local_token, stopping))
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Retry-After", "X-Request-Id"],  # what clients read
        )
    if loopback:
        app.add_middleware(LoopbackOnly, origins=settings.cors_origins)
    if tracing is not None:
        memos.listeners.add(tracing.hear)
        app.add_middleware(tracing.wrap)
    app.add_middleware(RequestLog, metrics=metrics)
    return app
