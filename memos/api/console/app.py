"""The application of `/console`: its pages, static files, and the way for scripts to `/api/v1`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.api.auth import Unauthenticated
from memos.api.console.kept_forms import kept_form
from memos.api.console.pages import PAGES
from memos.api.console.rest import Rest, RestError, api_router, inner_scope
from memos.api.console.signing_in import SignIn, StaleToken, check_csrf, resume_page
from memos.api.console.view import COOKIE, CUBE_COOKIE, NOTICE_COOKIE, STATIC, Page, View, csrf_token, environment
from memos.api.families import BODY_BYTES, BodyLimitMiddleware
from memos.errors import MemosError, PermissionDenied
from memos.kernel.access.sessions import PREFIX as SESSION_PREFIX
from memos.kernel.memos import MemOS

log = logging.getLogger("memos.api")

PATH = "/console"
_SIGN_IN_BYTES = 256 * 1024  # a form that is kept, and a key
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# What `/api/v1` returns may be a stored document: it never runs, whatever it is.
_DATA_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"


def create(memos: MemOS, api: ASGIApp) -> ASGIApp:
    """Return the console of an installation whose `/api/v1` is `api`."""
    router = api_router(api)
    signing_in = SignIn(memos)

    def endpoint(page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            secret = request.cookies.get(COOKIE, "")
            if not secret.startswith(SESSION_PREFIX) or not secret.isascii():
                return await _to_sign_in(request, signing_in)
            address = request.client.host if request.client else ""
            view = View(request, Rest(router, secret, address), secret)
            try:
                await view.load()  # before the body is read: strangers must not fill memory or the disk
                await check_csrf(request, secret)
                response = await page.handler(view)
                if NOTICE_COOKIE in request.cookies and not view.partial and response.status_code != 303:
                    response.delete_cookie(NOTICE_COOKIE, path=view.root or "/")
                # Not by a link of another site: what is added next would go to the cube that it names.
                inside = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
                if inside and view.query("cube") and view.last_cube != view.cube:
                    value = quote(view.cube, safe="")  # headers are Latin-1, and names of cubes are not
                    response.set_cookie(CUBE_COOKIE, value, path=view.root or "/", httponly=True, samesite="lax")
                return response
            except RestError as error:
                if error.status == 401:
                    return await _to_sign_in(request, signing_in)
                return _error(view, error.status, error.message)
            except StaleToken as error:
                kept = None if view.partial else await kept_form(request)
                if kept is not None:
                    return resume_page(request, kept, secret)
                response = _error(view, 403, str(error))
                response.headers["X-Console-Stale"] = "1"  # scripts get the token of this session, and go on
                return response
            except MemosError as error:
                return _error(view, 403 if isinstance(error, PermissionDenied) else 400, str(error))
            finally:
                await request.close()  # files that the form brought

        return answer

    def to_page(path: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            query = f"?{request.url.query}" if request.url.query else ""
            below = path.format(**{name: quote(value, safe="") for name, value in request.path_params.items()})
            return RedirectResponse(request.scope.get("root_path", "") + below + query, 303)

        return answer

    async def token(request: Request) -> Response:
        """Return the token of the session that there is now, for a page that was opened in an earlier one."""
        secret = request.cookies.get(COOKIE, "")
        me = await Rest(router, secret, request.client.host if request.client else "").get("/me")
        return JSONResponse({"csrf": csrf_token(secret), "identity": me["identity"]["id"]})

    async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
        await _pass_on(router, scope, receive, send)

    small = [Middleware(BodyLimitMiddleware, most=_SIGN_IN_BYTES)]
    limited = [Middleware(BodyLimitMiddleware, most=BODY_BYTES)]
    routes = [
        Route("/sign-in", signing_in.show),
        Route("/sign-in", signing_in.enter, methods=["POST"], middleware=small),
        Route("/sign-in/openid", signing_in.start_openid),
        Route("/sign-in/openid/return", signing_in.finish_openid),
        Route("/token", token),
        Route("/sign-out", signing_in.leave, methods=["POST"], middleware=small),
        Mount("/api", app=pass_on),
        Mount("/static", app=StaticFiles(directory=STATIC)),
        # Who comes back to the address of a form, by reload or by signing in, gets the page that has it.
        *(Route(path, to_page(above)) for path, above in _above_forms()),
        *(Route(page.path, endpoint(page), methods=[page.method], middleware=limited) for page in PAGES),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _not_found,
            MemosError: _refused,
            RestError: _rest_refused,
            Exception: _failed,
        },
    )
    app.router.redirect_slashes = False
    return SecureHeaders(app)


def _above_forms() -> Iterator[tuple[str, str]]:
    """Yield the addresses that take forms and are no pages, each with the page above it."""
    shown = {page.path for page in PAGES if page.method == "GET"}
    for page in PAGES:
        if page.path not in shown:
            above = page.path
            while above not in shown:
                above = above.rpartition("/")[0] or "/"
            yield page.path, above


class SecureHeaders:
    """Adds the headers that keep other sites, and what memories contain, from acting in a page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        data, static = path.startswith("/api/"), path.startswith("/static/")

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = _DATA_POLICY if data else _PAGE_POLICY
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                kept = static and message["status"] == 200 and b"v=" in scope.get("query_string", b"")
                headers["Cache-Control"] = "public, max-age=31536000, immutable" if kept else "no-store"
            await send(message)

        await self._app(scope, receive, secured)


