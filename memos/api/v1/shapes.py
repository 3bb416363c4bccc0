"""What these routes answer: the values of `memos.model` with each field told. No behaviour."""

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
