"""Takes back what was made of messages that were deleted or say something else now; it stays in the history.

Nothing is lost by it: the messages are read again, and what they still say is stored anew.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from memos.memcube import changes, pictures
from memos.memcube.changes import Change
from memos.memcube.facts import event_time
from memos.memcube.ledger import items, moves
from memos.memcube.ledger import schema as t
from memos.model import Item, LinkKind, Status

WITHDRAWN = "withdrawn"
"""In `info` of what was deleted since its message says it no more: reading that again may bring it back."""


def withdraw(change: Change, origins: Collection[str]) -> list[str]:
    """Delete what was made of these items alone, and of the rest take them away as sources; return what was deleted.

    What a deleted fact had replaced is current again.
    """
    connection = change.connection
    made = items.current(connection, [change.cube], items.derived_from(connection, origins))
    gone: list[str] = []
    for state in made.values():
        if pictures.follow(change, state, WITHDRAWN) or state.status is Status.DELETED:
            continue
        others = items.origins_of(connection, [state.id])[state.id] - set(origins)
        live = items.current(connection, [change.cube], others)
        if any(other.status is not Status.DELETED for other in live.values()):
            _take_sources_away(change, state.id, origins)
            continue
        _let_go(change, state)
        edits = {"status": Status.DELETED, "info": {**state.info, WITHDRAWN: True}}
        changes.edit(change, state, edits, "what it was read from was deleted or changed", kind="delete")
        gone.append(state.id)
    moves.read_again(connection, origins)
    pictures.look_again(change, origins)
    if gone:
        gone += withdraw(change, gone)  # conclusions are made of facts
    return gone


def _take_sources_away(change: Change, item_id: str, origins: Collection[str]) -> None:
    connection = change.connection
    said = sa.select(t.sources.c.message_id).where(t.sources.c.item_id.in_(list(origins)))
    mine = sa.delete(t.sources).where(t.sources.c.item_id == item_id, t.sources.c.message_id.in_(said))
    connection.execute(mine)
    of_them = (t.links.c.from_id == item_id, t.links.c.kind == LinkKind.DERIVED_FROM)
    connection.execute(sa.delete(t.links).where(*of_them, t.links.c.to_id.in_(list(origins))))
    changes.retell(change, item_id)


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
