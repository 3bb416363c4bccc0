"""The HTTP client for a model's endpoint: it asks that endpoint alone, and no body is endless. Knows no protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import httpx2

from memos.core.settings import ChatSettings

MOST_BYTES: Final = 32 * 1024 * 1024
_UNTIL: Final = "memos_until"


def opened(settings: ChatSettings) -> httpx2.Client:
    """Return a client that asks the named endpoint alone, with the key in the settings alone."""
    return httpx2.Client(
        event_hooks={"request": [_Headers(settings), _start], "response": [_bound]},
        limits=httpx2.Limits(max_connections=settings.parallel, max_keepalive_connections=settings.parallel),
        follow_redirects=False,  # a prompt goes nowhere else
    )


class _Headers:
    """Sends what the protocol needs: the client would add variables of other programs and what machine this is."""

    _KEPT = frozenset({"host", "accept", "connection", "user-agent", "content-type", "content-length"})

    def __init__(self, settings: ChatSettings) -> None:
        self._key = settings.api_key

    def __call__(self, request: httpx2.Request) -> None:
        for name in set(request.headers) - self._KEPT:
            del request.headers[name]
        if self._key is not None:
            request.headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        request.headers["Accept-Encoding"] = "identity"  # or a small body could become a huge one


class TooLarge(Exception):
    """A body larger than any answer."""


class _Bounded(httpx2.SyncByteStream):
    """A body that ends with an error when it is too large, or drips in for longer than the attempt may take."""

    def __init__(self, stream: httpx2.SyncByteStream, until: float) -> None:
        self._stream = stream
        self._until = until

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > MOST_BYTES:
                raise TooLarge
            if time.monotonic() > self._until:
                raise httpx2.ReadTimeout("the answer came in too slowly")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _start(request: httpx2.Request) -> None:
    request.extensions[_UNTIL] = time.monotonic() + request.extensions["timeout"]["read"]


def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise httpx2.DecodingError("the answer is packed, which nobody asked for", request=response.request)
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _Bounded(response.stream, response.request.extensions[_UNTIL])
