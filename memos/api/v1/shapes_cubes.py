"""What routes about cubes, tiers, tasks and events answer. No behaviour."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from memos.api.v1.shapes import Shape


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
