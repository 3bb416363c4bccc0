"""Memories: search, list, get, change and delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from memos.api.dialects import min_relevance_of
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.openmem import details, shapes
from memos.api.openmem.shapes import Body, Subject, bounded, check_tokens, deleting, ok, only_one, page_of, required
from memos.core.identities import Caller
from memos.core.types import CubeKind, ItemType, Json
from memos.errors import InvalidInput, shown
from memos.kernel.memos import MemOS

router = APIRouter(tags=["memories"])

_QUERY_TOKENS: Final = 4_000
_MOST: Final = 25
_MOST_BASES: Final = 100
_PAGE: Final = 50
_DELETED_AT_ONCE: Final = 1_000
_NOTE: Final = (
    "Preferences: what this user likes, dislikes or has asked for. An explicit one was said, an implicit one inferred: "
    "what the user asks for now comes first, then explicit preferences, then implicit ones."
)
_VIEWS: Final = {
    "memory": details.MEMORY,
    "preference": details.PREFERENCE,
    "tool": details.TOOL,
    "tool_memory": details.TOOL,
    "skill": details.SKILL,
    "profile": details.PROFILE,
    "event": details.EVENT,
}
_TYPES: Final = {
    "WorkingMemory": frozenset({ItemType.MESSAGE, ItemType.WORKING}),
    "LongTermMemory": details.PLAIN - {ItemType.MESSAGE, ItemType.WORKING, ItemType.USER},
    "UserMemory": frozenset({ItemType.USER, ItemType.PROFILE}),
    "PreferenceMemory": details.KINDS[details.PREFERENCE],
    "ToolMemory": details.KINDS[details.TOOL],
    "SkillMemory": details.KINDS[details.SKILL],
    details.MEMORY: details.PLAIN,
    **details.KINDS,
}


class SearchBody(Subject):
    """A search: the question and its scope."""

    query: str | None = Field(None, description="The question; required")
    conversation_id: str | None = Field(None, description="Accepted, but has no effect: use `filter`")
    filter: dict[str, Any] | None = Field(
        None,
        description=(
            "Filter (docs/reference/filters.md), or an object with one each under `user`, `public` and `knowledgebase`"
        ),
    )
    knowledgebase_ids: list[str] | None = Field(
        None, description='Knowledge bases to search as well; `["all"]` for all'
    )
    memory_limit_number: int | None = Field(None, description="Maximum number of memories; default 6, at most 25")
    include_preference: bool | None = Field(None, description="Also search preferences; default true")
    preference_limit_number: int | None = Field(
        None, description="Maximum number of preferences; default 6, at most 25"
    )
    include_tool_memory: bool | None = Field(None, description="Also search tools and their calls")
    tool_memory_limit_number: int | None = Field(None, description="Maximum number of tools; default 6, at most 25")
    include_skill: bool | None = Field(None, description="Also search skills")
    skill_limit_number: int | None = Field(None, description="Maximum number of skills; default 6, at most 25")
    relativity: float | None = Field(None, description="Minimum relevance, 0 to 1; default: none")
    include_memory_view: list[str] | None = Field(
        None, description="Only these lists: memory, preference, tool_memory, skill, profile, event"
    )
    context_format: str | None = Field(None, description="`memory`")
    source: str | None = Field(None, description="Accepted, but has no effect")


class PageBody(Subject):
    """A page of memories of some types."""

    page: int | None = Field(None, description="Page, from 1")
    size: int | None = Field(None, description="Memories per page; default 10, at most 50")
    filter: dict[str, Any] | None = Field(None, description="Filter (docs/reference/filters.md)")
    include_preference: bool | None = Field(None, description="Include preferences; default true")
    include_tool_memory: bool | None = Field(None, description="Include tools, their calls and skills; default true")
    include_memory_view: list[str] | None = Field(None, description="Same as for a search")


class UpdateBody(Body):
    """Changes to a memory."""

    memory_id: str | None = Field(None, description="Memory; required")
    content: str | None = Field(None, description="Its new text")
    title: str | None = Field(None, description="Its title, kept in `info`")
    status: str | None = Field(None, description="`activated`, `archived` or `deleted`")


class DeleteBody(Body):
    """A selection of memories to delete: exactly one of the four selectors. Unknown fields are rejected."""

    model_config = ConfigDict(strict=True, extra="forbid")

    memory_ids: list[str] | None = Field(None, description="These memories")
    user_id: str | None = Field(None, description="Delete all memories of a user")
    agent_id: str | None = Field(None, description="Delete all memories of an agent")
    filter: dict[str, Any] | None = Field(None, description="Delete all matches in the cubes that the key can change")
    memory_type: str | None = Field(
        None, description="Only memories of this type, such as `UserMemory` or `preference`"
    )


@router.post("/search/memory")
def search_memory(body: SearchBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return the best memories for a question, each kind in its own list."""
    query = required("query", body.query)
    check_tokens("query", query, _QUERY_TOKENS)
    least = min_relevance_of(body.relativity)
    if body.context_format not in (None, "memory"):
        raise InvalidInput("context_format", f"{shown(body.context_format)} is unknown; use memory")
    if len(body.knowledgebase_ids or ()) > _MOST_BASES:
        raise InvalidInput(
            "knowledgebase_ids", f"has more than {_MOST_BASES} knowledge bases; search them in several requests"
        )
    limits, acting = _limits(body), shapes.known(memos, caller, body)
    # What belongs to the key's owner, such as its knowledge bases, is not its users' to name: the owner asks.
    actor = caller.identity.id if acting is None or caller.identity.admin else acting.actor
    cubes = {
        "user": [] if acting is None else [acting.home],
        "public": shapes.readable_public(memos, actor),
        "knowledgebase": shapes.knowledge(memos, caller, body.knowledgebase_ids),
    }
    where = list(dict.fromkeys(name for names in cubes.values() for name in names))
    chosen = shapes.scoped_filter(body.filter, cubes)
    found: list[tuple[Any, float | None]] = []
    for kinds, most in limits if where else ():
        types = {"type": {"in": sorted(str(kind) for kind in kinds)}}
        narrowed: dict[str, Json] = {"and": [types, chosen]} if chosen else types
        hits = memos.search(query, cubes=where, actor=actor, top_k=most, filter=narrowed, min_relevance=least).hits
        found += [(hit.item, hit.relevance) for hit in hits]
    lists = details.sorted_out(found)
    _only(lists, body.include_memory_view)
    note = _NOTE if lists["preference_detail_list"] else ""
    return ok({**lists, "preference_note": note})


