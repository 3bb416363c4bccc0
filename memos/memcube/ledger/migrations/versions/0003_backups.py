"""Add backups and the erasures recorded in them, the ledger's id, and text columns without a length limit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from memos.core.clock import new_id

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both tables and the ledger's id, and remove length limits, which SQLite does not enforce."""
    op.create_table(
        "backups",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("newest", sa.BigInteger),
    )
    op.create_table(
        "tombstone_backups",
        sa.Column("tombstone_id", sa.String(36), sa.ForeignKey("tombstones.id"), primary_key=True),
        sa.Column("backup_id", sa.String(36), sa.ForeignKey("backups.id"), primary_key=True),
        sa.Column("told", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.get_bind().execute(
        sa.text(
            "INSERT INTO meta (key, value) SELECT 'ledger_id', CAST(:id AS VARCHAR(36))"
            " WHERE NOT EXISTS (SELECT 1 FROM meta WHERE key = 'ledger_id')"
        ),
        {"id": new_id()},
    )
    # SQLite ignores lengths, and changing a column type there would rewrite the whole table.
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column("versions", "key", type_=sa.Text)
        op.alter_column("cubes", "embedder", type_=sa.Text)
        op.alter_column("cubes", "prefix_rule", type_=sa.Text)
