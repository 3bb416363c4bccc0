"""Add extractions, retention rules, and the pinned, cold and outdated flags."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add three tables and six columns; existing items have no flags."""
    op.add_column("items", sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("items", sa.Column("cold", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("items", sa.Column("outdated", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("segments", sa.Column("told_pages", sa.Integer, nullable=False, server_default="0"))
    op.add_column("sources", sa.Column("extraction_id", sa.String(36)))
    op.add_column("cubes", sa.Column("segments", sa.Integer, nullable=False, server_default="0"))
    op.execute("UPDATE cubes SET segments = (SELECT count(*) FROM segments WHERE segments.cube_id = cubes.id)")
    op.create_table(
        "extractions",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("reader", sa.String(64), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("output", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "extraction_items",
        sa.Column("item_id", sa.String(36), primary_key=True),
        sa.Column("extraction_id", sa.String(36), sa.ForeignKey("extractions.id"), primary_key=True),
        sa.Column("cube_id", sa.String(128), nullable=False),
    )
    op.create_index("ix_extraction_items_extraction_id", "extraction_items", ["extraction_id"])
    op.create_table(
        "retention_rules",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("types", sa.JSON, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("statuses", sa.JSON, nullable=False),
        sa.Column("age_days", sa.Float, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("age_days >= 0", name="ck_retention_rules_age"),
    )
    op.create_index("ix_retention_rules_cube_id", "retention_rules", ["cube_id"])
