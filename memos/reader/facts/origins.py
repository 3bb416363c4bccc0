"""What facts take over from the messages they were read in: when it was said, and how far it may be trusted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from memos.core.types import Item, Trust


def said_at(item: Item) -> datetime:
    """Return when a message was said, or stored when nobody knows."""
    return item.said_at or item.created_at


def trust_of(items: Sequence[Item]) -> Trust:
    """Return untrusted when any source of any of the items is."""
    doubtful = any(source.trust is Trust.UNTRUSTED for item in items for source in item.sources)
    return Trust.UNTRUSTED if doubtful else Trust.TRUSTED
