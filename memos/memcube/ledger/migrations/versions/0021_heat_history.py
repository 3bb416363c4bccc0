"""Add the heat of an item on the days it was accessed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column."""
    op.add_column("warmth", sa.Column("history", sa.JSON))
