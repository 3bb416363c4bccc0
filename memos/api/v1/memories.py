"""Routes of memories: add, look, change, delete and erase; their tiers and topics; calls of tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import (
    CubeBody,
    CurrentIdentity,
    CurrentItem,
    CurrentTarget,
    FilterText,
    IdempotencyKey,
    ItemBody,
    ItemCube,
    ItemId,
    Limit,
    Moment,
    creation,
    item_of,
    read_filter,
    target_of,
    value_router,
)
from memos.api.values import ItemIds, Value
from memos.core.browsing import ErasePreview, Facets, Link, MemoryStanding, Passage, Places
from memos.core.types import (
    AddReceipt,
    EraseReceipt,
    ErasurePreview,
    Event,
    ExtractionRecord,
    Item,
    Relation,
    Segment,
    Source,
    StoredFile,
    Version,
)
from memos.kernel.moves import SegmentContents, TierMove
from memos.kernel.tools import ToolUse
from memos.scheduler.presets import PresetComparison

evidence_router = value_router("memories")
router = value_router("memories", prefix="/memories")

FacetNames = Annotated[
    list[str],
    Query(
        description="Properties to count by: `type`, `status`, `tier`, `speaker`, `tag`, `conversation`, `month`; "
        "default: all"
    ),
]
ReceiptId = Annotated[str, Path(description="Id of a receipt")]


class EraseBody(ItemBody):
    """A memory to erase."""

    item_ids: list[str] = Field(description="Ids of memories of one cube")
    wait: bool = Field(
        True, description="Wait until files and logs are purged too; otherwise the receipt may say `purging`"
    )


class TagBody(ItemBody):
    """Tags to add to memories, and others to remove."""

    item_ids: list[str] = Field(description="Ids of memories of one cube; all of them, or none, are changed")
    add: list[str] = Field(default=[], description="Tags to add")
    remove: list[str] = Field(default=[], description="Tags to remove")
    reason: str = Field("tagged", description="Reason, kept in the history")


class ErasePreviewBody(ItemBody):
    """Memories that may be erased."""

    item_ids: list[str] = Field(description="Ids of memories of one cube")


class ErasureBody(CubeBody):
    """Memories of a cube that pass a filter."""

    filter: dict[str, Any] | None = Field(
        None, description="Filter (docs/reference/filters.md); default: everything in the cube"
    )


class EraseMatchingBody(CubeBody):
    """Memories of a cube to erase, as a preview counted them."""

    filter: dict[str, Any] = Field(description="Filter (docs/reference/filters.md); must not be empty")
    expected: int = Field(description="`items` of the preview; fails with 409 if another number matches now")
    wait: bool = Field(
        True, description="Wait until files and logs are purged too; otherwise the receipt may say `purging`"
    )


class UsedBody(CubeBody):
    """Memories that were used in an answer."""

    item_ids: list[str] = Field(description="Ids of memories that an answer used")
    confirmed: bool = Field(False, description="A person confirmed the memories")


@evidence_router.post("/memories/erase", name="erase")
def erase_memories(body: EraseBody, memos: CurrentMemos, caller: CurrentCaller) -> EraseReceipt:
    """Remove memories in every form, with what was made of them."""
    return memos.erase(body.item_ids, **item_of(memos, caller, body), wait=body.wait)


@evidence_router.post("/memories/erase/preview", name="preview_erase")
def preview_erase(body: ErasePreviewBody, memos: CurrentMemos, caller: CurrentCaller) -> ErasePreview:
    """Return what an erasure would remove with the memories; nothing is changed."""
    return memos.memories.preview_erase(body.item_ids, **item_of(memos, caller, body))


@evidence_router.post("/memories/tag", name="tag")
def tag_memories(body: TagBody, memos: CurrentMemos, caller: CurrentCaller) -> ItemIds:
    """Add tags to memories and remove others; returns those that changed, each of which a rollback restores."""
    given = body.given("item_ids")
    return ItemIds(item_ids=memos.memories.tag(body.item_ids, **item_of(memos, caller, body), **given))


@evidence_router.get("/memories/facets", name="facets")
def memory_facets(
    memos: CurrentMemos,
    target: CurrentTarget,
    filter: FilterText = None,
    by: FacetNames = [],  # noqa: B006
    limit: Annotated[int, Query(description="Maximum number of values of each property, at most 1,000")] = 20,
) -> Facets:
    """Count the memories that pass a filter, at most the newest 10,000, by type, status, speaker and others."""
    return memos.browse.facets(**target, filter=read_filter(filter), by=by, limit=limit)


@evidence_router.get("/memories/standings", name="standings")
def memory_standings(
    memos: CurrentMemos,
    target: CurrentTarget,
    id: Annotated[list[str], Query(description="Ids of memories, at most 10,000; unknown ones are left out")],
) -> Sequence[MemoryStanding]:
    """Return whether memories still hold, in the order of their ids."""
    return memos.browse.standings(id, **target)


@evidence_router.post("/erasures/preview", name="preview_erasure")
def preview_erasure(body: ErasureBody, memos: CurrentMemos, caller: CurrentCaller) -> ErasurePreview:
    """Return what erasing the memories that pass a filter would remove; deleted ones count too."""
    return memos.memories.preview_erasure(body.filter, **target_of(memos, caller, body))


@evidence_router.post("/erasures", name="erase_matching")
def erase_matching(body: EraseMatchingBody, memos: CurrentMemos, caller: CurrentCaller) -> EraseReceipt:
    """Remove the memories that pass a filter in every form, with what was made of them."""
    return memos.memories.erase_matching(
        body.filter, **target_of(memos, caller, body), expected=body.expected, wait=body.wait
    )


@evidence_router.get("/erasures/{receipt}", name="erase_receipt")
def get_erase_receipt(receipt: ReceiptId, memos: CurrentMemos, acting: CurrentIdentity) -> EraseReceipt:
    """Return an erasure's receipt as it stands."""
    return memos.memories.erase_receipt(receipt, actor=acting.actor)


