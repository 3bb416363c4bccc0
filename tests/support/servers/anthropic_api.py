"""A scripted Anthropic Messages API on loopback, for the real Claude Code: it answers by a function of the messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, Self

Block = dict[str, Any]
Script = Callable[[dict[str, Any]], Block]

_NUMBERS = count(1)


def say(text: str) -> Block:
    return {"type": "text", "text": text}


def use(tool: str, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": f"toolu_{next(_NUMBERS)}", "name": tool, "input": arguments}


def texts_of(body: dict[str, Any]) -> str:
    """Return all texts of a request, also results of tools."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            for each in value:
                walk(each)
        elif isinstance(value, dict):
            walk(value.get("text") if value.get("type") == "text" else value.get("content"))

    walk(body.get("system", ""))
    walk(body["messages"])
    return "\n".join(found)


class AnthropicApi:
    """A server in a thread. Requests for answers are kept in `requests`."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_HEAD(self) -> None:
                self.send(b"")

            def do_GET(self) -> None:
                self.send(b"{}", status=404)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
                if not self.path.startswith("/v1/messages"):
                    self.send(b"{}", status=404)
                elif "count_tokens" in self.path:
                    self.send(b'{"input_tokens": 10}')
                else:
                    api.requests.append(body)
                    answer = _message(script(body), str(body["model"]))
                    if body.get("stream"):
                        self.send(_events(answer).encode(), "text/event-stream")
                    else:
                        self.send(json.dumps(answer).encode())

            def send(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _message(block: Block, model: str) -> dict[str, Any]:
    return {
        "id": f"msg_{next(_NUMBERS)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 3},
    }


def _events(answer: dict[str, Any]) -> str:
    [block] = answer["content"]
    begun = {**answer, "content": [], "stop_reason": None}
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    ended = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
