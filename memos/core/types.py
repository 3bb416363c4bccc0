"""The frozen values of the system: cubes, items, versions, sources, hits, receipts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from memos.core.identities import Right

Json = Any  # a value `json.dumps` accepts

LOCAL_OWNER = "owner"
DEFAULT_CUBE = "default"

WHOLE = ""
"""In place of a cube: a task that is about the whole installation."""


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ItemType(StrEnum):
    """The type of a memory."""

    MESSAGE = "message"
    WORKING = "working"
    LONG_TERM = "long_term"
    USER = "user"
    ASSISTANT = "assistant"
    PREFERENCE = "preference"
    INSTRUCTION = "instruction"
    PROFILE = "profile"
    TOOL_SCHEMA = "tool_schema"
    TOOL_TRAJECTORY = "tool_trajectory"
    SKILL = "skill"
    DOCUMENT = "document"
    SUMMARY = "summary"
    RECORD = "record"


TOLD = frozenset({ItemType.MESSAGE, ItemType.DOCUMENT, ItemType.SUMMARY})
"""Types that tell of something: their valid time is the one they tell of, and does not make them wrong when over."""


UNSAID = frozenset({ItemType.PROFILE, ItemType.RECORD})
"""Types whose text stands for itself in a prompt: a trait names its subject, and nobody said a record."""


class CubeKind(StrEnum):
    """The purpose of a cube: conversations and what was learnt from them, or reference documents."""

    MEMORY = "memory"
    KNOWLEDGE = "knowledge"


class FileKind(StrEnum):
    """The kind of a stored file: a document split into chunks, or an image of a message."""

    DOCUMENT = "document"
    IMAGE = "image"


class FileState(StrEnum):
    """The processing state of a stored file."""

    PROCESSING = "processing"
    AVAILABLE = "available"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    DELETED = "deleted"


class Reading(StrEnum):
    """Reading state of a message: queued for fine reading, or read; other messages have no state."""

    WANTED = "wanted"
    READ = "read"


class Mode(StrEnum):
    """Way to read an added message: `rough` stores it for search, `fine` also extracts facts later."""

    ROUGH = "rough"
    FINE = "fine"


class Tier(StrEnum):
    """Priority and budget class of an item; never decides whether it can be found."""

    SHORT = "short"
    MID = "mid"
    LONG = "long"


class Status(StrEnum):
    """The lifecycle status of a memory."""

    PENDING = "pending"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ARCHIVED = "archived"
    DELETED = "deleted"


FOUND = frozenset({Status.ACTIVE, Status.ARCHIVED})
"""Statuses a search finds when its filter names none."""

UNUSED = frozenset({Status.PENDING, Status.SUPERSEDED, Status.DELETED})
"""Statuses excluded from anything derived from several items: windows, summaries, keywords."""


class Trust(StrEnum):
    """Trust in a source; instructions from an untrusted one await review."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"


class TaskState(StrEnum):
    """The state of a background task."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """It met an error that repeating does not mend."""
    DEAD = "dead"
    """It failed as often as it may."""
    CANCELLED = "cancelled"


ENDED = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.DEAD, TaskState.CANCELLED})
"""States a task leaves only when it is retried by hand."""


MODEL_INFO = RELATION, TOOL, TOPIC = "relation", "tool", "topic"
"""Keys of `info` with values that a model wrote: a relation, a lesson's tool, the topic of the messages."""


DERIVED = frozenset(
    map(ItemType, ("user", "assistant", "preference", "instruction", "profile", "skill", "summary", "long_term"))
)
"""Types of items that are made out of others."""


class LinkKind(StrEnum):
    """The kind of a link between two items."""

    DERIVED_FROM = "DERIVED_FROM"
    SUPERSEDES = "SUPERSEDES"
    RELATES = "RELATES"
    UPDATES = "UPDATES"
    ENDS = "ENDS"
    SAME = "SAME"
    EXTENDS = "EXTENDS"


