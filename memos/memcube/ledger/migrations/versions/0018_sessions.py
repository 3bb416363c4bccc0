"""Add the sessions of people who signed in to the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("link", sa.Boolean, nullable=False),
        sa.Column("identity_id", sa.String(128), nullable=False),
        sa.Column("key_id", sa.String(36)),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("digest", name="uq_console_sessions_digest"),
    )
    op.create_index("ix_console_sessions_identity", "console_sessions", ["identity_id"])
