"""Gives every request an id and one line in the log: method, route, status, time; never a key or a memory."""

from __future__ import annotations

import logging
import re
import time
from contextvars import ContextVar

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.api.observability import Ended, Metrics
from memos.core.clock import new_id

log = logging.getLogger("memos.requests")

_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER = b"x-request-id"

request_id: ContextVar[str] = ContextVar("memos_request_id", default="-")
"""The id of the request that is being answered."""


class RequestLog:
    """Takes a caller's `X-Request-Id` or makes one, gives it back, and logs how the request ended."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(_HEADER, b"")
        id_ = given.decode() if _GIVEN.fullmatch(given) else new_id()
        status, began = 500, time.perf_counter()

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[_HEADER.decode()] = id_
            await send(message)

        token = request_id.set(id_)
        self._metrics.began()
        try:
            await self._app(scope, receive, named)
        finally:
            request_id.reset(token)
            ended = Ended(scope["method"], route_of(scope), status, time.perf_counter() - began)
            self._metrics.ended(ended)
            asked = {"request_id": id_, "method": ended.method, "route": ended.route}
            log.info("request", extra={**asked, "status": status, "ms": round(ended.seconds * 1000, 1)})


def route_of(scope: Scope) -> str:
    """Return a request's route as a pattern, without ids; where none matched, nothing of the path."""
    route = scope.get("route")
    pattern = getattr(route, "path_format", None) or getattr(route, "path", None)
    # The root path is where a family of routes is mounted; the rest of what was asked for is left out.
    return f"{scope.get('root_path', '')}{pattern or ''}" or "none"
