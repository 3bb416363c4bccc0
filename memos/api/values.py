"""Answers of `/api/v1`: frozen models of the values of `memos.core`, for the server and the clients.

Imports no kernel and no framework of the server, so that clients stay light. Fields of newer servers are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from memos.core import audit, browsing, erasures, graph, identities, kv_cache, timeline, types

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

_MODELS: dict[type, type[Value]] = {}


class _OfDataclass(ModelMetaclass):
    """Makes `class Item(types.Item, Value)` a model with the described fields of the dataclass `types.Item`.

    Type checkers see the declared fields of the dataclass; at run time the model does not inherit from it.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        sources = [base for base in bases if is_dataclass(base)]
        plain = tuple(base for base in bases if base not in sources)
        own = super().__new__(mcs, name, plain, namespace, **options)
        return _model(sources[0], own) if sources else own


def _without_defaults(schema: dict[str, Any]) -> None:
    """Leave defaults out of a schema: an answer has every field."""
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


class Value(BaseModel, metaclass=_OfDataclass):
    """Part of an answer, made from JSON or from a value with the same fields."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        json_schema_serialization_defaults_required=True,
        json_schema_extra=_without_defaults,
    )


def model_of(source: type) -> type[Value]:
    """Return the model of a dataclass, made from its annotated fields if none is declared; others are internal."""
    return _MODELS.get(source) or _model(source, type(source.__name__, (Value,), {"__doc__": source.__doc__}))


def _model(source: type, own: type[Value]) -> type[Value]:
    """Return a model with the described fields of a dataclass in addition to its own."""
    hints = get_type_hints(source, include_extras=True)
    described: dict[str, Any] = {}
    for field in dataclasses.fields(source):
        hint = hints[field.name]
        if get_origin(hint) is Annotated and field.name not in own.model_fields:
            described[field.name] = (wire_type(hint), Field(**_default(field), description=get_args(hint)[1]))
    made: type[Value] = create_model(
        own.__name__, __base__=own, __doc__=own.__doc__, __module__=own.__module__, **described
    )
    _MODELS[source] = made
    return made


def _default(field: dataclasses.Field[Any]) -> dict[str, Any]:
    if field.default_factory is not dataclasses.MISSING:
        return {"default_factory": field.default_factory}
    return {} if field.default is dataclasses.MISSING else {"default": field.default}


def wire_type(hint: Any) -> Any:
    """Return the type that an answer has for a field: models for dataclasses, texts for enumerations."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return wire_type(parts[0])
    if origin in (Union, UnionType):
        return Union[tuple(wire_type(part) for part in parts)]  # noqa: UP007 - of types known at run time
    if origin in (list, tuple, Sequence):
        return tuple[wire_type(parts[0]), ...]  # type: ignore[misc] # of a type known at run time
    if origin is Mapping:
        return dict[wire_type(parts[0]), wire_type(parts[1])]  # type: ignore[misc] # of types known at run time
    if is_dataclass(hint):
        return model_of(hint)  # type: ignore[arg-type] # a class
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return str
    return hint


class AddReceipt(types.AddReceipt, Value):
    """Receipt of an add."""


class Item(types.Item, Value):
    """A memory at one version."""


class RecordPrefix(types.RecordPrefix, Value):
    """What ids of records begin with, up to a separator."""


class Relation(types.Relation, Value):
    """A newer statement that updates, ends, repeats or extends an older one, and how sure that is."""


class Version(types.Version, Value):
    """An entry of a memory's history."""


class Source(types.Source, Value):
    """Where a memory comes from: a passage of a message."""


class Hit(types.Hit, Value):
    """A found memory with its sources, its score and its relevance."""

    if TYPE_CHECKING:
        item: Item


class SearchResult(types.SearchResult, Value):
    """The hits of a search, best first; iterating yields them."""

    if TYPE_CHECKING:
        hits: tuple[Hit, ...]

    def __iter__(self) -> Iterator[Hit]:  # type: ignore[override]  # hits, as in Python, and not fields
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]


class FeedbackReceipt(types.FeedbackReceipt, Value):
    """Receipt of a correction."""


