"""Sign in with OpenID Connect: the authorization code flow with PKCE, state and nonce. Needs the extra `oidc`."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import time
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

import httpx2
from anyio import to_thread
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import get_well_known_url
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from memos.api.console.view import root_of
from memos.core.identities import NewSession
from memos.core.settings import OidcSettings
from memos.errors import BackendUnavailable, NotFound, PermissionDenied
from memos.kernel.memos import MemOS

log = logging.getLogger("memos.api")

START, RETURN = "/sign-in/openid", "/sign-in/openid/return"
_COOKIE = "memos_openid"
_WITHIN_S = 600  # between leaving for the provider and coming back
_TIMEOUT_S = 10.0
_KNOWN_FOR_S = 3_600.0  # metadata and keys of the provider; unknown keys are looked up at once
_LEEWAY_S = 60
# Signatures that only the provider can make: neither "none" nor those made with the client's own secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_FAILED = "The identity provider did not confirm who you are; try again, or sign in with an API key."
_AWAY = "The identity provider cannot be reached; try again later, or sign in with an API key."


class OpenId:
    """Sends people to an identity provider and starts a session for whom it names, if an admin has created them."""

    def __init__(self, memos: MemOS, settings: OidcSettings) -> None:
        self._memos = memos
        self._settings = settings
        self._metadata: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._known_until = 0.0

    async def start(self, request: Request) -> Response:
        """Redirect to the provider; what comes back must fit the cookie that is set here. Raises: MemosError."""
        metadata = await self._provider()
        told = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")}
        async with self._client(request) as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=told["state"],
                nonce=told["nonce"],
                code_verifier=told["verifier"],
            )
        response = RedirectResponse(url, 303)
        value = quote(json.dumps(told | {"next": request.query_params.get("next", "")[:2_000]}))
        response.set_cookie(
            _COOKIE,
            value,
            max_age=_WITHIN_S,
            path=root_of(request) + START,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )
        return response

    async def finish(self, request: Request) -> tuple[NewSession, str]:
        """Return a session for whom the provider names, and the page that was wanted. Raises: MemosError."""
        told = _told(request)
        given = request.query_params.get("state", "")
        if not hmac.compare_digest(given.encode(), told["state"].encode()):
            raise PermissionDenied("This sign-in was not begun here, or it took too long; try again.")
        if "code" not in request.query_params:
            log.warning("openid sign-in refused: %s", request.query_params.get("error", "no code")[:100])
            raise PermissionDenied(_FAILED)
        metadata = await self._provider()
        try:
            async with self._client(request) as client:
                token = await client.fetch_token(
                    metadata["token_endpoint"], code=request.query_params["code"], code_verifier=told["verifier"]
                )
            claims = await self._claims(token, told["nonce"])
        except (OAuthError, JoseError, ValueError, KeyError, TypeError) as error:
            log.warning("openid sign-in failed: %s", type(error).__name__)
            raise PermissionDenied(_FAILED) from error
        except httpx2.HTTPError as error:
            raise BackendUnavailable(_AWAY) from error
        names, client_name = _names(claims), request.headers.get("user-agent", "")
        session = await to_thread.run_sync(self._start, names, client_name)
        return session, told["next"]

    def forget(self, request: Request, response: Response) -> None:
        """Remove the cookie of a sign-in that has ended."""
        response.delete_cookie(_COOKIE, path=root_of(request) + START)

    def _client(self, request: Request) -> AsyncOAuth2Client:
        secret = self._settings.client_secret
        return AsyncOAuth2Client(
            self._settings.client_id,
            secret.get_secret_value() if secret else None,
            token_endpoint_auth_method=None if secret else "none",
            scope="openid email",
            redirect_uri=f"{request.url.scheme}://{request.url.netloc}{root_of(request)}{RETURN}",
            code_challenge_method="S256",
            timeout=_TIMEOUT_S,
            trust_env=False,
        )

    async def _provider(self, *, again: bool = False) -> dict[str, Any]:
        """Return the provider's addresses and read its keys, once an hour or `again`. Raises: BackendUnavailable."""
        if time.monotonic() < self._known_until and not again:
            return self._metadata
        issuer = str(self._settings.issuer)
        try:
            async with httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
                metadata = (await client.get(get_well_known_url(issuer, external=True))).raise_for_status().json()
                if metadata["issuer"] != issuer:
                    raise ValueError("another issuer")
                keys = (await client.get(metadata["jwks_uri"])).raise_for_status().json()
            self._keys = KeySet.import_key_set(keys)
            self._metadata = {name: metadata[name] for name in ("authorization_endpoint", "token_endpoint")}
        except (httpx2.HTTPError, httpx2.InvalidURL, JoseError, ValueError, KeyError, TypeError) as error:
            log.warning("openid provider %s cannot be used: %s", issuer, type(error).__name__)
            raise BackendUnavailable(_AWAY) from error
        self._known_until = time.monotonic() + _KNOWN_FOR_S
        return self._metadata

    async def _claims(self, token: dict[str, Any], nonce: str) -> CodeIDToken:
        """Return the claims of an id token that the provider signed for this sign-in. Raises: JoseError, ValueError."""
        try:
            read = self._read(token["id_token"])
        except (JoseError, ValueError):  # the provider may have new keys
            await self._provider(again=True)
            read = self._read(token["id_token"])
        options = {
            "iss": {"essential": True, "value": str(self._settings.issuer)},
            "aud": {"essential": True, "value": self._settings.client_id},
        }
        params = {"nonce": nonce, "client_id": self._settings.client_id, "access_token": token.get("access_token")}
        claims = CodeIDToken(read.claims, read.header, options, params)
        claims.validate(leeway=_LEEWAY_S)
        return claims

    def _read(self, text: str) -> jwt.Token:
        assert self._keys is not None  # set by `_provider`
        return jwt.decode(text, self._keys, algorithms=list(_ALGORITHMS))

    def _start(self, names: list[str], client: str) -> NewSession:
        """Start a session for the first name that is a user here. Raises: NotFound, PermissionDenied."""
        for name in names[:-1]:
            with suppress(NotFound, PermissionDenied):
                return self._memos.sessions.start_for(name, client=client)
        return self._memos.sessions.start_for(names[-1], client=client)


def _names(claims: CodeIDToken) -> list[str]:
    """Return the ids that somebody may have here: the verified e-mail address, then the subject."""
    email = claims.get("email") if claims.get("email_verified") is True else None
    names = [name for name in (email, claims.get("sub")) if isinstance(name, str) and name]
    if not names:
        raise PermissionDenied("The identity provider does not say who you are.")
    return names


def _told(request: Request) -> dict[str, str]:
    try:
        told = json.loads(unquote(request.cookies[_COOKIE]))
        return {name: str(told[name]) for name in ("state", "nonce", "verifier", "next")}
    except (KeyError, ValueError, TypeError) as error:
        raise PermissionDenied("This sign-in was not begun here, or it took too long; try again.") from error


def openid_of(memos: MemOS) -> OpenId | None:
    """Return the sign-in with the configured provider, None without one."""
    settings = memos.settings.oidc
    return OpenId(memos, settings) if settings.issuer and settings.client_id else None
