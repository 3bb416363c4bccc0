"""Answers of `/api/v1` about cubes, access, models, tasks and events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, get_type_hints

from fastapi.datastructures import DefaultPlaceholder
from fastapi.routing import APIRoute
from pydantic import ConfigDict, Field

from memos.api.v1.shapes import Shape, mirrors, wire_type
from memos.core.identities import Grant, Identity, Key
from memos.core.types import Cube, Difference, Event, Fingerprint, Segment, Task, VerifyReport
from memos.kernel.kv import CubePrefix, PrefixEntry, Warmed
from memos.kernel.statistics import CubeOverview, Overview
from memos.memcube.activation.store import KvStats, TierFill


class ValueRoute(APIRoute):
    """A route that returns values; their shapes are its response model."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if isinstance(options.get("response_model"), DefaultPlaceholder):
            returned = get_type_hints(endpoint)["return"]
            shape = wire_type(returned)
            if shape != returned:
                options["response_model"] = shape
        super().__init__(path, endpoint, **options)


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


@mirrors(PrefixEntry)
class PrefixEntryShape(Shape):
    """One memory that prompts begin with."""


@mirrors(CubePrefix)
class CubePrefixShape(Shape):
    """What prompts of a cube begin with."""


class ComposingShape(Shape):
    """The task that composes what prompts begin with."""

    cube: str = Field(description="The cube")
    task: str = Field(description="Id of the task")


@mirrors(Warmed)
class WarmedShape(Shape):
    """How long a model took to make what prompts begin with its own."""


class DroppedShape(Shape):
    """What was removed."""

    cube: str = Field(description="The cube")
    blocks: int = Field(description="How many blocks")


@mirrors(TierFill)
class TierFillShape(Shape):
    """How full a tier is, and what came of it since the store was opened."""


@mirrors(KvStats)
class KvStatsShape(Shape):
    """What is kept of all cubes, and what came of it."""


class DamagedShape(Shape):
    """Which blocks on the disk were damaged, and are removed."""

    damaged: list[str] = Field(description="Their keys")


class AdapterShape(Shape):
    """What was learned of a cube, as an adapter of a model in the server."""

    id: str = Field(description="Its id")
    cube: str = Field(description="Cube it is of")
    shard: str = Field(description="Empty, but for adapters of version 0.1 that were of one topic of the cube")
    number: int = Field(description="Counts the cube's adapters from 1")
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
    """The task that has a cube learned."""

    task: str | None = Field(description="Task that trains where that is due")
    adapter: AdapterShape | None = Field(description="Always null since version 0.1")


class UnlearnedShape(Shape):
    """Memories that are learned no more."""

    cube: str = Field(description="Cube they are in")
    items: list[str] = Field(description="Ids of the memories")
    adapters: list[str] = Field(description="Ids of adapters that saw one, and were removed")
    files: int = Field(description="How many files were removed")
    size_bytes: int = Field(description="Bytes of these files")


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


@mirrors(CubeOverview)
class CubeOverviewShape(Shape):
    """One cube's numbers."""


@mirrors(Overview)
class OverviewShape(Shape):
    """How full the tiers are, and what the background does."""


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
