"""Add `memos_casefold` to PostgreSQL, so that `like` folds case as in Python; SQLite calls Python's own function."""

from __future__ import annotations

from alembic import op

from memos.memcube.ledger.postgres import fold_function

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the function."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(fold_function().replace("%", "%%"))