@router.post("/get/memory")
def get_memory(body: PageBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return a page of somebody's memories, the newest first, each kind in its own list."""
    number, size = page_of(body.page, "size", body.size, _PAGE)
    kinds = set(details.PLAIN | details.KINDS[details.PROFILE])
    if body.include_preference is not False:
        kinds |= details.KINDS[details.PREFERENCE]
    if body.include_tool_memory is not False:
        kinds |= details.KINDS[details.TOOL] | details.KINDS[details.SKILL]
    if (views := _views(body.include_memory_view)) is not None:
        kinds &= {type_ for view in views for type_ in details.KINDS.get(view, details.PLAIN)}
    acting, total, lists = shapes.known(memos, caller, body), 0, details.empty()
    if acting is not None and kinds:
        types: Json = {"type": {"in": sorted(str(kind) for kind in kinds)}}
        narrowed = {"and": [types, body.filter]} if body.filter else types
        page = memos.memories.page(
            cube=acting.home, actor=acting.actor, filter=narrowed, limit=size, offset=(number - 1) * size
        )
        total, lists = page.total, details.sorted_out((item, None) for item in page.items)
        _only(lists, body.include_memory_view)
    return ok({**lists, "total": total, "size": size, "current": number, "pages": -(-total // size)})


@router.get("/get/memory/{memory_id:path}")
def get_one(memory_id: str, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return one memory with its sources."""
    return ok(details.detail(memos.get(memory_id, actor=caller.identity.id)))


@router.post("/update/memory")
def update_memory(body: UpdateBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Change a memory's text, title or status; return it as it is then."""
    id_, me = required("memory_id", body.memory_id), caller.identity.id
    if not (body.content or body.title or body.status):
        required("content, title or status", None)
    if body.status == "deleted" and not (body.content or body.title):
        with deleting():
            found = memos.get(id_, actor=me)
            memos.delete(id_, actor=me)
        return ok({**details.detail(found), "status": "deleted"})
    fields: dict[str, Any] = {}
    if body.status:
        if body.status not in details.STATUSES:
            raise InvalidInput("status", f"{shown(body.status)} is unknown; use activated, archived or, alone, deleted")
        fields["status"] = details.STATUSES[body.status]
    if body.title:
        before = memos.get(id_, actor=me)
        fields["info"] = {**before.info, "title": body.title}
    return ok(details.detail(memos.update(id_, body.content or None, actor=me, **fields)))


@router.post("/delete/memory")
def delete_memory(body: DeleteBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Take memories out of sight; they are erased when the retention period is over."""
    given = {name: getattr(body, name) for name in ("memory_ids", "user_id", "agent_id", "filter")}
    which = only_one(**{name: value or None for name, value in given.items()})
    types = None if body.memory_type is None else _TYPES.get(body.memory_type)
    if body.memory_type is not None and types is None:
        raise InvalidInput("memory_type", f"{shown(body.memory_type)} is unknown; use one of {', '.join(_TYPES)}")
    with deleting():
        if which == "memory_ids":
            _delete_named(memos, caller, required("memory_ids", body.memory_ids), types)
        elif which == "filter":
            for cube in _changeable(memos, caller):
                _delete_all(memos, caller.identity.id, cube, body.filter, types)
        else:
            acting = shapes.subject(memos, caller, Subject(user_id=body.user_id, agent_id=body.agent_id))
            _delete_all(memos, acting.actor, acting.home, None, types)
    return ok({"success": True})


def _limits(body: SearchBody) -> list[tuple[frozenset[ItemType], int]]:
    views, preferences = _views(body.include_memory_view), body.include_preference is not False
    wanted = [
        (True, details.PLAIN, details.MEMORY, "memory_limit_number"),
        (True, details.KINDS[details.PROFILE], details.PROFILE, "memory_limit_number"),
        (preferences, details.KINDS[details.PREFERENCE], details.PREFERENCE, "preference_limit_number"),
        (bool(body.include_tool_memory), details.KINDS[details.TOOL], details.TOOL, "tool_memory_limit_number"),
        (bool(body.include_skill), details.KINDS[details.SKILL], details.SKILL, "skill_limit_number"),
    ]
    limits = []
    for included, types, view, field in wanted:
        most = bounded(field, getattr(body, field), 6, _MOST)
        also_events = view == details.MEMORY and views is not None and details.EVENT in views
        if included and most and (views is None or view in views or also_events):
            limits.append((types, most))
    return limits


def _views(names: Sequence[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    for name in names:
        if name not in _VIEWS:
            raise InvalidInput("include_memory_view", f"{shown(name)} is unknown; use some of {', '.join(_VIEWS)}")
    return frozenset(_VIEWS[name] for name in names)


def _only(lists: dict[str, list[details.Detail]], names: Sequence[str] | None) -> None:
    views = _views(names)
    for name in lists if views is not None else ():
        if name.removesuffix("_detail_list") not in (views or ()):
            lists[name] = []


def _changeable(memos: MemOS, caller: Caller) -> list[str]:
    """Return the cubes the key's owner may read and change: all of them for an admin."""
    me = caller.identity
    every = [cube for cube in memos.cubes.list(actor=me.id) if cube.kind is CubeKind.MEMORY]
    return [cube.id for cube in every if me.admin or cube.owner == me.id or cube.id == me.home]


def _delete_named(memos: MemOS, caller: Caller, ids: Sequence[str], types: frozenset[ItemType] | None) -> None:
    """Delete memories by id, from one cube or several; none if one does not exist."""
    actor, by_cube = caller.identity.id, dict[str, list[str]]()
    if len(ids) > _DELETED_AT_ONCE:
        raise InvalidInput("memory_ids", f"has {len(ids):,} ids, more than the limit of {_DELETED_AT_ONCE:,}")
    for id_ in dict.fromkeys(ids):
        item = memos.memories.history(id_, actor=actor)[-1].after  # one that is deleted already is no error
        if types is None or item.type in types:
            by_cube.setdefault(item.cube, []).append(id_)
    for cube, named in by_cube.items():
        memos.delete(named, cube=cube, actor=actor)


def _delete_all(memos: MemOS, actor: str, cube: str, chosen: Json, types: frozenset[ItemType] | None) -> None:
    parts = [chosen] if chosen else []
    if types is not None:
        parts.append({"type": {"in": sorted(str(kind) for kind in types)}})
    narrowed = {"and": parts} if parts else None
    while found := memos.memories.page(cube=cube, actor=actor, filter=narrowed, limit=_DELETED_AT_ONCE).items:
        gone = memos.delete([item.id for item in found], cube=cube, actor=actor)
        if not gone:  # the filter names deleted ones
            break
