"""The fast reader: one draft a message, with names and first-person facts found by pattern; no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memos.model import Draft, Json, Message, Role
from memos.text.entities import entities
from memos.text.statements import key_of, statements

READER = "fast/1"
# Patterns look for what people say of themselves; a pasted megabyte is not that.
_SCAN_CHARS = 4_000


def read(messages: Sequence[Message], tags: Sequence[str], info: Mapping[str, Json]) -> list[Draft]:
    """Return one draft for each message, the text as written, its span the whole message."""
    return [_draft(message, tuple(tags), info) for message in messages]


def stated(text: str, speaker: str, role: Role) -> dict[str, Any]:
    """Return key, value and entities of a text, as its speaker's words."""
    head = text[:_SCAN_CHARS]
    found = statements(head) if role is Role.USER else []
    first = found[0] if found else None
    return {
        "key": key_of(speaker, first.attribute) if first else None,
        "value": first.value if first else None,
        "entities": entities(head) if role is not Role.TOOL else (),
    }


def _draft(message: Message, tags: tuple[str, ...], info: Mapping[str, Json]) -> Draft:
    return Draft(
        message=message,
        memory=message.text,
        start=0,
        end=len(message.text),
        reader=READER,
        tags=tags,
        info=info,
        valid_from=message.chat_time,
        **stated(message.text, message.name or message.role, message.role),
    )