@evidence_router.post("/memories/used", status_code=204, name="used")
def mark_used(body: UsedBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Mark memories as used in an answer, which raises their heat. Unknown ids are ignored."""
    memos.tiers.used(body.item_ids, **target_of(memos, caller, body), confirmed=body.confirmed)


@evidence_router.get("/memories/{item}/sources", name="sources")
def memory_sources(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> Sequence[Source]:
    """Return the passages a memory comes from."""
    found = memos.get(item, **where)
    return found.sources


@evidence_router.get("/memories/{item}/extractions", name="extractions")
def memory_extractions(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> Sequence[ExtractionRecord]:
    """Return what read a message into facts, or read a fact."""
    return memos.memories.extractions(item, **where)


@evidence_router.get("/memories/{item}/relations", name="relations")
def memory_relations(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> Sequence[Relation]:
    """Return the relations of a memory to older and newer ones, the surest first."""
    return memos.memories.relations(item, **where)


@evidence_router.get("/memories/{item}/passages", name="passages")
def memory_passages(
    item: ItemId,
    memos: CurrentMemos,
    where: CurrentItem,
    around: Annotated[int, Query(description="Messages to return before and after each, at most 20")] = 3,
) -> Sequence[Passage]:
    """Return the messages a memory comes from, as they were written, with what was said around them."""
    return memos.browse.passages(item, **where, around=around)


@evidence_router.get("/memories/{item}/links", name="links")
def memory_links(item: ItemId, memos: CurrentMemos, where: CurrentItem, limit: Limit = 100) -> Sequence[Link]:
    """Return what a memory comes from, replaces and is about, and what does so with it, newest first."""
    return memos.browse.links(item, **where, limit=limit)


@evidence_router.get("/memories/{item}/events", name="events")
def memory_events(item: ItemId, memos: CurrentMemos, where: CurrentItem, limit: Limit = 100) -> Sequence[Event]:
    """Return what was done to a memory, newest first."""
    return memos.browse.events(item, **where, limit=limit)


@evidence_router.get("/memories/{item}/places", name="places")
def memory_places(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> Places:
    """Return where a memory is kept: topic, prompt prefix, attention state, adapters; and its heat."""
    return memos.browse.places(item, **where)


@evidence_router.get("/memories/{item}/images", name="images")
def memory_images(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> Sequence[StoredFile]:
    """Return the images of a message."""
    return memos.images.of(item, **where)


@evidence_router.put("/memories/{item}/pin", status_code=204, name="pin")
def pin_memory(item: ItemId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Keep a memory in working memory."""
    memos.tiers.pin(item, **target)


@evidence_router.delete("/memories/{item}/pin", status_code=204, name="unpin")
def unpin_memory(item: ItemId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Release a memory from working memory."""
    memos.tiers.pin(item, **target, pinned=False)


Offset = Annotated[int, Query(description="Number of memories to skip")]
Reason = Annotated[str, Query(description="Reason, kept in the history")]


class AddBody(CubeBody):
    """Content to remember."""

    messages: Any = Field(
        description="A text, a message `{role, content, …}` or a list of messages; OpenAI's, Anthropic's and "
        "LangChain's are taken as they are"
    )
    conversation: str | None = Field(None, description="Conversation id")
    tags: list[str] = Field(default=[], description="Tags")
    info: dict[str, Any] = Field(default={}, description="Metadata to filter by")
    mode: str = Field("rough", description="`rough`, or `fine`: also extract facts, in the background")
    tools: Any = Field(None, description="Definitions of the available tools, in OpenAI's format")
    ttl_s: float | None = Field(
        None, description="Seconds to live: after that they are in no answer, and are erased; default: for ever"
    )


class UpdateBody(ItemBody):
    """Changes to a memory; omitted fields keep their values."""

    memory: str = Field("", description="Its text")
    tags: list[str] = Field(default=[], description="Its tags")
    info: dict[str, Any] = Field(default={}, description="Metadata")
    key: str | None = Field(None, description="Key of the statement, such as `home.city`")
    value: str | None = Field(None, description="Value of the key")
    confidence: float = Field(1, description="0 to 1")
    tier: str = Field("", description="`short`, `mid` or `long`")
    type: str = Field("", description="Kind of memory")
    status: str = Field("", description="`active`, `pending`, `superseded` or `archived`")
    valid_from: Moment = Field(None, description="Valid from: ISO 8601, or milliseconds since 1970")
    valid_to: Moment = Field(None, description="Valid until")
    ttl_s: float | None = Field(None, description="Seconds to live from now on; null: for ever")
    expected_version: int | None = Field(None, description="Fail with 409 if the memory is at another version")
    reason: str = Field("updated", description="Reason, kept in the history")


class DeleteBody(ItemBody):
    """A memory to delete."""

    item_ids: list[str] = Field(description="Ids of memories of one cube; all of them, or none, are deleted")
    reason: str = Field("deleted", description="Reason, kept in the history")


class RollbackBody(ItemBody):
    """A version to roll back to."""

    to_version: int | None = Field(None, description="Version to restore; by default the one before the current")
    expected_version: int | None = Field(None, description="Fail with 409 if the memory is at another version")


@router.post("", status_code=201, name="add")
def add_memories(
    body: AddBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> AddReceipt:
    """Store messages; they are durable and can be found when this answers."""
    target = target_of(memos, caller, body, new=True)
    return memos.add(body.messages, **target, **body.given("messages"), idempotency_key=idempotency_key)


@router.get("", name="list_")
def list_memories(
    memos: CurrentMemos,
    target: CurrentTarget,
    filter: FilterText = None,
    limit: Limit = 100,
    offset: Offset = 0,
    sort: Annotated[
        str,
        Query(
            description="`created_at`, `said_at`, `updated_at`, `confidence` or `heat`, with `-` before it for the "
            "highest first"
        ),
    ] = "created_at",
    after: Annotated[str | None, Query(description="Continue after this memory, the last of the page before")] = None,
) -> list[Item]:
    """Return a cube's memories, by default the oldest first; deleted ones only when the filter names a status."""
    wanted = read_filter(filter)
    return memos.memories.list(**target, filter=wanted, limit=limit, offset=offset, sort=sort, after=after)


@router.post("/delete", name="delete_several")
def delete_memories(body: DeleteBody, memos: CurrentMemos, caller: CurrentCaller) -> ItemIds:
    """Take memories out of sight; a rollback brings each back."""
    return ItemIds(item_ids=(memos.delete(body.item_ids, **item_of(memos, caller, body), reason=body.reason)))


@router.get("/{item}", name="get")
def get_memory(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> Item:
    """Return one memory with its sources."""
    return memos.get(item, **where)


@router.patch("/{item}", name="update")
def update_memory(item: ItemId, body: UpdateBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Write a memory's next version."""
    given = body.model_fields_set - {"user", "cube", "expected_version", "reason"}
    return memos.update(
        item,
        **item_of(memos, caller, body),
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
def memory_history(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> list[Version]:
    """Return every version of a memory, also of a deleted one: who, when, why, before and after."""
    return memos.memories.history(item, **where)


@router.post("/{item}/rollback", name="rollback")
def rollback_memory(item: ItemId, body: RollbackBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Write a new version equal to an old one; without `to_version` to the one before, also of a deleted memory."""
    return memos.memories.rollback(
        item, body.to_version, **item_of(memos, caller, body), expected_version=body.expected_version
    )


tiers_router = value_router("tiers")

SegmentId = Annotated[str, Path(description="Id of a segment")]


class MoveBody(CubeBody):
    """The tier to move a segment to."""

    tier: str = Field(description="`long`: extract facts now; `archive`: rank lower; `mid`: restore")


class AnalyseBody(CubeBody):
    """Pages to analyse into long-term memory."""

    everything: bool = Field(False, description="Process all pages; default: only those of hot segments")


class ReadFinelyBody(CubeBody):
    """Messages to read into facts."""

    conversation: str | None = Field(None, description="Conversation; default: the whole cube")


class TaskIds(Value):
    """Tasks that were begun."""

    tasks: list[str] = Field(description="Ids of the first task of each conversation")


@tiers_router.get("/segments")
def segments(
    memos: CurrentMemos,
    target: CurrentTarget,
    limit: Limit = 100,
    state: Annotated[str | None, Query(description="Only `open` topics, or only `archived` ones")] = None,
    after: Annotated[str | None, Query(description="Continue after this topic")] = None,
) -> Sequence[Segment]:
    """Return the topics of a cube's older pages: those in use first, the hottest first."""
    return memos.tiers.segments(**target, limit=limit, state=state, after=after)


@tiers_router.get("/segments/{segment}")
def segment(
    segment: SegmentId,
    memos: CurrentMemos,
    target: CurrentTarget,
    limit: Annotated[int, Query(description="Maximum number of messages, at most 1,000")] = 50,
    after: Annotated[str | None, Query(description="Continue after this message")] = None,
) -> SegmentContents:
    """Return a topic with its messages, the newest first, and what was read from them."""
    return memos.tiers.segment(segment, **target, limit=limit, after=after)


@tiers_router.get("/moves")
def moves(
    memos: CurrentMemos,
    target: CurrentTarget,
    before: Annotated[int | None, Query(description="Moves before this event number; default: the newest")] = None,
    limit: Annotated[int, Query(description="Maximum number of moves, at most 1,000")] = 100,
) -> Sequence[TierMove]:
    """Return the moves of topics between tiers with their reasons, newest first."""
    return memos.tiers.moves(**target, before=before, limit=limit)


@tiers_router.get("/heat-presets")
def heat_presets(memos: CurrentMemos, target: CurrentTarget) -> PresetComparison:
    """Return what each preset of heat would have made of a cube's hottest topics, as recorded."""
    return memos.tiers.compare_presets(**target)


@tiers_router.post("/segments/{segment}/move", status_code=204)
def move(segment: SegmentId, body: MoveBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Send a segment to another tier by hand."""
    memos.tiers.move(segment, body.tier, **target_of(memos, caller, body))


@tiers_router.put("/segments/{segment}/pin", status_code=204)
def pin_segment(segment: SegmentId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Keep a segment out of the archive."""
    memos.tiers.pin(segment, **target)


@tiers_router.delete("/segments/{segment}/pin", status_code=204)
def unpin_segment(segment: SegmentId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Unpin a segment, so that it may be archived again."""
    memos.tiers.pin(segment, **target, pinned=False)


@tiers_router.post("/analyse", status_code=202)
def analyse(body: AnalyseBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Analyse pages into long-term memory in the background."""
    memos.tiers.analyse(**target_of(memos, caller, body), everything=body.everything)


@tiers_router.post("/consolidate", status_code=202)
def consolidate(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Consolidate a cube's facts in the background; this also runs once a day by itself."""
    memos.tiers.consolidate(**target_of(memos, caller, body))


@tiers_router.post("/reflect", status_code=202)
def reflect(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Derive conclusions from several facts with the chat model, in the background."""
    memos.tiers.reflect(**target_of(memos, caller, body))


@tiers_router.post("/read-finely", status_code=202)
def read_finely(body: ReadFinelyBody, memos: CurrentMemos, caller: CurrentCaller) -> TaskIds:
    """Extract facts from messages added in rough mode, in the background."""
    return TaskIds(tasks=list(memos.memories.read_finely(body.conversation, **target_of(memos, caller, body))))


tools_router = value_router("tools", prefix="/tools")

ToolName = Annotated[str, Path(description="Name of a tool")]


class DefineBody(CubeBody):
    """Definitions of tools."""

    tools: Any = Field(description="Definitions in OpenAI's format")


class CalledBody(CubeBody):
    """A call of a tool."""

    arguments: Any = Field(None, description="Object or JSON text; the order of keys does not matter")


@tools_router.get("", name="list_")
def list_tools(memos: CurrentMemos, target: CurrentTarget) -> Sequence[ToolUse]:
    """Return the tools of a cube, by name."""
    return memos.tools.list(**target)


@tools_router.post("", status_code=201, name="define")
def define_tools(
    body: DefineBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> ItemIds:
    """Store definitions of tools."""
    target = target_of(memos, caller, body, new=True)

    def again(made: tuple[str, ...]) -> tuple[str, ...]:
        memos.cubes.get(**target)
        return made

    made = memos.idempotency.once(
        creation(idempotency_key, "tools.define", target, body),
        lambda: memos.tools.define(body.tools, **target),
        ids=lambda ids: ids,
        again=again,
    )
    return ItemIds(item_ids=made)


@tools_router.get("/{name:path}/calls", name="calls")
def tool_calls(name: ToolName, memos: CurrentMemos, target: CurrentTarget, limit: Limit = 100) -> Sequence[Item]:
    """Return the distinct calls of a tool, the one that changed last first."""
    return memos.tools.calls(name, **target, limit=limit)


@tools_router.post("/{name:path}/called", name="called")
def known_call(name: ToolName, body: CalledBody, memos: CurrentMemos, caller: CurrentCaller) -> Item | None:
    """Return what is known of one call; null when it was not made, or its outcome is not known."""
    return memos.tools.called(name, body.arguments, **target_of(memos, caller, body))
