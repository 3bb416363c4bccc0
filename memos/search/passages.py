"""Find the passage of a long memory that answers a question.

An index holds a long memory in chunks. The passage is the chunk that is nearest to the question, by the cosine of its
vector and by the terms that both have, each scaled over the chunks of that memory. A term counts the more, the fewer of
the chunks have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memos.core.ports import SparseEncoder, SparseVector, Vector, VectorIndex
from memos.core.types import Item
from memos.errors import BackendUnavailable
from memos.memcube.indexing.followers import VectorFollower, point_id

# Characters from which a chunk is cut further: a model may count a word that it does not know as one token.
_MOST_CHARS = 1_500
_MOST_READ = 500_000  # characters of all memories of a search: those after have no passage
_BREAKS = ("\n", ". ", " ")


def passages(
    states: Sequence[Item],
    question: Vector,
    terms: SparseVector,
    follower: VectorFollower,
    index: VectorIndex,
    encoder: SparseEncoder,
) -> dict[str, str]:
    """Return by id the passages of those memories that an index holds in more than one chunk, or in a very long one.

    Args:
        states: Found memories, best first.
        question: Unit vector of the question, of shape (dimension,).
        terms: The question's terms.
        follower: Cuts memories into chunks as the index does.
        index: Holds the vectors of the chunks; without it terms alone decide.
        encoder: Encodes the terms of a chunk.
    """
    left = _MOST_READ
    pieces: dict[str, list[tuple[str, int]]] = {}
    for state in states:
        if len(state.memory) <= left:
            left -= len(state.memory)
            pieces[state.id] = list(_pieces(state.memory, follower.spans_of(state)))
    long = [state for state in states if len(pieces.get(state.id, ())) > 1]
    if not long:
        return {}
    points = {state.id: [point_id(state.version_id, number) for _, number in pieces[state.id]] for state in long}
    try:
        vectors = index.turns(list(dict.fromkeys(point for ids in points.values() for point in ids)))
    except BackendUnavailable:
        vectors = {}
    found: dict[str, str] = {}
    for state in long:
        texts = [text for text, _ in pieces[state.id]]
        near = np.array([vectors[point] @ question if point in vectors else 0.0 for point in points[state.id]])
        best = np.argmax(_scaled(near) + _scaled(_shared(texts, terms, encoder)))
        found[state.id] = texts[int(best)]
    return found


def _pieces(memory: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[str, int]]:
    """Yield texts of at most so many characters, each with the number of its chunk."""
    for number, (begin, end) in enumerate(spans):
        start = begin
        while start < end:
            cut = end if end - start <= _MOST_CHARS else _cut(memory, start)
            if text := memory[start:cut].strip():
                yield text, number
            start = cut


def _cut(memory: str, start: int) -> int:
    """Return where the next piece ends: after a line, a sentence or a word."""
    least, most = start + _MOST_CHARS // 2, start + _MOST_CHARS
    found = (memory.rfind(sign, least, most) for sign in _BREAKS)
    return next((place + 1 for place in found if place > 0), most)


def _shared(texts: Sequence[str], terms: SparseVector, encoder: SparseEncoder) -> Vector:
    """Return how much of the question's terms each text has, in BM25 weights with the texts as the corpus."""
    weights = np.zeros((len(texts), len(terms.indices)))
    for row, document in zip(weights, map(encoder.encode_document, texts), strict=True):
        known = dict(zip(document.indices.tolist(), document.values.tolist(), strict=True))
        row[:] = [known.get(term, 0.0) for term in terms.indices.tolist()]
    having = (weights > 0).sum(axis=0)
    rarity = np.log1p((len(texts) - having + 0.5) / (having + 0.5))
    shared: Vector = weights @ rarity
    return shared


def _scaled(scores: Vector) -> Vector:
    """Return scores from 0 for the lowest to 1 for the highest, all 0 where they are equal."""
    width = scores.max() - scores.min()
    return (scores - scores.min()) / width if width > 0 else np.zeros_like(scores)
