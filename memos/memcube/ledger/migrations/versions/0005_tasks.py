"""Add background tasks, their queues and usage, leases of periodic jobs, and the trust of messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_WAITING = sa.text("state = 'waiting'")
_RUNNING = sa.text("state = 'running'")
_SERVED = sa.text("turn IS NOT NULL")
_UNSERVED = sa.text("turn IS NULL")


def upgrade() -> None:
    """Add four tables and a column; existing messages are trusted."""
    op.add_column("messages", sa.Column("trust", sa.String(16), nullable=False, server_default="trusted"))
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("cube_id", sa.String(128), nullable=False),
        sa.Column("scope", sa.JSON, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_owner", sa.String(128)),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("not_before", sa.BigInteger, nullable=False),
        sa.Column("idempotency_key", sa.String(256)),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("progress", sa.Float, nullable=False, server_default="0"),
        sa.Column("note", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("seconds", sa.Float, nullable=False, server_default="0"),
        sa.CheckConstraint(
            "(state = 'running') = (lease_owner IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)",
            name="ck_tasks_lease",
        ),
        sa.CheckConstraint("progress >= 0 AND progress <= 1", name="ck_tasks_progress"),
    )
    for name, columns, unique, where in (
        ("uq_tasks_waiting", ["cube_id", "kind", "idempotency_key"], True, _WAITING),
        ("ix_tasks_next", ["cube_id", "priority", "id"], False, _WAITING),
        ("ix_tasks_due", ["cube_id", "not_before"], False, _WAITING),
        ("ix_tasks_leases", ["lease_until"], False, _RUNNING),
    ):
        op.create_index(name, "tasks", columns, unique=unique, sqlite_where=where, postgresql_where=where)
    op.create_index("ix_tasks_finished", "tasks", ["finished_at"])
    op.create_table(
        "queues",
        sa.Column("cube_id", sa.String(128), primary_key=True),
        sa.Column("weight", sa.Float, nullable=False, server_default="1"),
        sa.Column("turn", sa.Float),
        sa.Column("due", sa.BigInteger),
        sa.CheckConstraint("weight > 0", name="ck_queues_weight"),
        sa.CheckConstraint("turn IS NULL OR due IS NOT NULL", name="ck_queues_turn"),
    )
    op.create_index("ix_queues_turn", "queues", ["turn", "cube_id"], sqlite_where=_SERVED, postgresql_where=_SERVED)
    op.create_index("ix_queues_due", "queues", ["due"], sqlite_where=_UNSERVED, postgresql_where=_UNSERVED)
    op.create_table(
        "usage",
        sa.Column("cube_id", sa.String(128), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("purpose", sa.String(32), primary_key=True),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
