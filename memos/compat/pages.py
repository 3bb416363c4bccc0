"""Pages and items as prompts show them: where a found message stands, its whole page, its chain note."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sa

from memos.compat.prompts import Exchange, Known
from memos.core.text.rendering import quoted
from memos.core.types import Item, Role
from memos.memcube.ledger import items, paging
from memos.memcube.ledger import segments as tiers
from memos.memcube.ledger.segments import Page

_NOTE_CHARS = 120
_NOTE_KEYWORDS = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Where a found message stands: a page of a conversation, or a page of its own."""

    cube: str
    conversation: str | None
    number: int
    lone: Item | None = None

    @classmethod
    def of(cls, item: Item) -> Place:
        """Return the place of a message."""
        if item.conversation is None or item.page is None:
            return cls(item.cube, None, 0, replace(item, info={}))
        return cls(item.cube, item.conversation, item.page)

    def read(self, connection: sa.Connection) -> tuple[Page | None, Page | None]:
        """Return the page, and the one before it."""
        if self.conversation is None:
            return (None if self.lone is None else Page(0, (self.lone,))), None
        found = paging.numbered(connection, self.cube, self.conversation, (self.number - 1, self.number))
        return found.get(self.number), found.get(self.number - 1)


def note_of(connection: sa.Connection, page: Page, before: Page | None) -> str:
    """Return the chain note of a page: the topic of its segment, and what was said just before."""
    notes = []
    places = tiers.segments_by_item(connection, [page.id])
    for segment in tiers.get_segments(connection, places.values()).values():
        notes.append(f"part of: {', '.join(list(segment.keywords)[:_NOTE_KEYWORDS])}")
    if before is not None:
        first = with_sources(connection, before).messages[0]
        text = " ".join(first.memory.split())
        notes.append(f"after: {quoted(first, text if len(text) <= _NOTE_CHARS else text[:_NOTE_CHARS] + '…')}")
    return "; ".join(notes)


def with_sources(connection: sa.Connection, page: Page) -> Page:
    """Return a page whose messages say where they come from."""
    told = items.sources_of(connection, [message.id for message in page.messages])
    return replace(page, messages=tuple(replace(each, sources=told.get(each.id, ())) for each in page.messages))


def exchange_of(page: Page, note: str = "") -> Exchange:
    """Return a page with its sources as a prompt shows it."""
    by_role = {
        role: "\n".join(quoted(message, message.memory) for message in page.messages if message.role is role)
        for role in (Role.USER, Role.ASSISTANT)
    }
    return Exchange(page.messages[0].said_at, by_role[Role.USER], by_role[Role.ASSISTANT], note)


def known_of(item: Item) -> Known:
    """Return an item with its sources as a prompt shows it."""
    return Known(quoted(item, item.memory), item.said_at or item.created_at)
