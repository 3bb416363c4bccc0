"""Add records, which have an id of the caller's, and times to live."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add four columns and two indexes."""
    op.add_column("items", sa.Column("record_id", sa.String(512, "C").with_variant(sa.String(512), "sqlite")))
    op.add_column("items", sa.Column("ttl_s", sa.Float))
    op.add_column("items", sa.Column("expires_at", sa.BigInteger))
    op.add_column("items", sa.Column("searchable", sa.Boolean, nullable=False, server_default=sa.true()))
    named, ending = sa.text("record_id IS NOT NULL"), sa.text("expires_at IS NOT NULL")
    op.create_index(
        "uq_items_record", "items", ["cube_id", "record_id"], unique=True, sqlite_where=named, postgresql_where=named
    )
    op.create_index("ix_items_expiry", "items", ["expires_at"], sqlite_where=ending, postgresql_where=ending)
