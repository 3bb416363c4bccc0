"""Routes of `/memories`: add, list, read, change, delete, restore and erase memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import (
    ERRORS,
    CubeBody,
    CurrentIdentity,
    CurrentTarget,
    FilterText,
    IdempotencyKey,
    ItemBody,
    ItemCube,
    ItemId,
    Limit,
    Moment,
    actor_of,
    read_filter,
    target_of,
)
from memos.api.v1.shapes import ValueRoute
from memos.api.values import ItemIds
from memos.core.types import AddReceipt, EraseReceipt, ExtractionRecord, Item, Source, StoredFile, Version

evidence_router = APIRouter(route_class=ValueRoute, tags=["memories"], responses=ERRORS)
router = APIRouter(route_class=ValueRoute, prefix="/memories", tags=["memories"], responses=ERRORS)

ReceiptId = Annotated[str, Path(description="Id of a receipt")]


class EraseBody(ItemBody):
    """What to erase."""

    item_ids: list[str] = Field(description="Ids of memories of one cube")
    wait: bool = Field(True, description="Answer when files and logs are purged too; else the receipt says `purging`")


class UsedBody(CubeBody):
    """What was used."""

    item_ids: list[str] = Field(description="Ids of memories an answer was made from")
    confirmed: bool = Field(False, description="A person called them right")


@evidence_router.post("/memories/erase", name="erase")
def erase_memories(body: EraseBody, memos: CurrentMemos, caller: CurrentCaller) -> EraseReceipt:
    """Remove memories in every form, with what was made of them."""
    actor = actor_of(memos, caller, body)
    return memos.erase(body.item_ids, cube=body.cube, actor=actor, wait=body.wait)


@evidence_router.get("/erasures/{receipt}", name="erase_receipt")
def get_erase_receipt(receipt: ReceiptId, memos: CurrentMemos, acting: CurrentIdentity) -> EraseReceipt:
    """Return an erasure's receipt as it stands."""
    return memos.memories.erase_receipt(receipt, actor=acting.actor)


