"""BM25 term weights from the Qdrant engine's own tokenizer, for both vector backends; IDF is the index's part."""

from __future__ import annotations

import numpy as np
import qdrant_edge

from memos.ports import SparseVector

AVERAGE_TOKENS = 48.0
"""Tokens of a usual text here: a turn has about 25, a window of three about 75."""


class QdrantBm25:
    """English stemming and stop words over a tokenizer that also splits Chinese and Japanese; thread-safe.

    k = 1.2 and b = 0.75 are the engine's defaults. Source: Robertson and Zaragoza, "The Probabilistic
    Relevance Framework", 2009, section 3.5.
    """

    def __init__(self) -> None:
        self._bm25 = qdrant_edge.Bm25(
            qdrant_edge.Bm25Config(
                tokenizer=qdrant_edge.TokenizerType.Multilingual,
                language="english",
                lowercase=True,
                ascii_folding=True,
                avg_len=AVERAGE_TOKENS,
            )
        )

    def encode_document(self, text: str) -> SparseVector:
        """Return the saturated term frequencies of a stored text."""
        return _merged(self._bm25.embed_document(text))

    def encode_query(self, text: str) -> SparseVector:
        """Return the query's terms, weight 1 each; empty when it has no indexable term."""
        return _merged(self._bm25.embed_query(text))


def _merged(vector: qdrant_edge.SparseVector) -> SparseVector:
    """Join terms whose hashes collide: no index may come twice."""
    indices, places = np.unique(np.asarray(vector.indices, dtype=np.int64), return_inverse=True)
    values = np.zeros(len(indices), dtype=np.float32)
    np.maximum.at(values, places, np.asarray(vector.values, dtype=np.float32))
    return SparseVector(indices, values)
