"""Remembers a model's answers by a digest of their questions, in memory alone; `forget` empties it after erasures."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict

from memos.core.ports import ChatReply, ChatRequest

_ENTRY_BYTES = 400  # a key, a reply and their places in the dictionary, beside the text


class ResponseCache:
    """Least-recently-used answers within so many bytes and entries; thread-safe."""

    def __init__(self, max_bytes: int, max_entries: int = 10_000) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._replies: OrderedDict[str, ChatReply] = OrderedDict()
        self._bytes = 0
        self._generation = 0
        self.hits = self.misses = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._replies)

    @property
    def size_bytes(self) -> int:
        """Memory the answers take, about."""
        return self._bytes

    @property
    def generation(self) -> int:
        """A number to take before a question is asked, and to give with its answer."""
        return self._generation

    def get(self, key: str) -> ChatReply | None:
        """Return the remembered answer."""
        with self._lock:
            if (reply := self._replies.get(key)) is None:
                self.misses += 1
            else:
                self.hits += 1
                self._replies.move_to_end(key)
            return reply

    def put(self, key: str, reply: ChatReply, generation: int) -> None:
        """Remember an answer, unless everything was forgotten since its question was asked."""
        size = _size(reply)
        with self._lock:
            if generation != self._generation or size > self._max_bytes or self._max_entries < 1:
                return  # an erase came in between; this may be an answer about erased text
            self._drop(key)
            self._replies[key] = reply
            self._bytes += size
            while self._bytes > self._max_bytes or len(self._replies) > self._max_entries:
                _, oldest = self._replies.popitem(last=False)
                self._bytes -= _size(oldest)

    def drop(self, key: str) -> None:
        """Forget one answer."""
        with self._lock:
            self._drop(key)

    def forget(self) -> None:
        """Drop every answer; what is being asked now is not kept either."""
        with self._lock:
            self._replies.clear()
            self._bytes = 0
            self._generation += 1

    def _drop(self, key: str) -> None:
        if (old := self._replies.pop(key, None)) is not None:
            self._bytes -= _size(old)


def key_of(model: str, request: ChatRequest) -> str:
    """Return the SHA-256 of everything an answer depends on."""
    messages = [
        (message.role, message.content, *(hashlib.sha256(image.data).hexdigest() for image in message.images))
        for message in request.messages
    ]
    parts = (
        model,
        messages,
        request.max_tokens,
        request.temperature,
        request.schema,
        request.schema_name,
        request.top_p,
    )
    # ASCII escapes keep lone surrogates apart and encodable.
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _size(reply: ChatReply) -> int:
    return _ENTRY_BYTES + len(reply.text.encode("utf-8", "surrogatepass"))
