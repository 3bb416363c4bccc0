"""The HTTP application over one open `MemOS`: its families of routes, health, and what every request passes through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import to_thread
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response

from memos.api import local, v1
from memos.api.mcp.http import Mcp
from memos.api.metrics import Metrics
from memos.api.requests import RequestLog
from memos.errors import BackendUnavailable
from memos.kernel import MemOS
from memos.version import __version__

if TYPE_CHECKING:
    from memos.api.tracing import Tracing


def create_app(
    memos: MemOS, *, local_token: str | None = None, tracing: Tracing | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:  # fmt: skip
    """Return the application over an installation, which stays the caller's to close.

    `local_token` is a key that stands for the local owner; `tracing` makes spans of what is done; `stopping` says
    whether the server is about to end.
    """
    settings, mcp = memos.settings.server, Mcp(memos, local_token)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Routes that do not wait run in threads: the ledger and the models are not asynchronous.
        to_thread.current_default_thread_limiter().total_tokens = settings.threads
        async with mcp.running():
            yield

    app = FastAPI(
        title="memstrata", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    @app.get("/ready")
    def ready() -> JSONResponse:
        try:
            memos.check_ready()
        except BackendUnavailable as error:
            return JSONResponse({"status": "unavailable", "message": str(error)}, 503)
        return JSONResponse({"status": "ok"})

    metrics = Metrics(memos)

    @app.get("/metrics")
    def numbers() -> Response:
        return metrics.response()

    app.mount("/api/v1", v1.create(memos, local_token))
    app.router.routes.append(mcp.route)
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
