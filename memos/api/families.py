"""Build one application per route group, with its own error envelope, and resolve the caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.api.auth import KeyAuthentication, Unauthenticated, set_retry_after
from memos.api.route_table import RouteTable
from memos.api.wording import STATUSES, reason_of
from memos.core.aliases import unknown_name
from memos.core.identities import Caller
from memos.errors import InvalidInput, MemosError, shown
from memos.kernel.memos import MemOS
from memos.version import __version__

log = logging.getLogger("memos.api")

ErrorResponder = Callable[[MemosError, int], Response]

BODY_BYTES = 200 * 2**20
"""Largest body of a request."""

_DOCUMENTS = "/api/v1/openapi.json, /api/openmem/v1/openapi.json"


class RequestRefused(MemosError):
    code = "refused"
    status: int

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RouteNotFound(RequestRefused):
    code = "not_found"

    def __init__(self, path: str) -> None:
        super().__init__(404, f"No such route: {shown(path)}. See {_DOCUMENTS} for the API, /console for the console.")


class MethodNotAllowed(RequestRefused):
    code = "method_not_allowed"

    def __init__(self, method: str, allowed: str, path: str) -> None:
        takes = f"; it takes {allowed}" if allowed else ""
        meant = " Search is POST /api/v1/search." if path.endswith("/api/v1/memories/search") else ""
        super().__init__(405, f"This route does not take {shown(method)}{takes}.{meant}")


def refusal_of(error: HTTPException, request: Request) -> RequestRefused:
    if error.status_code == 404:
        return RouteNotFound(request.scope["path"])
    if error.status_code == 405:
        return MethodNotAllowed(request.method, (error.headers or {}).get("Allow", ""), request.scope["path"])
    return RequestRefused(error.status_code, str(error.detail))


def status_of(error: MemosError) -> int:
    if isinstance(error, RequestRefused):
        return error.status
    if isinstance(error, Unauthenticated):
        return 401
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)


class BodyLimitMiddleware:
    """Refuses a body of over `most` bytes before it is in memory; routes of paths in `apart` stream theirs to files."""

    def __init__(self, app: ASGIApp, most: int, apart: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._most = most
        self._apart = apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                raise HTTPException(
                    413, f"The request body is larger than {self._most:,} bytes, the limit of this route."
                )
            return message

        await self._app(scope, counted, send)


def create_group(
    title: str,
    memos: MemOS,
    error_response: ErrorResponder,
    *,
    local_token: str | None,
    routers: Sequence[APIRouter] = (),
    summary: str = "",
    open_paths: frozenset[str] = frozenset(),
    documented: bool = False,
    large: frozenset[str] = frozenset(),
    sessions: bool = False,
    key_header: str | None = None,
) -> FastAPI:
    """Return the application of the routes of `routers`; `open_paths` need no key.

    Paths in `large` limit bodies themselves. With `sessions` the secret of a session of the console is taken as a key.
    A key may also be in `key_header`.
    """
    app = FastAPI(
        title=title,
        version=__version__,
        summary=summary or None,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if documented else None,
    )
    app.state.memos = memos
    app.router.middleware_stack = RouteTable(app.router)
    for router in routers:  # not included: FastAPI would look for a route in every router, and then in the one it found
        app.router.routes.extend(router.routes)

    def respond(error: MemosError) -> Response:
        status = status_of(error)
        response = error_response(error, status)
        set_retry_after(error, response)
        return response

    def on_memos_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, MemosError)
        return respond(error)

    def on_invalid_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return respond(first_problem(error, request.scope.get("route")))

    def on_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = respond(refusal_of(error, request))
        response.headers.update(error.headers or {})
        return response

    def on_exception(request: Request, error: Exception) -> Response:
        log.error("request failed", extra={"path": request.scope.get("route_path", "")}, exc_info=error)
        return respond(RequestRefused(500, "Internal server error; look up the request's id in the server's log."))

    app.add_exception_handler(MemosError, on_memos_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(Exception, on_exception)
    app.add_middleware(BodyLimitMiddleware, most=BODY_BYTES, apart=large)
    app.add_middleware(
        KeyAuthentication,
        memos=memos,
        refuse=error_response,
        local_token=local_token,
        open_paths=open_paths | ({"/openapi.json"} if documented else set()),
        sessions=sessions,
        key_header=key_header,
    )
    return app


def first_problem(error: RequestValidationError, route: object = None) -> InvalidInput:
    problems = error.errors()
    problem = problems[0]
    if problem["type"] == "missing":  # perhaps given under another name
        problem = next((each for each in problems if each["type"] == "extra_forbidden"), problem)
    if problem["type"] == "json_invalid":
        return InvalidInput("body", "is not valid JSON")
    source, *where = (str(part) for part in problem["loc"])  # body, query, path or header, then the way to the field
    if problem["type"] == "extra_forbidden" and source == "body" and isinstance(route, APIRoute):
        return InvalidInput(".".join(where), unknown_name("field", where[-1], fields_at(route, where[:-1])))
    return InvalidInput(".".join(where) or "body", reason_of(problem))


def fields_at(route: APIRoute, where: list[str]) -> list[str]:
    model = None if route.body_field is None else route.body_field.field_info.annotation
    found = _model_in(model)
    for part in where:
        field = found.model_fields.get(part) if found is not None else None
        found = _model_in(field.annotation) if field is not None else None
    return list(found.model_fields) if found is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


async def _memos(request: Request) -> MemOS:
    opened: MemOS = request.app.state.memos
    return opened


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


CurrentMemos = Annotated[MemOS, Depends(_memos)]
CurrentCaller = Annotated[Caller, Depends(_caller)]
