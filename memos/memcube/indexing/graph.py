"""Projects items into the graph index: who was said after whom, who mentions the same names, what replaced what."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import sqlalchemy as sa

from memos.core.ports import GraphIndex, GraphNode
from memos.core.types import Item, Status
from memos.memcube.changes import WINDOW
from memos.memcube.ledger import cubes, items
from memos.memcube.ledger.engine import Ledger


class GraphFollower:
    """Keeps a `GraphIndex` equal to the ledger; deleted items are not in it."""

    def __init__(self, ledger: Ledger, index: GraphIndex) -> None:
        self._ledger = ledger
        self._index = index

    def project(self, item_ids: Sequence[str]) -> None:
        """Write the current nodes of these items and remove those that are deleted or erased."""
        with self._ledger.read() as connection:
            states = {item_id: versions[-1] for item_id, versions in items.all_versions(connection, item_ids).items()}
            live = {item_id: state for item_id, state in states.items() if state.status is not Status.DELETED}
            revisions = items.revisions(connection, live)
            links = items.links_from(connection, live)
            salts = {cube: cubes.entity_salt(connection, cube) for cube in {state.cube for state in live.values()}}
            previous = {item_id: self._previous(connection, state) for item_id, state in live.items()}
        gone = [item_id for item_id in item_ids if item_id not in live]
        if gone:
            self._index.delete(gone)
        self._index.upsert(
            [
                GraphNode(
                    id=state.id,
                    cube=state.cube,
                    revision=revisions[state.id],
                    conversation=state.conversation and digest(salts[state.cube], "conversation", state.conversation),
                    previous=previous[state.id],
                    entities=tuple(digest(salts[state.cube], "entity", name) for name in state.entities),
                    links=tuple(links.get(state.id, ())),
                )
                for state in live.values()
            ]
        )

    @staticmethod
    def _previous(connection: sa.Connection, state: Item) -> str | None:
        """Return the nearest earlier message of the conversation that is not deleted, within a window's reach."""
        before = items.before_in_conversation(connection, state, WINDOW - 1)
        known = items.current(connection, [state.cube], before)
        return next((other for other in before if known[other].status is not Status.DELETED), None)

    def flush(self, mark: int) -> None:
        """Flush the index."""
        self._index.flush(mark)

    def mark(self) -> int:
        """Return the index's mark."""
        return self._index.mark()

    def incarnation(self) -> int:
        """Return how often the engine restarted."""
        return self._index.incarnation


def digest(salt: bytes, kind: str, name: str) -> str:
    """Return the graph's id of a name: equal names meet in one node, and no name can be read from it."""
    text = f"{kind}\0{' '.join(name.casefold().split())}"
    return hashlib.blake2b(text.encode(), key=salt, digest_size=16).hexdigest()
