"""`/product/search` and looking at memories: by cube, by id, all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from memos.api.auth import who
from memos.api.families import Asked, Opened
from memos.api.product.shapes import Body, acting, bucket, buckets, done, memory, memory_type, types_named
from memos.core.types import Hit, Item
from memos.errors import InvalidInput
from memos.kernel.search import Kind, only

router = APIRouter()

_PER_CUBE = 10_000
_MOST_IDS = 1_000
_KINDS = {"text_mem": Kind.MEMORY, "pref_mem": Kind.PREFERENCE, "tool_mem": Kind.TOOL, "skill_mem": Kind.SKILL}
# What clients mean by saying nothing. The best few stay whatever their relevance: a short question in other words than
# the memory's has little of it, and no answer at all would look as if nothing was remembered.
_RELEVANT = 0.45
_AT_LEAST = 3
_PREFERENCES = "What is known of what the user wants; follow it where it bears on the request."


class SearchBody(Body):
    """A question."""

    query: str
    user_id: str
    readable_cube_ids: list[str] | None = None
    mode: str = "fast"
    session_id: str | None = None
    top_k: int = Field(10, ge=1)
    relativity: float | None = None
    dedup: str | None = None
    include_preference: bool = True
    pref_top_k: int = Field(6, ge=0)
    search_tool_memory: bool = True
    tool_mem_top_k: int = Field(6, ge=0)
    include_skill_memory: bool = True
    skill_mem_top_k: int = Field(3, ge=0)
    filter: dict[str, Any] | None = None
    internet_search: bool = False
    search_memory_type: str | None = None
    reference_time: Any = None
    rerank: bool | None = None


@router.post("/search")
def search(body: SearchBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return what is found of each kind, by cube."""
    if body.internet_search:
        raise InvalidInput("internet_search", "is not done here: memory only; leave it out")
    if body.mode not in {"fast", "fine", "mixture"}:
        raise InvalidInput("mode", "must be fast, fine or mixture")
    if body.dedup not in {None, "no", "sim", "mmr"}:
        raise InvalidInput("dedup", "must be no, sim or mmr")
    whom, cubes = acting(memos, caller, body.user_id, body.readable_cube_ids)
    limits: dict[str, int] = {
        Kind.MEMORY: body.top_k,
        Kind.PREFERENCE: body.pref_top_k if body.include_preference else 0,
        Kind.TOOL: body.tool_mem_top_k if body.search_tool_memory else 0,
        Kind.SKILL: body.skill_mem_top_k if body.include_skill_memory else 0,
    }
    found = memos.recall(
        body.query, limits, cubes=cubes, actor=whom.actor, filter=body.filter, relevance=body.relativity or 0,
        reference_time=body.reference_time, rerank=None if body.rerank else body.rerank,
    )  # fmt: skip
    if body.relativity is None:
        found = {kind: _usual(hits) for kind, hits in found.items()}
    data: dict[str, Any] = {name: buckets(cubes, found[kind]) for name, kind in _KINDS.items()}
    preferences = [hit.item.memory for hit in found[Kind.PREFERENCE]]
    data |= {"act_mem": [], "para_mem": [], "pref_string": "\n".join(f"- {text}" for text in preferences)}
    data["pref_note"] = _PREFERENCES if preferences else ""
    return done(data)


def _usual(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    return tuple(hit for place, hit in enumerate(hits) if place < _AT_LEAST or hit.relevance >= _RELEVANT)


class GetBody(Body):
    """Which memories of a cube to show."""

    mem_cube_id: str
    user_id: str | None = None
    include_preference: bool = True
    include_tool_memory: bool = True
    include_skill_memory: bool = True
    filter: dict[str, Any] | None = None
    page: int | None = Field(None, ge=1)
    page_size: int | None = Field(None, ge=1, le=_PER_CUBE)


@router.post("/get_memory")
def get_memories(body: GetBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return a cube's memories of each kind, all or a page of each."""
    whom = who(memos, caller, body.user_id, new=False)
    size = body.page_size or _PER_CUBE
    skipped = ((body.page or 1) - 1) * size
    wanted = {
        "text_mem": True,
        "pref_mem": body.include_preference,
        "tool_mem": body.include_tool_memory,
        "skill_mem": body.include_skill_memory,
    }
    data = {}
    for name, kind in _KINDS.items():
        found: list[Item] = []
        if wanted[name]:
            chosen = only(kind, body.filter)
            found = memos.list(cube=body.mem_cube_id, actor=whom.actor, filter=chosen, limit=size, offset=skipped)
        data[name] = [bucket(body.mem_cube_id, [memory(item) for item in found])]
    return done(data)


@router.get("/get_memory/{memory_id}")
def get_memory(memory_id: str, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return one memory."""
    return done(memory(memos.get(memory_id, actor=caller.identity.id)))


@router.post("/get_memory_by_ids")
def get_memory_by_ids(memory_ids: list[str], memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return memories in the order of their ids; all or none."""
    if len(memory_ids) > _MOST_IDS:
        raise InvalidInput("memory_ids", f"has {len(memory_ids):,} ids, at most {_MOST_IDS:,} are taken")
    return done({"memories": [memory(memos.get(id_, actor=caller.identity.id)) for id_ in memory_ids]})


class GetAllBody(Body):
    """What to show of a user's cubes."""

    user_id: str
    memory_type: str = "text_mem"
    mem_cube_ids: list[str] | None = None
    search_query: str | None = None
    search_type: str | None = None


@router.post("/get_all")
def get_all(body: GetAllBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return every memory of cubes with how they hang together, or those a query finds."""
    whom, cubes = acting(memos, caller, body.user_id, body.mem_cube_ids)
    if body.memory_type in {"act_mem", "para_mem"}:
        return done([{"cube_id": cube, "memories": [], "memory_statistics": {}} for cube in cubes])
    kind = _KINDS.get(body.memory_type)
    if kind is None and not (types := types_named(body.memory_type)):
        raise InvalidInput("memory_type", f"is none of {', '.join([*_KINDS, 'act_mem', 'para_mem'])}")
    chosen = only(kind) if kind is not None else {"type": {"in": types}}
    shown = []
    for cube in cubes:
        if body.search_query:
            hits = memos.search(body.search_query, cubes=[cube], actor=whom.actor, top_k=100, filter=chosen).hits
            items = [hit.item for hit in hits]
        else:
            items = memos.list(cube=cube, actor=whom.actor, filter=chosen, limit=_PER_CUBE)
        shown.append({"cube_id": cube, "memories": [_graph(items)], "memory_statistics": _counts(items)})
    return done(shown)


def _graph(items: list[Item]) -> dict[str, Any]:
    """Return items as nodes; the edges lead from what is derived to what it is derived from, where both are shown."""
    ids = {item.id for item in items}
    edges = [
        {"source": item.superseded_by, "target": item.id, "type": "SUPERSEDES"}
        for item in items
        if item.superseded_by in ids
    ]
    return {"nodes": [memory(item) for item in items], "edges": edges}


def _counts(items: list[Item]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for item in items:
        name = memory_type(item)
        counts[name] = counts.get(name, 0) + 1
    return counts
