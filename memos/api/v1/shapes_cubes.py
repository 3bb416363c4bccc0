"""Answers of `/api/v1` about cubes, access, models, tasks and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, Field

from memos.api.v1.shapes import Shape, mirrors
from memos.core.identities import Grant, Identity, Key
from memos.core.types import Cube, Difference, Event, Fingerprint, Segment, Task, VerifyReport


@mirrors(Identity)
class IdentityShape(Shape):
    """A user, agent or group."""


class MembersShape(Shape):
    """The members of a group."""

    group: str = Field(description="Its id")
    members: list[str] = Field(description="Ids of its members")


@mirrors(Grant)
class GrantShape(Shape):
    """A role on a cube that was given to somebody."""


class RevokedShape(Shape):
    """Whether there was something to take back."""

    revoked: bool = Field(description="False when there was none")


class LimitsShape(Shape):
    """How much a key may use; what is null is as the installation's settings say."""

    model_config = ConfigDict(from_attributes=True, extra="forbid")

    requests_per_minute: int | None = Field(None, description="Requests a minute")
    items_per_day: int | None = Field(None, description="Memories stored a UTC day")
    bytes_per_day: int | None = Field(None, description="Bytes of text and files stored a UTC day")
    tokens_per_day: int | None = Field(None, description="Tokens of the chat model a UTC day")


@mirrors(Key)
class KeyShape(Shape):
    """A key, without its secret."""

    limits: LimitsShape = Field(description="How much it may use")


class NewKeyShape(Shape):
    """A key that was just made."""

    key: KeyShape = Field(description="The key")
    secret: str | None = Field(
        description="What to send as `Authorization: Bearer …`; shown this once, null when the request is repeated"
    )


class MeShape(Shape):
    """Whom a key stands for."""

    identity: IdentityShape = Field(description="Whose the key is")
    rights: list[str] = Field(description="What calls with it may do at the most")


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


@mirrors(Fingerprint)
class FingerprintShape(Shape):
    """What makes two embedders' vectors comparable."""


@mirrors(Cube)
class CubeShape(Shape):
    """One cube: the unit of sharing and erasure."""


@mirrors(Segment)
class SegmentShape(Shape):
    """Pages of one topic in the mid tier."""


@mirrors(Task)  # in an order of its own, so that it declares its fields
class TaskShape(Shape):
    """One piece of background work as it stands."""

    id: str = Field(description="Its id")
    kind: str = Field(description="What it does, such as `read` or `file`")
    cube: str = Field(description="Cube it is about; empty: the whole installation")
    state: str = Field(description="`waiting`, `running`, `done`, `failed`, `dead` or `cancelled`")
    ended: bool = Field(description="Whether no worker will touch it again")
    attempts: int = Field(description="Attempts so far")
    progress: float = Field(description="0 to 1")
    note: str | None = Field(description="Why it waits")
    error: str | None = Field(description="How the last attempt failed")
    tokens: int = Field(description="Tokens of language models it took")
    seconds: float = Field(description="Seconds all attempts took")
    created_at: datetime = Field(description="When it was made")
    not_before: datetime = Field(description="When it may begin")
    started_at: datetime | None = Field(description="When the last attempt began")
    finished_at: datetime | None = Field(description="When it ended")


class CubeOverviewShape(Shape):
    """One cube's numbers."""

    cube: str = Field(description="Its id")
    events: int = Field(description="Number of its newest event")
    changed_at: datetime | None = Field(description="When that was")
    messages: int = Field(description="Messages in it")
    short_pages: int = Field(description="Pages of the short tier")
    open_segments: int = Field(description="Segments of the mid tier")
    archived_segments: int = Field(description="Segments in the archive")
    long_items: int = Field(description="Memories made of messages")
    waiting: int = Field(description="Tasks that wait")
    running: int = Field(description="Tasks that run")
    adds_per_s: float = Field(description="Adds a second, lately")
    moves_per_min: float = Field(description="Moves between tiers a minute, lately")
    tokens_today: int = Field(description="Tokens of language models today")
    hottest: list[SegmentShape] = Field(description="Hottest segments, of cubes that were named")


class OverviewShape(Shape):
    """How full the tiers are, and what the background does."""

    at: datetime = Field(description="When this was so")
    seconds: float = Field(description="Seconds that rates are of")
    cubes: list[CubeOverviewShape] = Field(description="The busiest cubes first")
    more_cubes: int = Field(description="Cubes left out")
    tasks: dict[str, dict[str, int]] = Field(description="Tasks by kind and state; ended ones of the last hour")
    running: list[TaskShape] = Field(description="Tasks that run, the longest first")
    tokens_today: int = Field(description="Tokens of language models today")


@mirrors(Difference)
class DifferenceShape(Shape):
    """One thing that is wrong."""


@mirrors(VerifyReport)
class VerifyShape(Shape):
    """What was checked and found."""

    clean: bool = Field(description="True when nothing is wrong any more")


@mirrors(Event)
class EventShape(Shape):
    """One entry of a cube's chain of events."""
