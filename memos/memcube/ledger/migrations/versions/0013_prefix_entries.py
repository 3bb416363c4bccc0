"""Add the memories in each cube's prompt prefix."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "prefix_entries",
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), nullable=False, unique=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("added_at", sa.BigInteger, nullable=False),
    )
