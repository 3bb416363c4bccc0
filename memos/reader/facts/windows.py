"""Which messages are read together: wanted ones up to so many tokens, with those around as context. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import NamedTuple

from memos.core.types import UNUSED, Item
from memos.reader.facts.llm import shown_tokens

WINDOW_TOKENS = 1_500
CONTEXT_TOKENS = 300


@dataclass(frozen=True, slots=True)
class Room:
    """Most tokens of a window, and of the messages before it or between two of its own."""

    window: int = WINDOW_TOKENS
    context: int = CONTEXT_TOKENS

    def shrunk(self, times: int) -> Room:
        """Return the room halved so many times: what a model could not answer may have been too much for it."""
        return Room(max(1, self.window >> times), max(1, self.context >> times))


class Window(NamedTuple):
    """Messages in order; `context` are those that only tell what the others mean, `passed` what has nothing to read."""

    messages: tuple[Item, ...]
    context: frozenset[str]
    passed: frozenset[str]


def window(messages: tuple[Item, ...], wanted: Set[str], room: Room) -> Window:
    """Return the first window of some messages in order: at least one that is wanted, if any says something.

    What is not wanted between two that are is context; more of it than there is room for ends the window.
    """
    live = [message for message in messages if message.status not in UNUSED]
    passed = frozenset(wanted - {message.id for message in live})
    first = next((place for place, message in enumerate(live) if message.id in wanted), None)
    if first is None:
        return Window((), frozenset(), passed)
    chosen, used, between, skipped = _before(live[:first], room), 0, list[Item](), 0
    for place, message in enumerate(live[first:]):
        cost = shown_tokens(message)
        if message.id not in wanted:
            between.append(message)
            skipped += cost
            if skipped > room.context:
                break
            continue
        if place and used + skipped + cost > room.window:
            break
        chosen += [*between, message]
        used += skipped + cost
        between, skipped = [], 0
    return Window(tuple(chosen), frozenset(message.id for message in chosen if message.id not in wanted), passed)


def _before(messages: list[Item], room: Room) -> list[Item]:
    """Return the last of some messages, as far as there is room for context."""
    kept: list[Item] = []
    left = room.context
    for message in reversed(messages):
        left -= shown_tokens(message)
        if left < 0:
            break
        kept.append(message)
    return kept[::-1]
