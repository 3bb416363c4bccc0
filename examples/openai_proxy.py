"""The official `openai` package with only its base URL changed gets memory. Starts a scripted model and our server.

Needs the extra `server` and that package: pip install '.[server]' openai
"""

import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import uvicorn
from openai import OpenAI

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import ChatSettings


class Model(BaseHTTPRequestHandler):
    """Stands in for a language model here: it says what it was told of Maria. Use a real endpoint instead."""

    def do_POST(self) -> None:
        """Answer one chat completion, at once or as a stream."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first = asked["messages"][0]
        knows = first["role"] == "system" and "Lyon" in first["content"]
        text = "Maria lives in Lyon." if knows else "Noted."
        if asked.get("stream"):
            words = text.split(" ")
            deltas = [{"content": word if place == 0 else f" {word}"} for place, word in enumerate(words)]
            chunks = [*({"delta": delta} for delta in deltas), {"delta": {}, "finish_reason": "stop"}]
            told = "".join(f"data: {json.dumps({'choices': [{'index': 0, **chunk}]})}\n\n" for chunk in chunks)
            self._send("text/event-stream", told + "data: [DONE]\n\n")
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self._send("application/json", json.dumps({"choices": [choice]}))

    def _send(self, kind: str, body: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def model() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving(memos: MemOS) -> Iterator[str]:
    """Serve as `memos serve` does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(create_app(memos), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


with model() as upstream, tempfile.TemporaryDirectory() as folder:
    settings = Settings(chat_model=ChatSettings(base_url=upstream, model="scripted"))
    with MemOS.open(folder, settings=settings) as memos, serving(memos) as url:
        memos.users.create("ana")
        key = memos.keys.create("ana", "my program").secret
        with OpenAI(base_url=f"{url}/openai/v1", api_key=key) as client:
            said = [{"role": "user", "content": "My sister Maria lives in Lyon."}]
            print(client.chat.completions.create(model="any", messages=said).choices[0].message.content)
            # Another conversation, another program: what was said before is remembered.
            asked = [{"role": "user", "content": "Where does Maria live?"}]
            for chunk in client.chat.completions.create(model="any", messages=asked, stream=True):
                print(chunk.choices[0].delta.content or "", end="")
        print()
        for item in memos.memories.list(cube="ana"):
            print(f"{item.role}: {item.memory}")
