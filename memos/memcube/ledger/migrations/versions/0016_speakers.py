"""Add an index to list a cube's speakers without reading messages."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an index."""
    op.create_index("ix_messages_speaker", "messages", ["cube_id", "role", "name"])
