"""HTTP clients: one for a model's endpoint, one that fetches images and files from public addresses.

A fetch connects to the address that was checked; addresses inside this machine or its networks are refused, also
after a redirect. No proxy or cookie is used.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import httpx2

from memos.core.ports import FetchedImage
from memos.core.settings import ChatSettings
from memos.errors import BackendTimeout, BackendUnavailable, InvalidInput

MOST_BYTES: Final = 32 * 1024 * 1024
_UNTIL: Final = "memos_until"


def opened(settings: ChatSettings) -> httpx2.Client:
    return httpx2.Client(
        event_hooks={"request": [_Headers(settings), _start], "response": [_bound]},
        limits=httpx2.Limits(max_connections=settings.parallel, max_keepalive_connections=settings.parallel),
        follow_redirects=False,  # a prompt goes nowhere else
    )


class _Headers:
    """Sends the headers that the protocol needs, and no others."""

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
                raise httpx2.ReadTimeout("the answer took too long")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _start(request: httpx2.Request) -> None:
    request.extensions[_UNTIL] = time.monotonic() + request.extensions["timeout"]["read"]


def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise httpx2.DecodingError("the answer is compressed although that was not requested", request=response.request)
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _Bounded(response.stream, response.request.extensions[_UNTIL])


Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host, as text."""

