"""Chain the access log, and count the forms of an erasure before and after it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and chain what is in the log."""
    for column in (
        sa.Column("number", sa.BigInteger),
        sa.Column("salt", sa.LargeBinary(16)),
        sa.Column("digest", sa.LargeBinary(32)),
        sa.Column("chain", sa.LargeBinary(32)),
    ):
        op.add_column("access_log", column)
    op.create_index("uq_access_log_number", "access_log", ["number"], unique=True)
    op.create_index("ix_access_log_subject", "access_log", ["subject"])
    op.add_column("tombstones", sa.Column("forms", sa.JSON, nullable=False, server_default="{}"))
    # Imported late: the chain is made by the code of today, from columns that are there from now on.
    from memos.memcube.ledger import audit_chain  # noqa: PLC0415

    audit_chain.adopt(op.get_bind())
