"""Sign in with an API key or a one-time link, and out; checks of sessions and of forged requests."""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from memos.api.auth import LoginThrottle, set_retry_after
from memos.api.console.kept_forms import KeptForm, kept_form, read_kept
from memos.api.console.view import COOKIE, csrf_token, environment, root_of
from memos.core.identities import NewSession
from memos.errors import LimitReached, MemosError, NotFound, PermissionDenied
from memos.kernel.access.sessions import LIFETIME
from memos.kernel.memos import MemOS

if TYPE_CHECKING:
    from memos.api.console.openid import OpenId

log = logging.getLogger("memos.api")

_SAFE = {"GET", "HEAD", "OPTIONS"}


class ForgedRequest(PermissionDenied):
    code = "forged_request"


class StaleToken(ForgedRequest):
    """The token of a form is not that of the session."""


def check_origin(connection: HTTPConnection) -> None:
    """Refuse a change that another site's page asks for. Raises: ForgedRequest."""
    site, origin = connection.headers.get("sec-fetch-site"), connection.headers.get("origin")
    same = site in (None, "same-origin", "none")
    if origin is not None:
        same = same and urlsplit(origin).netloc == connection.headers.get("host", "")
    if not same:
        raise ForgedRequest("This request comes from another site; open the console and repeat it there.")


async def check_csrf(request: Request, secret: str) -> None:
    """Refuse a change without the token of its session, in a header or a form. Raises: ForgedRequest."""
    if request.method in _SAFE:
        return
    check_origin(request)
    given = request.headers.get("x-csrf-token")
    if given is None and request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    ):
        told = (await request.form()).get("csrf")
        given = told if isinstance(told, str) else None
    if given is None or not hmac.compare_digest(given.encode(), csrf_token(secret).encode()):
        raise StaleToken("The page is out of date; reload it and repeat what you did.")


class SignIn:
    """The page to sign in, and its forms."""

    def __init__(self, memos: MemOS) -> None:
        self._memos = memos
        self._openid = _openid_of(memos)
        self._attempts = LoginThrottle()

    async def show(self, request: Request) -> Response:
        return self._page(request, link=request.query_params.get("link", ""))

    async def again(self, request: Request) -> Response:
        """Ask to sign in whoever sent a form without a valid session; the page keeps what was typed."""
        kept = await kept_form(request)
        if kept is None:
            response: Response = RedirectResponse(root_of(request) + "/sign-in", 303)
        else:
            told = "Your session has ended. Sign in again to go on; what you typed is kept."
            response = self._page(request, error=told, kept=kept.text, status=401)
        response.delete_cookie(COOKIE, path=root_of(request) or "/")
        return response

    async def enter(self, request: Request) -> Response:
        """Start a session with the key or the link of a form."""
        given = ""
        try:
            check_origin(request)
            form = await request.form()
            link, key = str(form.get("link", "")).strip(), str(form.get("key", "")).strip()
            given = str(form.get("kept", ""))
            kept = read_kept(given)
            address = request.client.host if request.client else ""
            self._attempts.check(address, link or key)
            client = request.headers.get("user-agent", "")
            try:
                session = await to_thread.run_sync(self._start, link, key, client)
            except PermissionDenied:
                self._attempts.failed(address)
                raise
        except MemosError as error:
            status = 429 if isinstance(error, LimitReached) else 401 if isinstance(error, PermissionDenied) else 503
            response = self._page(request, error=str(error), kept=given, status=status)
            set_retry_after(error, response)
            return response
        if kept is not None:
            return with_session(request, session, resume_page(request, kept, session.secret))
        return signed_in(request, session, str(form.get("next", "")))

    async def start_openid(self, request: Request) -> Response:
        """Send somebody to the identity provider."""
        if self._openid is None:
            return self._page(request, error="Signing in with an identity provider is not set up here.", status=404)
        try:
            return await self._openid.start(request)
        except MemosError as error:
            return self._page(request, error=str(error), status=503)

    async def finish_openid(self, request: Request) -> Response:
        """Start a session for whom the identity provider names."""
        if self._openid is None:
            return self._page(request, error="Signing in with an identity provider is not set up here.", status=404)
        try:
            session, target = await self._openid.finish(request)
            response = signed_in(request, session, target)
        except MemosError as error:
            status = 401 if isinstance(error, PermissionDenied | NotFound) else 503
            response = self._page(request, error=str(error), status=status)
        self._openid.forget(request, response)
        return response

    async def leave(self, request: Request) -> Response:
        secret = request.cookies.get(COOKIE, "")
        await check_csrf(request, secret)
        await to_thread.run_sync(self._memos.sessions.end, secret)
        response = RedirectResponse(root_of(request) + "/sign-in", 303)
        response.delete_cookie(COOKIE, path=root_of(request) or "/")
        return response

    def _start(self, link: str, key: str, client: str) -> NewSession:
        if link:
            return self._memos.sessions.redeem(link, client=client)
        return self._memos.sessions.start(self._memos.keys.authenticate(key), client=client)

    def _page(
        self, request: Request, *, link: str = "", error: str = "", kept: str = "", status: int = 200
    ) -> Response:
        values: dict[str, object] = {
            "root": root_of(request),
            "link": link,
            "error": error,
            "kept": kept,
            "next": request.query_params.get("next", ""),
        }
        values |= {"openid": self._openid is not None}
        return HTMLResponse(environment().get_template("sign_in.html").render(values), status)


def _openid_of(memos: MemOS) -> OpenId | None:
    if not memos.settings.oidc.issuer:
        return None
    try:
        from memos.api.console.openid import openid_of  # noqa: PLC0415 - the extra `oidc`
    except ImportError:
        log.warning("MEMOS_OIDC__ISSUER has no effect without the extra `oidc`: pip install '.[oidc]' in the clone")
        return None
    return openid_of(memos)


def signed_in(request: Request, session: NewSession, target: str) -> Response:
    """Return the answer that signs in and opens the page that was asked for."""
    root = root_of(request)
    inside = target.startswith(root + "/") and "//" not in target and "\\" not in target
    return with_session(request, session, RedirectResponse(target if inside else root + "/", 303))


def resume_page(request: Request, kept: KeptForm, secret: str) -> Response:
    """Return the page that sends a kept form again, if the person who typed it wants that."""
    values = {"root": root_of(request), "kept": kept, "csrf": csrf_token(secret)}
    return HTMLResponse(environment().get_template("resume.html").render(values))


def with_session(request: Request, session: NewSession, response: Response) -> Response:
    """Set a session's cookie in an answer."""
    root = root_of(request)
    response.set_cookie(
        COOKIE,
        session.secret,
        max_age=int(LIFETIME.total_seconds()),
        path=root or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response
