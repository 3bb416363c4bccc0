"""What the routes of `/api/v1` answer, as frozen models without behaviour; fields that a newer server adds are kept.

They are the values that calls in Python return, under the same names; what is one of several words is a text here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pydantic import Field

from memos.api.client.results import Result
from memos.core.types import Json


class Masked(Result):
    """Passages that were not stored as written."""

    where: str
    kind: str
    count: int


class AddReceipt(Result):
    """What an add stored; `indexed` is False when an index has yet to catch up, `task` reads it finely."""

    cube: str
    conversation: str | None
    item_ids: tuple[str, ...]
    duplicates: tuple[str, ...] = ()
    indexed: bool = True
    replayed: bool = False
    masked: tuple[Masked, ...] = ()
    task: str | None = None


class FeedbackReceipt(Result):
    """The correction stored as a new memory, what it was linked to and what it replaced."""

    item_id: str
    related: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    indexed: bool = True
    masked: tuple[Masked, ...] = ()


class EraseReceipt(Result):
    """What was erased and from where; `state` goes from `purging` to `purged`."""

    id: str
    cube: str
    state: str
    item_ids: tuple[str, ...]
    rebuilt: tuple[str, ...] = ()
    removed: dict[str, int] = Field({})
    stores: dict[str, str] = Field({})
    backups: tuple[str, ...] = ()
    untold_backups: tuple[str, ...] = ()


class ItemIds(Result):
    """Ids of memories."""

    item_ids: tuple[str, ...]


class Source(Result):
    """Where a memory comes from: a passage of a stored message."""

    message_id: str
    start: int
    end: int
    speaker: str
    at: datetime
    passage: str
    conversation: str | None = None
    external_id: str | None = None
    trust: str = "trusted"


class Item(Result):
    """One memory at one version."""

    id: str
    cube: str
    version: int
    memory: str
    type: str
    tier: str
    status: str
    speaker: str
    role: str
    created_at: datetime
    updated_at: datetime
    key: str | None = None
    value: str | None = None
    tags: tuple[str, ...] = ()
    info: dict[str, Any] = Field({})
    confidence: float = 1.0
    conversation: str | None = None
    said_at: datetime | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    superseded_by: str | None = None
    sources: tuple[Source, ...] = ()


class Version(Result):
    """One entry of a memory's history: who changed what, when and why."""

    id: str
    item: str
    version: int
    actor: str
    reason: str
    recorded_at: datetime
    before: Item | None = None
    after: Item


class Hit(Result):
    """One found memory."""

    item: Item
    score: float
    relevance: float
    sources: tuple[Source, ...] = ()
    duplicates: tuple[str, ...] = ()


class SearchResult(Result):
    """The hits of one search, best first; iterating yields them."""

    query: str
    hits: tuple[Hit, ...]
    context: str = ""
    context_tokens: int = 0
    missing_arms: tuple[str, ...] = ()
    timings_ms: dict[str, float] = Field({})

    def __iter__(self) -> Iterator[Hit]:  # type: ignore[override]  # hits, as in Python, and not fields
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]


class Cube(Result):
    """One cube: the unit of sharing, dump and erasure."""

    id: str
    owner: str
    description: str = ""
    time_zone: str
    created_at: datetime
    items: int = 0
    kind: str = "memory"
    redact_pii: bool = False


class Grant(Result):
    """A role on a cube that was given to somebody; `*` is everyone."""

    cube: str
    identity: str
    role: str
    created_by: str
    created_at: datetime


class Revoked(Result):
    """Whether there was something to take back."""

    revoked: bool


class Identity(Result):
    """A user, agent or group."""

    id: str
    kind: str
    name: str
    admin: bool = False
    disabled: bool = False
    home: str | None = None
    acts_for: str | None = None
    created_by: str
    created_at: datetime


class Members(Result):
    """The members of a group."""

    group: str
    members: tuple[str, ...]


class Me(Result):
    """Whom a key stands for, and what calls with it may do at the most."""

    identity: Identity
    rights: tuple[str, ...]


class KeyLimits(Result):
    """How much a key may use; of what is None as much as the installation's settings allow."""

    requests_per_minute: int | None = None
    items_per_day: int | None = None
    bytes_per_day: int | None = None
    tokens_per_day: int | None = None


class Key(Result):
    """A key, without its secret, of which `hint` is the beginning."""

    id: str
    identity: str
    name: str
    hint: str
    rights: tuple[str, ...]
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    limits: KeyLimits = KeyLimits()


class NewKey(Result):
    """A key that was just made; its `secret` is told this once."""

    key: Key
    secret: str | None

    def __repr__(self) -> str:
        return f"NewKey(key={self.key!r})"


class Task(Result):
    """One piece of background work as it stands."""

    id: str
    kind: str
    cube: str
    state: str
    ended: bool
    attempts: int = 0
    progress: float = 0.0
    note: str | None = None
    error: str | None = None
    tokens: int = 0
    seconds: float = 0.0
    created_at: datetime
    not_before: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Event(Result):
    """One entry of a cube's chain: who did what when; `seq` counts them from 1."""

    cube: str
    seq: int
    at: datetime
    actor: str
    kind: str
    item: str | None = None
    body: Json = None


class Dump(Result):
    """What a dump is of; `counts` are rows by table, `fits` says whether its vectors are of the server's embedder."""

    cube: str
    description: str = ""
    created_at: datetime
    program: str
    embedder: str
    fits: bool
    vectors: int
    sealed: bool
    bytes: int
    counts: dict[str, int] = Field({})
    left_out: tuple[str, ...] = ()
    kv_blocks: int = 0
    adapters: int = 0


class Loaded(Result):
    """What a load did; `differing` are here at another version and stayed, `erased` were erased here and stay so."""

    cube: str
    merged: bool
    trusted: bool
    items: int
    versions: int = 0
    messages: int = 0
    files: int = 0
    skipped: int = 0
    differing: tuple[str, ...] = ()
    erased: int = 0
    unsourced: int = 0
    left_out: tuple[str, ...] = ()
    kv_blocks: int = 0
    kv_left_out: str | None = None
    adapters: int = 0
    adapters_left_out: str | None = None


class Adapter(Result):
    """What was learned of a cube, as an adapter of a model in the server; one that is `stale` answers nothing.

    `number` counts those of its cube; `shard` is "" but for those of version 0.1.
    """

    id: str
    cube: str
    shard: str = ""
    number: int
    state: str
    stale: bool
    model: str
    facts: int
    reason: str | None = None
    measures: dict[str, Any] | None = None
    size_bytes: int | None = None
    created_at: datetime
    finished_at: datetime | None = None


class Learnable(Result):
    """What a cube's next adapter would know; `left_out` are how many memories are not learned for each reason."""

    cube: str
    allowed: bool
    memories: tuple[str, ...]
    left_out: dict[str, int] = Field({})


class Consent(Result):
    """Whether a cube's memories may be learned, and how many adapters were removed."""

    cube: str
    allowed: bool
    removed: int = 0


class Learning(Result):
    """The task that trains an adapter where that is due."""

    task: str | None
    adapter: Adapter | None = None


class Unlearned(Result):
    """Memories that no adapter learns any more; `adapters` saw one of them and are removed, with files of that size."""

    cube: str
    items: tuple[str, ...]
    adapters: tuple[str, ...] = ()
    files: int = 0
    size_bytes: int = 0


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
