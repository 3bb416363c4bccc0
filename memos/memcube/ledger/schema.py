"""The ledger's tables, portable between SQLite and PostgreSQL; the migrations create exactly these.

Memory text is in `versions` (what an item says), `messages` (what was said) and `files` (originals).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from memos.core.clock import from_micros, to_micros


class UtcMicros(sa.types.TypeDecorator[datetime]):
    """An aware datetime stored as epoch microseconds: exact, ordered and the same on both dialects."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return None if value is None else to_micros(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        """Return the conversion; `process_result_value` would double its cost."""
        return _moment


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


metadata = sa.MetaData()

# SQLite gives row ids only to INTEGER, PostgreSQL needs BIGINT for long-lived sequences.
_RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _text_of(length: int) -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.String(length), "sqlite")


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def row_of(table: sa.Table, state: object, **others: Any) -> dict[str, Any]:
    """Return a row for `state`: each column has the field of its name, without `_id`, unless `others` has it."""
    names = [column.name for column in table.columns if column.name not in others]
    return {name: getattr(state, name.removesuffix("_id")) for name in names} | others


def fields_of(row: Any) -> dict[str, Any]:
    """Return a row by column, without `_id`: what `cube_id` has is called `cube`."""
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
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("time_zone", sa.String(64), nullable=False),
    sa.Column("embedder", _text_of(128), nullable=False),
    sa.Column("dimension", sa.Integer, nullable=False),
    sa.Column("prefix_rule", _text_of(64), nullable=False),
    sa.Column("normalised", sa.Boolean, nullable=False),
    sa.Column("entity_salt", sa.LargeBinary(16), nullable=False),
    sa.Column("event_seq", sa.BigInteger, nullable=False),
    sa.Column("event_chain", sa.LargeBinary(32), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    # The tau under which the levels of this cube were counted; empty until something was.
    sa.Column("heat_tau_s", sa.Float),
    # How many segments it has, open and archived.
    sa.Column("segments", sa.Integer, nullable=False, server_default="0"),
    # Messages without a conversation that were made up to then have rows in `pages`.
    sa.Column("lone_until", UtcMicros),
    # `memory` or `knowledge`, and whether personal data is masked in what is added.
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
    # The number of the session the last message was in, and when that was said.
    sa.Column("session", sa.Integer, nullable=False, server_default="0"),
    sa.Column("said_at", UtcMicros),
    sa.Column("created_at", UtcMicros, nullable=False),
    # Pages from this number on are in the short tier; those before it have rows in `pages`.
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
    # When the source was said, in the speaker's own time; `created_at` is when the ledger learnt of it.
    sa.Column("said_at", UtcMicros),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("version_id", sa.String(36), nullable=False),
    # Grows with every change that an index must follow, also a neighbour's; the index keeps it per point.
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    # Kept in sight by hand; of a segment that was archived, so ranked lower; says something that was replaced since.
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("cold", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("outdated", sa.Boolean, nullable=False, server_default=sa.false()),
    # A message that is to be read finely is `wanted`, one that was is `read`; of the others it is empty.
    sa.Column("reading", sa.String(8)),
    sa.UniqueConstraint("conversation_id", "position", name="uq_items_position"),
    sa.CheckConstraint("version >= 1", name="ck_items_version"),
    sa.Index("ix_items_cube", "cube_id", "created_at", "id"),
    sa.Index("ix_items_page", "conversation_id", "page"),
    sa.Index("ix_items_wanted", "cube_id", "conversation_id", "id", **_where("reading = 'wanted'")),
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
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("memory", sa.Text, nullable=False),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("tier", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("speaker", sa.String(256), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    # A speaker of up to 256 characters, a bar and an attribute.
    sa.Column("key", _text_of(256)),
    sa.Column("value", sa.Text),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("info", sa.JSON, nullable=False),
    sa.Column("entities", sa.JSON, nullable=False),
    sa.Column("keywords", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("confidence", sa.Float, nullable=False),
    sa.Column("valid_from", UtcMicros),
    sa.Column("valid_to", UtcMicros),
    sa.Column("superseded_by", sa.String(36)),
    sa.UniqueConstraint("item_id", "version", name="uq_versions_number"),
    sa.CheckConstraint("recorded_to IS NULL OR recorded_to >= recorded_at", name="ck_versions_range"),
    sa.CheckConstraint("confidence >= 0 AND confidence <= 1", name="ck_versions_confidence"),
    # One current version an item, by constraint.
    sa.Index("uq_versions_current", "item_id", unique=True, **_where("recorded_to IS NULL")),
    sa.Index("ix_versions_key", "cube_id", "key", **_where("key IS NOT NULL AND recorded_to IS NULL")),
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
    sa.Column("text", sa.Text, nullable=False),
    # The content as given, only when it was more than the plain text.
    sa.Column("content", sa.JSON(none_as_null=True)),
    sa.Column("tool_calls", sa.JSON(none_as_null=True)),
    sa.Column("tool_call_id", sa.String(256)),
    sa.Column("chat_time", UtcMicros, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("trust", sa.String(16), nullable=False, server_default="trusted"),
    sa.UniqueConstraint("cube_id", "conversation_id", "external_id", name="uq_messages_external"),
    sa.Index("ix_messages_speaker", "cube_id", "role", "name"),
)

# Original files: documents, and images of messages (`item_id`). `state` is processing, available, failed or
# superseded (by `replaced_by`); `info` is what was found out about the file, such as how many pages it has.
files = sa.Table(
    "files",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("media_type", sa.String(128), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("info", sa.JSON, nullable=False),
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

# A file's bytes, in parts of at most 1 MiB.
file_parts = sa.Table(
    "file_parts",
    metadata,
    sa.Column("file_id", sa.String(36), sa.ForeignKey("files.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# Which characters of a document's Markdown an item is; all items of a file in order are the whole of it.
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

# What a model answered when it was asked what messages say, as it came.
extractions = sa.Table(
    "extractions",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("reader", sa.String(64), nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("output", sa.Text, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
)

# The messages that a model was shown for one answer, also those it found nothing in.
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
    # What made the item out of the source: a reader and its version.
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
    # Body and salt can be erased; digest = SHA-256(salt + body) keeps the chain whole without them.
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
)

tombstone_items = sa.Table(
    "tombstone_items",
    metadata,
    sa.Column("item_id", sa.String(36), primary_key=True),
    sa.Column("tombstone_id", sa.String(36), sa.ForeignKey("tombstones.id"), nullable=False, index=True),
)

# `newest` is when the newest item of the backup was made: an item made later is not in it. Both are empty until the
# backup is complete, and in one that was cut off, whose files hold text too.
backups = sa.Table(
    "backups",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("finished_at", UtcMicros),
    sa.Column("newest", UtcMicros),
)

# The backups that still hold what was erased; `told` when the erasure stands in the backup's own `erased.jsonl`.
tombstone_backups = sa.Table(
    "tombstone_backups",
    metadata,
    sa.Column("tombstone_id", sa.String(36), sa.ForeignKey("tombstones.id"), primary_key=True),
    sa.Column("backup_id", sa.String(36), sa.ForeignKey("backups.id"), primary_key=True),
    sa.Column("told", sa.Boolean, nullable=False, server_default=sa.false()),
)

_WAITING = _where("state = 'waiting'")

# Background work; an empty cube is the whole installation. Payload and scope hold ids and settings, never memory text.
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
    # A lease is there exactly while the task runs.
    sa.CheckConstraint(
        "(state = 'running') = (lease_owner IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)",
        name="ck_tasks_lease",
    ),
    sa.CheckConstraint("progress >= 0 AND progress <= 1", name="ck_tasks_progress"),
    sa.Index("uq_tasks_waiting", "cube_id", "kind", "idempotency_key", unique=True, **_WAITING),
    # The next task of a cube, and when the cube's earliest is due.
    sa.Index("ix_tasks_next", "cube_id", "priority", "id", **_WAITING),
    sa.Index("ix_tasks_due", "cube_id", "not_before", **_WAITING),
    sa.Index("ix_tasks_leases", "lease_until", **_where("state = 'running'")),
    sa.Index("ix_tasks_finished", "finished_at"),
)

# One row a cube that ever had a task. `due` is when the earliest of its waiting tasks may begin, empty when none waits.
# A cube with a task that may begin has a turn, and the one with the lowest is served next.
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

# What background work spent, by cube and UTC day.
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

# Who fired a periodic job, and until when nobody else does.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("owner", sa.String(128), nullable=False),
    sa.Column("until", UtcMicros, nullable=False),
)


# What an item's or segment's heat is computed from (`memos.scheduler.heat.Warmth`).
def _warmth() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("level", sa.Float, nullable=False),
        sa.Column("visits", sa.Integer, nullable=False),
        sa.Column("interactions", sa.Integer, nullable=False),
        sa.Column("last", UtcMicros),
    )


# Pages of one topic. `spans` are [item, start, end] of the sentences that make its summary, `told` a summary that a
# model wrote when there were `told_pages`, `words` [keyword, pages] pairs, `vector` the float32 sum of the pages' unit
# vectors, `unread` whether a page of it has not been read into long-term memory.
segments = sa.Table(
    "segments",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("spans", sa.JSON, nullable=False),
    sa.Column("told", sa.Text),
    sa.Column("told_pages", sa.Integer, nullable=False, server_default="0"),
    sa.Column("words", sa.JSON, nullable=False),
    sa.Column("vector", sa.LargeBinary),
    sa.Column("pages", sa.Integer, nullable=False),
    sa.Column("unread", sa.Boolean, nullable=False),
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()),
    *_warmth(),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.Column("updated_at", UtcMicros, nullable=False),
    sa.CheckConstraint("pages >= 0", name="ck_segments_pages"),
    sa.Index("ix_segments_hot", "cube_id", "state", "unread", "level"),
)

# The pages of the mid tier; a page's id is that of its first message. A message without a conversation is a page.
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

# Only items that were accessed have a row.
warmth = sa.Table(
    "warmth",
    metadata,
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
    sa.Column("cube_id", sa.String(128), nullable=False),
    *_warmth(),
    sa.Index("ix_warmth_hot", "cube_id", "level"),
)

# What to do with items of a cube when they get older than `age_days`; an empty list means any.
retention_rules = sa.Table(
    "retention_rules",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False, index=True),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("types", sa.JSON, nullable=False),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("statuses", sa.JSON, nullable=False),
    sa.Column("age_days", sa.Float, nullable=False),
    sa.Column("actor", sa.String(128), nullable=False),
    sa.Column("created_at", UtcMicros, nullable=False),
    sa.CheckConstraint("age_days >= 0", name="ck_retention_rules_age"),
)

# Users, agents and groups. Without a row nothing is checked: the installation is one person's.
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

# Who may do what with a cube; an identity of "*" is everyone.
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

# Keys by the SHA-256 of their secret, whose 256 random bits are protection enough against guessing.
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
    # A key made with another one uses up what that may use.
    sa.Column("counts_for", sa.String(36)),
    sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    sa.Index("ix_api_keys_identity", "identity_id"),
)

# Calls that made something, by who made them and the idempotency key they gave; `made` are the ids, empty until the
# call has answered. The digest is of the whole call.
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

# Requests to store something, by a keyed digest of each while it is young; `answer` holds ids only.
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

# What keys used; `span` is a UTC day or a minute.
key_usage = sa.Table(
    "key_usage",
    metadata,
    sa.Column("key_id", sa.String(36), primary_key=True),
    sa.Column("what", sa.String(16), primary_key=True),
    sa.Column("span", sa.String(16), primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
)

# The memories that prompts of a cube begin with, in this order; `version` is the one that stands there.
prefix_entries = sa.Table(
    "prefix_entries",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), nullable=False, unique=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("added_at", UtcMicros, nullable=False),
)

# A cube whose owner allows that its memories are learned has a row.
adapter_consents = sa.Table(
    "adapter_consents",
    metadata,
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
    sa.Column("allowed_by", sa.String(128), nullable=False),
    sa.Column("allowed_at", UtcMicros, nullable=False),
)

# LoRA adapters of a cube, by topic (`shard`); the files are in a folder of this id. `base` and `digest` are digests of
# the base model and of the weights, `reason` is why it was refused, without memory text.
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
    # One that answers a shard, by constraint.
    sa.Index("uq_adapters_active", "cube_id", "shard", unique=True, **_where("state = 'active'")),
)

# The memories that an adapter saw, at which version, with a digest of what was seen. An item's id refers to nothing:
# an erasure removes the item, and that it is gone must go on showing here until the adapter itself is removed.
adapter_items = sa.Table(
    "adapter_items",
    metadata,
    sa.Column("adapter_id", sa.String(36), sa.ForeignKey("adapters.id"), primary_key=True),
    sa.Column("item_id", sa.String(36), primary_key=True, index=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
)

# Memories that no adapter may learn, though their cube's others may be learned: their owner said so.
adapter_exclusions = sa.Table(
    "adapter_exclusions",
    metadata,
    sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
    sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False, index=True),
    sa.Column("excluded_by", sa.String(128), nullable=False),
    sa.Column("excluded_at", UtcMicros, nullable=False),
)
