"""Add the log of sign-ins and of changes to users, groups and keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "access_log",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_index("ix_access_log_at", "access_log", ["at", "id"])
