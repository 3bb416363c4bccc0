"""What routes about activation memory answer, as `values` has it for the others."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from memos.api.client.results import Result


class PrefixEntry(Result):
    """One memory that prompts begin with; `changed` when it is no more what it was when that was composed."""

    mark: str
    item: str
    version: int
    memory: str
    added_at: datetime
    changed: bool = False


class CubePrefix(Result):
    """What prompts of a cube begin with; `blocks` of KV by the fastest tier that each is in.

    `room` is how many tokens of memories it may have, 0 where no model keeps them.
    """

    cube: str
    entries: tuple[PrefixEntry, ...]
    tokens: int
    room: int
    text: str
    blocks: dict[str, int] = Field({})


class Composing(Result):
    """The task that composes what prompts of a cube begin with."""

    cube: str
    task: str


class Warmed(Result):
    """How long a model took to make what prompts of a cube begin with its own."""

    cube: str
    tokens: int
    seconds: float


class Dropped(Result):
    """How many blocks of a cube were removed."""

    cube: str
    blocks: int


class TierFill(Result):
    """How full a tier is, and what came of it since the store was opened."""

    tier: str
    blocks: int
    size_bytes: int
    budget_bytes: int
    hits: int
    evictions: int
    bytes_per_s: float | None = None


class KvStats(Result):
    """What is kept of prompts; `dropped_writes` were not written to disk, since it was too slow, full or failed."""

    tiers: tuple[TierFill, ...] = ()
    dropped_writes: int = 0
    damaged: int = 0
    forgotten: int = 0


class Damaged(Result):
    """Keys of blocks that were damaged on the disk, and are removed."""

    damaged: tuple[str, ...] = ()
