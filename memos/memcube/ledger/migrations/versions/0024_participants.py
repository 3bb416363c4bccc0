"""Add an index of who speaks in a conversation."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index("ix_messages_participant", "messages", ["conversation_id", "name"])
