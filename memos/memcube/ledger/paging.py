"""Pages of one conversation as rows: the newest of the short tier, some by their numbers, how many there are."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from memos.core.types import FOUND, Item
from memos.memcube.ledger import items
from memos.memcube.ledger.schema import conversations
from memos.memcube.ledger.schema import items as item_rows
from memos.memcube.ledger.segments import Page


def numbered(connection: sa.Connection, cube: str, conversation: str, numbers: Collection[int]) -> dict[int, Page]:
    """Return those of a conversation's pages that are there, by number, without deleted messages."""
    here = conversations.c.id == item_rows.c.conversation_id
    query = sa.select(item_rows.c.id).join(conversations, here)
    query = query.where(conversations.c.cube_id == cube, conversations.c.name == conversation)
    ids = connection.scalars(query.where(item_rows.c.page.in_(sorted(numbers)))).all()
    found: dict[int, list[Item]] = {}
    for state in sorted(items.current(connection, [cube], ids).values(), key=lambda state: state.position or 0):
        if state.status in FOUND:
            found.setdefault(state.page or 0, []).append(state)
    return {number: Page(number, tuple(messages)) for number, messages in found.items()}


def newest(connection: sa.Connection, cube: str, conversation: str, most: int) -> tuple[Page, ...]:
    """Return the newest pages of a conversation that are in the short tier, oldest first."""
    here = (conversations.c.cube_id == cube, conversations.c.name == conversation)
    place = connection.execute(
        sa.select(conversations.c.first_short, conversations.c.next_page).where(*here)
    ).one_or_none()
    if place is None:
        return ()
    first = max(place.first_short, place.next_page + 1 - most)
    found = numbered(connection, cube, conversation, range(first, place.next_page + 1))
    return tuple(found[number] for number in sorted(found))