class ErasedForm(types.ErasedForm, Value):
    """Count of one form of memory before and after an erasure."""


class EraseReceipt(types.EraseReceipt, Value):
    """Receipt of an erasure: the memories, and the places they were removed from."""


class Trace(erasures.Trace, Value):
    """A place where a scan found something."""


class ScanReport(erasures.ScanReport, Value):
    """Result of scanning files and rows for erased text."""


class ReceiptCheck(erasures.ReceiptCheck, Value):
    """Result of checking a receipt."""


class SubjectCube(erasures.SubjectCube, Value):
    """Memories about a person in one cube."""


class SubjectPreview(erasures.SubjectPreview, Value):
    """Preview of forgetting a person: their memories by cube."""

    if TYPE_CHECKING:
        sample: tuple[Item, ...]
        examples: tuple[Item, ...]
        cubes: tuple[SubjectCube, ...]


class SubjectReceipt(erasures.SubjectReceipt, Value):
    """Receipt of forgetting a person, with one of each cube."""

    if TYPE_CHECKING:
        receipts: tuple[EraseReceipt, ...]


class Facets(browsing.Facets, Value):
    """Counts of the memories that pass a filter; if there are very many, of those added last."""


class Entity(graph.Entity, Value):
    """A person or a thing that memories name."""


class EntityPage(graph.EntityPage, Value):
    """A page of people and things."""


class Neighbours(graph.Neighbours, Value):
    """A person or thing, its relations, and the entities at their other ends."""


class GraphView(graph.GraphView, Value):
    """The people and things with the most memories, and their relations."""


class Alias(graph.Alias, Value):
    """A name that somebody merged into another."""


class TimeSpan(timeline.TimeSpan, Value):
    """The time between the first and the last memory of a cube."""


class Day(timeline.Day, Value):
    """Memories that held at a time."""


class TimeDiff(timeline.TimeDiff, Value):
    """Changes between two times."""


class Life(timeline.Life, Value):
    """A person or a topic over time."""


class ErasurePreview(types.ErasurePreview, Value):
    """Preview of an erasure."""


class ItemIds(Value):
    """Memories that were stored or taken away."""

    item_ids: tuple[str, ...] = Field(description="Their ids")


class Cube(types.Cube, Value):
    """A cube: the unit of sharing and erasure."""


class Grant(identities.Grant, Value):
    """A role on a cube that was given to somebody."""


class Revoked(Value):
    """Result of revoking a role."""

    revoked: bool = Field(description="False when there was none")


class Identity(identities.Identity, Value):
    """A user, agent or group."""


class Members(Value):
    """The members of a group."""

    group: str = Field(description="Its id")
    members: tuple[str, ...] = Field(description="Ids of its members")


class Me(Value):
    """Whom a key stands for."""

    identity: Identity = Field(description="Owner of the key")
    rights: tuple[str, ...] = Field(description="Rights of the key, or those in the cube that was asked for")


class KeyLimits(identities.KeyLimits, Value):
    """Limits of a key; null means the default of the installation's settings."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


class KeyUsage(Value):
    """Usage of a key on this UTC day, and its limits."""

    items: int = Field(description="Memories stored, if that is limited")
    bytes: int = Field(description="Bytes of text and files stored, if that is limited")
    tokens: int = Field(description="Tokens of the chat model, if that is limited")
    limits: KeyLimits = Field(description="Limits that apply: its own, else the installation's")


class AuditEntry(audit.AuditEntry, Value):
    """Who did what when."""


class ChainReport(audit.ChainReport, Value):
    """Result of checking a chain of events."""


class Key(identities.Key, Value):
    """A key, without its secret."""


class RecordsReads(Value):
    """Whether reads are recorded."""

    enabled: bool = Field(description="Whether reads of cubes are recorded in the audit")


class Offboarding(identities.Offboarding, Value):
    """Result of offboarding a user: ended keys, sessions and shares, and transferred cubes."""


class NewKey(Value):
    """A key that was just made."""

    key: Key = Field(description="The key")
    secret: str | None = Field(
        repr=False,
        description="Secret to send as `Authorization: Bearer …`; shown only once, null if the request is repeated",
    )


class Task(types.Task, Value):
    """A background task and its current state."""

    ended: bool = Field(description="Whether the task has ended")


class Event(types.Event, Value):
    """An entry of a cube's chain of events."""


