"""Add submissions, to recognise the same request sent again within a minute."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("caller", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64)),
        sa.Column("cubes", sa.JSON, nullable=False),
        sa.Column("answer", sa.JSON),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("caller", "digest", name="uq_submissions_digest"),
    )
    op.create_index("ix_submissions_created", "submissions", ["created_at"])
    young = sa.text("digest IS NOT NULL")
    op.create_index("ix_submissions_young", "submissions", ["created_at"], sqlite_where=young, postgresql_where=young)
