"""One message of an export with its place, and what the formats share: role names, conversation names, content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memos.core.types import Json, Role

_ROLES = {
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "bot": Role.ASSISTANT,
    "chatbot": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
    **{str(role): role for role in Role},
}


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """One message of an export, with where it stands; `problem` says why it cannot be read.

    `left_out` counts what the export keeps but nobody said in the conversation: hidden or empty turns, other
    branches, reasoning. A record that is nothing else has an empty message. `tags` and `info` are stored with it.
    """

    place: str
    conversation: str
    message: dict[str, Json]
    problem: str | None = None
    left_out: int = 0
    tags: tuple[str, ...] = ()
    info: Mapping[str, Json] = field(default_factory=dict)


def role_of(given: Json) -> Json:
    """Return our role for a name other programs use; a name nobody knows comes back as it is, to be refused."""
    return str(_ROLES.get(given.casefold(), given)) if isinstance(given, str) else given


def message_of(role: Json, **fields: Json) -> dict[str, Json]:
    """Return a message with the fields that are there; a missing role stays missing, to be refused."""
    return {"role": role_of(role), **{name: value for name, value in fields.items() if value is not None}}


def name_of(candidates: Sequence[Json], fallback: str) -> str:
    """Return the first candidate that can name a conversation: a text or a number."""
    for candidate in candidates:
        if candidate and isinstance(candidate, str | int | float) and not isinstance(candidate, bool):
            return str(candidate)
    return fallback


def numbered(fallback: str, place: str) -> str:
    """Return a name for a conversation without one: the file's and the number of the entry."""
    return f"{fallback}-{place.rsplit(maxsplit=1)[-1]}"


def text_part(text: str) -> Json:
    """Return text as a content part."""
    return {"type": "text", "text": text}


def image_part(url: Any = None) -> Json:
    """Return the mark of an image; pixels written into the export itself are not kept."""
    was = url if isinstance(url, str) and url and not url.startswith("data:") else None
    # Where an image once was is nothing to fetch now: an import asks no server.
    return {"type": "image_url", "image_url": {}, **({} if was is None else {"was": was})}


def file_part(name: Any = None) -> Json:
    """Return the mark of a file."""
    return {"type": "file", "file": {"filename": name} if isinstance(name, str) and name.strip() else {}}


def content_of(parts: Sequence[Json]) -> Json:
    """Return parts as a message's content: text alone as text, without blank pieces."""
    parts = [part for part in parts if part["type"] != "text" or part["text"].strip()]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def tool_call(name: Json, arguments: Json, call_id: Json) -> Json:
    """Return a call of a tool in the shape `add` takes."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