class Dump(Value):
    """Description of a dump."""

    cube: str = Field(description="Cube that was dumped")
    description: str = Field(description="Description of the cube")
    created_at: datetime = Field(description="Time of the dump")
    program: str = Field(description="Version of hippocube that wrote the file")
    embedder: str = Field(description="Embedder of its vectors")
    fits: bool = Field(description="Whether that is the configured embedder")
    vectors: int = Field(description="Number of vector pairs")
    sealed: bool = Field(description="Whether it is encrypted with a passphrase")
    bytes: int = Field(description="Size of the file")
    counts: dict[str, int] = Field(description="Rows by table")
    left_out: tuple[str, ...] = Field(description="Parts that this version does not support")
    kv_blocks: int = Field(description="Number of blocks of activation memory")
    adapters: int = Field(description="Number of adapters")


class Loaded(Value):
    """Result of a load."""

    cube: str = Field(description="Cube it was loaded into")
    merged: bool = Field(description="Whether the cube existed before")
    trusted: bool = Field(description="Whether its memories are trusted")
    items: int = Field(description="Memories added")
    versions: int = Field(description="Their versions")
    messages: int = Field(description="Messages added")
    files: int = Field(description="Documents and images added")
    skipped: int = Field(description="Memories that existed at the same version")
    differing: tuple[str, ...] = Field(description="Memories that existed at another version and were not changed")
    erased: int = Field(description="Memories left out because they were erased here")
    unsourced: int = Field(description="Memories left out: untrusted, with a message that exists here as their source")
    left_out: tuple[str, ...] = Field(description="Parts that this version does not support")
    kv_blocks: int = Field(description="Blocks of activation memory loaded")
    kv_left_out: str | None = Field(description="Why the file's blocks were left out")
    adapters: int = Field(description="Adapters that passed their evaluation here and can be activated")
    adapters_left_out: str | None = Field(description="Why the file's other adapters were left out")


class BadRecord(Value):
    """A record of an export that was not stored, and why."""

    place: str = Field(description="Where it is in the file")
    problem: str = Field(description="What is wrong")


class ImportSummary(Value):
    """The result of an import."""

    added: int = Field(description="Messages stored now")
    known: int = Field(description="Messages that were stored before")
    bad: tuple[BadRecord, ...] = Field(description="Records that were not stored")
    conversations: int = Field(description="Number of conversations")
    updated: int = Field(0, description="Known memories that the other program changed since")
    left_out: int = Field(description="What is not taken: hidden and empty turns, other branches, reasoning, files")
    left_out_by: dict[str, int] = Field(default={}, description="How much of it, by reason")
    cubes: tuple[str, ...] = Field(default=(), description="Cubes that were written to")
    out_of_order: int = Field(description="Messages earlier than the one before, stored in the file's order")
    format: str = Field(description="Format of the file")
    indexed: bool = Field(description="Whether everything can be found now")
    note: str = Field(description="Parts of the format that are not imported")
    masked: int = Field(description="Secrets and personal data that were masked before storing")


class PreviewedMessage(Value):
    """A message of an export as it would be stored, with secrets masked and long texts cut."""

    conversation: str = Field(description="Conversation it is in")
    speaker: str = Field(description="Who said it")
    role: str = Field(description="`user`, `assistant`, `system` or `tool`")
    said_at: datetime | None = Field(description="When it was said, if the file says so")
    text: str = Field(description="Its text, at most 500 characters")


class ImportPreview(Value):
    """Preview of a chat export; nothing is stored."""

    format: str = Field(description="Format that was detected, or given")
    messages: int = Field(description="Messages that would be stored")
    conversations: int = Field(description="Their conversations")
    left_out: int = Field(description="What is not taken: hidden and empty turns, other branches, reasoning, files")
    left_out_by: dict[str, int] = Field(default={}, description="How much of it, by reason")
    owners: tuple[str, ...] = Field(default=(), description="Users of the other program whose memories these are")
    bad: tuple[BadRecord, ...] = Field(description="Records that cannot be read, at most 50")
    bad_count: int = Field(description="Number of records that cannot be read")
    first: tuple[PreviewedMessage, ...] = Field(description="The first messages")
    more: bool = Field(description="Whether the file goes on behind what was read")


