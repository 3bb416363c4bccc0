"""Answers of `/api/v1` about memories, files and profiles, with a description of each field."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Part of an answer, made from a value of `memos.model` of the same fields."""

    model_config = ConfigDict(from_attributes=True)


class MaskedShape(Shape):
    """Passages that were not stored as written."""

    where: str = Field(description="Field they were in")
    kind: str = Field(description="Kind of secret or personal data")
    count: int = Field(description="How many")


class AddReceiptShape(Shape):
    """What an add stored."""

    cube: str = Field(description="Cube it was stored in")
    conversation: str | None = Field(description="Conversation it belongs to")
    item_ids: list[str] = Field(description="Ids of the memories stored, in the order of the messages")
    duplicates: list[str] = Field(description="Ids of messages that were stored already")
    indexed: bool = Field(description="False when an index has yet to catch up; searches find it all the same")
    replayed: bool = Field(description="True when the idempotency key was used before: the receipt of then")
    masked: list[MaskedShape] = Field(description="What was not stored as written")
    task: str | None = Field(description="Task that reads it finely; null without one")


class SourceShape(Shape):
    """Where a memory comes from: a passage of a stored message."""

    message_id: str = Field(description="Id of the memory that is the message")
    start: int = Field(description="First character of the passage")
    end: int = Field(description="Character after the passage")
    speaker: str = Field(description="Who said it")
    at: datetime = Field(description="When it was said")
    passage: str = Field(description="The passage")
    conversation: str | None = Field(description="Conversation of the message")
    external_id: str | None = Field(description="The caller's own id of the message")
    trust: str = Field(description="`trusted` or `untrusted`")


class ItemShape(Shape):
    """One memory at one version."""

    id: str = Field(description="Id of the memory")
    cube: str = Field(description="Cube it is in")
    version: int = Field(description="Its version, from 1")
    version_id: str = Field(description="Id of the version")
    memory: str = Field(description="Its text")
    type: str = Field(description="Kind of memory, such as `message`, `user` or `preference`")
    tier: str = Field(description="`short`, `mid`, `long` or `archive`")
    status: str = Field(description="`active`, `pending`, `superseded`, `archived` or `deleted`")
    speaker: str = Field(description="Who said it")
    role: str = Field(description="Role of who said it")
    key: str | None = Field(description="What it says something about, such as `home.city`")
    value: str | None = Field(description="What it says about the key")
    tags: list[str] = Field(description="Tags")
    info: dict[str, Any] = Field(description="The caller's own fields")
    confidence: float = Field(description="0 to 1")
    entities: list[str] = Field(description="Names in it")
    keywords: list[str] = Field(description="Keywords in it")
    conversation: str | None = Field(description="Conversation it is from")
    said_at: datetime | None = Field(description="When it was said")
    valid_from: datetime | None = Field(description="Since when it holds")
    valid_to: datetime | None = Field(description="Until when it holds")
    created_at: datetime = Field(description="When it was stored")
    updated_at: datetime = Field(description="When this version was stored")
    superseded_by: str | None = Field(description="Id of the memory that replaced it")
    sources: list[SourceShape] = Field(description="Where it comes from; filled for a single memory and for hits")


class ArmShape(Shape):
    """What one way of searching said of a hit."""

    arm: str = Field(description="Name of the arm, such as `dense-turn` or `bm25-window`")
    rank: int = Field(description="Place in its list, from 1")
    score: float = Field(description="Its own score")
    gave: float = Field(description="What it added to the hit's score")


class BoostShape(Shape):
    """What something other than an arm added to a hit's score."""

    name: str = Field(description="Name of the boost, such as `session`")
    gave: float = Field(description="What it added")


class HitShape(Shape):
    """One found memory."""

    item: ItemShape = Field(description="The memory")
    score: float = Field(description="Orders the hits of one search")
    relevance: float = Field(description="0 to 1, and means the same in every search")
    sources: list[SourceShape] = Field(description="Where it comes from")
    duplicates: list[str] = Field(description="Ids of memories that say the same")
    arms: list[ArmShape] = Field(description="What each arm gave, with `explain`")
    boosts: list[BoostShape] = Field(description="What was added besides, with `explain`")


class SearchShape(Shape):
    """The hits of a search, best first."""

    query: str = Field(description="The question")
    hits: list[HitShape] = Field(description="Found memories, best first")
    context: str = Field(description="Ready text for a prompt, with `token_budget`")
    context_tokens: int = Field(description="Tokens of that text")
    missing_arms: list[str] = Field(
        description="Ways of searching that could not be used; `unindexed`: many memories wait for the index"
    )
    timings_ms: dict[str, float] = Field(description="Time of each stage in milliseconds")


