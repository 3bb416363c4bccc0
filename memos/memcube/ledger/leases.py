"""Who fires a periodic job: one process in a period, whoever comes first."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.memcube.ledger import queues
from memos.memcube.ledger.postgres import MOST_SKEW
from memos.memcube.ledger.schema import leases


def due(connection: sa.Connection, name: str, now: datetime, every: timedelta) -> bool:
    """Say whether nobody has fired the job within the period."""
    until: datetime | None = connection.scalar(sa.select(leases.c.until).where(leases.c.name == name))
    return until is None or _over(connection, until, now, every)


def fire(connection: sa.Connection, name: str, owner: str, now: datetime, every: timedelta) -> bool:
    """Claim this period's firing; False when another process has it."""
    mine = {"owner": owner, "until": now + every}
    if queues.insert_new(connection, leases, {"name": name, **mine}):
        return True
    until = connection.execute(sa.select(leases.c.until).where(leases.c.name == name).with_for_update()).scalar_one()
    if not _over(connection, until, now, every):
        return False
    connection.execute(sa.update(leases).where(leases.c.name == name).values(mine))
    return True


def _over(connection: sa.Connection, until: datetime, now: datetime, every: timedelta) -> bool:
    # Later than a whole period, and not because another process's clock is ahead of this one's: the clock was set
    # back, or the period made shorter.
    ahead = timedelta(0) if connection.dialect.name == "sqlite" else 2 * MOST_SKEW
    return until <= now or until > now + every + ahead
