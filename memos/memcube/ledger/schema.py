"""The ledger's tables, portable between SQLite and PostgreSQL; the migrations create exactly these.

Memory text is in `versions` (what an item says), `messages` (what was said) and `files` (originals). What is `Sealed`
cannot be read in an encrypted ledger on PostgreSQL.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from memos.memcube.ledger.columns import Sealed, UtcMicros, name_sealed

metadata = sa.MetaData()

# SQLite gives row ids only to INTEGER, PostgreSQL needs BIGINT for long-lived sequences.
_RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _text_of(length: int) -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.String(length), "sqlite")


RECORD_ID_CHARS = 512
"""Longest id of a record: PostgreSQL's indexes take 2,700 bytes, of which the cube's id may have 512."""


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def row_of(table: sa.Table, state: object, **others: Any) -> dict[str, Any]:
    """Return the row of `state`: each column takes the field of its name without `_id`; `others` take precedence."""
    names = [column.name for column in table.columns if column.name not in others]
    return {name: getattr(state, name.removesuffix("_id")) for name in names} | others


def fields_of(row: Any) -> dict[str, Any]:
    """Return a row as keyword arguments, with `_id` cut from the names: the column `cube_id` becomes `cube`."""
    return {name.removesuffix("_id"): value for name, value in row._asdict().items()}


meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

cubes = sa.Table(
    "cubes",
    metadata,
    sa.Column("id", sa.String(128), primary_key=True),
    sa.Column("owner", sa.String(128), nullable=False),
    sa.Column("description", Sealed(), nullable=False),
    sa.Column("time_zone", sa.String(64), nullable=False),
    sa.Column("embedder", _text_of(128), nullable=False),
    sa.Column("dimension", sa.Integer, nullable=False),
    sa.Column("prefix_rule", _text_of(64), nullable=False),
    sa.Column("normalised", sa.Boolean, nullable=False),
    sa.Column("entity_salt", sa.LargeBinary(16), nullable=False),
    sa.Column("event_seq", sa.BigInteger, nullable=False),
    sa.Column("event_chain", sa.LargeBinary(32), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    # Time constant of the heat decay that this cube's `level` values use; null before the first access.
    sa.Column("heat_tau_s", sa.Float),
    # Number of segments, open and archived.
    sa.Column("segments", sa.Integer, nullable=False, server_default="0"),
    # Messages without a conversation created up to this time have rows in `pages`.
    sa.Column("lone_until", UtcMicros),
    # `kind` is memory or knowledge; `redact_pii` masks personal data in new content.
    sa.Column("kind", sa.String(16), nullable=False, server_default="memory"),
    sa.Column("redact_pii", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.CheckConstraint("event_seq >= 0", name="ck_cubes_event_seq"),
    sa.Index("ix_cubes_owner", "owner"),
)

conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("next_position", sa.Integer, nullable=False),
    sa.Column("next_page", sa.Integer, nullable=False),
    # Session number and time of the last message.
    sa.Column("session", sa.Integer, nullable=False, server_default="0"),
    sa.Column("said_at", UtcMicros),
    sa.Column("created_at", UtcMicros, nullable=False),
    # First page of the short tier; earlier pages are in the mid tier, with rows in `pages`.
    sa.Column("first_short", sa.Integer, nullable=False, server_default="0"),
    sa.UniqueConstraint("cube_id", "name", name="uq_conversations_name"),
)

items = sa.Table(
    "items",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("conversation_id", sa.String(36), sa.ForeignKey("conversations.id")),
    sa.Column("position", sa.Integer),
    sa.Column("page", sa.Integer),
    sa.Column("session", sa.Integer),
    # Time of the source message (event time); `created_at` is the time of ingestion.
    sa.Column("said_at", UtcMicros),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("version_id", sa.String(36), nullable=False),
    # Incremented by every change that must be indexed again, a neighbour's too; stored with each point of the index.
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    # `pinned` by a user; `cold`: its segment is archived, so it ranks lower; `outdated`: its statement was superseded.
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("cold", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("outdated", sa.Boolean, nullable=False, server_default=sa.false()),
    # Fact extraction message by message: `wanted` is queued, `read` is done, null is neither.
    sa.Column("reading", sa.String(8)),
    # The caller's id of a record, sorted by code points; null of other items.
    sa.Column("record_id", sa.String(RECORD_ID_CHARS, "C").with_variant(sa.String(RECORD_ID_CHARS), "sqlite")),
    # From `expires_at` on an item is out of every answer, and will be erased; `ttl_s` is how long it lives from a
    # change or, where that is wanted, an access.
    sa.Column("ttl_s", sa.Float),
    sa.Column("expires_at", UtcMicros),
    # False of a record that no search is to find: it is not in the vector index.
    sa.Column("searchable", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.UniqueConstraint("conversation_id", "position", name="uq_items_position"),
    sa.CheckConstraint("version >= 1", name="ck_items_version"),
    sa.Index("ix_items_cube", "cube_id", "created_at", "id"),
    sa.Index("ix_items_page", "conversation_id", "page"),
    sa.Index("ix_items_wanted", "cube_id", "conversation_id", "id", **_where("reading = 'wanted'")),
    # By when something was said, or stored if nobody said it.
    sa.Index("ix_items_told", "cube_id", sa.text("coalesce(said_at, created_at)"), "id"),
    # One item for each id of a record, and prefixes of ids in order.
    sa.Index("uq_items_record", "cube_id", "record_id", unique=True, **_where("record_id IS NOT NULL")),
    sa.Index("ix_items_expiry", "expires_at", **_where("expires_at IS NOT NULL")),
)

versions = sa.Table(
    "versions",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), nullable=False),
    sa.Column("cube_id", sa.String(128), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("recorded_at", UtcMicros, nullable=False),
    sa.Column("recorded_to", UtcMicros),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("reason", Sealed(), nullable=False),
    sa.Column("memory", Sealed(), nullable=False),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("tier", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("speaker", sa.String(256), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    # `speaker|attribute`; the speaker alone may have 256 characters.
    sa.Column("key", _text_of(256)),
    sa.Column("value", Sealed()),
    sa.Column("tags", Sealed(sa.JSON), nullable=False),
    sa.Column("info", Sealed(sa.JSON), nullable=False),
    sa.Column("entities", Sealed(sa.JSON), nullable=False),
    sa.Column("keywords", Sealed(sa.JSON), nullable=False, server_default="[]"),
    sa.Column("confidence", sa.Float, nullable=False),
    sa.Column("valid_from", UtcMicros),
    sa.Column("valid_to", UtcMicros),
    sa.Column("superseded_by", sa.String(36)),
    sa.UniqueConstraint("item_id", "version", name="uq_versions_number"),
    sa.CheckConstraint("recorded_to IS NULL OR recorded_to >= recorded_at", name="ck_versions_range"),
    sa.CheckConstraint("confidence >= 0 AND confidence <= 1", name="ck_versions_confidence"),
    # An item has one current version.
    sa.Index("uq_versions_current", "item_id", unique=True, **_where("recorded_to IS NULL")),
    sa.Index("ix_versions_key", "cube_id", "key", **_where("key IS NOT NULL AND recorded_to IS NULL")),
    sa.Index("ix_versions_ended", "cube_id", "valid_to", **_where("valid_to IS NOT NULL AND recorded_to IS NULL")),
    sa.Index("ix_versions_pending", "cube_id", "item_id", **_where("status = 'pending' AND recorded_to IS NULL")),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("conversation_id", sa.String(36), sa.ForeignKey("conversations.id")),
    sa.Column("external_id", sa.String(256)),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("text", Sealed(), nullable=False),
    # The original content, if it was more than plain text.
    sa.Column("content", Sealed(sa.JSON(none_as_null=True))),
    sa.Column("tool_calls", Sealed(sa.JSON(none_as_null=True))),
    sa.Column("tool_call_id", sa.String(256)),
    sa.Column("chat_time", UtcMicros, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("trust", sa.String(16), nullable=False, server_default="trusted"),
    sa.UniqueConstraint("cube_id", "conversation_id", "external_id", name="uq_messages_external"),
    sa.Index("ix_messages_speaker", "cube_id", "role", "name"),
    sa.Index("ix_messages_participant", "conversation_id", "name"),
)

# Original files: documents, and images attached to messages (`item_id`). `state` is processing, available, failed or
# superseded (by `replaced_by`); `info` is metadata found while processing, such as the page count.
files = sa.Table(
    "files",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("name", Sealed(), nullable=False),
    sa.Column("media_type", sa.String(128), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("error", Sealed()),
    sa.Column("info", Sealed(sa.JSON), nullable=False),
    sa.Column("item_id", sa.String(36)),
    sa.Column("replaced_by", sa.String(36)),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("finished_at", UtcMicros),
    sa.CheckConstraint("bytes >= 0", name="ck_files_bytes"),
    sa.Index("ix_files_cube", "cube_id", "created_at", "id"),
    sa.Index("ix_files_digest", "cube_id", "sha256"),
    sa.Index("ix_files_item", "item_id"),
)

# File contents, in parts of at most 1 MiB.
file_parts = sa.Table(
    "file_parts",
    metadata,
    sa.Column("file_id", sa.String(36), sa.ForeignKey("files.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("data", Sealed(sa.LargeBinary), nullable=False),
)

# The character span of each chunk in a document's Markdown; the chunks of a file, in order, cover it completely.
file_items = sa.Table(
    "file_items",
    metadata,
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
    sa.Column("file_id", sa.String(36), sa.ForeignKey("files.id"), nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("start", sa.Integer, nullable=False),
    sa.Column("end", sa.Integer, nullable=False),
    sa.Column("page", sa.Integer),
    sa.CheckConstraint('start >= 0 AND "end" >= start', name="ck_file_items_span"),
    sa.Index("ix_file_items_file", "file_id", "ordinal"),
)

# Raw output of the fact extraction model, one row for each call.
extractions = sa.Table(
    "extractions",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("reader", sa.String(64), nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("output", Sealed(), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
)

# All messages in the prompt of an extraction, including those that no fact came from.
extraction_items = sa.Table(
    "extraction_items",
    metadata,
    sa.Column("item_id", sa.String(36), primary_key=True),
    sa.Column("extraction_id", sa.String(36), sa.ForeignKey("extractions.id"), primary_key=True, index=True),
    sa.Column("cube_id", sa.String(128), nullable=False),
)

sources = sa.Table(
    "sources",
    metadata,
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("message_id", sa.String(36), sa.ForeignKey("messages.id"), nullable=False, index=True),
    sa.Column("start", sa.Integer, nullable=False),
    sa.Column("end", sa.Integer, nullable=False),
    # Name and version of the reader that derived the item from this source.
    sa.Column("reader", sa.String(64), nullable=False),
    sa.Column("extraction_id", sa.String(36)),
    sa.CheckConstraint('start >= 0 AND "end" >= start', name="ck_sources_span"),
)

links = sa.Table(
    "links",
    metadata,
    sa.Column("from_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
    sa.Column("kind", sa.String(32), primary_key=True),
    sa.Column("to_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True, index=True),
    sa.Column("cube_id", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    # Of a judged link: how sure it is, from 0 to 1, and who judged: "rules", a model, or an actor.
    sa.Column("confidence", sa.Float),
    sa.Column("decided_by", sa.String(128)),
    sa.Index("ix_links_supposed", "cube_id", "created_at", **_where("decided_by = 'feedback'")),
)

# The names in the current version of each item, for the graph of people and things: `name` is folded, `part` is what
# the name is to the item (`memos.memcube.ledger.entities.Part`), `relation` the relation that leads to it.
mentions = sa.Table(
    "mentions",
    metadata,
    sa.Column("cube_id", sa.String(128), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("part", sa.String(8), primary_key=True),
    sa.Column("item_id", sa.String(36), primary_key=True),
    sa.Column("spelling", sa.String(128), nullable=False),
    sa.Column("relation", sa.Text),
    sa.Index("ix_mentions_item", "item_id"),
    sqlite_with_rowid=False,
)

# Names that somebody merged: `name` is the same as `entity`; `root` is where following `entity` ends.
entity_aliases = sa.Table(
    "entity_aliases",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("id", sa.String(36), nullable=False),
    sa.Column("entity", sa.String(128), nullable=False),
    sa.Column("root", sa.String(128), nullable=False),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.UniqueConstraint("id", name="uq_entity_aliases_id"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("item_id", sa.String(36), index=True),
    # Hash chain: digest = SHA-256(salt + body), so the chain can be verified after body and salt are erased.
    sa.Column("body", sa.Text),
    sa.Column("salt", sa.LargeBinary(16)),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("chain", sa.LargeBinary(32), nullable=False),
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", _RowId, primary_key=True, autoincrement=True),
    sa.Column("target", sa.String(16), nullable=False),
    sa.Column("cube_id", sa.String(128), nullable=False),
    sa.Column("item_id", sa.String(36), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("parked", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("error", sa.Text),
    sa.Index("ix_outbox_target", "target", "parked", "id"),
    sa.Index("ix_outbox_cube", "target", "cube_id", "item_id"),
    sqlite_autoincrement=True,
)

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("idempotency_key", sa.String(256), primary_key=True),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("salt", sa.LargeBinary(16), nullable=False),
    sa.Column("conversation", sa.String(256)),
    sa.Column("item_ids", sa.JSON, nullable=False),
    sa.Column("duplicates", sa.JSON, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
)

request_items = sa.Table(
    "request_items",
    metadata,
    sa.Column("item_id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), primary_key=True),
    sa.Column("idempotency_key", sa.String(256), primary_key=True),
)

tombstones = sa.Table(
    "tombstones",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), nullable=False),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("removed", sa.JSON, nullable=False),
    sa.Column("rebuilt", sa.JSON, nullable=False),
    sa.Column("stores", sa.JSON, nullable=False),
    # What was there of each form before and after the erasure, as [before, after].
    sa.Column("forms", sa.JSON, nullable=False, server_default="{}"),
)

tombstone_items = sa.Table(
    "tombstone_items",
    metadata,
    sa.Column("item_id", sa.String(36), primary_key=True),
    sa.Column("tombstone_id", sa.String(36), sa.ForeignKey("tombstones.id"), nullable=False, index=True),
)

# `newest` is the creation time of the newest item in the backup. `finished_at` and `newest` are null until the backup
# is complete; an interrupted backup keeps them null, and its files contain text too.
backups = sa.Table(
    "backups",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("finished_at", UtcMicros),
    sa.Column("newest", UtcMicros),
)

# Backups that still contain erased items; `told` once the erasure is recorded in the backup's `erased.jsonl`.
tombstone_backups = sa.Table(
    "tombstone_backups",
    metadata,
    sa.Column("tombstone_id", sa.String(36), sa.ForeignKey("tombstones.id"), primary_key=True),
    sa.Column("backup_id", sa.String(36), sa.ForeignKey("backups.id"), primary_key=True),
    sa.Column("told", sa.Boolean, nullable=False, server_default=sa.false()),
)

_WAITING = _where("state = 'waiting'")

# Background tasks; an empty `cube_id` means the whole installation. `payload` and `scope` contain ids and settings,
# never memory text.
tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("cube_id", sa.String(128), nullable=False),
    sa.Column("scope", sa.JSON, nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lease_owner", sa.String(128)),
    sa.Column("lease_until", UtcMicros),
    sa.Column("not_before", UtcMicros, nullable=False),
    sa.Column("idempotency_key", sa.String(256)),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("started_at", UtcMicros),
    sa.Column("finished_at", UtcMicros),
    sa.Column("progress", sa.Float, nullable=False, server_default="0"),
    sa.Column("note", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("seconds", sa.Float, nullable=False, server_default="0"),
    # A task has a lease exactly while it is running.
    sa.CheckConstraint(
        "(state = 'running') = (lease_owner IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)",
        name="ck_tasks_lease",
    ),
    sa.CheckConstraint("progress >= 0 AND progress <= 1", name="ck_tasks_progress"),
    sa.Index("uq_tasks_waiting", "cube_id", "kind", "idempotency_key", unique=True, **_WAITING),
    # To find a cube's next task, and when its earliest is due.
    sa.Index("ix_tasks_next", "cube_id", "priority", "id", **_WAITING),
    sa.Index("ix_tasks_due", "cube_id", "not_before", **_WAITING),
    sa.Index("ix_tasks_leases", "lease_until", **_where("state = 'running'")),
    sa.Index("ix_tasks_finished", "finished_at"),
)

# Fair queueing between cubes, one row for each cube that ever had a task. `due` is when its earliest waiting task may
# start, null if none is waiting. `turn` is set while a task may start; the cube with the lowest turn is served next.
queues = sa.Table(
    "queues",
    metadata,
    sa.Column("cube_id", sa.String(128), primary_key=True),
    sa.Column("weight", sa.Float, nullable=False, server_default="1"),
    sa.Column("turn", sa.Float),
    sa.Column("due", UtcMicros),
    sa.CheckConstraint("weight > 0", name="ck_queues_weight"),
    sa.CheckConstraint("turn IS NULL OR due IS NOT NULL", name="ck_queues_turn"),
    sa.Index("ix_queues_turn", "turn", "cube_id", **_where("turn IS NOT NULL")),
    sa.Index("ix_queues_due", "due", **_where("turn IS NULL")),
)

# Model usage of background tasks by cube, UTC day and purpose.
usage = sa.Table(
    "usage",
    metadata,
    sa.Column("cube_id", sa.String(128), primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("purpose", sa.String(32), primary_key=True),
    sa.Column("calls", sa.BigInteger, nullable=False),
    sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
    sa.Column("completion_tokens", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
)

# Periodic jobs: the process that last started each, and until when no other may start it.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("owner", sa.String(128), nullable=False),
    sa.Column("until", UtcMicros, nullable=False),
)


# The columns that heat is computed from (`memos.scheduler.heat.Warmth`).
def _heat_columns() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("level", sa.Float, nullable=False),
        sa.Column("visits", sa.Integer, nullable=False),
        sa.Column("interactions", sa.Integer, nullable=False),
        sa.Column("last", UtcMicros),
    )


# Groups of pages about one topic. `spans` is the extractive summary, as [item, start, end] of its sentences; `told` is
# the summary that a model wrote when the segment had `told_pages` pages; `words` are [keyword, page count] pairs;
# `vector` is the float32 sum of the pages' unit vectors; `unread` if facts of some page are still to be extracted.
segments = sa.Table(
    "segments",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("spans", sa.JSON, nullable=False),
    sa.Column("told", Sealed()),
    sa.Column("told_pages", sa.Integer, nullable=False, server_default="0"),
    sa.Column("words", Sealed(sa.JSON), nullable=False),
    sa.Column("vector", Sealed(sa.LargeBinary)),
    sa.Column("pages", sa.Integer, nullable=False),
    sa.Column("unread", sa.Boolean, nullable=False),
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()),
    *_heat_columns(),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("updated_at", UtcMicros, nullable=False),
    sa.CheckConstraint("pages >= 0", name="ck_segments_pages"),
    sa.Index("ix_segments_hot", "cube_id", "state", "unread", "level"),
)

# Pages of the mid tier; a page has the id of its first message. A message without a conversation is a page of its own.
pages = sa.Table(
    "pages",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("conversation_id", sa.String(36), sa.ForeignKey("conversations.id")),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("segment_id", sa.String(36), sa.ForeignKey("segments.id"), nullable=False),
    sa.Column("read", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("moved_at", UtcMicros, nullable=False),
    sa.UniqueConstraint("conversation_id", "number", name="uq_pages_number"),
    sa.Index("ix_pages_segment", "segment_id", "read"),
)

# Heat of items; an item has a row once it was accessed. `history` has a [second, heat before, heat after] for each day
# with an access, the last ones only (`memos.scheduler.heat.remembered`).
warmth = sa.Table(
    "warmth",
    metadata,
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
    sa.Column("cube_id", sa.String(128), nullable=False),
    *_heat_columns(),
    sa.Column("history", sa.JSON(none_as_null=True)),
    sa.Index("ix_warmth_hot", "cube_id", "level"),
)

# Retention rules: the action on matching items older than `age_days`; an empty list matches everything.
retention_rules = sa.Table(
    "retention_rules",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False, index=True),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("types", sa.JSON, nullable=False),
    sa.Column("tags", Sealed(sa.JSON), nullable=False),
    sa.Column("statuses", sa.JSON, nullable=False),
    sa.Column("age_days", sa.Float, nullable=False),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.CheckConstraint("age_days >= 0", name="ck_retention_rules_age"),
)

# Users, agents and groups. While the table is empty the installation has one user and no access checks.
identities = sa.Table(
    "identities",
    metadata,
    sa.Column("id", sa.String(128), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("admin", sa.Boolean, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("home", sa.String(128)),
    sa.Column("acts_for", sa.String(128)),
    sa.Column("created_by", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
)

memberships = sa.Table(
    "memberships",
    metadata,
    sa.Column("group_id", sa.String(128), sa.ForeignKey("identities.id"), primary_key=True),
    sa.Column("member_id", sa.String(128), sa.ForeignKey("identities.id"), primary_key=True),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Index("ix_memberships_member", "member_id"),
)

# Roles of identities on cubes; the identity "*" is everyone.
grants = sa.Table(
    "grants",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("identity_id", sa.String(128), primary_key=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("created_by", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Index("ix_grants_identity", "identity_id"),
)

# API keys, stored as the SHA-256 of the secret; its 256 random bits make a slow hash unnecessary.
api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("identity_id", sa.String(128), sa.ForeignKey("identities.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("hint", sa.String(16), nullable=False),
    sa.Column("rights", sa.JSON, nullable=False),
    sa.Column("expires_at", UtcMicros),
    sa.Column("revoked_at", UtcMicros),
    sa.Column("last_used_at", UtcMicros),
    sa.Column("created_by", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("limits", sa.JSON),
    # The key that created this one and whose quota its usage counts against.
    sa.Column("counts_for", sa.String(36)),
    # Ids of the cubes the key is limited to; null is no limit.
    sa.Column("cubes", sa.JSON),
    # The key that was made in place of this one by a rotation.
    sa.Column("replaced_by", sa.String(36)),
    sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    sa.Index("ix_api_keys_identity", "identity_id"),
)

# Sessions of the console and one-time links that start one, stored as the SHA-256 of the secret; `key_id` is the API
# key that was used to sign in, null for the local owner.
console_sessions = sa.Table(
    "console_sessions",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("link", sa.Boolean, nullable=False),
    sa.Column("identity_id", sa.String(128), nullable=False),
    sa.Column("key_id", sa.String(36)),
    sa.Column("client", sa.Text, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("expires_at", UtcMicros, nullable=False),
    sa.UniqueConstraint("digest", name="uq_console_sessions_digest"),
    sa.Index("ix_console_sessions_identity", "identity_id"),
)

# Sign-ins, erasures, dumps, and changes to users, groups and keys: what no cube's chain of events can hold. Ids only,
# no secret. The entries are a hash chain (`memos.memcube.ledger.audit_chain`); `salt` is null in those where somebody
# was forgotten.
access_log = sa.Table(
    "access_log",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("at", UtcMicros, nullable=False),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("subject", sa.String(128), nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("number", sa.BigInteger),
    sa.Column("salt", sa.LargeBinary(16)),
    sa.Column("digest", sa.LargeBinary(32)),
    sa.Column("chain", sa.LargeBinary(32)),
    sa.Index("ix_access_log_at", "at", "id"),
    sa.Index("ix_access_log_subject", "subject"),
    sa.Index("uq_access_log_number", "number", unique=True),
)

# Idempotency keys of calls that create something, by caller; `made` are the created ids, null until the call has
# answered. The digest covers the whole call.
repeats = sa.Table(
    "repeats",
    metadata,
    sa.Column("identity_id", sa.String(128), primary_key=True),
    sa.Column("idempotency_key", sa.String(256), primary_key=True),
    sa.Column("cube_id", sa.String(128)),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("salt", sa.LargeBinary(16), nullable=False),
    sa.Column("made", sa.JSON(none_as_null=True)),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Index("ix_repeats_created", "created_at"),
    sa.Index("ix_repeats_cube", "cube_id"),
)

# Add requests, to detect repeats sent without a key: `digest` is a keyed digest of the request, removed after a minute
# and when content is erased; `answer` contains ids only.
submissions = sa.Table(
    "submissions",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("caller", sa.String(128), nullable=False),
    sa.Column("digest", sa.String(64)),
    sa.Column("cubes", sa.JSON, nullable=False),
    sa.Column("answer", sa.JSON(none_as_null=True)),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.UniqueConstraint("caller", "digest", name="uq_submissions_digest"),
    sa.Index("ix_submissions_created", "created_at"),
    sa.Index("ix_submissions_young", "created_at", **_where("digest IS NOT NULL")),
)

# Usage counters of API keys; `span` is a UTC day or minute.
key_usage = sa.Table(
    "key_usage",
    metadata,
    sa.Column("key_id", sa.String(36), primary_key=True),
    sa.Column("what", sa.String(16), primary_key=True),
    sa.Column("span", sa.String(16), primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
)

# The prompt prefix of a cube: its memories in order, at the version that was rendered.
prefix_entries = sa.Table(
    "prefix_entries",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), nullable=False, unique=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("added_at", UtcMicros, nullable=False),
)

# Cubes whose owner allows adapter training on their memories.
adapter_consents = sa.Table(
    "adapter_consents",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("allowed_by", sa.String(128), nullable=False),
    sa.Column("allowed_at", UtcMicros, nullable=False),
)

# LoRA adapters; their files are in a folder named after the id. `shard` was a topic in version 0.1 and is "" since.
# `base` and `digest` are digests of the base model and of the adapter's weights; `reason` is why the adapter was
# refused, without memory text.
adapters = sa.Table(
    "adapters",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("shard", sa.String(64), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("base", sa.String(64), nullable=False),
    sa.Column("recipe", sa.JSON, nullable=False),
    sa.Column("data_hash", sa.String(64), nullable=False),
    sa.Column("measures", sa.JSON(none_as_null=True)),
    sa.Column("reason", sa.Text),
    sa.Column("digest", sa.String(64)),
    sa.Column("size_bytes", sa.BigInteger),
    sa.Column("parent", sa.String(36)),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("finished_at", UtcMicros),
    sa.UniqueConstraint("cube_id", "shard", "number", name="uq_adapters_number"),
    sa.CheckConstraint("number >= 1", name="ck_adapters_number"),
    sa.CheckConstraint("state IN ('training', 'refused', 'ready', 'active', 'retired')", name="ck_adapters_state"),
    # One active adapter for each cube and shard.
    sa.Index("uq_adapters_active", "cube_id", "shard", unique=True, **_where("state = 'active'")),
)

# The training set of each adapter: item, version and a digest of the text. `item_id` has no foreign key: after an
# erasure this row must still show that the adapter saw the item, until the adapter itself is removed.
adapter_items = sa.Table(
    "adapter_items",
    metadata,
    sa.Column("adapter_id", sa.String(36), sa.ForeignKey("adapters.id"), primary_key=True),
    sa.Column("item_id", sa.String(36), primary_key=True, index=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
)

# Memories that the owner excluded from training in a cube that allows it.
adapter_exclusions = sa.Table(
    "adapter_exclusions",
    metadata,
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False, index=True),
    sa.Column("excluded_by", sa.String(128), nullable=False),
    sa.Column("excluded_at", UtcMicros, nullable=False),
)

name_sealed(metadata)
