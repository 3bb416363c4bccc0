"""Add indexes of what awaits a person: pending items, and relations that corrections suppose."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the indexes."""
    pending = sa.text("status = 'pending' AND recorded_to IS NULL")
    op.create_index(
        "ix_versions_pending", "versions", ["cube_id", "item_id"], sqlite_where=pending, postgresql_where=pending
    )
    supposed = sa.text("decided_by = 'feedback'")
    op.create_index(
        "ix_links_supposed", "links", ["cube_id", "created_at"], sqlite_where=supposed, postgresql_where=supposed
    )
