"""Memories as this protocol shows them: one shape for each kind, times in epoch milliseconds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from memos.core.types import Item, ItemType, Json, Source, Status, StoredFile, Tier
from memos.reader.preview import PreviewFact

Detail = dict[str, Any]

MEMORY: Final = "memory"
PREFERENCE: Final = "preference"
TOOL: Final = "tool_memory"
SKILL: Final = "skill"
PROFILE: Final = "profile"
EVENT: Final = "event"

KINDS: Final[Mapping[str, frozenset[ItemType]]] = {
    PREFERENCE: frozenset({ItemType.PREFERENCE, ItemType.INSTRUCTION}),
    TOOL: frozenset({ItemType.TOOL_SCHEMA, ItemType.TOOL_TRAJECTORY}),
    SKILL: frozenset({ItemType.SKILL}),
    PROFILE: frozenset({ItemType.PROFILE}),
}
"""The item types of each list other than plain memories."""

_APART: Final = frozenset(type_ for types in KINDS.values() for type_ in types)
PLAIN: Final = frozenset(ItemType) - _APART
"""The item types of plain memories."""

STATUSES: Final = {"activated": Status.ACTIVE, "archived": Status.ARCHIVED}
_TOLD: Final = {Status.ACTIVE: "activated", Status.PENDING: "resolving"}
_TITLE_CHARS: Final = 60
_LISTS: Final = {
    MEMORY: "memory_detail_list",
    PREFERENCE: "preference_detail_list",
    TOOL: "tool_memory_detail_list",
    SKILL: "skill_detail_list",
    PROFILE: "profile_detail_list",
    EVENT: "event_detail_list",
}


def empty() -> dict[str, list[Detail]]:
    return {name: [] for name in _LISTS.values()}


def kind_of(item: Item) -> str:
    return next((kind for kind, types in KINDS.items() if item.type in types), MEMORY)


def sorted_out(found: Iterable[tuple[Item, float | None]]) -> dict[str, list[Detail]]:
    """Return items in an answer's lists; an event is in two of them."""
    lists = empty()
    for item, relativity in found:
        told = detail(item, relativity)
        lists[_LISTS[kind_of(item)]].append(told)
        if is_event(item):
            lists[_LISTS[EVENT]].append({**told, "valid_from": _ms(item.valid_from), "valid_to": _ms(item.valid_to)})
    return lists


def is_event(item: Item) -> bool:
    return item.type in PLAIN - {ItemType.MESSAGE, ItemType.DOCUMENT} and None not in (item.valid_from, item.valid_to)


def detail(item: Item, relativity: float | None = None) -> Detail:
    told: Detail = {
        "id": item.id,
        "create_time": _ms(item.created_at),
        "update_time": _ms(item.updated_at),
        "conversation_id": item.conversation,
        "status": _TOLD.get(item.status, str(item.status)),
        "confidence": item.confidence,
        "tags": list(item.tags),
        "info": dict(item.info),
        "sources": [_source(source) for source in item.sources],
    }
    if relativity is not None:
        told["relativity"] = round(relativity, 4)
    return {**told, **_OF_KIND[kind_of(item)](item)}


def _memory(item: Item) -> Detail:
    return {"memory_key": _title(item), "memory_value": item.memory, "memory_type": _type(item)}


def _preference(item: Item) -> Detail:
    shown = "implicit_preference" if "implicit" in item.tags else "explicit_preference"
    why = item.sources[0].passage if item.sources else ""
    return {"preference_type": shown, "preference": item.memory, "reasoning": why}


def _tool(item: Item) -> Detail:
    info, schema = item.info, item.type is ItemType.TOOL_SCHEMA
    used = {
        "used_tool": info.get("tool"),
        "error_type": info.get("error_type"),
        "success_rate": info.get("success_rate"),
        "tool_experience": info.get("lesson") or "",
    }
    return {
        "tool_type": "ToolSchema" if schema else "ToolTrajectoryMemory",
        "tool_value": item.memory,
        "tool_used_status": [] if schema else [used],
        "experience": info.get("lesson") or "",
    }


def _skill(item: Item) -> Detail:
    held = item.info.get("skill")
    skill: Mapping[str, Json] = held if isinstance(held, Mapping) else {}
    value = {
        "name": skill.get("name") or _title(item),
        "description": skill.get("description") or item.memory,
        "procedure": skill.get("steps") or [],
        "experience": skill.get("preconditions") or [],
        "preference": [],
        "examples": skill.get("examples") or [],
        "script": None,
        "others": {name: skill[name] for name in ("tools", "runs", "success_rate") if name in skill},
    }
    return {"skill_value": value, "skill_type": "SkillMemory"}


def _profile(item: Item) -> Detail:
    dimension = (item.key or "").rpartition("profile:")[2]
    return {"profile_key": dimension, "profile_value": item.value, **_memory(item)}


_OF_KIND: Final = {MEMORY: _memory, PREFERENCE: _preference, TOOL: _tool, SKILL: _skill, PROFILE: _profile}


def message(item: Item) -> Detail:
    return {
        "id": item.id,
        "role": str(item.role),
        "content": item.memory,
        "conversation_id": item.conversation,
        "create_time": _ms(item.said_at or item.created_at),
        "update_time": _ms(item.updated_at),
    }


def file(stored: StoredFile, knowledge_base: str | None = None) -> Detail:
    state = {"available": "AVAILABLE", "failed": "FAILED", "deleted": "DELETED"}.get(str(stored.state), "PROCESSING")
    return {
        "id": stored.id,
        "name": stored.name,
        "size": stored.bytes,
        "sizeMB": round(stored.bytes / 1_048_576, 4),
        "status": "AVAILABLE" if str(stored.state) == "superseded" else state,
        "knowledgebase_id": knowledge_base or stored.cube,
        "create_time": _ms(stored.created_at),
        "error": stored.error,
    }


def extracted(fact: PreviewFact) -> Detail:
    told: Detail = {
        "confidence": fact.confidence,
        "tags": [],
        "memory_time": _ms(fact.valid_from),
        "sources": [{"type": "chat", "content": quote} for quote in fact.quotes],
    }
    if fact.type in KINDS[PREFERENCE]:
        kind = "explicit_preference"
        return {**told, "preference_type": kind, "preference": fact.memory, "reasoning": " … ".join(fact.quotes)}
    title = fact.key.rpartition("|")[2].removeprefix("profile:") if fact.key else fact.memory[:_TITLE_CHARS]
    kind = "UserMemory" if fact.type in (ItemType.USER, ItemType.PROFILE) else "LongTermMemory"
    return {**told, "memory_key": title, "memory_value": fact.memory, "memory_type": kind}


def _title(item: Item) -> str:
    title = item.info.get("title")
    if isinstance(title, str) and title:
        return title
    if item.key:
        return item.key.rpartition("|")[2].removeprefix("profile:")
    line = " ".join(item.memory[: _TITLE_CHARS * 2].split())
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1] + "…"


def _type(item: Item) -> str:
    if item.type in (ItemType.USER, ItemType.PROFILE):
        return "UserMemory"
    rough = item.type is ItemType.MESSAGE and item.tier is Tier.SHORT
    return "WorkingMemory" if rough or item.type is ItemType.WORKING else "LongTermMemory"


def _source(source: Source) -> Detail:
    return {
        "type": "chat",
        "message_id": source.external_id or source.message_id,
        "role": source.speaker,
        "content": source.passage,
        "chat_time": _ms(source.at),
        "conversation_id": source.conversation,
    }


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
