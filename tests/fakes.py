"""Stand-ins with answers a person can compute: an embedder and a reranker of words, a clock that stands still."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from memos.core.ports import Vector
from memos.core.types import Fingerprint

_WORD = re.compile(r"\w+")


class WordEmbedder:
    """Bag of words: each word counts on one of `dimension` axes, the vector has length 1."""

    def __init__(self, dimension: int = 64, name: str = "words") -> None:
        self._dimension = dimension
        self._name = name

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self._name, self._dimension, "none", normalised=True)

    @property
    def max_tokens(self) -> int:
        return 256

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for place, text in enumerate(texts):
            for word in _WORD.findall(text.casefold()) or [""]:
                digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                vectors[place, int.from_bytes(digest, "big") % self._dimension] += 1
        norms: Vector = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Vector = vectors / np.where(norms == 0, 1, norms)
        return unit

    def embed_query(self, text: str) -> Vector:
        return self.embed_documents([text])[0]

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        words = list(re.finditer(r"\S+", text))
        return [
            (words[start].start(), words[min(start + max_tokens, len(words)) - 1].end())
            for start in range(0, len(words), max_tokens)
        ]


class WordReranker:
    """Scores a text by how many of the question's words it has, or as a function says."""

    def __init__(self, says: Callable[[str, Sequence[str]], list[float]] | None = None, name: str = "words") -> None:
        self._says = says
        self._name = name
        self.asked: list[tuple[str, list[str]]] = []

    @property
    def name(self) -> str:
        return self._name

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        self.asked.append((question, list(texts)))
        if self._says is not None:
            return self._says(question, texts)
        return [shared_words(question, text) for text in texts]


def shared_words(question: str, text: str) -> float:
    """Return how many different words two texts share."""
    return float(len(set(_WORD.findall(question.casefold())) & set(_WORD.findall(text.casefold()))))


class FixedClock:
    """Starts at a given moment; each reading is one second later, so that order is plain."""

    def __init__(self, start: datetime = datetime(2025, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now

    def advance(self, by: timedelta) -> None:
        self._now += by


class HeldClock:
    """Says the same moment, from any thread, until a test moves it."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def advance(self, by: timedelta) -> None:
        self.at += by
