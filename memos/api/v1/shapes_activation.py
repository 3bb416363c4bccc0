"""What routes about activation memory answer. No behaviour."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from memos.api.v1.shapes import Shape


class PrefixEntryShape(Shape):
    """One memory that prompts begin with."""

    mark: str = Field(description="Mark by which an answer cites it, such as `m1`")
    item: str = Field(description="Id of the memory")
    version: int = Field(description="Version that stands there")
    memory: str = Field(description="Its text now")
    added_at: datetime = Field(description="When it was put there")
    changed: bool = Field(description="Whether it is no more what it was then")


class CubePrefixShape(Shape):
    """What prompts of a cube begin with."""

    cube: str = Field(description="The cube")
    entries: list[PrefixEntryShape] = Field(description="Its memories, in order")
    tokens: int = Field(description="Estimated tokens of the text")
    room: int = Field(description="Most tokens of memories it may have; 0 where no model keeps them")
    text: str = Field(description="The section of the prompt; empty when there is none")
    blocks: dict[str, int] = Field(
        description="How many blocks of the cube are kept, by the fastest tier that each is in"
    )


class ComposingShape(Shape):
    """The task that composes what prompts begin with."""

    cube: str = Field(description="The cube")
    task: str = Field(description="Id of the task")


class WarmedShape(Shape):
    """How long a model took to make what prompts begin with its own."""

    cube: str = Field(description="The cube")
    tokens: int = Field(description="Estimated tokens of what they begin with")
    seconds: float = Field(description="Seconds it took")


class DroppedShape(Shape):
    """What was removed."""

    cube: str = Field(description="The cube")
    blocks: int = Field(description="How many blocks")


class TierFillShape(Shape):
    """How full a tier is, and what came of it since the store was opened."""

    tier: str = Field(description="`device`, `host` or `disk`")
    blocks: int = Field(description="Blocks in it")
    size_bytes: int = Field(description="Bytes of these")
    budget_bytes: int = Field(description="Bytes it may have")
    hits: int = Field(description="How often a block was found there")
    evictions: int = Field(description="How many blocks left it to make room")
    bytes_per_s: float | None = Field(description="How quickly it is read; null before it was")


class KvStatsShape(Shape):
    """What is kept of all cubes, and what came of it."""

    tiers: list[TierFillShape] = Field(description="The tiers; none when no model in the server ever kept anything")
    dropped_writes: int = Field(description="Blocks not written to disk, which was too slow, full or failed")
    damaged: int = Field(description="Damaged files that were met")
    forgotten: int = Field(description="Blocks removed because what they were made of may not be kept")


class DamagedShape(Shape):
    """Which blocks on the disk were damaged, and are removed."""

    damaged: list[str] = Field(description="Their keys")
