"""A cache of another embedder's last vectors, which embeds questions that wait at the same time in one call.

It holds texts as keys, so an erasure empties it with `forget`.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from memos.core.ports import Embedder, Vector
from memos.core.types import Fingerprint
from memos.errors import BackendUnavailable

_TOGETHER = 8
"""The most questions in one call: with more, the first would wait for the last."""


class CachedEmbedder:
    """Least-recently-used cache over an `Embedder`; thread-safe.

    Computes outside its lock; of calls that need one text at the same time one computes it.

    It keeps at most `capacity` texts, and at most `size_bytes` of texts and vectors. At most `side_by_side` calls embed
    questions at the same time; those that come meanwhile wait, and are then embedded together.
    """

    def __init__(
        self, embedder: Embedder, capacity: int = 4_096, size_bytes: int = 16 * 2**20, side_by_side: int = 2
    ) -> None:
        self._embedder = embedder
        self._questions = _Questions(embedder, side_by_side)
        self._capacity, self._size_bytes = capacity, size_bytes
        self._bytes = 0
        self._vectors: OrderedDict[tuple[bool, str], Vector] = OrderedDict()
        self._computing: dict[str, Future[dict[str, Vector]]] = {}
        self._lock = threading.Lock()
        self._generation = 0
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def waiting(self) -> int:
        """Questions that wait for a call now."""
        return len(self._questions.waiting)

    @property
    def fingerprint(self) -> Fingerprint:
        return self._embedder.fingerprint

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        known: dict[str, Vector] = {}
        mine: Future[dict[str, Vector]] = Future()
        others: dict[str, Future[dict[str, Vector]]] = {}
        with self._lock:
            generation = self._generation
            for text in texts:
                vector = self._recall((False, text))
                if vector is not None:
                    known[text] = vector
                elif text in self._computing:
                    others[text] = self._computing[text]
            missing = [text for text in dict.fromkeys(texts) if text not in known and text not in others]
            self._computing.update(dict.fromkeys(missing, mine))
        computed: dict[str, Vector] = {}
        try:
            computed = self._computed(missing, generation)
        finally:
            with self._lock:
                for text in missing:
                    del self._computing[text]
            mine.set_result(computed)
        # Only now, so that no two calls wait for each other. Those that failed may have failed for another text.
        for text, other in others.items():
            if (vector := other.result().get(text)) is not None:
                known[text] = vector
        known |= computed | self._computed([text for text in others if text not in known], generation)
        if not texts:
            return np.empty((0, self.fingerprint.dimension), dtype=np.float32)
        return np.stack([known[text] for text in texts])

    def _computed(self, missing: Sequence[str], generation: int) -> dict[str, Vector]:
        computed = dict(zip(missing, self._embedder.embed_documents(missing), strict=True)) if missing else {}
        self._remember({(False, text): vector for text, vector in computed.items()}, generation)
        return computed

    def embed_query(self, text: str) -> Vector:
        with self._lock:
            generation = self._generation
            vector = self._recall((True, text))
        if vector is None:
            vector = self._questions.embed(text)
            self._remember({(True, text): vector}, generation)
        return vector.copy()

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        return self._embedder.split(text, max_tokens)

    def forget(self) -> None:
        """Drop every text and vector; what is being computed now is not kept either."""
        with self._lock:
            self._vectors.clear()
            self._bytes = 0
            self._generation += 1

    def _recall(self, key: tuple[bool, str]) -> Vector | None:
        if (vector := self._vectors.get(key)) is None:
            self.misses += 1
        else:
            self.hits += 1
            self._vectors.move_to_end(key)
        return vector

    def _remember(self, vectors: dict[tuple[bool, str], Vector], generation: int) -> None:
        with self._lock:
            if generation != self._generation:
                return  # an erase came in between; these may be vectors of erased text
            for key, vector in vectors.items():
                if key not in self._vectors:
                    self._bytes += _size_bytes(key, vector)
                self._vectors[key] = vector.copy()  # a row of a batch would keep the whole batch alive
                self._vectors.move_to_end(key)
            while len(self._vectors) > self._capacity or self._bytes > self._size_bytes:
                self._bytes -= _size_bytes(*self._vectors.popitem(last=False))


@dataclass(slots=True, eq=False)
class _Waiting:
    text: str
    taken: bool = False
    done: bool = False
    vector: Vector | None = None
    error: Exception = field(default_factory=lambda: BackendUnavailable("Embedding was interrupted; ask again."))


class _Questions:
    """Embeds questions of several threads, those that wait in one call: a run costs as much as ten tokens more."""

    def __init__(self, embedder: Embedder, side_by_side: int) -> None:
        self._embedder, self._side_by_side = embedder, side_by_side
        # Only where a question is embedded as a document is; else one call may not take several.
        self._most = _TOGETHER if embedder.fingerprint.prefix_rule == "none" else 1
        self.waiting: list[_Waiting] = []
        self._running = 0
        self._changed = threading.Condition()

    def embed(self, text: str) -> Vector:
        mine = _Waiting(text)
        with self._changed:
            self.waiting.append(mine)
        while True:
            with self._changed:
                while not mine.done and (mine.taken or self._running == self._side_by_side):
                    self._changed.wait()
                if mine.done:
                    break
                batch, self.waiting = self.waiting[: self._most], self.waiting[self._most :]
                for each in batch:
                    each.taken = True
                self._running += 1
            try:
                self._run(batch)
            finally:
                with self._changed:
                    self._running -= 1
                    for each in batch:
                        each.done = True
                    self._changed.notify_all()
        if mine.vector is None:
            raise mine.error
        return mine.vector

    def _run(self, batch: list[_Waiting]) -> None:
        if len(batch) > 1:
            # An error may be of one text: then each is embedded alone, and that one says what it was.
            with suppress(Exception):
                vectors = self._embedder.embed_documents([each.text for each in batch])
                for each, vector in zip(batch, vectors, strict=True):
                    each.vector = vector
        for each in batch:
            if each.vector is not None:
                continue
            try:
                each.vector = self._embedder.embed_query(each.text)
            except Exception as error:  # noqa: BLE001 - raised in the thread that asked
                each.error = error


def _size_bytes(key: tuple[bool, str], vector: Vector) -> int:
    return sys.getsizeof(key[1]) + vector.nbytes


# The spaces of the embedders that come with the program, known before any of their libraries is loaded.

MINILM: Final = Fingerprint("all-MiniLM-L6-v2-int8", dimension=384, prefix_rule="none", normalised=True)
E5: Final = Fingerprint("multilingual-e5-small-q4-centred", dimension=384, prefix_rule="query-passage", normalised=True)
