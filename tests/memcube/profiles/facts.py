"""Messages and facts as the readers of a segment would hand them over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memos import MemOS
from memos.core.text.statements import key_of
from memos.core.types import Fact, Item, ItemType, Role, Source, Span, Status, Tier, Trust

DAY = datetime(2025, 3, 1, 9, tzinfo=UTC)


def message(
    text: str, speaker: str = "Anna", *, number: int = 1, role: Role = Role.USER, trust: Trust = Trust.TRUSTED
) -> Item:
    at = DAY.replace(day=number)
    source = Source(f"row-{speaker}-{number}", 0, len(text), speaker, at, text, trust=trust)
    return Item(
        id=f"{speaker}-{number}", cube="c", version=1, version_id=f"v-{speaker}-{number}", memory=text,
        type=ItemType.MESSAGE, tier=Tier.MID, status=Status.ACTIVE, speaker=speaker, role=role, key=None, value=None,
        tags=(), info={}, confidence=1.0, entities=(), keywords=(), conversation=None, position=None, page=None,
        session=None, said_at=at, valid_from=at, valid_to=None, created_at=at, updated_at=at, sources=(source,),
    )  # fmt: skip


def statement(said: Item, attribute: str, value: str, **fields: Any) -> Fact:
    """What a reader makes of a message that states an attribute."""
    place = said.memory.find(value)
    start = max(place, 0)
    span = Span(said.id, start, start + len(value) if place >= 0 else len(said.memory))
    known: dict[str, Any] = {
        "type": ItemType.USER, "memory": said.memory, "spans": (span,), "subject": said.speaker, "reader": "test/1",
        "said_at": said.said_at, "key": key_of(said.speaker, attribute), "value": value,
        "valid_from": said.said_at,
    }  # fmt: skip
    return Fact(**{**known, **fields})


def preference(said: Item, **fields: Any) -> Fact:
    whole = (Span(said.id, 0, len(said.memory)),)
    return statement(said, "likes", said.memory, type=ItemType.PREFERENCE, key=None, spans=whole, **fields)


def say(memos: MemOS, text: str, speaker: str = "Anna", *, day: int = 1, **fields: Any) -> Item:
    """Add a message and return its item with sources."""
    at = DAY.replace(day=day)
    told = {"role": "user", "name": speaker, "content": text, "chat_time": at.isoformat(), **fields}
    return memos.get(memos.add([told]).item_ids[0])
