"""What these routes take, checked as far as a shape can be; what is required is asked for by name."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from memos.api.openmem.envelope import Empty, TooLong
from memos.core.tokens import estimate_tokens
from memos.core.types import Json
from memos.errors import InvalidInput

Names = str | list[str] | None
_Value = TypeVar("_Value")

MOST_PEOPLE = 100


class Body(BaseModel):
    """A request; other clients send more than this one, which is left aside."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Subject(Body):
    """A request about one user or agent."""

    user_id: str | None = Field(None, description="User")
    agent_id: str | None = Field(None, description="Agent; one of the two is required")


def required(field: str, value: _Value | None) -> _Value:
    """Return what must be given. Raises: Empty."""
    if value is None or (isinstance(value, str) and not value.strip()) or value in ([], {}):
        raise Empty(field, "is required, and is missing or empty")
    return value


def bounded(field: str, value: int | None, default: int, most: int) -> int:
    """Return a count from 0 to the most that is taken. Raises: InvalidInput."""
    if value is None:
        return default
    if not 0 <= value <= most:
        raise InvalidInput(field, f"must be from 0 to {most}")
    return value


def only_one(**given: Any) -> str:
    """Return the name of the one thing that is given. Raises: Empty, InvalidInput."""
    named = [name for name, value in given.items() if value not in (None, "", [])]
    if not named:
        raise Empty(" or ".join(given), "is required, and is missing or empty")
    if len(named) > 1:
        raise InvalidInput(" and ".join(named), "are given both: give exactly one")
    return named[0]


def check_tokens(field: str, text: str, most: int) -> None:
    """Refuse what is too long. Raises: TooLong."""
    if (tokens := estimate_tokens(text)) > most:
        raise TooLong(field, f"has about {tokens:,} tokens, at most {most:,} are taken; send it in parts")


def said(messages: Json) -> str:
    """Return the text of messages, to be counted."""
    texts: list[str] = []
    for message in messages if isinstance(messages, list) else [messages]:
        content = message.get("content") if isinstance(message, dict) else message
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, dict) else part
            texts += [text] if isinstance(text, str) else []
    return "\n".join(texts)
