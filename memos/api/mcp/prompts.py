"""MCP prompts: what a person picks in a host to have memory used. Each tells the model which tools to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

_HOW = (
    "Store each fact, preference, decision or instruction as one self-contained sentence with add_memory; write dates "
    "in full and leave out secrets and what holds only for today. Then say in one line what you stored."
)


def remember(
    what: Annotated[str, Field(description="What to remember; default: what matters in this conversation")] = "",
) -> str:
    """Store something, or what matters in this conversation, in long-term memory."""
    return f"Remember this: {what}\n\n{_HOW}" if what else f"Remember what matters in our conversation. {_HOW}"


def recall(about: Annotated[str, Field(description="What to look for")]) -> str:
    """Tell what is remembered about something."""
    return (
        f"What do you remember about this: {about}\n\n"
        "Call search_memories with the full question, again with other words if that finds little. Answer from what "
        "it finds alone, with the dates it gives, and say so if nothing relevant is known."
    )


def what_do_you_know() -> str:
    """Tell what is remembered about the user."""
    return (
        "What do you know about me? Call get_user_context, and search_memories where it leaves gaps. List what is "
        "known by topic, with dates, and ask whether anything is wrong; use correct_memory for what I correct."
    )


PROMPTS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {"remember": remember, "recall": recall, "what-do-you-know-about-me": what_do_you_know}
)
"""The prompts by name."""
