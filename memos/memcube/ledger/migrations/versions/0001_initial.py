"""Create the first schema: cubes, messages, items, versions, sources, links, events, outbox and erasure records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create every table and index."""
    op.create_table(
        "meta",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )

    op.create_table(
        "cubes",
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("embedder", sa.String(128), nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("prefix_rule", sa.String(64), nullable=False),
        sa.Column("normalised", sa.Boolean, nullable=False),
        sa.Column("entity_salt", sa.LargeBinary(16), nullable=False),
        sa.Column("event_seq", sa.BigInteger, nullable=False),
        sa.Column("event_chain", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("event_seq >= 0", name="ck_cubes_event_seq"),
    )

    op.create_table(
        "conversations",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("next_position", sa.Integer, nullable=False),
        sa.Column("next_page", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("cube_id", "name", name="uq_conversations_name"),
    )

    op.create_table(
        "items",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("conversation_id", sa.String(36), sa.ForeignKey("conversations.id")),
        sa.Column("position", sa.Integer),
        sa.Column("page", sa.Integer),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("version_id", sa.String(36), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("conversation_id", "position", name="uq_items_position"),
        sa.CheckConstraint("version >= 1", name="ck_items_version"),
    )
    op.create_index("ix_items_cube", "items", ["cube_id", "created_at", "id"])
    op.create_table(
        "versions",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), nullable=False),
        sa.Column("cube_id", sa.String(128), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("recorded_at", sa.BigInteger, nullable=False),
        sa.Column("recorded_to", sa.BigInteger),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("memory", sa.Text, nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("tier", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("speaker", sa.String(256), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("key", sa.String(256)),
        sa.Column("value", sa.Text),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("info", sa.JSON, nullable=False),
        sa.Column("entities", sa.JSON, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("valid_from", sa.BigInteger),
        sa.Column("valid_to", sa.BigInteger),
        sa.Column("superseded_by", sa.String(36)),
        sa.UniqueConstraint("item_id", "version", name="uq_versions_number"),
        sa.CheckConstraint("recorded_to IS NULL OR recorded_to >= recorded_at", name="ck_versions_range"),
        sa.CheckConstraint("confidence >= 0 AND confidence <= 1", name="ck_versions_confidence"),
    )
    op.create_index(
        "uq_versions_current",
        "versions",
        ["item_id"],
        unique=True,
        sqlite_where=sa.text("recorded_to IS NULL"),
        postgresql_where=sa.text("recorded_to IS NULL"),
    )
    op.create_index(
        "ix_versions_key",
        "versions",
        ["cube_id", "key"],
        sqlite_where=sa.text("key IS NOT NULL AND recorded_to IS NULL"),
        postgresql_where=sa.text("key IS NOT NULL AND recorded_to IS NULL"),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("conversation_id", sa.String(36), sa.ForeignKey("conversations.id")),
        sa.Column("external_id", sa.String(256)),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("content", sa.JSON(none_as_null=True)),
        sa.Column("tool_calls", sa.JSON(none_as_null=True)),
        sa.Column("tool_call_id", sa.String(256)),
        sa.Column("chat_time", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("cube_id", "conversation_id", "external_id", name="uq_messages_external"),
    )

    op.create_table(
        "sources",
        sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("message_id", sa.String(36), sa.ForeignKey("messages.id"), nullable=False),
        sa.Column("start", sa.Integer, nullable=False),
        sa.Column("end", sa.Integer, nullable=False),
        sa.Column("reader", sa.String(64), nullable=False),
        sa.CheckConstraint('start >= 0 AND "end" >= start', name="ck_sources_span"),
    )
    op.create_index("ix_sources_message_id", "sources", ["message_id"])
    op.create_table(
        "links",
        sa.Column("from_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("to_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
        sa.Column("cube_id", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_links_to_id", "links", ["to_id"])
    op.create_table(
        "events",
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("item_id", sa.String(36)),
        sa.Column("body", sa.Text),
        sa.Column("salt", sa.LargeBinary(16)),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("chain", sa.LargeBinary(32), nullable=False),
    )
    op.create_index("ix_events_item_id", "events", ["item_id"])
    op.create_table(
        "outbox",
        sa.Column("id", _ROW_ID, primary_key=True, autoincrement=True),
        sa.Column("target", sa.String(16), nullable=False),
        sa.Column("cube_id", sa.String(128), nullable=False),
        sa.Column("item_id", sa.String(36), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("parked", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("error", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_outbox_target", "outbox", ["target", "parked", "id"])
    op.create_index("ix_outbox_cube", "outbox", ["target", "cube_id", "item_id"])
    op.create_table(
        "requests",
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
        sa.Column("idempotency_key", sa.String(256), primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("salt", sa.LargeBinary(16), nullable=False),
        sa.Column("conversation", sa.String(256)),
        sa.Column("item_ids", sa.JSON, nullable=False),
        sa.Column("duplicates", sa.JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )

    op.create_table(
        "request_items",
        sa.Column("item_id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), primary_key=True),
        sa.Column("idempotency_key", sa.String(256), primary_key=True),
    )

    op.create_table(
        "tombstones",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("removed", sa.JSON, nullable=False),
        sa.Column("rebuilt", sa.JSON, nullable=False),
        sa.Column("stores", sa.JSON, nullable=False),
    )

    op.create_table(
        "tombstone_items",
        sa.Column("item_id", sa.String(36), primary_key=True),
        sa.Column("tombstone_id", sa.String(36), sa.ForeignKey("tombstones.id"), nullable=False),
    )
    op.create_index("ix_tombstone_items_tombstone_id", "tombstone_items", ["tombstone_id"])
