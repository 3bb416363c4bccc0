"""BM25 term weights by the Qdrant engine's own tokenizer, for both vector backends; the index adds IDF."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import qdrant_edge

from memos.core.ports import SparseVector
from memos.core.text.languages import language_of

AVERAGE_TOKENS = 48.0
"""Tokens of a usual text here: a turn has about 25, a window of three about 75."""

STEMMED = ("german", "spanish", "french", "italian", "portuguese")
"""Languages whose texts get stems of their own in addition to the English ones."""

_NUMBER = re.compile(r"\d+")
# Kana, Chinese characters and Hangul: no spaces tell their words apart.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af々]+")
# Signs that the tokenizer takes for letters of the adjacent words: module=ledger, Paris→Osaka.
_JOINING = re.compile(r"[$<=>|~^`¬°\u2190-\u22ff\u25a0-\u2bff\U0001f000-\U0001faff]")
# The stemmer takes quadratic time for one word of letters such as y: a megabyte of them, half a minute.
_ENDLESS = re.compile(r"(?:[^\W\d_]|[\u0300-\u036f]){1000}")


_Encode = Callable[[qdrant_edge.Bm25, str], qdrant_edge.SparseVector]


class QdrantBm25:
    """English stemming and stop words over a tokenizer that also splits Chinese and Japanese; thread-safe.

    A text in one of `STEMMED` has the stems of its own language besides, so that "vivo" answers "¿Dónde vive?".
    """

    # Numbers get terms of their own, which the tokenizer drops where they stand alone (2023, 14:30), and scripts
    # without spaces every two neighbouring characters, since the tokenizer splits a word differently in different
    # sentences.
    # k = 1.2 and b = 0.75 are the engine's defaults. Source: Robertson and Zaragoza, "The Probabilistic Relevance
    # Framework", 2009, section 3.5.

    def __init__(self) -> None:
        self._bm25 = _stemming("english")
        self._stems = {language: _stemming(language) for language in STEMMED}
        self._words = qdrant_edge.Bm25(
            qdrant_edge.Bm25Config(
                tokenizer=qdrant_edge.TokenizerType.Word,
                stemmer=qdrant_edge.DisabledStemmer(),
                stopwords=qdrant_edge.StopwordsSet(),
                avg_len=AVERAGE_TOKENS,
            )
        )

    def encode_document(self, text: str) -> SparseVector:
        return _merged([self._bm25.embed_document(_cut(text)), *self._more(text, qdrant_edge.Bm25.embed_document)])

    def encode_query(self, text: str) -> SparseVector:
        return _merged([self._bm25.embed_query(_cut(text)), *self._more(text, qdrant_edge.Bm25.embed_query)])

    def _more(self, text: str, encode: _Encode) -> Iterator[qdrant_edge.SparseVector]:
        found = _NUMBER.findall(text)
        for run in _UNSPACED.findall(text):
            found += [run[place : place + 2] for place in range(len(run) - 1)]
        if found:
            yield encode(self._words, " ".join(found))
        if (stems := self._stems.get(language_of(text))) is not None:
            yield encode(stems, _cut(text))


def _stemming(language: str) -> qdrant_edge.Bm25:
    return qdrant_edge.Bm25(
        qdrant_edge.Bm25Config(
            tokenizer=qdrant_edge.TokenizerType.Multilingual,
            language=language,
            lowercase=True,
            ascii_folding=True,
            avg_len=AVERAGE_TOKENS,
        )
    )


def _cut(text: str) -> str:
    return _ENDLESS.sub(r"\g<0> ", _JOINING.sub(" ", text))


def _merged(vectors: Sequence[qdrant_edge.SparseVector]) -> SparseVector:
    """Join vectors; a term that comes twice keeps its larger weight, since no index may come twice."""
    if len(vectors) == 1:  # of most texts, in which the engine has joined them
        [vector] = vectors
        alone = np.asarray(vector.indices, dtype=np.int64)
        order = np.argsort(alone)
        return SparseVector(alone[order], np.asarray(vector.values, dtype=np.float32)[order])
    every = np.concatenate([np.asarray(vector.indices, dtype=np.int64) for vector in vectors])
    weights = np.concatenate([np.asarray(vector.values, dtype=np.float32) for vector in vectors])
    indices, places = np.unique(every, return_inverse=True)
    values = np.zeros(len(indices), dtype=np.float32)
    np.maximum.at(values, places, weights)
    return SparseVector(indices, values)