class FileShape(Shape):
    """A stored file, and how far reading it is."""

    id: str = Field(description="Its id")
    cube: str = Field(description="Cube it is in")
    kind: str = Field(description="`document` or `image`")
    name: str = Field(description="Its name")
    media_type: str = Field(description="Its media type")
    bytes: int = Field(description="Its size")
    sha256: str = Field(description="SHA-256 of its bytes, in hexadecimal digits")
    state: str = Field(description="`processing`, `available`, `failed`, `superseded` or `deleted`")
    actor: str = Field(description="Who added it")
    created_at: datetime = Field(description="When it was added")
    error: str | None = Field(description="Why it could not be read")
    info: dict[str, Any] = Field(description="What was found out about it, such as `pages`")
    item: str | None = Field(description="Message an image is part of")
    replaced_by: str | None = Field(description="Newer version of a document")
    finished_at: datetime | None = Field(description="When it was read")


class KnowledgeBaseShape(Shape):
    """A cube of documents."""

    id: str = Field(description="Its id, also as a cube")
    description: str = Field(description="What it is about")
    owner: str = Field(description="Who owns it")
    items: int = Field(description="Passages and other memories in it")
    files: dict[str, int] = Field(description="Files by state")


class EvidenceShape(Shape):
    """A passage a trait rests on."""

    item: str | None = Field(description="Memory of the message it stands in")
    passage: str = Field(description="The passage")
    speaker: str = Field(description="Who said it")
    at: datetime = Field(description="When")
    trust: str = Field(description="`trusted` or `untrusted`")


class TraitShape(Shape):
    """What a profile says in one dimension."""

    dimension: str = Field(description="Id of the dimension")
    name: str = Field(description="Its name")
    value: str = Field(description="What is known")
    confidence: float = Field(description="0 to 1")
    since: datetime = Field(description="Since when")
    item: str = Field(description="Memory that holds it")
    static: bool = Field(description="Whether it was given by hand")
    evidence: list[EvidenceShape] = Field(description="Passages it rests on")


class TraitGroupShape(Shape):
    """Traits that belong together."""

    id: str = Field(description="Id of the group")
    name: str = Field(description="Its name")
    traits: list[TraitShape] = Field(description="Its traits")


class ProfileShape(Shape):
    """What is known of one subject."""

    cube: str = Field(description="The cube")
    subject: str = Field(description="Whom it is about; empty when nobody is known")
    template: str = Field(description="Name of the template")
    groups: list[TraitGroupShape] = Field(description="Traits by group")


class TraitEntryShape(Shape):
    """One entry of a dimension's history."""

    number: int = Field(description="Names it for a rollback")
    value: str | None = Field(description="What was written")
    confidence: float = Field(description="0 to 1")
    status: str = Field(description="Status of the memory then")
    since: datetime = Field(description="Since when it held")
    until: datetime | None = Field(description="Until when it held")
    static: bool = Field(description="Whether it was given by hand")
    recorded_at: datetime = Field(description="When it was written")
    actor: str = Field(description="Who wrote it")
    reason: str = Field(description="Why")
    item: str = Field(description="Memory that holds it")
    version: int = Field(description="Version of that memory")


class TraitChangeShape(Shape):
    """A trait whose value is another one."""

    before: TraitShape = Field(description="What it was")
    after: TraitShape = Field(description="What it is")


class ProfileDiffShape(Shape):
    """What became of a profile between two moments."""

    cube: str = Field(description="The cube")
    subject: str = Field(description="Whom it is about")
    since: datetime = Field(description="First moment")
    until: datetime = Field(description="Last moment")
    added: list[TraitShape] = Field(description="What became known")
    changed: list[TraitChangeShape] = Field(description="What became another")
    ended: list[TraitShape] = Field(description="What ended")


class TextShape(Shape):
    """A text."""

    text: str = Field(description="The text")


class DimensionShape(Shape):
    """One thing a profile may say of somebody."""

    id: str = Field(description="Its id: its group's, a dot and a name")
    name: str = Field(description="Its name")
    about: str = Field(description="What it is about")
    kind: str = Field(description="`text`, `level`, `choice` or `interest`")
    values: list[str] = Field(description="Values of a choice")
    attributes: list[str] = Field(description="Attributes that statements give it by")
    words: list[str] = Field(description="Words that an interest is found by")


class DimensionGroupShape(Shape):
    """Dimensions that belong together."""

    id: str = Field(description="Its id")
    name: str = Field(description="Its name")
    dimensions: list[DimensionShape] = Field(description="Its dimensions")


class TemplateShape(Shape):
    """Which dimensions a profile has."""

    name: str = Field(description="Its name")
    groups: list[DimensionGroupShape] = Field(description="Its groups")


