"""The HTTP application over one open `MemOS`: its route groups, health, metrics and middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memos.api.families import refusal_of
from memos.api.local import routes as local
from memos.api.mounting import MCP, RouteGroups
from memos.api.observability import Metrics, RequestLog
from memos.api.v1.common import error_response
from memos.errors import BackendUnavailable
from memos.kernel.memos import MemOS
from memos.version import __version__

if TYPE_CHECKING:
    from memos.api.tracing import Tracing

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
) -> FastAPI:
    """Return the application over an installation, which stays the caller's to close.

    Args:
        memos: The open installation.
        local_token: Key of the local owner, None for none.
        tracing: Records spans of requests and calls.
        stopping: Returns True once the server is about to stop.
        lazy: Build route groups after the start, or on their first request, instead of now.
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

    @app.get("/metrics")
    async def numbers() -> Response:
        return await to_thread.run_sync(metrics.response, limiter=watchers)

    for path, group in groups.mounted(lazy=lazy).items():
        app.mount(path, group)
    app.router.routes.append(Route(MCP, endpoint=groups.mcp))
    if local_token is not None:
        app.mount(local.PATH, local.create(memos, local_token, stopping))
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
    if tracing is not None:
        memos.listeners.add(tracing.hear)
        app.add_middleware(tracing.wrap)
    app.add_middleware(RequestLog, metrics=metrics)
    return app
