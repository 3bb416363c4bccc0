"""Answers of `/api/v1` about cubes, access, models, tasks and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, Field

from memos.api.v1.shapes import Shape


class IdentityShape(Shape):
    """A user, agent or group."""

    id: str = Field(description="Its id")
    kind: str = Field(description="`user`, `agent` or `group`")
    name: str = Field(description="Its name for people")
    admin: bool = Field(description="Whether it may do everything")
    disabled: bool = Field(description="Whether it may do nothing")
    home: str | None = Field(description="Cube that is used when none is named")
    acts_for: str | None = Field(description="User an agent acts for")
    created_by: str = Field(description="Who made it")
    created_at: datetime = Field(description="When it was made")


class MembersShape(Shape):
    """The members of a group."""

    group: str = Field(description="Its id")
    members: list[str] = Field(description="Ids of its members")


class GrantShape(Shape):
    """A role on a cube that was given to somebody."""

    cube: str = Field(description="The cube")
    identity: str = Field(description="User, agent or group; `*` is everyone")
    role: str = Field(description="`reader`, `editor` or `owner`")
    created_by: str = Field(description="Who gave it")
    created_at: datetime = Field(description="When it was given")


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


class KeyShape(Shape):
    """A key, without its secret."""

    id: str = Field(description="Its id")
    identity: str = Field(description="Whose it is")
    name: str = Field(description="Its name")
    hint: str = Field(description="How its secret begins")
    rights: list[str] = Field(description="What calls with it may do at the most: `read`, `write`, `own`")
    created_by: str = Field(description="Who made it")
    created_at: datetime = Field(description="When it was made")
    expires_at: datetime | None = Field(description="When it stops opening anything")
    revoked_at: datetime | None = Field(description="When it was revoked")
    last_used_at: datetime | None = Field(description="When it was used last, to the minute")
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


class FingerprintShape(Shape):
    """What makes two embedders' vectors comparable."""

    name: str = Field(description="Name of the embedder")
    dimension: int = Field(description="Numbers of a vector")
    prefix_rule: str = Field(description="What is put before a text")
    normalised: bool = Field(description="Whether vectors have length 1")


class CubeShape(Shape):
    """One cube: the unit of sharing and erasure."""

    id: str = Field(description="Its id")
    owner: str = Field(description="Who owns it")
    description: str = Field(description="What it is for")
    time_zone: str = Field(description="Zone that times without one are read in")
    fingerprint: FingerprintShape = Field(description="Embedder its vectors are of")
    created_at: datetime = Field(description="When it was made")
    items: int = Field(description="Memories in it")
    kind: str = Field(description="`memory` or `knowledge`")
    redact_pii: bool = Field(description="Whether personal data is masked in what is added")


class SegmentShape(Shape):
    """Pages of one topic in the mid tier."""

    id: str = Field(description="Its id")
    cube: str = Field(description="Cube it is in")
    state: str = Field(description="`open` or `archived`")
    summary: str = Field(description="What it is about")
    keywords: list[str] = Field(description="Its keywords")
    pages: int = Field(description="Pages in it")
    heat: float = Field(description="Its heat now")
    visits: int = Field(description="How often it was looked up")
    pinned: bool = Field(description="Whether it stays out of the archive")
    created_at: datetime = Field(description="When it was made")
    updated_at: datetime = Field(description="When it was changed last")


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


class DifferenceShape(Shape):
    """One thing that is wrong."""

    store: str = Field(description="Where")
    kind: str = Field(description="What kind of wrong")
    subject: str = Field(description="What it is about")
    detail: str = Field(description="What was or can be done")


class VerifyShape(Shape):
    """What was checked and found."""

    items: int = Field(description="Memories checked")
    checked: dict[str, int] = Field(description="What was checked, by store")
    differences: list[DifferenceShape] = Field(description="What is wrong")
    repaired: int = Field(description="How much was repaired")
    clean: bool = Field(description="True when nothing is wrong any more")


class EventShape(Shape):
    """One entry of a cube's chain of events."""

    cube: str = Field(description="The cube")
    seq: int = Field(description="Its number, from 1")
    at: datetime = Field(description="When it was committed")
    actor: str = Field(description="Who did it")
    kind: str = Field(description="What was done, such as `add` or `move`")
    item: str | None = Field(description="Id of the memory it is about")
    body: Any = Field(description="Ids and numbers, never memory text; null when it was erased")
