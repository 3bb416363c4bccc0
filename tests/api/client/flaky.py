"""A server that misbehaves as it is told, over real sockets: it answers from a script, cuts off, or says nothing."""

from __future__ import annotations

import json
import socketserver
import threading
from typing import Any, NamedTuple


class Received(NamedTuple):
    """One request as it came; names of headers in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Step(NamedTuple):
    """What is sent for one request before the connection is closed; a silent one waits until the test ends."""

    sent: bytes
    silent: bool = False


CUT = Step(b"")
SILENT = Step(b"", silent=True)


def answer(status: int = 200, body: Any = None, *, length: int | None = None, **headers: str) -> Step:
    """Return a step that answers; with a `length` that is too large it is cut off in the middle."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(content) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return Step("\r\n".join([*lines, "Connection: close", "", ""]).encode() + content)


class Flaky(socketserver.ThreadingTCPServer):
    """Answers requests from `script`, in order; `requests` are those that came."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.script: list[Step] = []
        self.requests: list[Received] = []
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def plays(self, *steps: Step) -> None:
        self.script, self.requests = list(steps), []

    def next_step(self, request: Received) -> Step:
        self.requests.append(request)
        return self.script.pop(0) if self.script else answer(500, {"code": 1, "message": "the script is over"})


class _Conversation(socketserver.StreamRequestHandler):
    server: Flaky

    def handle(self) -> None:
        first = self.rfile.readline().decode()
        if not first.strip():
            return
        method, path, _ = first.split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self.rfile.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        step = self.server.next_step(Received(method, path, headers, self._body(headers)))
        if step.silent:
            self.server.over.wait()
        self.wfile.write(step.sent)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body