async def _pass_on(router: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a script's request to `/api/v1` with the rights of who is signed in."""
    request = Request(scope, receive)
    secret = request.cookies.get(COOKIE, "")
    if not secret:
        raise Unauthenticated("You are not signed in; reload the page.")
    if "x-csrf-token" not in request.headers and request.method not in ("GET", "HEAD"):
        raise PermissionDenied("The header X-CSRF-Token is missing.")
    await check_csrf(request, secret)
    below = scope["path"].removeprefix(scope["root_path"])
    dropped = (b"cookie", b"authorization", b"origin")
    headers = [(name, value) for name, value in scope["headers"] if name not in dropped]
    inner = inner_scope(scope, below, [*headers, (b"authorization", f"Bearer {secret}".encode())])
    await router(inner, receive, send)


async def _to_sign_in(request: Request, signing_in: SignIn) -> Response:
    target = request.scope.get("root_path", "") + "/sign-in"
    if "hx-request" in request.headers:  # the page stays, with what is typed in it
        return HTMLResponse(environment().get_template("_signed_out.html").render(target=target), 401)
    if request.method != "GET":
        return await signing_in.again(request)
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    response = RedirectResponse(f"{target}?next={quote(wanted, safe='')}", 303)
    response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
    return response


def _error(view: View, status: int, message: str) -> Response:
    if view.partial:
        return HTMLResponse(environment().get_template("_notice.html").render(message=message), status)
    if not view.me:  # not even who is signed in is known
        return _plain(view.request, status, message)
    return view.render("error.html", status=status, message=message, code=status)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = "There is no such page." if error.status_code == 404 else str(error.detail)
    return _plain(request, error.status_code, told)


async def _refused(request: Request, error: Exception) -> Response:
    status = 401 if isinstance(error, Unauthenticated) else 403
    below = request.url.path.removeprefix(request.scope.get("root_path", ""))
    if below.startswith(("/api/", "/token")):  # scripts show the message
        code = error.code if isinstance(error, MemosError) else "refused"
        return JSONResponse({"error": {"code": code, "message": str(error)}}, status)
    return _plain(request, status, str(error))


async def _rest_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RestError)
    return JSONResponse({"error": {"code": error.code, "message": error.message}}, error.status)


async def _failed(request: Request, error: Exception) -> Response:
    log.error("page failed", extra={"path": request.scope.get("path", "")}, exc_info=error)
    return _plain(request, 500, "This page failed; look up the request's id in the server's log.")


def _plain(request: Request, status: int, message: str) -> Response:
    values = {"root": request.scope.get("root_path", ""), "message": message, "code": status}
    return HTMLResponse(environment().get_template("plain_error.html").render(values), status)
