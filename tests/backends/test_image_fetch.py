"""Fetching images by address: nothing private is ever asked, on a real loopback server that counts what reaches it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from memos.backends.http import FILE, WebImages, is_public, resolve
from memos.errors import BackendTimeout, BackendUnavailable, InvalidInput
from tests.support.pictures import picture

PICTURE = picture()


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that breaks off is nothing to print


@dataclass
class Server:
    """Answers each path by a function of the handler; `asked` are the paths and headers that came in."""

    paths: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0
    ending: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str, host: str = "pictures.test") -> str:
        return f"http://{host}:{self.port}{path}"


def says(body: bytes = PICTURE, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content_Type": "image/png", "Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append((self.path, dict(self.headers)))
            served.paths.get(self.path, says(status=404))(self)

        def log_message(self, *_: object) -> None:
            pass

    httpd = Quiet(("127.0.0.1", 0), Handler)
    served.port = httpd.server_address[1]
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield served
    served.ending.set()
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def opened(names: dict[str, list[str]] | None = None, **more: Any) -> WebImages:
    """Return a fetcher for which loopback is the open internet; names are those of a made-up resolver."""
    known = {"pictures.test": ["127.0.0.1"], **(names or {})}
    return WebImages(100_000, resolver=lambda host, _: known[host], allowed=lambda a: a == "127.0.0.1", **more)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
     "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::", "::1", "fe80::1",
     "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1",
     "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2001:0:7f00:1::1", "2001:db8::1", "no address", ""],
)  # fmt: skip
def test_addresses_that_are_not_of_the_open_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001:80e::200e"])
def test_addresses_of_the_open_internet(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_this_machine_is_never_asked_however_it_is_written(server: Server, host: str) -> None:
    with pytest.raises((InvalidInput, BackendUnavailable), match=r"private address|Cannot resolve"):
        WebImages(100_000).fetch("x", server.url("/a.png", host))
    assert server.asked == []


def test_a_name_with_one_private_address_is_refused() -> None:
    mixed = WebImages(1000, resolver=lambda *_: ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(InvalidInput, match="private"):
        mixed.fetch("x", "http://rebind.test/a.png")


def test_an_image_is_fetched_without_anything_of_ours(server: Server) -> None:
    server.paths["/p/beach%20one.png?size=2"] = says()
    got = opened().fetch("x", server.url("/p/beach%20one.png?size=2#top"))
    assert (got.data, got.media_type, got.name) == (PICTURE, "image/png", "beach one.png")
    assert got.source == server.url("/p/beach%20one.png")  # the query may hold a key
    [(_, headers)] = server.asked
    assert headers["Host"] == f"pictures.test:{server.port}"
    assert set(headers) == {"Host", "Accept", "Accept-Encoding", "User-Agent", "Connection"}


def test_the_checked_address_is_the_one_connected_to(server: Server) -> None:
    """A name that means something else a moment later is of no use to anyone."""
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    server.paths["/a.png"] = says()
    once = WebImages(100_000, resolver=lambda *_: next(answers), allowed=lambda a: a == "127.0.0.1")
    assert once.fetch("x", server.url("/a.png", "rebind.test")).data == PICTURE
    with pytest.raises(InvalidInput, match="private"):
        once.fetch("x", server.url("/a.png", "rebind.test"))


def test_redirects_are_followed_three_times(server: Server) -> None:
    for number in range(5):
        server.paths[f"/{number}"] = says(b"", 302, Location=f"/{number + 1}")
    server.paths["/5"] = says()
    assert opened().fetch("x", server.url("/2")).data == PICTURE
    with pytest.raises(InvalidInput, match="redirected more than 3 times"):
        opened().fetch("x", server.url("/1"))


@pytest.mark.parametrize(
    "location",
    ["http://inside.test/a.png", "file:///etc/passwd", "gopher://pictures.test/", "http://u:p@pictures.test/"],
)
def test_every_redirect_is_checked_again(server: Server, location: str) -> None:
    server.paths["/a.png"] = says(b"", 307, Location=location)
    with pytest.raises(InvalidInput, match=r"private|must be a URL such as|user name"):
        opened({"inside.test": ["10.0.0.1"]}).fetch("x", server.url("/a.png"))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (says(status=404), "404"),
        (says(Content_Type="text/html"), "expected an image"),
        (says(Content_Type="image/svg+xml"), "expected an image"),
        (says(Content_Encoding="gzip"), "compressed"),
        (says(b"x" * 100_001), "more than 100,000 bytes"),
        (says(b"", 302), "302"),
    ],
    ids=["404", "page", "svg", "compressed", "too large", "redirect to nowhere"],
)
def test_what_is_no_image_is_refused(server: Server, answer: Any, told: str) -> None:
    server.paths["/a.png"] = answer
    with pytest.raises(InvalidInput, match=told):
        opened().fetch("x", server.url("/a.png"))


def test_a_host_that_fails_may_work_later(server: Server) -> None:
    server.paths["/busy"] = says(status=503)
    server.paths["/cut"] = says(Content_Length="90000")
    for path in ("/busy", "/cut"):
        with pytest.raises(BackendUnavailable) as caught:
            opened().fetch("x", server.url(path))
        assert not isinstance(caught.value, BackendTimeout)
    with pytest.raises(BackendUnavailable, match="Cannot resolve"):
        WebImages(1000).fetch("x", "http://no-such-host.invalid/a.png")


@pytest.mark.parametrize("slow", ["silent", "dripping head", "dripping body"])
def test_a_slow_host_is_left_when_the_time_is_over(server: Server, slow: str) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        if slow == "dripping body":
            handler.send_response(200)
            handler.send_header("Content-Type", "image/png")
            handler.end_headers()
        while not server.ending.wait(0.05):
            if slow != "silent":
                handler.wfile.write(b"x")
                handler.wfile.flush()

    server.paths["/a.png"] = drip
    with pytest.raises(BackendTimeout):
        opened(timeout_s=0.5).fetch("x", server.url("/a.png"))


@pytest.mark.parametrize(
    "url",
    ["http://", "https:///a.png", "http://pictures.test:0/", "http://pictures.test:99999/", "http://a b/", "http://u@h/",
     "http://h/\r\nX: y", "http://[::1/", "http://" + "a" * 70 + ".test/", "javascript:x", "http://h/" + "a" * 9000],
)  # fmt: skip
def test_odd_addresses_are_refused_unasked(url: str) -> None:
    with pytest.raises(InvalidInput):
        opened().fetch("x", url)


def test_the_resolver_is_this_machines() -> None:
    assert "127.0.0.1" in resolve("127.0.0.1", 80)


def test_a_file_may_be_of_any_type_and_is_as_guarded(server: Server) -> None:
    server.paths = {"/notes%20of%20May.txt": says(b"words", Content_Type="text/plain"), "/gone": says(status=404)}
    got = opened(wanted=FILE).fetch("x", server.url("/notes%20of%20May.txt"))
    assert (got.data, got.media_type, got.name) == (b"words", "text/plain", "notes of May.txt")
    with pytest.raises(InvalidInput, match="a file that anyone"):
        opened(wanted=FILE).fetch("x", server.url("/gone"))
    with pytest.raises(InvalidInput, match="private address"):
        WebImages(1000, wanted=FILE).fetch("x", server.url("/gone", "127.0.0.1"))
