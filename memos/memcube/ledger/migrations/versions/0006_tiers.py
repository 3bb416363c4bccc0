"""Add segments and their pages, the heat of segments and items, and the start of each conversation's short tier."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add three tables and two columns; existing pages stay in the short tier until the first sweep."""
    op.add_column("conversations", sa.Column("first_short", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cubes", sa.Column("heat_tau_s", sa.Float))
    op.add_column("cubes", sa.Column("lone_until", sa.BigInteger))
    op.create_index("ix_items_page", "items", ["conversation_id", "page"])
    op.create_table(
        "segments",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("spans", sa.JSON, nullable=False),
        sa.Column("told", sa.Text),
        sa.Column("words", sa.JSON, nullable=False),
        sa.Column("vector", sa.LargeBinary),
        sa.Column("pages", sa.Integer, nullable=False),
        sa.Column("unread", sa.Boolean, nullable=False),
        sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("level", sa.Float, nullable=False),
        sa.Column("visits", sa.Integer, nullable=False),
        sa.Column("interactions", sa.Integer, nullable=False),
        sa.Column("last", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("pages >= 0", name="ck_segments_pages"),
    )
    op.create_index("ix_segments_hot", "segments", ["cube_id", "state", "unread", "level"])
    op.create_table(
        "pages",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("conversation_id", sa.String(36), sa.ForeignKey("conversations.id")),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("segment_id", sa.String(36), sa.ForeignKey("segments.id"), nullable=False),
        sa.Column("read", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("moved_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("conversation_id", "number", name="uq_pages_number"),
    )
    op.create_index("ix_pages_segment", "pages", ["segment_id", "read"])
    op.create_table(
        "warmth",
        sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
        sa.Column("cube_id", sa.String(128), nullable=False),
        sa.Column("level", sa.Float, nullable=False),
        sa.Column("visits", sa.Integer, nullable=False),
        sa.Column("interactions", sa.Integer, nullable=False),
        sa.Column("last", sa.BigInteger),
    )
    op.create_index("ix_warmth_hot", "warmth", ["cube_id", "level"])
