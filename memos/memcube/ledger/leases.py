"""Who fires a periodic job: one process in a period, whoever comes first."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.memcube.ledger import queues
from memos.memcube.ledger.schema import leases


def due(connection: sa.Connection, name: str, now: datetime, every: timedelta) -> bool:
    """Say whether nobody has fired the job within the period."""
    until: datetime | None = connection.scalar(sa.select(leases.c.until).where(leases.c.name == name))
    return until is None or _over(until, now, every)


def fire(connection: sa.Connection, name: str, owner: str, now: datetime, every: timedelta) -> bool:
    """Claim this period's firing; False when another process has it."""
    mine = {"owner": owner, "until": now + every}
    if queues.insert_new(connection, leases, {"name": name, **mine}):
        return True
    until = connection.execute(sa.select(leases.c.until).where(leases.c.name == name).with_for_update()).scalar_one()
    if not _over(until, now, every):
        return False
    connection.execute(sa.update(leases).where(leases.c.name == name).values(mine))
    return True


def _over(until: datetime, now: datetime, every: timedelta) -> bool:
    # Later than a whole period: the clock was set back, or the period made shorter.
    return until <= now or until > now + every
