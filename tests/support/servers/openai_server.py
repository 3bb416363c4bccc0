"""A loopback server with the OpenAI chat path whose behaviour is scripted request by request."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from pydantic import SecretStr

from memos.core.settings import ChatSettings

Body = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """One response. `gate` is waited for before anything is sent; `cut` ends the connection after so many bytes.

    With `hold` the body stops after `held_at` bytes until the event is set; `left` tells that the client went away.
    """

    status: int = 200
    body: Body | bytes | str = b""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    gate: threading.Event | None = None
    cut: int | None = None
    drip: int = 0  # so many blanks come before the body, fifty a second
    hold: threading.Event | None = None
    held_at: int = 0
    left: threading.Event | None = None


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: Body


Script = Iterable[Said] | Callable[[Asked], Said]


def answer(text: Any, *, usage: Any = None, finish: Any = "stop", **message: Any) -> Said:
    """Return a normal chat completion; `message` adds fields to its message."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    body: Body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Said(body=body if usage is None else {**body, "usage": usage})


def events(
    *texts: str, finish: Any = "stop", usage: Any = None, calls: Any = None, done: bool = True, **more: Any
) -> Said:
    """Return the same as a stream: a piece for each text, the calls of tools, the end."""
    deltas: list[Body] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    deltas += [{"tool_calls": [call]} for call in calls or ()]
    chunks = [_chunk(delta, None) for delta in deltas] + ([_chunk({}, finish)] if finish else [])
    chunks += [{**_chunk({}, None), "choices": [], "usage": usage}] if usage else []
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + ("data: [DONE]\n\n" if done else "")
    return Said(body=body, content_type="text/event-stream", **more)


def _chunk(delta: Body, finish: Any) -> Body:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def counted(prompt: int, completion: int) -> Body:
    """Return a usage report."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def error(
    status: int, message: str, *, code: Any = None, param: Any = None, headers: dict[str, str] | None = None
) -> Said:
    """Return a failure as the endpoints word it."""
    told = {"message": message, "type": "error", "param": param, "code": code}
    return Said(status, {"error": told}, headers or {})


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that breaks off is nothing to print
            super().handle_error(request, client_address)


class OpenAIServer:
    """Takes each request's response from a list (the last one again and again) or a function."""

    def __init__(self, script: Script) -> None:
        self._script = script if callable(script) else list(script)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self.asked: list[Asked] = []
        self.metrics: str | None = None
        self.running = 0
        self.most_at_once = 0
        self._server = _Quiet(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def settings(self, **changes: Any) -> ChatSettings:
        return ChatSettings(**{"base_url": self.url, "model": "m", "api_key": SecretStr("sk-test"), **changes})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self, asked: Asked) -> Said:
        with self._lock:
            self.asked.append(asked)
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            number = len(self.asked) - 1
        if callable(self._script):
            return self._script(asked)
        return self._script[min(number, len(self._script) - 1)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                raw = self.rfile.read(length)
                if len(raw) < length:  # the client was killed in the middle
                    self.close_connection = True
                    return
                body = json.loads(raw)
                said = server._next(Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                try:
                    if said.gate is not None:
                        said.gate.wait(60)
                finally:
                    with server._lock:
                        server.running -= 1
                with contextlib.suppress(OSError):  # the client may have given up
                    self._say(said)

            def do_GET(self) -> None:
                """What vLLM tells Prometheus, if the test has it told."""
                known = self.path == "/metrics" and server.metrics is not None
                self._say(Said(200 if known else 404, server.metrics or "", content_type="text/plain; version=0.0.4"))

            def _say(self, said: Said) -> None:
                raw = json.dumps(said.body).encode() if isinstance(said.body, dict) else said.body
                raw = raw.encode() if isinstance(raw, str) else raw
                if said.cut is not None and said.cut < 0:
                    return self._reset()
                self.send_response(said.status)
                self.send_header("Content-Type", said.content_type)
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(said.drip + len(raw)))
                self.end_headers()
                for _ in range(said.drip):
                    server._ending.wait(0.02)
                    self.wfile.write(b" ")
                if said.hold is not None:
                    self.wfile.write(raw[: said.held_at])
                    self._wait(said)
                    raw = raw[said.held_at :]
                self.wfile.write(raw[: said.cut])
                if said.cut is not None:
                    self._reset()
                return None

            def _wait(self, said: Said) -> None:
                assert said.hold is not None
                while not said.hold.wait(0.02) and not server._ending.is_set():
                    readable, _, _ = select.select([self.connection], [], [], 0)
                    if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
                        if said.left is not None:
                            said.left.set()
                        raise ConnectionError("the client went away")

            def _reset(self) -> None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                return

        return Handler
