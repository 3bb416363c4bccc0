"""The chat endpoint of the proxy: one client with the operator's key, whose failures reveal neither."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy

import anyio
import httpx2

from memos.api.openai_proxy.local_model import BASE_URL, PREFIX, LocalModelTransport
from memos.core.kv_cache import Prefix
from memos.core.ports import ChatModel
from memos.core.settings import ChatSettings
from memos.errors import BackendTimeout, BackendUnavailable
from memos.version import __version__

_CONNECT_S = 10.0
_MOST_BYTES = 32 * 1024 * 1024
_PASSED = ("content-type", "content-encoding", "retry-after", "retry-after-ms", "x-should-retry")
_PASSED_PREFIXES = ("x-ratelimit-", "openai-processing-")


class Upstream:
    """A chat endpoint, or the model in this process; its client is created on the first request."""

    def __init__(self, settings: ChatSettings, inside: Callable[[], ChatModel]) -> None:
        self.settings = settings
        self._inside = LocalModelTransport(inside) if settings.local else None
        self._client: httpx2.AsyncClient | None = None

    def check(self) -> None:
        """Check that there is a model. Raises: BackendUnavailable."""
        if not self.settings.there:
            raise BackendUnavailable(
                "No language model is configured on this server. Its operator can set "
                "MEMOS_CHAT_MODEL__BASE_URL and MEMOS_CHAT_MODEL__MODEL, or the latter to local:PATH.",
                permanent=True,
            )

    async def send(self, body: bytes, prefix: Prefix | None = None) -> httpx2.Response:
        """Send a request and return the response, its body still unread.

        Raises: BackendUnavailable, BackendTimeout.
        """
        self.check()
        client = self._client = self._client or self._made()
        base_url = self.settings.base_url or BASE_URL
        extensions = {} if self._inside is None else {PREFIX: prefix}
        request = client.build_request("POST", f"{base_url}/chat/completions", content=body, extensions=extensions)
        try:
            with anyio.fail_after(self.settings.timeout_s):
                return await client.send(request, stream=True)
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise too_slow() from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise broken_off() from error

    async def read(self, response: httpx2.Response) -> bytes:
        """Return the whole body. Raises: BackendUnavailable (also if it is too large), BackendTimeout."""
        read = bytearray()
        try:
            with anyio.fail_after(self.settings.timeout_s):
                async for chunk in response.aiter_raw():
                    read += chunk
                    if len(read) > _MOST_BYTES:
                        raise BackendUnavailable(f"The language model sent more than {_MOST_BYTES:,} bytes.")
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise too_slow() from error
        except httpx2.HTTPError as error:
            raise broken_off() from error
        return bytes(read)

    async def chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes]:
        """Yield a body's bytes as they come. Raises: BackendUnavailable, BackendTimeout (too long a pause)."""
        try:
            async for chunk in response.aiter_raw():
                yield chunk
        except httpx2.TimeoutException as error:
            raise too_slow() from error
        except httpx2.HTTPError as error:
            raise broken_off() from error

    def without_key(self, body: bytes) -> bytes:
        """Return a failure's body without the operator's key, which some endpoints quote."""
        key = "" if self.settings.api_key is None else self.settings.api_key.get_secret_value()
        return body.replace(key.encode(), b"***") if key else body

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _made(self) -> httpx2.AsyncClient:
        settings = self.settings
        headers = {"Content-Type": "application/json", "User-Agent": f"hippocube/{__version__}"}
        if settings.api_key is not None:
            headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        # Bytes are passed on as they are, and read beside: not every client could undo what this one asked for.
        headers["Accept-Encoding"] = "identity"
        return httpx2.AsyncClient(
            headers=headers,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # they would go from one user to the next
            limits=httpx2.Limits(max_connections=settings.parallel, max_keepalive_connections=settings.parallel),
            timeout=httpx2.Timeout(settings.timeout_s, connect=min(_CONNECT_S, settings.timeout_s)),
            follow_redirects=False,  # a prompt goes nowhere else
            transport=self._inside,
        )


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an endpoint that concern a client: none of a connection, none of an account."""
    return {
        name: value
        for name, value in headers.items()
        if name.lower() in _PASSED or name.lower().startswith(_PASSED_PREFIXES)
    }


def too_slow() -> BackendTimeout:
    """Return the error of an endpoint that does not answer in time."""
    return BackendTimeout("The language model behind this server did not answer in time: try again later.")


def broken_off() -> BackendUnavailable:
    """Return the error of an endpoint that cannot be reached, or broke off."""
    return BackendUnavailable("The language model behind this server cannot be reached or broke off: try again later.")
