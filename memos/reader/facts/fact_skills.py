"""Finds tool calls that worked after the same tool had failed: what to do differently the next time.

Only when it is clear: one call, one outcome, no user's message in between, and other arguments than before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memos.core.text.outcomes import LOOKED_CHARS
from memos.core.text.outcomes import worked as outcome_of
from memos.core.types import Fact, Item, ItemType, Role, Span
from memos.reader.facts.origins import said_at, trust_of

_SHOWN_CHARS = 180
_OUTCOME_CHARS = 200
_CALL = re.compile(r"^(?P<name>[A-Za-z_][\w.\-]{0,63})\((?=\{)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: str
    spans: tuple[Span, ...]
    items: tuple[Item, Item]
    worked: bool


def skills(messages: Sequence[Item], reader: str) -> list[Fact]:
    """Return one fact for each call that worked after the last call of the same tool failed."""
    found = []
    failed: dict[str, _Call] = {}
    for call in _calls(messages):
        if call is None:
            failed.clear()
        elif not call.worked:
            failed[call.name] = call
        elif (before := failed.pop(call.name, None)) is not None and before.arguments != call.arguments:
            found.append(_fact(before, call, reader))
    return found


def tools_called(messages: Sequence[Item]) -> dict[str, str]:
    """Return who called which tool, by the tool's name: what an assistant wrote as a call, or a tool answered."""
    callers: dict[str, str] = {}
    for item in messages:
        if item.role is Role.ASSISTANT:
            for name, *_ in _written(item.memory[:LOOKED_CHARS]):
                callers.setdefault(name, item.speaker)
    for item in messages:
        if item.role is Role.TOOL and item.speaker != Role.TOOL:
            callers.setdefault(item.speaker, Role.ASSISTANT)
    return callers


def _calls(messages: Sequence[Item]) -> Iterator[_Call | None]:
    """Yield the clear calls in order, and None where a user speaks."""
    for place, item in enumerate(messages):
        if item.role is Role.USER:
            yield None
        follower = messages[place + 1] if place + 1 < len(messages) else None
        if item.role is not Role.ASSISTANT or follower is None or follower.role is not Role.TOOL:
            continue
        if place + 2 < len(messages) and messages[place + 2].role is Role.TOOL:
            continue  # several outcomes: whose is whose is not clear
        written = _written(item.memory[:LOOKED_CHARS])
        worked = outcome_of(follower.memory)
        if len(written) != 1 or worked is None or item.conversation != follower.conversation:
            continue
        name, arguments, start, end = written[0]
        if follower.speaker not in (Role.TOOL, name):
            continue
        begun = len(follower.memory) - len(follower.memory.lstrip())
        told = follower.memory[begun : begun + _OUTCOME_CHARS].rstrip()
        spans = (Span(item.id, start, end), Span(follower.id, begun, begun + len(told)))
        yield _Call(name, arguments, spans, (item, follower), worked)


def _written(text: str) -> list[tuple[str, str, int, int]]:
    """Return the calls that a message ends with: name, arguments as written, and where."""
    found = []
    decoder = json.JSONDecoder()
    for match in _CALL.finditer(text):
        try:
            _, end = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if text[end : end + 1] == ")":
            found.append((match.group("name"), text[match.end() : end], match.start(), end + 1))
    return found


def _fact(failed: _Call, worked: _Call, reader: str) -> Fact:
    caller = worked.items[0]
    return Fact(
        type=ItemType.SKILL,
        memory=f"{worked.name}: {_shown(worked.arguments)} worked after {_shown(failed.arguments)} failed.",
        spans=(*failed.spans, *worked.spans),
        subject=caller.speaker,
        reader=reader,
        said_at=said_at(caller),
        confidence=0.6,
        valid_from=said_at(caller),
        trust=trust_of([*failed.items, *worked.items]),
    )


def _shown(arguments: str) -> str:
    line = " ".join(arguments.split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
