"""Checks of `Host` and `Origin` for a server on loopback: no page of another site may speak to it through a browser.

A site can have its own name resolve to 127.0.0.1 (DNS rebinding). Its pages then share an origin with a server here, so
that the rules for other origins protect nothing; only the name in `Host` tells.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from memos.api.families import RequestRefused
from memos.api.v1.common import error_response
from memos.errors import shown

_MOST_CHARS = 300


def is_loopback(host: str) -> bool:
    """Return True for names and addresses of this machine: `localhost`, names below it, 127.0.0.0/8 and ::1."""
    name = host.rstrip(".").casefold()
    if name == "localhost" or name.endswith(".localhost"):  # which browsers resolve themselves
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (inner or address).is_loopback


class LoopbackOnly:
    """Refuses requests under a name, or from pages, that are neither of this machine nor in `origins`."""

    def __init__(self, app: ASGIApp, origins: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {host for origin in origins if (host := _host_of(origin))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await error_response(refusal, refusal.status)(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestRefused | None:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1 or not self._is_known(_host_of(f"//{given[0]}")):
            told = shown(given[0]) if given else "none"
            return RequestRefused(
                421,
                f"This server is for this machine, and the request is for the host {told}; use localhost. If a proxy "
                "passes that name on, put its origin, such as https://memory.example.org, into "
                "MEMOS_SERVER__CORS_ORIGINS.",
            )
        for origin in (value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"):
            # Pages of the web; extensions of browsers and editors have origins of their own.
            if origin.partition(":")[0].casefold() in ("http", "https", "null") and not self._is_known(
                _host_of(origin)
            ):
                return RequestRefused(
                    403,
                    f"Pages of {shown(origin)} may not ask this server; MEMOS_SERVER__CORS_ORIGINS names who may.",
                )
        return None

    def _is_known(self, host: str | None) -> bool:
        return host is not None and (host in self._hosts or is_loopback(host))


def _host_of(address: str) -> str | None:
    """Return the host of an origin or of `//HOST:PORT`, None if it has no proper one."""
    if len(address) > _MOST_CHARS:
        return None
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises ValueError if the port is not a number from 0 to 65535
    except ValueError:
        return None
    odd = parts.username is not None or parts.path or parts.query or parts.fragment
    return None if odd or not parts.hostname else parts.hostname.rstrip(".").casefold()
