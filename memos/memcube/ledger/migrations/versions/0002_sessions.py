"""Add event times and keywords of items, and sessions of conversations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# A copy of the setting: a migration must not change its result when the code does.
_GAP_US = 2 * 3600 * 1_000_000


def upgrade() -> None:
    """Add the columns, and split existing conversations into sessions at long gaps."""
    op.add_column("versions", sa.Column("keywords", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("items", sa.Column("session", sa.Integer))
    op.add_column("items", sa.Column("said_at", sa.BigInteger))
    op.add_column("conversations", sa.Column("session", sa.Integer, nullable=False, server_default="0"))
    op.add_column("conversations", sa.Column("said_at", sa.BigInteger))
    connection = op.get_bind()
    connection.execute(
        sa.text(
            "UPDATE items SET said_at = (SELECT MIN(m.chat_time) FROM sources s JOIN messages m ON m.id = s.message_id"
            " WHERE s.item_id = items.id)"
        )
    )
    _split(connection)


def _split(connection: sa.Connection) -> None:
    said = sa.text(
        "SELECT id, conversation_id, said_at FROM items WHERE conversation_id IS NOT NULL AND said_at IS NOT NULL"
        " ORDER BY conversation_id, position"
    )
    conversation, session, before = "", 0, 0
    sessions: list[dict[str, object]] = []
    ends: dict[str, dict[str, object]] = {}
    for row in connection.execute(said):
        if row.conversation_id != conversation:
            conversation, session = str(row.conversation_id), 0
        elif abs(row.said_at - before) > _GAP_US:
            session += 1
        before = row.said_at
        sessions.append({"item": row.id, "session": session})
        ends[conversation] = {"conversation": conversation, "session": session, "said_at": before}
    if sessions:
        connection.execute(sa.text("UPDATE items SET session = :session WHERE id = :item"), sessions)
        connection.execute(
            sa.text("UPDATE conversations SET session = :session, said_at = :said_at WHERE id = :conversation"),
            list(ends.values()),
        )
