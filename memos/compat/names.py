"""Names of cubes and conversations for whatever ids MemoryOS programs use: stable, storable, never two ids alike. Pure.

An id that is plain already stays readable; any other one becomes what can be read of it and a digest of all of it.
"""

from __future__ import annotations

import hashlib
import re

from memos.core.types import Json
from memos.errors import InvalidInput

KNOWLEDGE = "memoryos knowledge"
"""Conversation of imported knowledge and profiles, which nobody said."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READABLE_CHARS = 32


def check_id(where: str, value: Json) -> str:
    """Return an id of any length and with any characters. Raises: InvalidInput when it is no text or blank."""
    if not isinstance(value, str):
        raise InvalidInput(where, f"must be text, not {type(value).__name__}")
    if not value.strip():
        raise InvalidInput(where, "is empty; give an id")
    return value


def cube_of_user(user_id: str) -> str:
    """Return the cube that holds a user's memory."""
    return f"memoryos-user-{_safe(user_id)}"


def cube_of_assistant(assistant_id: str) -> str:
    """Return the cube that holds an assistant's imported knowledge, which all its users share."""
    return f"memoryos-assistant-{_safe(assistant_id)}"


def conversation_with(assistant_id: str) -> str:
    """Return the conversation, in a user's cube, that the user has with an assistant."""
    return f"with-{_safe(assistant_id)}"


def _safe(given: str) -> str:
    if _PLAIN.fullmatch(given):
        return given
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", given)[:_READABLE_CHARS]
    # The tilde is in no plain id, so no plain one can be spelt like this.
    return f"~{readable}~{hashlib.sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
