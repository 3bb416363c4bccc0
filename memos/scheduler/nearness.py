"""Finds stored items that a fact may be the same as: those of its type whose indexed text points the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from memos.filters import Condition, Op
from memos.memcube.ledger import cubes
from memos.memcube.ledger.engine import Ledger
from memos.model import Arm, Fact
from memos.ports import ArmQuery, Embedder, Vector, VectorIndex, VectorSearch
from memos.scheduler.consolidate import Near
from memos.text import render

_NEAREST = 5
LEAST_COSINE = 0.55
"""Below it two facts have nothing to do with each other; a judge is not asked about them."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """Asks the vector index; what it does not show yet is not near, and is merged another time."""

    ledger: Ledger
    index: VectorIndex
    embedder: Embedder

    def of(self, cube: str, facts: Sequence[Fact]) -> list[list[Near]]:
        """Return for each fact the nearest items of its type. Raises: BackendUnavailable, ModelError."""
        if not facts:
            return []
        with self.ledger.read() as connection:
            zone = cubes.zones(connection, [cube]).get(cube)
        vectors = self.embedder.embed_documents([turn_text(fact, zone) for fact in facts])
        return [self._near(cube, fact, vector) for fact, vector in zip(facts, vectors, strict=True)]

    def _near(self, cube: str, fact: Fact, vector: Vector) -> list[Near]:
        kind = Condition("type", Op.EQ, str(fact.type))
        request = VectorSearch((cube,), (ArmQuery(Arm.TURN, vector),), _NEAREST, kind, None, live=True)
        [found] = self.index.search(request)
        return [Near(point.item, point.score) for point in found if point.score >= LEAST_COSINE]


def turn_text(fact: Fact, zone: tzinfo | None) -> str:
    """Return a fact as the turn arms index it."""
    return render.dated(fact.said_at.astimezone(zone), render.said(fact.subject, fact.memory))


NearOf = Callable[[str, Sequence[Fact]], list[list[Near]]]
"""Returns for each fact of a cube the items near it."""
