"""Orders texts by how well they answer a question, by a reranker or by vectors and words alone; knows no store."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from memos.core.ports import Embedder, Reranker, SparseEncoder, SparseVector
from memos.core.settings import LimitSettings
from memos.core.text.validation import check_text
from memos.core.tokens import estimate_tokens
from memos.core.types import Hit, ItemType, Json, SearchResult
from memos.errors import InvalidInput
from memos.reader.arguments import within
from memos.search.rerank import checked

# `MemOS.recall`: one question asked of each kind of memory apart, so that none pushes out another.


class Kind(StrEnum):
    """A kind of memory as those who ask see it."""

    MEMORY = "memory"
    PREFERENCE = "preference"
    TOOL = "tool"
    SKILL = "skill"


_APART = {
    Kind.PREFERENCE: (ItemType.PREFERENCE, ItemType.INSTRUCTION),
    Kind.TOOL: (ItemType.TOOL_SCHEMA, ItemType.TOOL_TRAJECTORY),
    Kind.SKILL: (ItemType.SKILL,),
}
TYPES: Mapping[Kind, tuple[ItemType, ...]] = {
    Kind.MEMORY: tuple(type_ for type_ in ItemType if not any(type_ in types for types in _APART.values())),
    **_APART,
}
"""Which items are of each kind; every type is of exactly one."""

Searching = Callable[[int, Mapping[str, Json]], SearchResult]


def kind_of(type_: ItemType) -> Kind:
    """Return the kind that items of a type are of."""
    return next(kind for kind, types in TYPES.items() if type_ in types)


def only(kind: Kind, filter_: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Return a filter for items of one kind that pass another filter too."""
    mine: dict[str, Json] = {"type": {"in": [str(type_) for type_ in TYPES[kind]]}}
    return mine if not filter_ else {"and": [mine, dict(filter_)]}


def recall(
    searching: Searching, limits: Mapping[Kind, int], filter_: Mapping[str, Json] | None, least: float
) -> dict[Kind, tuple[Hit, ...]]:
    """Return the best hits of each kind with a limit above 0; those below the least relevance are left out.

    Raises: InvalidInput.
    """
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise InvalidInput("relevance", "must be a number from 0 to 1")
    found: dict[Kind, tuple[Hit, ...]] = {}
    for kind, most in limits.items():
        hits = searching(most, only(kind, filter_)).hits if most else ()
        found[kind] = tuple(hit for hit in hits if hit.relevance >= least)
    return found


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


@dataclass(frozen=True, slots=True)
class Given:
    """A question and texts that were checked, and how many results are wanted."""

    query: str
    texts: tuple[str, ...]
    wanted: int


def check_given(query: str, documents: Sequence[str], limits: LimitSettings, top_n: int | None = None) -> Given:
    """Return what was given to be put in order. Raises: InvalidInput."""
    query = check_text("query", query, limits.query_chars * 4)
    if not query.strip():
        raise InvalidInput("query", "is empty; ask something")
    if isinstance(documents, str) or not isinstance(documents, Sequence) or not documents:
        raise InvalidInput("documents", "must be a list of at least one text")
    if len(documents) > MOST_TEXTS:
        raise InvalidInput("documents", f"has {len(documents):,} texts, at most {MOST_TEXTS} are taken")
    texts = tuple(check_text(f"documents[{n}]", text, limits.message_bytes) for n, text in enumerate(documents))
    wanted = len(texts) if top_n is None else within("top_n", top_n, 1, 2**31 - 1)
    return Given(query, texts, wanted)


def by_reranker(given: Given, reranker: Reranker) -> Reranked:
    """Return the texts that answer a question best. Raises: ModelError, BackendUnavailable, BackendTimeout."""
    scores = checked(reranker.scores(given.query, given.texts), len(given.texts), reranker.name)
    if min(scores) < 0 or max(scores) > 1:  # a model's own scale
        scores = [_logistic(score) for score in scores]
    return _best(given, scores, reranker.name)


def by_vectors_and_words(given: Given, embedder: Embedder, terms: SparseEncoder) -> Reranked:
    """Return the texts that answer a question best. Raises: ModelError."""
    cosines = embedder.embed_documents(given.texts) @ embedder.embed_query(given.query)
    asked = terms.encode_query(given.query)
    words = _word_scores(asked, [terms.encode_document(text) for text in given.texts])
    by_term = max(1, len(asked.indices))
    scores = [
        _logistic(_COSINE * float(cosine) + _TERMS * word / by_term + _BIAS)
        for cosine, word in zip(cosines, words, strict=True)
    ]
    return _best(given, scores, embedder.fingerprint.name)


def _best(given: Given, scores: Sequence[float], model: str) -> Reranked:
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[: given.wanted]
    tokens = estimate_tokens(given.query) + sum(map(estimate_tokens, given.texts))
    return Reranked(model, tuple(Ranked(n, round(scores[n], 6)) for n in order), tokens)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-500.0, min(500.0, value))))


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
