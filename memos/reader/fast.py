"""The fast reader: one draft a message, its names, keywords, times and first-person facts found by pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from memos.core.text.entities import entities
from memos.core.text.keywords import keywords
from memos.core.text.statements import key_of, statements
from memos.core.text.times import time_expressions
from memos.core.types import Draft, Json, Message, Role

READER = "fast/3"
# Patterns look for what people say of themselves; a pasted megabyte is not that.
_SCAN_CHARS = 4_000


def read(messages: Sequence[Message], tags: Sequence[str], info: Mapping[str, Json], zone: ZoneInfo) -> list[Draft]:
    """Return one draft for each message, the text as written, its span the whole message; days are those of `zone`."""
    return [_draft(message, tuple(tags), info, zone) for message in messages]


def stated(text: str, speaker: str, role: Role, said_at: datetime | None, zone: ZoneInfo) -> dict[str, Any]:
    """Return key, value, entities, keywords and validity of a text, as its speaker's words at that time.

    The first time it names is when what it tells of was or will be; without one that is when it was said.
    """
    head = text[:_SCAN_CHARS]
    found = statements(head) if role is Role.USER else []
    first = found[0] if found else None
    times = time_expressions(head, said_at, zone) if said_at is not None and role is not Role.TOOL else ()
    return {
        "key": key_of(speaker, first.attribute) if first else None,
        "value": first.value if first else None,
        "entities": entities(head) if role is not Role.TOOL else (),
        "keywords": keywords(head) if role is not Role.TOOL else (),
        "valid_from": times[0].valid_from if times else said_at,
        "valid_to": times[0].valid_to if times else None,
    }


def _draft(message: Message, tags: tuple[str, ...], info: Mapping[str, Json], zone: ZoneInfo) -> Draft:
    return Draft(
        message=message,
        memory=message.text,
        start=0,
        end=len(message.text),
        reader=READER,
        tags=tags,
        info=info if message.duration_s is None else {**info, "duration_s": message.duration_s},
        **stated(message.text, message.name or message.role, message.role, message.chat_time, zone),
    )
