"""Add files and their chunks, the kind and masking of cubes, and the state of `fine` extraction of messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add three tables and three columns; existing cubes are of the kind `memory`."""
    op.add_column("cubes", sa.Column("kind", sa.String(16), nullable=False, server_default="memory"))
    op.add_column("cubes", sa.Column("redact_pii", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("items", sa.Column("reading", sa.String(8)))
    wanted = sa.text("reading = 'wanted'")
    op.create_index(
        "ix_items_wanted",
        "items",
        ["cube_id", "conversation_id", "id"],
        sqlite_where=wanted,
        postgresql_where=wanted,
    )
    op.create_table(
        "files",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("media_type", sa.String(128), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("info", sa.JSON, nullable=False),
        sa.Column("item_id", sa.String(36)),
        sa.Column("replaced_by", sa.String(36)),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.CheckConstraint("bytes >= 0", name="ck_files_bytes"),
    )
    op.create_index("ix_files_cube", "files", ["cube_id", "created_at", "id"])
    op.create_index("ix_files_digest", "files", ["cube_id", "sha256"])
    op.create_index("ix_files_item", "files", ["item_id"])
    op.create_table(
        "file_parts",
        sa.Column("file_id", sa.String(36), sa.ForeignKey("files.id"), primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "file_items",
        sa.Column("item_id", sa.String(36), sa.ForeignKey("items.id"), primary_key=True),
        sa.Column("file_id", sa.String(36), sa.ForeignKey("files.id"), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("start", sa.Integer, nullable=False),
        sa.Column("end", sa.Integer, nullable=False),
        sa.Column("page", sa.Integer),
        sa.CheckConstraint('start >= 0 AND "end" >= start', name="ck_file_items_span"),
    )
    op.create_index("ix_file_items_file", "file_items", ["file_id", "ordinal"])
