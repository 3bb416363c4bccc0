"""Requests as bytes: httptools answers what h11 answers."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from memos.api.http_protocol import HTTP, MOST_HEAD_BYTES


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    told = f"{scope['method']} {len(body)}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(told))]})
    await send({"type": "http.response.body", "body": told})


@contextmanager
def _served(http: Any) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(_echo, http=http, log_config=None, access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def _answer(port: int, *parts: bytes) -> tuple[int, bytes]:
    """Send a request in parts; return the status and the last line of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        answer = b""
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(0.02)
        except OSError:  # it was refused before all was sent
            pass
        while b"\r\n\r\n" not in answer and (more := connection.recv(65_536)):
            answer += more
    return int(answer.split(b" ", 2)[1]), answer.rpartition(b"\r\n")[2]


def _post(*headers: bytes, body: bytes = b"hello") -> bytes:
    return b"\r\n".join([b"POST / HTTP/1.1", *headers, b"Content-Length: %d" % len(body), b"", body])


@pytest.fixture(scope="module", params=[HTTP, "h11"], ids=["httptools", "h11"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with _served(request.param) as found:
        yield found


def test_a_body_survives_an_offer_of_another_protocol(port: int) -> None:
    for upgrade in (b"Upgrade: h2c", b"UPGRADE: h2c, h3"):
        headers = (b"Host: x", b"Connection: Upgrade, HTTP2-Settings", upgrade)
        assert _answer(port, _post(*headers)) == (200, b"POST 5")
        head, _, body = _post(*headers).rpartition(b"\r\n")
        assert _answer(port, head + b"\r\n", body) == (200, b"POST 5")
    assert _answer(port, _post(b"Host: x", body=b"\nupgrade: h2c")) == (200, b"POST 13")


def test_large_heads_are_refused_and_large_bodies_are_not(port: int) -> None:
    large = [b"A%d: " % number + b"a" * 9_000 + b"\r\n" for number in range(2 * MOST_HEAD_BYTES // 9_000)]
    assert _answer(port, b"GET / HTTP/1.1\r\nHost: x\r\n", *large)[0] == 400
    assert _answer(port, b"GET / HTTP/1.1\r\nHost: x\r\nA: ", *(each[4:-2] for each in large))[0] == 400
    assert _answer(port, _post(b"Host: x", body=b"b" * 5 * MOST_HEAD_BYTES)) == (200, b"POST 327680")


@pytest.mark.parametrize(
    "request_", [b"GET / HTTP/1.1\r\n\r\n", b"NONSENSE\r\n\r\n", "GET /ü HTTP/1.1\r\nHost: x\r\n\r\n".encode()]
)
def test_what_is_no_request_is_refused(port: int, request_: bytes) -> None:
    assert _answer(port, request_)[0] == 400


def test_without_httptools_the_server_uses_h11() -> None:
    program = "import sys; sys.modules['httptools'] = None; from memos.api.http_protocol import HTTP; print(HTTP)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "h11\n"