class KnownBackup(Value):
    """A backup that the ledger knows."""

    id: str = Field(description="Its id")
    folder: str = Field(description="Its folder on the server")
    created_at: datetime = Field(description="When it was begun")
    finished_at: datetime | None = Field(description="When it was complete; null if it was cut off")
    untold: int = Field(description="Erasures that could not be noted in it yet")


class BackupPlan(Value):
    """Where backups are written and how often, and those that are known."""

    folder: str | None = Field(description="Folder that backups are written into; null if none is configured")
    every_h: float | None = Field(description="Hours between two periodic backups; null without a folder")
    kept: int = Field(description="Number of periodic backups that are kept")
    backups: tuple[KnownBackup, ...] = Field(description="Known backups, oldest first")


class StartedTask(Value):
    """A task that was begun."""

    task: str = Field(description="Id of the task")


class Adapter(Value):
    """An adapter of a model in the server, trained on a cube."""

    id: str = Field(description="Its id")
    cube: str = Field(description="Cube it is of")
    shard: str = Field(description="Empty, except for adapters of version 0.1 for one topic of the cube")
    number: int = Field(description="Number of the adapter in its cube, from 1")
    state: str = Field(description="`training`, `refused`, `ready`, `active` or `retired`")
    stale: bool = Field(description="Whether a memory it was trained on has changed; it then does not answer")
    model: str = Field(
        description="Model it was trained for; only the last part of its name for those who do not own the cube"
    )
    facts: int = Field(description="Memories it saw")
    reason: str | None = Field(description="Why it was refused")
    measures: dict[str, Any] | None = Field(description="Results of its evaluation")
    size_bytes: int | None = Field(description="Bytes of its files")
    created_at: datetime = Field(description="When its training began")
    finished_at: datetime | None = Field(description="When its training ended")


class Learnable(Value):
    """The memories that a cube's next adapter would learn."""

    cube: str = Field(description="The cube")
    allowed: bool = Field(description="Whether its owner allows training on its memories")
    memories: tuple[str, ...] = Field(description="Texts of the memories to train on")
    left_out: dict[str, int] = Field(description="Number of memories left out, by reason")


class Consent(Value):
    """The owner's consent to training on a cube's memories."""

    cube: str = Field(description="The cube")
    allowed: bool = Field(description="Whether they may")
    removed: int = Field(description="Number of adapters removed")


class Learning(Value):
    """The task that trains an adapter of a cube."""

    task: str | None = Field(description="Task that trains, if training is due")
    adapter: Adapter | None = Field(description="Always null since version 0.1")


class Unlearned(Value):
    """Memories that are learned no more."""

    cube: str = Field(description="Cube they are in")
    items: tuple[str, ...] = Field(description="Ids of the memories")
    adapters: tuple[str, ...] = Field(description="Ids of removed adapters that were trained on them")
    files: int = Field(description="Number of files removed")
    size_bytes: int = Field(description="Bytes of these files")


class Composing(Value):
    """The task that composes what prompts begin with."""

    cube: str = Field(description="The cube")
    task: str = Field(description="Id of the task")


class Dropped(Value):
    """Blocks that were removed."""

    cube: str = Field(description="The cube")
    blocks: int = Field(description="How many blocks")


class Damaged(Value):
    """Damaged blocks on the disk, which were removed."""

    damaged: tuple[str, ...] = Field(description="Their keys")


class CubePrefix(kv_cache.CubePrefix, Value):
    """The prompt prefix of a cube."""


class FirstToken(kv_cache.FirstToken, Value):
    """Time until the first token of an answer, without and with what is kept of the prompt."""


class Warmed(kv_cache.Warmed, Value):
    """Result of precomputing a prompt prefix: the time it took."""


class KvStats(kv_cache.KvStats, Value):
    """Statistics of the KV blocks kept for all cubes."""
