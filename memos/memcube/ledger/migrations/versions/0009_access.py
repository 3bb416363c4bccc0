"""Add users, agents and groups, their roles on cubes, and API keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add four tables; without identities the installation still has one user and no access checks."""
    op.create_table(
        "identities",
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("admin", sa.Boolean, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("home", sa.String(128)),
        sa.Column("acts_for", sa.String(128)),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memberships",
        sa.Column("group_id", sa.String(128), sa.ForeignKey("identities.id"), primary_key=True),
        sa.Column("member_id", sa.String(128), sa.ForeignKey("identities.id"), primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_memberships_member", "memberships", ["member_id"])
    op.create_table(
        "grants",
        sa.Column("cube_id", sa.String(128), sa.ForeignKey("cubes.id"), primary_key=True),
        sa.Column("identity_id", sa.String(128), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_grants_identity", "grants", ["identity_id"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("identity_id", sa.String(128), sa.ForeignKey("identities.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("rights", sa.JSON, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("last_used_at", sa.BigInteger),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_index("ix_api_keys_identity", "api_keys", ["identity_id"])
    op.create_index("ix_cubes_owner", "cubes", ["owner"])
