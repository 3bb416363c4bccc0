"""Takes back what was made of messages that were deleted or say something else now; it stays in the history.

Nothing is lost by it: the messages are read again, and what they still say is stored anew.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from memos.core.types import Item, ItemType, Status
from memos.memcube import changes
from memos.memcube import images as pictures
from memos.memcube import tools as trajectories
from memos.memcube.changes import Change
from memos.memcube.facts import WITHDRAWN, event_time, lose_sources
from memos.memcube.ledger import items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger import tools as tool_tasks


def retract(change: Change, origins: Collection[str]) -> list[str]:
    """Delete what was made of these items alone, and of the rest take them away as sources; return what was deleted.

    What a deleted fact had replaced is current again.
    """
    connection = change.connection
    made = items.current(connection, [change.cube], items.derived_from(connection, origins))
    refreshed = trajectories.refresh(change, origins)
    gone, shown = refreshed.withdrawn, set(origins) if refreshed.stored else set()
    for state in made.values():
        of_call = state.type is ItemType.TOOL_TRAJECTORY and state.key is not None
        if pictures.follow(change, state, WITHDRAWN) or state.status is Status.DELETED or of_call:
            continue
        others = items.origins_of(connection, [state.id])[state.id] - set(origins)
        if state.type is ItemType.SKILL:
            shown |= others
        live = items.current(connection, [change.cube], others)
        if any(other.status is not Status.DELETED for other in live.values()):
            lose_sources(change, state.id, origins)
            continue
        _let_go(change, state)
        edits = {"status": Status.DELETED, "info": {**state.info, WITHDRAWN: True}}
        changes.edit(change, state, edits, "what it was read from was deleted or changed", kind="delete")
        gone.append(state.id)
    moves.read_again(connection, change.cube, origins, change.now)
    pictures.look_again(change, origins)
    tool_tasks.enqueue(connection, change.cube, shown, change.now)
    if gone:
        gone += retract(change, gone)  # conclusions are made of facts
    return gone


def _let_go(change: Change, state: Item) -> None:
    """Close the gap that an item leaves among those of its key."""
    connection = change.connection
    v = t.versions
    query = sa.select(v.c.item_id).where(
        v.c.cube_id == change.cube, v.c.recorded_to.is_(None), v.c.superseded_by == state.id
    )
    before = items.current(connection, [change.cube], list(connection.scalars(query)))
    after = items.current(connection, [change.cube], [state.superseded_by] if state.superseded_by else [])
    for old in before.values():
        if old.status is not Status.SUPERSEDED:
            continue
        follower = after.get(state.superseded_by or "")
        edits: dict[str, Any]
        if follower is None:
            edits = {"status": Status.ACTIVE, "valid_to": None, "superseded_by": None}
            items.mark_outdated(connection, items.origins_of(connection, [old.id]).get(old.id, ()), outdated=False)
        else:
            edits = {"valid_to": event_time(follower), "superseded_by": follower.id}
        changes.edit(change, old, edits, "what replaced it was taken back")
