"""Let API keys be limited to cubes, and rotated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("api_keys", sa.Column("cubes", sa.JSON))
    op.add_column("api_keys", sa.Column("replaced_by", sa.String(36)))
