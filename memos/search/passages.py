"""Find the passage of a long memory that answers a question.

An index holds a long memory in chunks. The passage is the chunk that is nearest to the question, by the cosine of its
vector and by the terms that both have, each scaled over the chunks of that memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memos.core.ports import SparseEncoder, SparseVector, Vector, VectorIndex
from memos.core.types import Item, ItemType
from memos.errors import BackendUnavailable
from memos.memcube.indexing.followers import VectorFollower, point_id


def passages(
    states: Sequence[Item],
    question: Vector,
    terms: SparseVector,
    follower: VectorFollower,
    index: VectorIndex,
    encoder: SparseEncoder,
) -> dict[str, str]:
    """Return by id the passages of those memories that an index holds in more than one chunk.

    Args:
        states: Found memories.
        question: Unit vector of the question, of shape (dimension,).
        terms: The question's terms.
        follower: Cuts memories into chunks as the index does.
        index: Holds the vectors of the chunks; without it terms alone decide.
        encoder: Encodes the terms of a chunk.
    """
    spans = {state.id: follower.spans_of(state) for state in states if state.type != ItemType.RECORD}
    long = [state for state in states if len(spans.get(state.id, ())) > 1]
    if not long:
        return {}
    points = {
        state.id: [point_id(state.version_id, number) for number in range(len(spans[state.id]))] for state in long
    }
    try:
        vectors = index.turns([point for ids in points.values() for point in ids])
    except BackendUnavailable:
        vectors = {}
    found: dict[str, str] = {}
    for state in long:
        texts = [state.memory[start:end] for start, end in spans[state.id]]
        near = np.array([vectors[point] @ question if point in vectors else 0.0 for point in points[state.id]])
        documents = [encoder.encode_document(text) for text in texts]
        shared = np.array([each.values[np.isin(each.indices, terms.indices)].sum() for each in documents])
        found[state.id] = texts[int(np.argmax(_scaled(near) + _scaled(shared)))]
    return found


def _scaled(scores: Vector) -> Vector:
    """Return scores from 0 for the lowest to 1 for the highest, all 0 where they are equal."""
    width = scores.max() - scores.min()
    return (scores - scores.min()) / width if width > 0 else np.zeros_like(scores)
