"""What routes about memories answer besides memories themselves. No behaviour."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from memos.api.v1.shapes import ArmShape, BoostShape, ItemShape, MaskedShape, Shape


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