_MOST_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CHUNK: Final = 65_536
_URL_CHARS: Final = 8_192
# IPv6 addresses that stand for IPv4 ones: mapped and compatible, NAT64, Teredo, 6to4.
_DISGUISES: Final = tuple(
    map(ipaddress.ip_network, ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16"))
)


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A fetch: its name in errors, the accepted media types, and what allows a larger one."""

    noun: str
    accept: str
    remedy: str = ""


IMAGE: Final = FetchRequest("image", "image/png, image/jpeg, image/webp, image/gif, image/bmp")
FILE: Final = FetchRequest("file", "*/*", ", or raise MEMOS_LIMITS__FILE_BYTES")


def is_public(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(found in network for network in _DISGUISES if network.version == found.version):
        return False
    special = found.is_multicast or found.is_reserved or found.is_loopback or found.is_link_local or found.is_private
    return found.is_global and not special and not found.is_unspecified


def resolve(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class WebImages:
    """An `ImageSource`, or a `FileSource`, for the open internet."""

    # `resolver` and `allowed` are parameters for tests, never settings.

    def __init__(
        self,
        max_bytes: int,
        *,
        timeout_s: float = 20.0,
        resolver: Resolve = resolve,
        allowed: Callable[[str], bool] = is_public,
        tls: ssl.SSLContext | None = None,
        wanted: FetchRequest = IMAGE,
    ) -> None:
        self._wanted = wanted
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._resolve = resolver
        self._allowed = allowed
        self._tls = tls or ssl.create_default_context()

    def fetch(self, where: str, url: str) -> FetchedImage:
        until = time.monotonic() + self._timeout_s
        for _ in range(_MOST_REDIRECTS + 1):
            target = _target(where, url)
            address = self._checked_address(where, target)
            got = self._get(where, target, address, until)
            if isinstance(got, FetchedImage):
                return got
            url = urljoin(url, got)
        raise InvalidInput(
            where, f"is redirected more than {_MOST_REDIRECTS} times; give the {self._wanted.noun}'s own URL"
        )

    def _checked_address(self, where: str, target: SplitResult) -> str:
        """Return the address to connect to; all that the name has must be public."""
        host, port, noun = target.hostname or "", _port(target), self._wanted.noun
        try:
            found = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise BackendUnavailable(
                f"Cannot resolve the {noun}'s host {host:.80}; check the name, or try again later."
            ) from error
        if not found:
            raise BackendUnavailable(
                f"Cannot resolve the {noun}'s host {host:.80}; check the name, or try again later."
            )
        if not all(self._allowed(address) for address in found):
            raise InvalidInput(
                where,
                f"names {host[:80]!r}, a private address; only public addresses are fetched, so give the {noun}'s "
                "bytes",
            )
        return found[0]

    def _get(self, where: str, target: SplitResult, address: str, until: float) -> FetchedImage | str:
        connection, noun = _Pinned(target, address, self._tls, until), self._wanted.noun
        watch = threading.Timer(max(0.0, until - time.monotonic()), connection.cut)
        watch.daemon = True
        watch.start()
        try:
            with closing(connection):
                connection.request("GET", _path(target), headers=_headers(target, self._wanted.accept))
                with connection.getresponse() as response:
                    return self._answer(where, target, response, until)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # What the other side said is not repeated: it may be anything.
            if time.monotonic() >= until or isinstance(error, TimeoutError):
                raise BackendTimeout(
                    f"The {noun}'s host {target.hostname:.80} did not answer within {self._timeout_s:g} s; try again "
                    "later."
                ) from error
            raise BackendUnavailable(
                f"The {noun}'s host {target.hostname:.80} cannot be reached, or the connection was lost "
                f"({type(error).__name__}); try again later, or give the {noun}'s bytes."
            ) from error
        finally:
            watch.cancel()

    def _answer(
        self, where: str, target: SplitResult, response: http.client.HTTPResponse, until: float
    ) -> FetchedImage | str:
        noun = self._wanted.noun
        if response.status in _REDIRECTS and (location := response.getheader("Location")):
            return location
        if response.status >= 500 or response.status == 429:
            raise BackendUnavailable(
                f"The {noun}'s host {target.hostname:.80} answered with status {response.status}; try again later."
            )
        if response.status != 200:
            raise InvalidInput(
                where, f"answers with status {response.status}; give the URL of a {noun} that anyone can get"
            )
        media_type = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if self._wanted is IMAGE and (not media_type.startswith("image/") or "svg" in media_type):
            raise InvalidInput(where, f"has the type {media_type[:60]!r}, expected an image such as image/png")
        if (response.getheader("Content-Encoding") or "identity").lower() != "identity":
            raise InvalidInput(where, f"is sent compressed although that was not requested; give the {noun}'s bytes")
        name = unquote(target.path.rsplit("/", 1)[-1], errors="replace")
        source = f"{target.scheme}://{target.netloc}{target.path}"
        return FetchedImage(self._body(where, response, until), media_type, name, source)

    def _body(self, where: str, response: http.client.HTTPResponse, until: float) -> bytes:
        body = bytearray()
        while chunk := response.read1(_CHUNK):
            body += chunk
            if len(body) > self._max_bytes:
                raise InvalidInput(
                    where,
                    f"has more than {self._max_bytes:,} bytes; use a smaller {self._wanted.noun}{self._wanted.remedy}",
                )
        if time.monotonic() >= until:
            raise TimeoutError  # it was cut off here, which looks like its end
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return bytes(body)


class _Pinned(http.client.HTTPConnection):
    def __init__(self, target: SplitResult, address: str, tls: ssl.SSLContext, until: float) -> None:
        super().__init__(target.hostname or "", _port(target))
        self._address = address
        self._tls = tls if target.scheme == "https" else None
        self._until = until
        self._open: socket.socket | None = None  # `sock` is let go before the body is read

    def connect(self) -> None:
        left_s = max(0.01, self._until - time.monotonic())
        self.sock = self._open = socket.create_connection((self._address, self.port), left_s)
        if self._tls is not None:
            # The handshake comes after the assignment, so that it can be cut off.
            secure = self._tls.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock = self._open = secure
            secure.do_handshake()

    def cut(self) -> None:
        """End whatever is under way: each byte may come in time and all of them never."""
        if self._open is not None:
            with suppress(OSError):
                self._open.shutdown(socket.SHUT_RDWR)


def _target(where: str, url: str) -> SplitResult:
    try:
        target = urlsplit(url)
        known = target.scheme in ("http", "https") and bool(target.hostname) and target.port != 0
        (target.hostname or "").encode("idna")
    except ValueError:
        known = False
    if not known or len(url) > _URL_CHARS or any(ord(sign) <= 32 or ord(sign) == 127 for sign in url):
        raise InvalidInput(where, "must be a URL such as https://example.org/a.jpg")
    if "@" in target.netloc:
        raise InvalidInput(where, "contains a user name; give a URL without one")
    return target


def _port(target: SplitResult) -> int:
    return target.port or (443 if target.scheme == "https" else 80)


def _path(target: SplitResult) -> str:
    path = f"{target.path or '/'}{'?' + target.query if target.query else ''}"
    return "".join(sign if sign.isascii() else "".join(f"%{byte:02X}" for byte in sign.encode()) for sign in path)


def _headers(target: SplitResult, accept: str) -> dict[str, str]:
    host = (target.hostname or "").encode("idna").decode()
    host = f"[{host}]" if ":" in host else host
    return {
        "Host": host if target.port is None else f"{host}:{target.port}",
        "Accept": accept,
        "Accept-Encoding": "identity",
        "User-Agent": "hippocube",
        "Connection": "close",
    }
