"""Add the confidence of a link and who judged it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns."""
    op.add_column("links", sa.Column("confidence", sa.Float))
    op.add_column("links", sa.Column("decided_by", sa.String(128)))
