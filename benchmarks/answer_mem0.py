"""mem0 in an environment of its own, with the same model and the same embedder, for `benchmarks.answers`.

The embedder is lent over loopback in OpenAI's protocol. This file is also the program that runs in mem0's environment
(`python benchmarks/answer_mem0.py`), where nothing of this project is installed: it reads a line of JSON a request and
answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from benchmarks.data import Chat
    from memos.core.settings import ChatSettings

_DIMENSION = 384
_BATCH = 2  # messages of one add, as a turn and its answer


class Mem0:
    """A conversation added to mem0 with inference, and searched."""

    def __init__(self, python: Path, chat: Chat, settings: ChatSettings | None) -> None:
        assert settings is not None
        key = "none" if settings.api_key is None else settings.api_key.get_secret_value()
        self._model = {"model": settings.model, "openai_base_url": str(settings.base_url), "api_key": key}
        self._python = python
        self._chat = chat

    def __enter__(self) -> Self:
        self._embedder = _EmbeddingServer()
        self._process = subprocess.Popen(
            [str(self._python), "-P", str(Path(__file__).resolve())],  # without benchmarks/http.py
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MEM0_TELEMETRY": "False"},
        )
        sessions = [
            [
                {"role": "user", "content": message.text if message.name is None else f"{message.name}: {message.text}"}
                | ({} if message.name is not None else {"role": message.role})
                for message in session.messages
            ]
            for session in self._chat.sessions
        ]
        self._ask({"model": self._model, "embedder": self._embedder.url, "sessions": sessions})
        return self

    def search(self, question: str, top_k: int) -> list[str]:
        """Return the memories that mem0 finds, best first."""
        found: list[str] = self._ask({"question": question, "top_k": top_k})
        return found

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._embedder.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("mem0's process ended; its message is above")
        return json.loads(line)


class _EmbeddingServer:
    """MiniLM behind `POST /v1/embeddings` on a free port of loopback."""

    def __init__(self) -> None:
        from memos.backends.encoders.minilm import MiniLmEmbedder  # noqa: PLC0415 - mem0's environment lacks it

        embedder = MiniLmEmbedder()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
                texts = [asked] if isinstance(asked, str) else asked
                vectors = embedder.embed_documents(texts).tolist()
                data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(vectors)]
                body = json.dumps({"object": "list", "data": data, "model": "minilm", "usage": {}}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def main() -> None:
    """Add the conversation of the first line, then answer a search a line."""
    from mem0 import Memory  # noqa: PLC0415 - this part runs in mem0's environment alone

    answers, sys.stdout = sys.stdout, sys.stderr  # mem0 prints
    with tempfile.TemporaryDirectory(prefix="hippocube-mem0-") as folder:
        begun = json.loads(sys.stdin.readline())
        embedder = {"model": "minilm", "openai_base_url": begun["embedder"], "api_key": "none"}
        config = {
            "llm": {"provider": "openai", "config": {**begun["model"], "temperature": 0.0}},
            "embedder": {"provider": "openai", "config": {**embedder, "embedding_dims": _DIMENSION}},
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": f"{folder}/qdrant", "embedding_model_dims": _DIMENSION, "collection_name": "bench"},
            },
            "history_db_path": f"{folder}/history.db",
        }
        memory = Memory.from_config(config)
        for session in begun["sessions"]:
            for start in range(0, len(session), _BATCH):
                memory.add(session[start : start + _BATCH], user_id="bench")
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            found = memory.search(asked["question"], filters={"user_id": "bench"}, top_k=asked["top_k"])
            print(json.dumps([each["memory"] for each in found["results"]]), file=answers, flush=True)


if __name__ == "__main__":
    main()
