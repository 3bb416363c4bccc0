"""Letta's agent files (`.af`): an agent's conversation and its memory blocks.

Source: https://github.com/letta-ai/agent-file and the schemas of letta 0.16; the older form of 0.6 too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.message_shapes import file_part, text_part, tool_call
from memos.core.types import Json, Role
from memos.reader.importers.base import (
    REASONING,
    SERVICE,
    ExportRecord,
    content_of,
    image_part,
    list_in,
    mapping_in,
    memory_record,
    message_of,
    name_of,
    text_in,
)

BLOCK = "letta:block"
SYSTEM = "system prompts"
_SPEAKING = "send_message"  # how agents of older versions answer


def is_letta(value: Json) -> bool:
    if not isinstance(value, Mapping):
        return False
    agents = isinstance(value.get("agents"), list) and isinstance(value.get("blocks"), list)
    return agents or ("agent_type" in value and isinstance(value.get("messages"), list))


def letta_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    if not is_letta(entry):
        yield ExportRecord(place, fallback, {}, "is not an agent file of Letta: it has no agents and blocks")
        return
    agents = list_in(entry, "agents") if "agents" in entry else [entry]
    blocks = {name_of((each.get("id"),), ""): each for each in list_in(entry, "blocks") if isinstance(each, Mapping)}
    used: set[str] = set()
    for number, agent in enumerate(agents, start=1):
        here = f"{place}, agent {number}"
        if not isinstance(agent, Mapping):
            yield ExportRecord(here, fallback, {}, f"is {type(agent).__name__}, not an agent")
            continue
        name = name_of((agent.get("name"), agent.get("id")), fallback)
        own = [id_ for id_ in list_in(agent, "block_ids") if isinstance(id_, str) and id_ in blocks]
        used.update(own)
        yield from _blocks([blocks[id_] for id_ in own], name, here)
        yield from _blocks([*list_in(agent, "core_memory"), *list_in(agent, "memory_blocks")], name, here)
        spoken: set[str] = set()
        for place_, raw in enumerate(list_in(agent, "messages"), start=1):
            yield from _message(raw, f"letta {name}", f"{here}, message {place_}", spoken)
    yield from _blocks([block for id_, block in blocks.items() if id_ not in used], fallback, place)
    left = sum(len(list_in(entry, name)) for name in ("files", "sources"))
    if left:
        yield ExportRecord(place, fallback, {}, left_out=left, reason="files and sources of agents")


def _blocks(blocks: list[Json], agent: str, place: str) -> Iterator[ExportRecord]:
    for block in blocks:
        label = name_of((mapping_in({"b": block}, "b").get("label"),), "block")
        text = block.get("value") if isinstance(block, Mapping) else None
        if isinstance(block, Mapping) and not text_in(block, "value").strip():
            continue
        told = f"{label}: {text}" if isinstance(text, str) else text
        info = {"agent": agent, "label": label, "description": block.get("description")} if block else {}
        yield memory_record(
            f"{place}, block {label[:80]}",
            f"letta {agent}",
            told,
            id_=f"{BLOCK}:{agent}:{label}"[:250],
            tag=BLOCK,
            name=agent,
            role=Role.ASSISTANT,
            info=info,
        )


def _message(raw: Json, conversation: str, place: str, spoken: set[str]) -> Iterator[ExportRecord]:
    if not isinstance(raw, Mapping):
        yield ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
        return
    role = raw.get("role")
    if role == "system":
        yield ExportRecord(place, conversation, {}, left_out=1, reason=SYSTEM)
        return
    if role == "tool" and raw.get("tool_call_id") in spoken:
        yield ExportRecord(place, conversation, {}, left_out=1, reason=SERVICE)
        return
    parts, inner = _parts(raw)
    if role == "user" and len(parts) == 1 and parts[0]["type"] == "text":
        unwrapped = _unwrapped(parts[0]["text"])
        if unwrapped is None:
            yield ExportRecord(place, conversation, {}, left_out=1, reason=SERVICE)
            return
        parts = [text_part(unwrapped)]
    calls, said = _calls(raw, spoken)
    if said:  # what the text beside an answer says is a thought
        inner += len(parts)
        parts = [text_part("\n".join(said))]
    content = content_of(parts)
    if not content and not calls:
        yield ExportRecord(place, conversation, {}, left_out=max(1, inner), reason=REASONING)
        return
    message = message_of(
        "assistant" if role == "approval" else role,
        content=content or None,
        name=raw.get("name") or None,
        message_id=raw.get("id"),
        chat_time=raw.get("created_at"),
        tool_calls=calls or None,
        tool_call_id=raw.get("tool_call_id") or None,
    )
    yield ExportRecord(place, conversation, message, left_out=inner, reason=REASONING)


def _parts(raw: Mapping[str, Any]) -> tuple[list[Json], int]:
    content = raw.get("content") if raw.get("content") is not None else raw.get("text")
    if isinstance(content, str):
        return [text_part(content)], 0
    parts: list[Json] = []
    inner = 0
    for piece in content if isinstance(content, list) else ():
        kind = piece.get("type") if isinstance(piece, Mapping) else None
        if kind == "text" and isinstance(piece.get("text"), str):
            parts.append(text_part(piece["text"]))
        elif kind == "tool_return" and isinstance(piece.get("content"), str):
            parts.append(text_part(piece["content"]))
        elif kind == "image":
            parts.append(image_part())
        elif kind == "file":
            parts.append(file_part(piece.get("filename")))
        elif kind not in (None, "tool_call"):
            inner += 1
    return parts, inner


def _unwrapped(text: str) -> str | None:
    """Return what a user wrote inside Letta's wrapper, None for its own events such as heartbeats."""
    if not text.startswith("{"):
        return text
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(told, Mapping) or not isinstance(told.get("type"), str):
        return text
    return text_in(told, "message") if told["type"] == "user_message" else None


def _calls(raw: Mapping[str, Any], spoken: set[str]) -> tuple[list[Json], list[str]]:
    """Return calls of tools, and what was said to the user by one."""
    calls: list[Json] = []
    said: list[str] = []
    for call in list_in(raw, "tool_calls"):
        function = mapping_in(call, "function")
        name, arguments = function.get("name"), function.get("arguments")
        if name != _SPEAKING:
            calls.append(tool_call(name, arguments or "", call.get("id") if isinstance(call, Mapping) else None))
            continue
        spoken.add(str(call.get("id")))
        try:
            told = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError):
            told = None
        if text := text_in(told, "message"):
            said.append(text)
    return calls, said