REPLACING = frozenset({LinkKind.UPDATES, LinkKind.ENDS})
"""Links from a newer statement to an older one that no longer holds."""

JUDGED = REPLACING | {LinkKind.SAME, LinkKind.EXTENDS}
"""Links from a newer statement to an older one, judged with a confidence; with SAME and EXTENDS both hold."""


class Arm(StrEnum):
    """A way of recalling candidates."""

    TURN = "turn"
    WINDOW = "window"
    STANDING = "standing"
    OF_SELF = "of_self"
    NAMED = "named"
    DATED = "dated"
    TURN_BM25 = "turn_bm25"
    WINDOW_BM25 = "window_bm25"


STANDING_OF = {Arm.STANDING: 1, Arm.OF_SELF: 2}
"""Values of `standing` in the payload of points that an arm searches alone: a lasting state, a state of the speaker."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of an embedding space: vectors are comparable only if their fingerprints are equal."""

    name: Annotated[str, "Name of the embedder"]
    dimension: Annotated[int, "Dimensions of a vector"]
    prefix_rule: Annotated[str, "Prefix put before a text"]
    normalised: Annotated[bool, "Whether vectors are normalised to length 1"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The actor of a call and the cubes it may touch; no scope means "all cubes".

    A scope whose `right` is read must not change anything.
    """

    actor: str
    cubes: tuple[str, ...]
    time_zone: str = "UTC"
    redact_pii: bool = False
    right: Right = Right.READ


@dataclass(frozen=True, slots=True)
class Cube:
    """A container of memory: the unit of sharing, dump, encryption and erasure.

    With `redact_pii` personal data is masked in what is added.
    """

    id: Annotated[str, "Its id"]
    owner: Annotated[str, "Who owns it"]
    description: Annotated[str, "Description of the cube"]
    time_zone: Annotated[str, "Time zone for times without one"]
    fingerprint: Annotated[Fingerprint, "Embedder of its vectors"]
    created_at: Annotated[datetime, "When it was created"]
    items: Annotated[int, "Memories in it"] = 0
    kind: Annotated[CubeKind, "`memory` or `knowledge`"] = CubeKind.MEMORY
    redact_pii: Annotated[bool, "Whether personal data is masked in what is added"] = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call an assistant made to a tool; `arguments` is the JSON text it sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of a message, not stored yet; `file` is the id it is stored by, `info` what its header says."""

    file: str
    name: str
    media_type: str
    data: bytes
    sha256: str
    info: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """A validated message; `text` is what was written, `content` the parts as given, without bytes of `pictures`.

    `duration_s` is how long the call took that a tool's message answers; `recalled` are the ids of the memories that an
    assistant's answer was made from, `cited` those that it cites; `info` is further data of this message alone.
    """

    role: Role
    text: str
    content: Json
    name: str | None
    message_id: str | None
    chat_time: datetime
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    trust: Trust = Trust.TRUSTED
    duration_s: float | None = None
    pictures: tuple[Picture, ...] = ()
    info: Mapping[str, Json] = field(default_factory=dict)
    recalled: tuple[str, ...] | None = None
    cited: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A memory a reader made of one message, not stored yet; `start` to `end` is its span."""

    message: Message
    memory: str
    start: int
    end: int
    reader: str
    type: ItemType = ItemType.MESSAGE
    tier: Tier = Tier.SHORT
    status: Status = Status.ACTIVE
    key: str | None = None
    value: str | None = None
    entities: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    info: Mapping[str, Json] = field(default_factory=dict)
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of one item's text."""

    item: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fact:
    """A thing a reader found in messages, not stored yet; `spans` name at least one passage that says so.

    `subject` is whom it is about, `reader` what found it. `valid_to` in the past: it is over. With `extraction` the
    model's answer it comes from is kept. `entities` are names besides those the text itself shows.
    """

    type: ItemType
    memory: str
    spans: tuple[Span, ...]
    subject: str
    reader: str
    said_at: datetime
    key: str | None = None
    value: str | None = None
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    tags: tuple[str, ...] = ()
    trust: Trust = Trust.TRUSTED
    extraction: str | None = None
    entities: tuple[str, ...] = ()
    info: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """Where an item comes from: characters `start` to `end` of a stored message."""

    message_id: Annotated[str, "Id of the message, which is not that of its memory"]
    start: Annotated[int, "Start of the passage, in characters"]
    end: Annotated[int, "End of the passage, in characters"]
    speaker: Annotated[str, "Who said it"]
    at: Annotated[datetime, "When it was said"]
    passage: Annotated[str, "The passage"]
    conversation: Annotated[str | None, "Conversation of the message"] = None
    external_id: Annotated[str | None, "The caller's id of the message"] = None
    trust: Annotated[Trust, "`trusted` or `untrusted`"] = Trust.TRUSTED


@dataclass(frozen=True, slots=True)
class Item:
    """A memory as it stands (or stood) at one version."""

    id: Annotated[str, "Id of the memory"]
    cube: Annotated[str, "Cube it is in"]
    version: Annotated[int, "Its version, from 1"]
    version_id: Annotated[str, "Id of the version"]
    memory: Annotated[str, "Its text"]
    type: Annotated[ItemType, "Kind of memory, such as `message`, `user` or `preference`"]
    tier: Annotated[Tier, "`short`, `mid`, `long` or `archive`"]
    status: Annotated[Status, "`active`, `pending`, `superseded`, `archived` or `deleted`"]
    speaker: Annotated[str, "Who said it"]
    role: Annotated[Role, "Role of the speaker"]
    key: Annotated[str | None, "Key of the statement, such as `home.city`"]
    value: Annotated[str | None, "Value of the key"]
    tags: Annotated[tuple[str, ...], "Tags"]
    info: Annotated[Mapping[str, Json], "Metadata"]
    confidence: Annotated[float, "0 to 1"]
    entities: Annotated[tuple[str, ...], "Names in it"]
    keywords: Annotated[tuple[str, ...], "Keywords in it"]
    conversation: Annotated[str | None, "Conversation id"]
    position: int | None
    page: int | None
    session: int | None
    said_at: Annotated[datetime | None, "When it was said"]
    valid_from: Annotated[datetime | None, "Valid from"]
    valid_to: Annotated[datetime | None, "Valid until"]
    created_at: Annotated[datetime, "When it was stored"]
    updated_at: Annotated[datetime, "When this version was stored"]
    recorded_to: datetime | None = None
    superseded_by: Annotated[str | None, "Id of the memory that replaced it"] = None
    sources: Annotated[tuple[Source, ...], "Sources; filled for a single memory and for hits"] = ()
    record_id: Annotated[str | None, "The caller's id, of a record"] = None
    expires_at: Annotated[datetime | None, "When it expires; null if it has no time to live"] = None


@dataclass(frozen=True, slots=True)
class RecordPrefix:
    """What ids of records begin with, up to a separator."""

    prefix: Annotated[str, "The prefix, with the separator at its end"]
    records: Annotated[int, "Records with it"]


@dataclass(frozen=True, slots=True)
class Relation:
    """A newer statement that updates, ends, repeats or extends an older one, and how sure that is."""

    newer: Annotated[str, "Id of the newer memory"]
    older: Annotated[str, "Id of the older memory"]
    kind: Annotated[LinkKind, "UPDATES, ENDS, SAME or EXTENDS"]
    confidence: Annotated[float, "Confidence from 0 to 1; 0 if a person rejected it"]
    decided_by: Annotated[str, "`rules`, `model`, `feedback`, or the actor who confirmed or rejected it"]
    at: Annotated[datetime | None, "When the newer one was said"]


@dataclass(frozen=True, slots=True)
class Version:
    """An entry of an item's history: who changed what, when and why."""

    id: Annotated[str, "Id of the version"]
    item: Annotated[str, "Id of the memory"]
    version: Annotated[int, "Its number, from 1"]
    actor: Annotated[str, "Who made it"]
    reason: Annotated[str, "Why"]
    recorded_at: Annotated[datetime, "When it was stored"]
    before: Annotated[Item | None, "Memory before this version; null for the first"]
    after: Annotated[Item, "The memory since"]
    relations: Annotated[tuple[Relation, ...], "In the last version: its relations to older and newer ones"] = ()


@dataclass(frozen=True, slots=True)
class ExtractionRecord:
    """A reading of messages: what read them when, and, if it was a model, which one and its answer as JSON text."""

    id: Annotated[str, "Id of the reading"]
    reader: Annotated[str, "Extractor: patterns, or a prompt with its version"]
    model: Annotated[str | None, "Language model; null if none was used"]
    at: Annotated[datetime, "When"]
    output: Annotated[str | None, "The model's answer as JSON text"]


@dataclass(frozen=True, slots=True)
class Masked:
    """So many passages of one kind (a key's format, a kind of personal data) that were masked in one field."""

    where: Annotated[str, "Field of the request"]
    kind: Annotated[str, "Kind of secret or personal data"]
    count: Annotated[int, "How many"]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it came, and how far reading it is; `error` says why it failed, `info` what was found out about it.

    `item` is the message that an image is part of, `replaced_by` the newer version of a document.
    """

    id: Annotated[str, "Its id"]
    cube: Annotated[str, "Cube it is in"]
    kind: Annotated[FileKind, "`document` or `image`"]
    name: Annotated[str, "Its name"]
    media_type: Annotated[str, "Its media type"]
    bytes: Annotated[int, "Its size"]
    sha256: Annotated[str, "SHA-256 of its bytes, in hexadecimal digits"]
    state: Annotated[FileState, "`processing`, `available`, `failed`, `superseded` or `deleted`"]
    actor: Annotated[str, "Who added it"]
    created_at: Annotated[datetime, "When it was added"]
    error: Annotated[str | None, "Why it could not be processed"] = None
    info: Annotated[Mapping[str, Json], "Properties of the file, such as `pages`"] = field(default_factory=dict)
    item: Annotated[str | None, "Message an image is part of"] = None
    replaced_by: Annotated[str | None, "Newer version of a document"] = None
    finished_at: Annotated[datetime | None, "When it was read"] = None


@dataclass(frozen=True, slots=True)
class AddReceipt:
    """The result of `add`; `indexed` is False while an index has yet to catch up.

    `masked` lists what was not stored as written; `task` is the task that extracts facts.
    """

    cube: Annotated[str, "Cube it was stored in"]
    conversation: Annotated[str | None, "Conversation id"]
    item_ids: Annotated[tuple[str, ...], "Ids of the memories stored, in the order of the messages"]
    duplicates: Annotated[tuple[str, ...], "Ids of messages that were stored already"]
    indexed: Annotated[bool, "False while an index is behind; searches find the memories anyway"]
    replayed: Annotated[bool, "True if the idempotency key was used before; this is the earlier receipt"] = False
    masked: Annotated[tuple[Masked, ...], "What was masked"] = ()
    task: Annotated[str | None, "Task that extracts facts; null without one"] = None


class Outcome(StrEnum):
    """The outcome of a correction: which change it made, if any."""

    EDITED = "edited"
    SUPERSEDED = "superseded"
    ENDED = "ended"
    FORGOTTEN = "forgotten"
    ADDED = "added"
    NEEDS_REVIEW = "needs_review"


@dataclass(frozen=True, slots=True)
class FeedbackReceipt:
    """The correction stored as a new item, what it did, what it was linked to and what it changed.

    `edited` items got a new version, `superseded` ones were replaced or ended, `forgotten` ones deleted; `rollback`
    of their ids undoes each. With `needs_review` no memory was changed: `review.relations` lists the case, or nothing
    was found that it asks to forget.
    """

    item_id: Annotated[str, "Id of the memory with the correction"]
    related: Annotated[tuple[str, ...], "Ids of the memories it is linked to"]
    superseded: Annotated[tuple[str, ...], "Ids of the memories it replaced"]
    indexed: Annotated[bool, "False while an index is behind"]
    masked: Annotated[tuple[Masked, ...], "What was masked"] = ()
    outcome: Annotated[Outcome, "What it did"] = Outcome.ADDED
    edited: Annotated[tuple[str, ...], "Ids of the memories whose text it corrected"] = ()
    forgotten: Annotated[tuple[str, ...], "Ids of the memories it deleted"] = ()
    runners_up: Annotated[tuple[str, ...], "Ids of other memories that it may have meant"] = ()


@dataclass(frozen=True, slots=True)
class ErasedForm:
    """Count of one form of memory before and after an erasure.

    Forms are rows of the ledger, points of the vector index, windows of neighbours, blocks of KV, adapters, and backups
    and dumps, which an erasure does not reach.
    """

    name: Annotated[str, "The form, such as `versions`, `vectors`, `kv_blocks`, `backups` or `cube_keys`"]
    before: Annotated[int, "How many there were"]
    after: Annotated[int | None, "How many are left; null until the purge is over"]


@dataclass(frozen=True, slots=True)
class EraseReceipt:
    """The result of an erasure, without content; `state` goes from 'purging' to 'purged'.

    `item_ids` includes ids of files that were erased whole. `backups` are the backup folders that still hold the
    data; restoring one of them leaves it out. `untold_backups` could not be reached to record the erasure; restoring a
    copy of one brings the data back.
    """

    id: Annotated[str, "Id of the receipt"]
    cube: Annotated[str, "Cube it was in"]
    state: Annotated[str, "`purging` while files and logs may still hold it, then `purged`"]
    item_ids: Annotated[tuple[str, ...], "Ids of erased memories, including derived ones"]
    rebuilt: Annotated[tuple[str, ...], "Ids of neighbours whose windows contained erased text"]
    removed: Annotated[Mapping[str, int], "Rows removed, by table"]
    stores: Annotated[Mapping[str, str], "State of each store"]
    backups: Annotated[tuple[str, ...], "Backups that still contain it; a restore leaves it out"] = ()
    untold_backups: Annotated[tuple[str, ...], "Those of them in which the erasure could not be recorded"] = ()
    at: Annotated[datetime | None, "When it was erased"] = None
    forms: Annotated[tuple[ErasedForm, ...], "What there was of each form before and after; others had nothing"] = ()
    key_destroyed: Annotated[bool | None, "Whether the cube's own encryption key was destroyed; null without one"] = (
        None
    )
    fingerprints: Annotated[
        tuple[str, ...], "Keyed digests of erased passages, given once; a verification finds the passages by them"
    ] = ()
    audit_number: Annotated[int | None, "Number of the erasure's entry in the audit log"] = None
    audit_chain: Annotated[str | None, "Link of that entry in the audit log's hash chain"] = None
    public_key: Annotated[str | None, "Public Ed25519 key of the installation, as base64"] = None
    signature: Annotated[str | None, "Signature of all other fields, as base64"] = None


@dataclass(frozen=True, slots=True)
class ErasurePreview:
    """Preview of an erasure: matching memories, including deleted ones, and memories derived from them."""

    cube: Annotated[str, "The cube"]
    items: Annotated[int, "Memories that match"]
    derived: Annotated[int, "Memories that were derived from these and go with them"]
    types: Annotated[Mapping[str, int], "All of these by type"]
    conversations: Annotated[int, "Conversations that they are in"]
    files: Annotated[int, "Documents and images whose bytes go"]
    sample: Annotated[tuple[Item, ...], "The newest of them, at most 20"]


@dataclass(frozen=True, slots=True)
class ArmScore:
    """A recall arm's vote for a hit: 1-based rank, the arm's own score, and its share of the fused score."""

    arm: Annotated[str, "Name of the arm, such as `dense-turn` or `bm25-window`"]
    rank: Annotated[int, "Rank in the arm, from 1"]
    score: Annotated[float, "Its own score"]
    gave: Annotated[float, "Its part of the hit's score"] = 0.0


@dataclass(frozen=True, slots=True)
class Boost:
    """A named addition to a hit's score besides the arms': session, neighbours, name, date."""

    name: Annotated[str, "Name of the boost, such as `session`"]
    gave: Annotated[float, "What it added"]


class Standing(StrEnum):
    """Whether a found memory still holds."""

    CURRENT = "current"
    POSSIBLY_OUTDATED = "possibly_outdated"
    REPLACED = "replaced"
    ENDED = "ended"


RELEVANT = 0.03
"""The recommended `min_relevance` where an empty answer is better than a wrong one, such as for a model that reads it.

The relevance of a usual hit is small, since few hits of a search are evidence. Without a hit of this relevance the
question probably has no answer in memory. Measured in docs/reference/benchmarks/relevance.md.
"""


@dataclass(frozen=True, slots=True)
class Hit:
    """A found memory with its exact sources.

    `score` orders the hits of one search; `relevance` is the probability that the hit answers the question. With
    `explain` the arms' shares and the boosts add up to the score.
    """

    item: Annotated[Item, "The memory"]
    score: Annotated[float, "Score that orders the hits of this search"]
    relevance: Annotated[float, "Probability that it answers the question, comparable across searches"]
    sources: Annotated[tuple[Source, ...], "Where it comes from"]
    duplicates: Annotated[tuple[str, ...], "Ids of duplicates"] = ()
    arms: Annotated[tuple[ArmScore, ...], "Score of each arm, with `explain`"] = ()
    boosts: Annotated[tuple[Boost, ...], "Boosts, with `explain`"] = ()
    standing: Annotated[Standing, "Whether it still holds"] = Standing.CURRENT
    replaced_by: Annotated[str | None, "Id of the memory that replaced it, or probably did"] = None
    since: Annotated[datetime | None, "Since when it stands so"] = None
    relations: Annotated[tuple[Relation, ...], "Its relations to older and newer ones, with `explain`"] = ()
    passage: Annotated[str | None, "The part of a long memory that is nearest to the question"] = None


@dataclass(frozen=True, slots=True)
class WhyNot:
    """At which `stage` an item left a search and why; 'found' when it did not.

    Stages: cube, ledger, filter, index, recall, duplicate, rank, relevance, budget. `place` is its 1-based place among
    all candidates.
    """

    item_id: Annotated[str, "Id of the memory"]
    stage: Annotated[
        str, "`ledger`, `filter`, `index`, `recall`, `duplicate`, `rank`, `relevance`, `budget`, or `found`"
    ]
    reason: Annotated[str, "Why there"]
    place: Annotated[int | None, "Rank among all candidates, from 1"] = None
    score: Annotated[float | None, "Its score"] = None
    arms: Annotated[tuple[ArmScore, ...], "Score of each arm"] = ()
    boosts: Annotated[tuple[Boost, ...], "Boosts"] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of one search; iterating yields them, best first.

    `missing_arms` names the arms that did not answer, `unindexed` where more memories wait for the index than a search
    scores itself, and `rerank` where the reranker failed: another search may find more.
    """

    query: Annotated[str, "The question"]
    hits: Annotated[tuple[Hit, ...], "Found memories, best first"]
    context: Annotated[str, "Text for a prompt, with `token_budget`"] = ""
    context_tokens: Annotated[int, "Tokens of that text"] = 0
    missing_arms: Annotated[
        tuple[str, ...], "Search arms that were unavailable; `unindexed`: many memories wait for the index"
    ] = ()
    timings_ms: Annotated[Mapping[str, float], "Time of each stage in milliseconds"] = field(default_factory=dict)

    def __iter__(self) -> Any:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]


