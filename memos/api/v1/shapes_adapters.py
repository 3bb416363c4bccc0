"""What routes about adapters answer. No behaviour."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from memos.api.v1.shapes import Shape


class AdapterShape(Shape):
    """What was learned of a cube, as an adapter of a model in the server."""

    id: str = Field(description="Its id")
    cube: str = Field(description="Cube it is of")
    shard: str = Field(description="Topic of the cube that it is of; empty for the only or first one")
    number: int = Field(description="Counts the shard's adapters from 1")
    state: str = Field(description="`training`, `refused`, `ready`, `active` or `retired`")
    stale: bool = Field(description="Whether a memory that it saw is different now: then it answers nothing")
    model: str = Field(description="Model it was trained for; the last part of its name for whom the cube is not")
    facts: int = Field(description="Memories it saw")
    reason: str | None = Field(description="Why it was refused")
    measures: dict[str, Any] | None = Field(description="What its examination found")
    size_bytes: int | None = Field(description="Bytes of its files")
    created_at: datetime = Field(description="When its training began")
    finished_at: datetime | None = Field(description="When its training ended")


class LearnableShape(Shape):
    """What a cube's next adapter would know."""

    cube: str = Field(description="The cube")
    allowed: bool = Field(description="Whether its owner allows that its memories are learned")
    memories: list[str] = Field(description="Texts of the memories that would be learned")
    left_out: dict[str, int] = Field(description="How many memories are not learned, by reason")


class ConsentShape(Shape):
    """Whether a cube's memories may be learned."""

    cube: str = Field(description="The cube")
    allowed: bool = Field(description="Whether they may")
    removed: int = Field(description="How many adapters were removed")


class LearningShape(Shape):
    """What becomes of a wish to have a cube learned."""

    task: str | None = Field(description="Task that trains; null where none is due")
    adapter: AdapterShape | None = Field(description="Adapter that answers and knows all there is to learn")


class SeenMemoryShape(Shape):
    """A memory as an adapter saw it."""

    item: str = Field(description="Id of the memory")
    version: int = Field(description="Version that it saw")
    memory: str | None = Field(description="Its text then; null when it was erased")


class SeenChangeShape(Shape):
    """A memory that two adapters saw at different versions."""

    before: SeenMemoryShape = Field(description="As the other one saw it")
    after: SeenMemoryShape = Field(description="As this one did")


class AdapterDiffShape(Shape):
    """How what two adapters of a cube saw differs."""

    cube: str = Field(description="The cube")
    adapter: str = Field(description="Id of the adapter")
    other: str | None = Field(description="Id of the one it is compared with; null when there is none before it")
    added: list[SeenMemoryShape] = Field(description="What the other did not see")
    removed: list[SeenMemoryShape] = Field(description="What only the other saw")
    changed: list[SeenChangeShape] = Field(description="What both saw, at different versions")


class UnlearnedShape(Shape):
    """Memories that are learned no more."""

    cube: str = Field(description="Cube they are in")
    items: list[str] = Field(description="Ids of the memories")
    adapters: list[str] = Field(description="Ids of adapters that saw one, and were removed")
    files: int = Field(description="How many files were removed")
    size_bytes: int = Field(description="Bytes of these files")


class LearnAgainShape(Shape):
    """Memories that may be learned again."""

    cube: str = Field(description="Cube they are in")
    items: int = Field(description="How many were kept from being learned")
