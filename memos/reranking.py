"""Orders texts by how well they answer a question, by vectors and words alone; knows no store and no language model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memos.errors import InvalidInput
from memos.ports import Embedder, SparseEncoder, SparseVector
from memos.reader.fields import within
from memos.settings import LimitSettings
from memos.text.checks import check_text
from memos.tokens import estimate_tokens

MOST_TEXTS: Final = 500
# The weights of `memos.search.relevance` for a memory alone: its cosine, and its words by the number of the question's.
_COSINE: Final = 2.739
_TERMS: Final = 1.205
_BIAS: Final = -2.705


@dataclass(frozen=True, slots=True)
class Ranked:
    """One text by its place in what was given, with a score from 0 to 1."""

    index: int
    score: float


@dataclass(frozen=True, slots=True)
class Reranked:
    """Texts, the best first; `tokens` estimates what was read."""

    model: str
    results: tuple[Ranked, ...]
    tokens: int


def rerank(
    query: str, documents: Sequence[str], embedder: Embedder, terms: SparseEncoder, limits: LimitSettings,
    top_n: int | None = None,
) -> Reranked:  # fmt: skip
    """Return the texts that answer a question best. Raises: InvalidInput, ModelError."""
    query = check_text("query", query, limits.query_chars * 4)
    if not query.strip():
        raise InvalidInput("query", "is empty; ask something")
    if isinstance(documents, str) or not isinstance(documents, Sequence) or not documents:
        raise InvalidInput("documents", "must be a list of at least one text")
    if len(documents) > MOST_TEXTS:
        raise InvalidInput("documents", f"has {len(documents):,} texts, at most {MOST_TEXTS} are taken")
    texts = [check_text(f"documents[{n}]", text, limits.message_bytes) for n, text in enumerate(documents)]
    wanted = len(texts) if top_n is None else within("top_n", top_n, 1, 2**31 - 1)
    cosines = embedder.embed_documents(texts) @ embedder.embed_query(query)
    asked = terms.encode_query(query)
    words = _word_scores(asked, [terms.encode_document(text) for text in texts])
    by_term = max(1, len(asked.indices))
    scores = [
        1 / (1 + math.exp(-(_COSINE * float(cosine) + _TERMS * word / by_term + _BIAS)))
        for cosine, word in zip(cosines, words, strict=True)
    ]
    order = sorted(range(len(texts)), key=lambda place: (-scores[place], place))[:wanted]
    tokens = estimate_tokens(query) + sum(map(estimate_tokens, texts))
    return Reranked(embedder.fingerprint.name, tuple(Ranked(n, round(scores[n], 6)) for n in order), tokens)


def _word_scores(asked: SparseVector, texts: Sequence[SparseVector]) -> list[float]:
    """Return each text's BM25 score, words counting the more the fewer of these texts have them."""
    seen = Counter(int(term) for text in texts for term in text.indices)
    rarity = {
        int(term): math.log(1 + (len(texts) - seen[int(term)] + 0.5) / (seen[int(term)] + 0.5))
        for term in asked.indices
    }
    return [
        sum(float(weight) * rarity.get(int(term), 0.0) for term, weight in zip(text.indices, text.values, strict=True))
        for text in texts
    ]
