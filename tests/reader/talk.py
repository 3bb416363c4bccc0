"""Builds stored messages for tests of what reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

from memos.core.types import Item, ItemType, Role, Source, Status, Tier, Trust

SAID = datetime(2023, 5, 8, 10, 0, tzinfo=UTC)
"""A Monday."""
STORED = datetime(2023, 5, 9, 8, 0, tzinfo=UTC)
_NUMBERS = count()


def said(
    text: str,
    role: Role = Role.USER,
    speaker: str | None = None,
    *,
    at: datetime | None = SAID,
    trust: Trust = Trust.TRUSTED,
) -> Item:
    """Return a stored message with its source."""
    number = next(_NUMBERS)
    speaker = speaker or ("Ana" if role is Role.USER else str(role))
    source = Source(f"s{number}", 0, len(text), speaker, at or STORED, text, trust=trust)
    return Item(
        id=f"m{number}",
        cube="alice",
        version=1,
        version_id=f"v{number}",
        memory=text,
        type=ItemType.MESSAGE,
        tier=Tier.MID,
        status=Status.ACTIVE,
        speaker=speaker,
        role=role,
        key=None,
        value=None,
        tags=(),
        info={},
        confidence=1.0,
        entities=(),
        keywords=(),
        conversation="c",
        position=number,
        page=number,
        session=1,
        said_at=at,
        valid_from=at,
        valid_to=None,
        created_at=STORED,
        updated_at=STORED,
        sources=(source,),
    )
