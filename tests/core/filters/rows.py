"""Puts items straight into a ledger and an index, whatever their fields: what the filter tests ask about."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from memos.backends.encoders.bm25 import QdrantBm25
from memos.core.clock import new_id
from memos.core.ports import Vector, VectorIndex, VectorPoint
from memos.core.types import Cube, Fingerprint, Item, ItemType, Role, Status, Tier
from memos.memcube.indexing.followers import Chunk, payload_of, point_id
from memos.memcube.ledger import cubes, items, schema
from memos.memcube.ledger.engine import Ledger

DIMENSION = 8
THEN = datetime(2025, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
_NO_TERMS = QdrantBm25().encode_document("")


def make_cube(ledger: Ledger, cube: str = "a") -> None:
    with ledger.write() as connection:
        cubes.create(connection, Cube(cube, "o", "", "UTC", Fingerprint("words", DIMENSION, "none", True), THEN))


def item(**fields: Any) -> Item:
    """Return an item's first version; `fields` say what is not as plain as this."""
    plain = {
        **dict.fromkeys(field.name for field in dataclasses.fields(Item)),
        "id": new_id(), "cube": "a", "version": 1, "version_id": new_id(), "memory": "text", "type": ItemType.MESSAGE,
        "tier": Tier.SHORT, "status": Status.ACTIVE, "speaker": "user", "role": Role.USER, "tags": (), "info": {},
        "confidence": 1.0, "entities": (), "keywords": (), "created_at": THEN, "updated_at": THEN, "sources": (),
    }  # fmt: skip
    return Item(**{**plain, **fields})


def write(ledger: Ledger, stories: Sequence[Sequence[Item]]) -> None:
    """Store each story, one item's versions, oldest first; each but the last has its `recorded_to`."""
    rows = []
    with ledger.write() as connection:
        names = {story[-1].conversation for story in stories} - {None}
        conversations = {name: new_id() for name in names}
        for name, row_id in conversations.items():
            connection.execute(
                sa.insert(schema.conversations).values(
                    id=row_id, cube_id="a", name=name, next_position=0, next_page=0, created_at=THEN
                )
            )
        for story in stories:
            last = story[-1]
            rows.append(
                {
                    "id": last.id,
                    "cube_id": last.cube,
                    "version": last.version,
                    "version_id": last.version_id,
                    "conversation_id": conversations.get(last.conversation),
                    "position": None,
                    "page": None,
                    "revision": 1,
                    "said_at": last.said_at,
                    "created_at": last.created_at,
                    "record_id": last.record_id,
                    "expires_at": last.expires_at,
                }
            )
        connection.execute(sa.insert(schema.items), rows)
        for place in range(max(map(len, stories), default=0)):
            states = [story[place] for story in stories if len(story) > place]
            items.insert_versions(connection, states, "o", "added")
            for state in states:
                if state.recorded_to is not None:
                    mine = sa.update(schema.versions).where(schema.versions.c.id == state.version_id)
                    connection.execute(mine.values(recorded_to=state.recorded_to))


def index_all(index: VectorIndex, states: Sequence[Item], vectors: Vector) -> None:
    """Write one point for each state; `vectors` has a row for each."""
    for start in range(0, len(states), 500):
        index.upsert(
            [
                VectorPoint(
                    point_id(s.version_id, 0), payload_of(Chunk(s, 0, s.memory, "", ""), 1), v, v, _NO_TERMS, _NO_TERMS
                )
                for s, v in zip(states[start : start + 500], vectors[start : start + 500], strict=True)
                for payload in [payload_of(Chunk(s, 0, s.memory, s.memory, s.memory), 1)]
            ]
        )


def clear(ledger: Ledger, index: VectorIndex, states: Sequence[Item]) -> None:
    """Take everything out again."""
    with ledger.write() as connection:
        for table in (schema.versions, schema.items, schema.conversations):
            connection.execute(sa.delete(table))
    index.prune({state.id: None for state in states})


def ones(count: int) -> Vector:
    """Return vectors that every question finds."""
    return np.ones((count, DIMENSION), dtype=np.float32)
