"""Add LoRA adapters, their training sets, and the consent of owners to train them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add three tables."""
    op.create_table(
        "adapter_consents",
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
        sa.Column("allowed_by", sa.String(128), nullable=False),
        sa.Column("allowed_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "adapters",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("shard", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("base", sa.String(64), nullable=False),
        sa.Column("recipe", sa.JSON, nullable=False),
        sa.Column("data_hash", sa.String(64), nullable=False),
        sa.Column("measures", sa.JSON),
        sa.Column("reason", sa.Text),
        sa.Column("digest", sa.String(64)),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("parent", sa.String(36)),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.UniqueConstraint("cube_id", "shard", "number", name="uq_adapters_number"),
        sa.CheckConstraint("number >= 1", name="ck_adapters_number"),
        sa.CheckConstraint("state IN ('training', 'refused', 'ready', 'active', 'retired')", name="ck_adapters_state"),
    )
    active = sa.text("state = 'active'")
    op.create_index(
        "uq_adapters_active",
        "adapters",
        ["cube_id", "shard"],
        unique=True,
        sqlite_where=active,
        postgresql_where=active,
    )
    op.create_table(
        "adapter_items",
        sa.Column("adapter_id", sa.String(36), sa.ForeignKey("adapters.id"), primary_key=True),
        sa.Column("item_id", sa.String(36), primary_key=True, index=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
