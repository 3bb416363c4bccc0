"""A model whose answers are kept in a file by a digest of their prompt, so that a repeated run asks nothing twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from memos.core.ports import ChatModel, ChatReply, ChatRequest
from memos.core.tokens import Tokens
from memos.llm.client import key_of


class CachedModel:
    """A chat model that answers a request from a file of JSON lines if it was asked before.

    `calls`, `tokens` and `cached_tokens` (of prompts that the server had in memory) count the kept answers as well.
    """

    in_steps = False

    def __init__(self, model: ChatModel, path: Path | None) -> None:
        self._model = model
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, tuple[ChatReply, float]] = {}
        self.calls = self.tokens = self.prompt_tokens = self.cached_tokens = 0
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._known[entry["key"]] = _reply(entry), entry["seconds"]

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self._model.name

    def timed(self, request: ChatRequest) -> tuple[ChatReply, float]:
        """Return an answer, and how many seconds the model took for it when it was asked."""
        key = key_of(self.name, request)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            began = time.perf_counter()
            reply = self._model.complete(request)
            found = reply, time.perf_counter() - began
            self._keep(key, *found)
        with self._lock:
            prompt, completion, _, cached = found[0].tokens
            self.calls += 1
            self.tokens += prompt + completion
            self.prompt_tokens += prompt
            self.cached_tokens += cached or 0
        return found

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the kept answer, or ask the model and keep its answer; errors are not kept."""
        return self.timed(request)[0]

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Yield the whole answer in one piece."""
        reply = self.complete(request)
        yield from (reply.text, reply)

    def close(self) -> None:
        """Close the model."""
        self._model.close()

    def _keep(self, key: str, reply: ChatReply, seconds: float) -> None:
        with self._lock:
            self._known[key] = reply, seconds
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_entry(key, reply, seconds), ensure_ascii=False) + "\n")


def _entry(key: str, reply: ChatReply, seconds: float) -> dict[str, Any]:
    probabilities = None if reply.probabilities is None else dict(reply.probabilities)
    told = {"text": reply.text, "tokens": list(reply.tokens), "probabilities": probabilities}
    return {"key": key, **told, "seconds": round(seconds, 3)}


def _reply(entry: dict[str, Any]) -> ChatReply:
    return ChatReply(entry["text"], Tokens(*entry["tokens"]), probabilities=entry["probabilities"])
