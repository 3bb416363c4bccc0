"""Add memories that are excluded from adapter training."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "adapter_exclusions",
        sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False, index=True),
        sa.Column("excluded_by", sa.String(128), nullable=False),
        sa.Column("excluded_at", sa.BigInteger, nullable=False),
    )
