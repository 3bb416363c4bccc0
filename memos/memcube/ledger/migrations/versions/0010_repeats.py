"""Add idempotency keys of calls that create something."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; its rows are kept for a day."""
    op.create_table(
        "repeats",
        sa.Column("identity_id", sa.String(128), primary_key=True),
        sa.Column("idempotency_key", sa.String(256), primary_key=True),
        sa.Column("cube_id", sa.String(128)),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("salt", sa.LargeBinary(16), nullable=False),
        sa.Column("made", sa.JSON),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_repeats_created", "repeats", ["created_at"])
    op.create_index("ix_repeats_cube", "repeats", ["cube_id"])
