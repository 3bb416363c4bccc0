"""Add limits of API keys, and their usage by minute and UTC day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns and a table; existing keys have the limits of the settings."""
    op.add_column("api_keys", sa.Column("limits", sa.JSON))
    op.add_column("api_keys", sa.Column("counts_for", sa.String(36)))
    op.create_table(
        "key_usage",
        sa.Column("key_id", sa.String(36), primary_key=True),
        sa.Column("what", sa.String(16), primary_key=True),
        sa.Column("span", sa.String(16), primary_key=True),
        sa.Column("used", sa.BigInteger, nullable=False),
    )