@evidence_router.post("/memories/used", status_code=204, name="used")
def mark_used(body: UsedBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Say that an answer was made from memories: they get hot. Ids that are none count nothing."""
    target = target_of(memos, caller, body, new=False)
    memos.tiers.used(body.item_ids, cube=target.cube, actor=target.actor, confirmed=body.confirmed)


@evidence_router.get("/memories/{item}/sources", name="sources")
def memory_sources(
    item: ItemId, memos: CurrentMemos, acting: CurrentIdentity, cube: ItemCube = None
) -> Sequence[Source]:
    """Return the passages a memory comes from."""
    found = memos.get(item, cube=cube, actor=acting.actor)
    return found.sources


@evidence_router.get("/memories/{item}/extractions", name="extractions")
def memory_extractions(
    item: ItemId, memos: CurrentMemos, acting: CurrentIdentity, cube: ItemCube = None
) -> Sequence[ExtractionRecord]:
    """Return what read a message into facts, or read a fact."""
    return memos.memories.extractions(item, cube=cube, actor=acting.actor)


@evidence_router.get("/memories/{item}/images", name="images")
def memory_images(
    item: ItemId, memos: CurrentMemos, acting: CurrentIdentity, cube: ItemCube = None
) -> Sequence[StoredFile]:
    """Return the images of a message."""
    return memos.images.of(item, cube=cube, actor=acting.actor)


@evidence_router.put("/memories/{item}/pin", status_code=204, name="pin")
def pin_memory(item: ItemId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Keep a memory in working memory."""
    memos.tiers.pin(item, cube=target.cube, actor=target.actor)


@evidence_router.delete("/memories/{item}/pin", status_code=204, name="unpin")
def unpin_memory(item: ItemId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Let a memory leave working memory again."""
    memos.tiers.pin(item, cube=target.cube, actor=target.actor, pinned=False)


Offset = Annotated[int, Query(description="Memories to pass over first")]
Reason = Annotated[str, Query(description="Why, for the history")]


class AddBody(CubeBody):
    """What to remember."""

    messages: Any = Field(description="A text, a message `{role, content, …}` or a list of messages")
    conversation: str | None = Field(None, description="Conversation it belongs to")
    tags: list[str] = Field(default=[], description="Tags")
    info: dict[str, Any] = Field(default={}, description="Own fields, to filter by later")
    mode: str = Field("rough", description="`rough`, or `fine`: also read into facts, in the background")
    tools: Any = Field(None, description="Definitions of the tools that were at hand, in OpenAI's shape")


class UpdateBody(ItemBody):
    """What to change; what is left out stays."""

    memory: str = Field("", description="Its text")
    tags: list[str] = Field(default=[], description="Its tags")
    info: dict[str, Any] = Field(default={}, description="The caller's own fields")
    key: str | None = Field(None, description="What it says something about")
    value: str | None = Field(None, description="What it says about the key")
    confidence: float = Field(1, description="0 to 1")
    tier: str = Field("", description="`short`, `mid` or `long`")
    type: str = Field("", description="Kind of memory")
    status: str = Field("", description="`active`, `pending`, `superseded` or `archived`")
    valid_from: Moment = Field(None, description="Since when it holds: ISO 8601, or milliseconds since 1970")
    valid_to: Moment = Field(None, description="Until when it holds")
    expected_version: int | None = Field(None, description="Refuse with 409 when it is at another version")
    reason: str = Field("updated", description="Why, for the history")


class DeleteBody(ItemBody):
    """What to delete."""

    item_ids: list[str] = Field(description="Ids of memories of one cube; all of them, or none, are deleted")
    reason: str = Field("deleted", description="Why, for the history")


class RollbackBody(ItemBody):
    """What to go back to."""

    to_version: int = Field(description="Version to be again")
    expected_version: int | None = Field(None, description="Refuse with 409 when it is at another version")


@router.post("", status_code=201, name="add")
def add_memories(
    body: AddBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> AddReceipt:
    """Store messages; they are durable and can be found when this answers."""
    target = target_of(memos, caller, body)
    return memos.add(
        body.messages,
        cube=target.cube,
        actor=target.actor,
        conversation=body.conversation,
        tags=body.tags,
        info=body.info,
        idempotency_key=idempotency_key,
        mode=body.mode,
        tools=body.tools,
    )


@router.get("", name="list_")
def list_memories(
    memos: CurrentMemos, target: CurrentTarget, filter: FilterText = None, limit: Limit = 100, offset: Offset = 0
) -> list[Item]:
    """Return a cube's memories, oldest first; deleted ones only when the filter names a status."""
    return memos.memories.list(
        cube=target.cube, actor=target.actor, filter=read_filter(filter), limit=limit, offset=offset
    )


@router.post("/delete", name="delete_several")
def delete_memories(body: DeleteBody, memos: CurrentMemos, caller: CurrentCaller) -> ItemIds:
    """Take memories out of sight; a rollback brings each back."""
    actor = actor_of(memos, caller, body)
    return ItemIds(item_ids=(memos.delete(body.item_ids, cube=body.cube, actor=actor, reason=body.reason)))


@router.get("/{item}", name="get")
def get_memory(item: ItemId, memos: CurrentMemos, acting: CurrentIdentity, cube: ItemCube = None) -> Item:
    """Return one memory with its sources."""
    return memos.get(item, cube=cube, actor=acting.actor)


@router.patch("/{item}", name="update")
def update_memory(item: ItemId, body: UpdateBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Write a memory's next version."""
    given = body.model_fields_set - {"user", "cube", "expected_version", "reason"}
    return memos.update(
        item,
        cube=body.cube,
        actor=actor_of(memos, caller, body),
        expected_version=body.expected_version,
        reason=body.reason,
        **{name: getattr(body, name) for name in given},
    )


@router.delete("/{item}", name="delete")
def delete_memory(
    item: ItemId, memos: CurrentMemos, acting: CurrentIdentity, cube: ItemCube = None, reason: Reason = "deleted"
) -> ItemIds:
    """Take a memory out of sight; a rollback brings it back."""
    return ItemIds(item_ids=(memos.delete([item], cube=cube, actor=acting.actor, reason=reason)))


@router.get("/{item}/history", name="history")
def memory_history(item: ItemId, memos: CurrentMemos, acting: CurrentIdentity, cube: ItemCube = None) -> list[Version]:
    """Return every version of a memory, also of a deleted one: who, when, why, before and after."""
    return memos.memories.history(item, cube=cube, actor=acting.actor)


@router.post("/{item}/rollback", name="rollback")
def rollback_memory(item: ItemId, body: RollbackBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Write a new version equal to an old one."""
    return memos.memories.rollback(
        item,
        body.to_version,
        cube=body.cube,
        actor=actor_of(memos, caller, body),
        expected_version=body.expected_version,
    )
