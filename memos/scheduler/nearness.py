"""Finds stored items that a fact may be the same as: those of its type whose indexed text points the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memos.core.filters import Condition, Op
from memos.core.ports import ArmQuery, Embedder, Vector, VectorIndex, VectorSearch
from memos.core.text import render
from memos.core.types import Arm, Fact
from memos.scheduler.consolidation import Near

_NEAREST = 5
LEAST_COSINE = 0.55
"""Below it two facts have nothing to do with each other; a judge is not asked about them."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """Asks the vector index; what it does not show yet is not near, and is merged another time."""

    index: VectorIndex
    embedder: Embedder

    def of(self, cube: str, facts: Sequence[Fact]) -> list[list[Near]]:
        """Return for each fact the nearest items of its type. Raises: BackendUnavailable, ModelError."""
        if not facts:
            return []
        vectors = self.embedder.embed_documents([render.said(fact.subject, fact.memory) for fact in facts])
        return [self._near(cube, fact, vector) for fact, vector in zip(facts, vectors, strict=True)]

    def _near(self, cube: str, fact: Fact, vector: Vector) -> list[Near]:
        kind = Condition("type", Op.EQ, str(fact.type))
        request = VectorSearch((cube,), (ArmQuery(Arm.TURN, vector),), _NEAREST, kind, None, live=True)
        [found] = self.index.search(request)
        return [Near(point.item, point.score) for point in found if point.score >= LEAST_COSINE]


NearOf = Callable[[str, Sequence[Fact]], list[list[Near]]]
"""Returns for each fact of a cube the items near it."""
