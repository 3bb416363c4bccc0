"""Add the names in memories, names merged by hand, and indexes for what held when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memos.memcube.ledger import entities

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two tables and two indexes, and read the names of the memories that are there."""
    op.create_table(
        "mentions",
        sa.Column("cube_id", sa.String(128), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("part", sa.String(8), primary_key=True),
        sa.Column("item_id", sa.String(36), primary_key=True),
        sa.Column("spelling", sa.String(128), nullable=False),
        sa.Column("relation", sa.Text),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_mentions_item", "mentions", ["item_id"])
    op.create_table(
        "entity_aliases",
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("entity", sa.String(128), nullable=False),
        sa.Column("root", sa.String(128), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("id", name="uq_entity_aliases_id"),
    )
    op.create_index("ix_items_told", "items", ["cube_id", sa.text("coalesce(said_at, created_at)"), "id"])
    ended = sa.text("valid_to IS NOT NULL AND recorded_to IS NULL")
    op.create_index(
        "ix_versions_ended", "versions", ["cube_id", "valid_to"], sqlite_where=ended, postgresql_where=ended
    )
    entities.rebuild(op.get_bind())
