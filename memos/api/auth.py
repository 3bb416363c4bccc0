"""Authentication: the key in a request's header, and a throttle on failed attempts. Knows no route."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio import to_thread
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from memos.core.identities import Caller
from memos.core.types import LOCAL_OWNER
from memos.errors import BackendUnavailable, LimitReached, MemosError, PermissionDenied
from memos.kernel.access.guard import acting_as
from memos.kernel.access.sessions import LOCAL_KEY, PREFIX, local_caller
from memos.kernel.memos import MemOS

_MOST_FAILURES = 20
_WITHIN_S = 60.0
_ADDRESSES = 4_096
_GOOD_KEYS = 1_024
_IPV6_PREFIX = 64


class LoginThrottle:
    """Makes addresses with many wrong keys wait, but no key that was good a moment ago. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed) + len(self._good)

    def check(self, address: str, secret: str) -> None:
        since, failures = self._failed.get(_place(address), (0.0, 0))
        left_s = since + _WITHIN_S - self._clock()
        if failures >= _MOST_FAILURES and left_s > 0 and _digest(secret) not in self._good:
            raise LimitReached(
                "Too many invalid API keys from this address; wait before you try again.", retry_after_s=left_s
            )

    def failed(self, address: str) -> None:
        place, now = _place(address), self._clock()
        since, failures = self._failed.pop(place, (now, 0))
        self._failed[place] = (now, 1) if now - since >= _WITHIN_S else (since, failures + 1)
        while len(self._failed) > _ADDRESSES:
            self._failed.popitem(last=False)

    def succeeded(self, secret: str) -> None:
        digest = _digest(secret)
        self._good.pop(digest, None)
        self._good[digest] = None
        while len(self._good) > _GOOD_KEYS:
            self._good.popitem(last=False)


def _place(address: str) -> str:
    with suppress(ValueError):
        known = ipaddress.ip_address(address)
        if known.version == 6:
            return str(ipaddress.ip_network((int(known), _IPV6_PREFIX), strict=False))
    return address[:64]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


_SCHEMES = {"token", "bearer"}
# Keys have threads of their own, so that a busy server still refuses strangers at once.
_LOOKUPS_AT_ONCE = 8

Refuse = Callable[[MemosError, int], Response]


class Unauthenticated(PermissionDenied):
    code = "unauthenticated"


class KeyAuthentication:
    """Limits requests to the rights of their key; `local_token` is that of who can read the data folder.

    With `sessions` the secret of a console's session is taken in place of a key; a `key_header` has a key too.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        memos: MemOS,
        refuse: Refuse,
        local_token: str | None,
        open_paths: frozenset[str],
        sessions: bool = False,
        key_header: str | None = None,
    ) -> None:
        self._app = app
        self._memos = memos
        self._refuse = refuse
        self._local_token = local_token
        self._open_paths = open_paths
        self._sessions = sessions
        self._key_header = key_header
        self._limiter: anyio.CapacityLimiter | None = None
        self._attempts = LoginThrottle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) in self._open_paths:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._caller(HTTPConnection(scope))
        except MemosError as error:
            strange, much = isinstance(error, PermissionDenied), isinstance(error, LimitReached)
            response = self._refuse(error, 401 if strange else 429 if much else 503)
            if strange:
                response.headers["WWW-Authenticate"] = "Bearer"
            set_retry_after(error, response)
            await response(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        with acting_as(caller):
            await self._app(scope, receive, send)

    async def _caller(self, connection: HTTPConnection) -> Caller:
        secret = self._secret(connection)
        if self._local_token is not None and hmac.compare_digest(secret.encode(), self._local_token.encode()):
            return local_caller(self._memos.clock)
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_LOOKUPS_AT_ONCE)
        address = connection.client.host if connection.client else ""
        self._attempts.check(address, secret)
        caller = None if self._takes_session(secret) else self._memos.keys.recognise(secret)
        if caller is None:
            try:
                caller = await to_thread.run_sync(self._authenticate, secret, limiter=self._limiter)
            except PermissionDenied:
                self._attempts.failed(address)
                raise
        self._attempts.succeeded(secret)
        if not is_local(caller) and self._memos.quotas.limits_of(caller.key).requests_per_minute is not None:
            await to_thread.run_sync(self._memos.quotas.request, caller, limiter=self._limiter)
        return caller

    def _secret(self, connection: HTTPConnection) -> str:
        if self._key_header is not None and (secret := connection.headers.get(self._key_header, "").strip()):
            return secret
        return read_key(connection.headers.get("authorization", ""), self._key_header)

    def _authenticate(self, secret: str) -> Caller:
        if self._takes_session(secret):
            return self._memos.sessions.authenticate(secret)
        return self._memos.keys.authenticate(secret)

    def _takes_session(self, secret: str) -> bool:
        return self._sessions and secret.startswith(PREFIX)


def set_retry_after(error: MemosError, response: Response) -> None:
    after_s = error.retry_after_s if isinstance(error, BackendUnavailable | LimitReached) else None
    if after_s is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(after_s)))


def read_key(header: str, other: str | None = None) -> str:
    scheme, _, secret = header.strip().partition(" ")
    if scheme.lower() not in _SCHEMES or not secret.strip():
        meant = "Authorization: Bearer KEY" if other is None else f"{other}: KEY"
        raise Unauthenticated(f"The request has no API key; send the header `{meant}`.")
    return secret.strip()


def is_local(caller: Caller) -> bool:
    return caller.key.id == LOCAL_KEY and caller.identity.id == LOCAL_OWNER


def check_key(memos: MemOS, caller: Caller) -> None:
    if is_local(caller):
        return
    try:
        memos.keys.check(caller.key.id)
    except PermissionDenied as error:
        raise Unauthenticated(str(error)) from None