class VersionShape(Shape):
    """One entry of a memory's history."""

    id: str = Field(description="Id of the version")
    item: str = Field(description="Id of the memory")
    version: int = Field(description="Its number, from 1")
    actor: str = Field(description="Who made it")
    reason: str = Field(description="Why")
    recorded_at: datetime = Field(description="When it was stored")
    before: ItemShape | None = Field(description="The memory before; null for the first version")
    after: ItemShape = Field(description="The memory since")


class ExtractionShape(Shape):
    """One reading of messages into facts."""

    id: str = Field(description="Id of the reading")
    reader: str = Field(description="What read: patterns, or a prompt with its version")
    model: str | None = Field(description="Language model; null when none was asked")
    at: datetime = Field(description="When")
    output: str | None = Field(description="The model's answer as JSON text")


class FeedbackShape(Shape):
    """What a correction became."""

    item_id: str = Field(description="Id of the memory that says it")
    related: list[str] = Field(description="Ids of the memories it was linked to")
    superseded: list[str] = Field(description="Ids of the memories it took the place of")
    indexed: bool = Field(description="False when an index has yet to catch up")
    masked: list[MaskedShape] = Field(description="What was not stored as written")


class EraseReceiptShape(Shape):
    """What was erased, and from where."""

    id: str = Field(description="Id of the receipt")
    cube: str = Field(description="Cube it was in")
    state: str = Field(description="`purging` while files and logs may still hold it, then `purged`")
    item_ids: list[str] = Field(description="Ids of what was erased, also of what was made of it")
    rebuilt: list[str] = Field(description="Ids of neighbours whose windows contained it")
    removed: dict[str, int] = Field(description="Rows removed, by table")
    stores: dict[str, str] = Field(description="State of each store")
    backups: list[str] = Field(description="Backups that still hold it; a restore leaves it out")
    untold_backups: list[str] = Field(description="Those of them that could not be told so")


class WhyNotShape(Shape):
    """At which stage a memory left a search."""

    item_id: str = Field(description="Id of the memory")
    stage: str = Field(description="`ledger`, `filter`, `index`, `recall`, `duplicate`, `rank`, `budget`, or `found`")
    reason: str = Field(description="Why there")
    place: int | None = Field(description="Its place among all candidates, from 1")
    score: float | None = Field(description="Its score")
    arms: list[ArmShape] = Field(description="What each arm gave")
    boosts: list[BoostShape] = Field(description="What was added besides")


class WorkingMemoryShape(Shape):
    """The small set a prompt begins with."""

    conversation: str | None = Field(description="Conversation it is for")
    text: str = Field(description="Ready text for a prompt")
    tokens: int = Field(description="Tokens of that text")
    items: list[ItemShape] = Field(description="Memories in it, in order")
    topic: str = Field(description="What the current topic is about")
    left_out: int = Field(description="Lines that had no room")


class PendingShape(Shape):
    """A memory that awaits review."""

    item: ItemShape = Field(description="The memory, with its sources")
    why: str = Field(description="What made it wait")


class ToolUseShape(Shape):
    """What is known of one tool."""

    tool: str = Field(description="Its name")
    description: str = Field(description="Its description, if it is defined")
    calls: int = Field(description="How often it was called")
    successes: int = Field(description="How often it worked")
    failures: int = Field(description="How often it did not")
    success_rate: float | None = Field(description="0 to 1; null when of no call it is clear")
    lesson: str | None = Field(description="The newest lesson")
    last_used: datetime | None = Field(description="When it was called last")
    schema_: str | None = Field(
        description="Id of the memory that is its definition", validation_alias="schema", serialization_alias="schema"
    )


class RuleShape(Shape):
    """One rule of retention."""

    id: str = Field(description="Id of the rule")
    cube: str = Field(description="Cube it is for")
    action: str = Field(description="`archive`, `delete` or `erase`")
    types: list[str] = Field(description="Types it is about; empty: all")
    tags: list[str] = Field(description="Tags it is about; empty: all")
    statuses: list[str] = Field(description="Statuses it is about; empty: all")
    age_days: float = Field(description="Age in days from which it applies")
    actor: str = Field(description="Who made it")
    created_at: datetime = Field(description="When it was made")


class EffectShape(Shape):
    """What a rule does, or did."""

    rule: RuleShape = Field(description="The rule")
    count: int = Field(description="Memories it is about")
    items: list[str] = Field(description="Ids of the first of them")
    derived: int = Field(description="How many more are erased since they were made of those")


class ItemIdsShape(Shape):
    """Memories that were stored or taken away."""

    item_ids: list[str] = Field(description="Their ids")