@dataclass(frozen=True, slots=True)
class Segment:
    """Pages of one topic in the mid tier; `summary` is made of what their messages say now."""

    id: Annotated[str, "Its id"]
    cube: Annotated[str, "Cube it is in"]
    state: Annotated[str, "`open` or `archived`"]
    summary: Annotated[str, "Subject"]
    keywords: Annotated[tuple[str, ...], "Its keywords"]
    pages: Annotated[int, "Pages in it"]
    heat: Annotated[float, "Its heat now"]
    visits: Annotated[int, "Number of uses"]
    pinned: Annotated[bool, "Whether it is pinned and stays out of the archive"]
    created_at: Annotated[datetime, "When it was created"]
    updated_at: Annotated[datetime, "When it was changed last"]


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of background work as it stands; it holds ids and settings, never memory text.

    A lower `priority` comes first. `progress` is 0 to 1, `seconds` the time spent on all attempts, `tokens` those of
    language models. `note` says why a waiting task waits, or what came of one that is done; `error` how the last
    attempt failed.
    """

    id: Annotated[str, "Its id"]
    kind: Annotated[str, "What it does, such as `read` or `file`"]
    cube: Annotated[str, "Cube; empty: the whole installation"]
    scope: Mapping[str, Json]
    payload: Mapping[str, Json]
    priority: int
    state: Annotated[TaskState, "`waiting`, `running`, `done`, `failed`, `dead` or `cancelled`"]
    attempts: Annotated[int, "Attempts so far"]
    key: str | None
    not_before: Annotated[datetime, "Earliest start"]
    created_at: Annotated[datetime, "When it was created"]
    lease_owner: str | None = None
    lease_until: datetime | None = None
    started_at: Annotated[datetime | None, "When the last attempt began"] = None
    finished_at: Annotated[datetime | None, "When it ended"] = None
    progress: Annotated[float, "0 to 1"] = 0.0
    note: Annotated[str | None, "Why it waits"] = None
    error: Annotated[str | None, "Error of the last attempt"] = None
    tokens: Annotated[int, "Language model tokens it used"] = 0
    seconds: Annotated[float, "Duration of all attempts, in seconds"] = 0.0

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of a cube's chain: who did what when; `seq` counts them from 1.

    `body` holds ids and numbers, never memory text; None when it was erased.
    """

    cube: Annotated[str, "The cube"]
    seq: Annotated[int, "Its number, from 1"]
    at: Annotated[datetime, "When it was committed"]
    actor: Annotated[str, "Who did it"]
    kind: Annotated[str, "What was done, such as `add` or `move`"]
    item: Annotated[str | None, "Id of the memory"]
    body: Annotated[Json, "Ids and numbers, never memory text; null when it was erased"]


@dataclass(frozen=True, slots=True)
class PendingItem:
    """An item that awaits review, with its sources; `why` says what made it wait."""

    item: Annotated[Item, "The memory, with its sources"]
    why: Annotated[str, "Why it is pending"]


@dataclass(frozen=True, slots=True)
class ReviewCounts:
    """Counts of a cube's review queue; counting stops at `most`."""

    pending: Annotated[int, "Memories that await review"]
    relations: Annotated[int, "Corrections in doubt"]
    most: Annotated[int, "Where counting stops: there may be more"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A thing `verify` found wrong, and what was or can be done about it."""

    store: Annotated[str, "Where"]
    kind: Annotated[str, "Kind of difference"]
    subject: Annotated[str, "Subject"]
    detail: Annotated[str, "What was done or can be done"]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of `verify`; clean when `differences` is empty."""

    items: Annotated[int, "Memories checked"]
    checked: Annotated[Mapping[str, int], "What was checked, by store"]
    differences: Annotated[tuple[Difference, ...], "What is wrong"]
    repaired: Annotated[int, "Number of repairs"]

    @property
    def clean(self) -> bool:
        return not self.differences
