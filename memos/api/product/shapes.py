"""Envelope of `/product`, and memories as its clients read them: text, and everything else under `metadata`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from memos.api.dialects import RequestIdentity, envelope, error_envelope, resolve_identity
from memos.api.serialization import view
from memos.core.identities import Caller
from memos.core.types import Hit, Item, ItemType, Trust
from memos.errors import InvalidInput, MemosError
from memos.kernel.memos import MemOS


class Body(BaseModel):
    """A request's body; clients send fields of other versions too, which mean nothing here."""

    model_config = ConfigDict(extra="ignore")


def done(data: Any, message: str = "ok") -> dict[str, Any]:
    return envelope(200, message, data)


def error_response(error: MemosError, status: int) -> Response:
    field = {"field": error.field} if isinstance(error, InvalidInput) else {}
    return error_envelope(error, status, status, error=error.code, **field)


def identity_and_cubes(
    memos: MemOS, caller: Caller, user_id: str | None, cubes: list[str] | None
) -> tuple[RequestIdentity, list[str]]:
    """Return the identity a request acts for, and its cubes; an empty list of cubes means none are named."""
    acting = resolve_identity(memos, caller, user_id)
    return acting, acting.cubes(list(dict.fromkeys(cubes)) if cubes else None)


_MEMORY_TYPES = {
    ItemType.WORKING: "WorkingMemory",
    ItemType.USER: "UserMemory",
    ItemType.PROFILE: "UserMemory",
    ItemType.PREFERENCE: "PreferenceMemory",
    ItemType.INSTRUCTION: "PreferenceMemory",
    ItemType.TOOL_SCHEMA: "ToolSchemaMemory",
    ItemType.TOOL_TRAJECTORY: "ToolTrajectoryMemory",
    ItemType.SKILL: "SkillMemory",
    ItemType.DOCUMENT: "RawFileMemory",
}
_LONG_TERM = "LongTermMemory"
_SHOWN_ID_CHARS = 8


def memory_type(item: Item) -> str:
    return _MEMORY_TYPES.get(item.type, _LONG_TERM)


def types_named(name: str) -> list[str]:
    return [str(type_) for type_ in ItemType if _MEMORY_TYPES.get(type_, _LONG_TERM) == name]


def memory(item: Item, relevance: float | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        **{name: value for name, value in item.info.items() if name not in {"memory", "id"}},
        "id": item.id,
        "memory": item.memory,
        "memory_type": memory_type(item),
        "type": str(item.type),
        "status": "activated" if item.status == "active" else str(item.status),
        "tier": str(item.tier),
        "key": item.key,
        "value": item.value,
        "tags": list(item.tags),
        "info": view(item.info),
        "confidence": item.confidence,
        "session_id": item.conversation,
        "entities": list(item.entities),
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
        "version": item.version,
        "valid_from": None if item.valid_from is None else item.valid_from.isoformat(),
        "valid_to": None if item.valid_to is None else item.valid_to.isoformat(),
        "sources": [_source(source) for source in view(item.sources)],
    }
    if relevance is not None:
        metadata["relativity"] = relevance
    return {"id": item.id, "memory": item.memory, "ref_id": f"[{item.id[:_SHOWN_ID_CHARS]}]", "metadata": metadata}


def buckets(cubes: Sequence[str], hits: Iterable[Hit]) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for hit in hits:
        shown = memory(hit.item, hit.relevance)
        shown["metadata"]["sources"] = [_source(source) for source in view(hit.sources)]
        found[hit.item.cube].append(shown)
    return [bucket(cube, found[cube]) for cube in cubes]


def bucket(cube: str, memories: list[dict[str, Any]], total: int | None = None) -> dict[str, Any]:
    return {"cube_id": cube, "memories": memories, "total_nodes": len(memories) if total is None else total}


def _source(source: dict[str, Any]) -> dict[str, Any]:
    return {
        "message_id": source["message_id"],
        "role": source["speaker"],
        "chat_time": source["at"],
        "content": source["passage"],
        "trusted": source["trust"] == Trust.TRUSTED,
    }
