"""Asks the ledger how far what stands in it may be trusted."""

from __future__ import annotations

import sqlalchemy as sa

from memos.core.types import Trust
from memos.memcube.ledger.schema import items, messages, pages, sources


def has_untrusted(connection: sa.Connection, segment: str) -> bool:
    """Say whether any message of a segment's pages comes from a source that may say anything."""
    in_page = sa.and_(pages.c.conversation_id == items.c.conversation_id, pages.c.number == items.c.page)
    alone = sa.and_(pages.c.conversation_id.is_(None), pages.c.id == items.c.id)
    for joined in (in_page, alone):
        query = (
            sa.select(items.c.id)
            .join(pages, joined)
            .join(sources, sources.c.item_id == items.c.id)
            .join(messages, messages.c.id == sources.c.message_id)
            .where(pages.c.segment_id == segment, messages.c.trust == Trust.UNTRUSTED)
            .limit(1)
        )
        if connection.scalar(query) is not None:
            return True
    return False
