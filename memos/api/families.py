"""What the families of routes share: an application of its own each, its way to show errors, and the caller's key.

Knows no route. A family shows errors in its own envelope, so each has its own handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.api.auth import KeyAuthentication, Unauthenticated, set_retry_after
from memos.core.identities import Caller
from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    IntegrityError,
    InvalidInput,
    LimitReached,
    MemosError,
    ModelError,
    NotFound,
    PermissionDenied,
)
from memos.kernel.memos import MemOS
from memos.version import __version__

# Refuses requests whose bodies are too large, before they are in memory.


class BodyLimitMiddleware:
    """Makes reading a body of more than so many bytes an error, whether its header says how long it is or not.

    Routes at `apart` take what is streamed to a file and set bounds of their own.
    """

    def __init__(self, app: ASGIApp, most: int, apart: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._most = most
        self._apart = apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting its body."""
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) in self._apart:
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        taken = int(declared) if declared.isdigit() else 0
        taken = taken if taken > self._most else 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most:
                raise HTTPException(413, f"The body has more than the {self._most:,} bytes that are taken here.")
            return message

        await self._app(scope, counted, send)


log = logging.getLogger("memos.api")

_STATUSES: tuple[tuple[type[MemosError], int], ...] = (
    (InvalidInput, 400),
    (NotFound, 404),
    (Conflict, 409),
    (Unauthenticated, 401),
    (PermissionDenied, 403),
    (LimitReached, 429),
    (BackendTimeout, 504),
    (BackendUnavailable, 503),
    (ModelError, 502),
    (IntegrityError, 500),
)
_WRONG_HERE = {404: "There is no such route.", 405: "This route does not take this method."}

ErrorResponder = Callable[[MemosError, int], Response]


class RequestRefused(MemosError):
    """The server refuses a request before anybody looked at it."""

    code = "refused"
    status: int

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: MemosError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestRefused):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def create_group(
    title: str,
    memos: MemOS,
    error_response: ErrorResponder,
    *,
    local_token: str | None,
    summary: str = "",
    open_paths: frozenset[str] = frozenset(),
    documented: bool = False,
    large: frozenset[str] = frozenset(),
) -> FastAPI:
    """Return an application for a family of routes, whose errors look as `show` makes them.

    Routes at `large` bound their bodies themselves.
    """
    app = FastAPI(
        title=title, version=__version__, summary=summary or None, docs_url=None, redoc_url=None,
        openapi_url="/openapi.json" if documented else None,
    )  # fmt: skip
    app.state.memos = memos

    def shown(error: MemosError) -> Response:
        status = status_of(error)
        response = error_response(error, status)
        set_retry_after(error, response)
        return response

    def told(_: Request, error: Exception) -> Response:
        assert isinstance(error, MemosError)
        return shown(error)

    def unreadable(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return shown(first_problem(error))

    def wrong_here(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        refused = RequestRefused(error.status_code, _WRONG_HERE.get(error.status_code, str(error.detail)))
        response = shown(refused)
        response.headers.update(error.headers or {})
        return response

    def broken(request: Request, error: Exception) -> Response:
        log.error("request failed", extra={"path": request.scope.get("route_path", "")}, exc_info=error)
        return shown(RequestRefused(500, "The server made a mistake; its log says which, under the request's id."))

    app.add_exception_handler(MemosError, told)
    app.add_exception_handler(RequestValidationError, unreadable)
    app.add_exception_handler(HTTPException, wrong_here)
    app.add_exception_handler(Exception, broken)
    app.add_middleware(BodyLimitMiddleware, most=memos.settings.server.body_bytes, apart=large)
    app.add_middleware(
        KeyAuthentication, memos=memos, refuse=error_response, local_token=local_token,
        open_paths=open_paths | ({"/openapi.json"} if documented else set()),
    )  # fmt: skip
    return app


def first_problem(error: RequestValidationError) -> InvalidInput:
    """Return the first thing wrong with a request, named as the caller wrote it, without its content."""
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return InvalidInput("body", "is no valid JSON")
    where = [str(part) for part in problem["loc"][1:]]  # the first says: body, query, path or header
    return InvalidInput(".".join(where) or "body", problem["msg"])


async def _memos(request: Request) -> MemOS:
    opened: MemOS = request.app.state.memos
    return opened


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


CurrentMemos = Annotated[MemOS, Depends(_memos)]
CurrentCaller = Annotated[Caller, Depends(_caller)]
