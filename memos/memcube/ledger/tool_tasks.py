"""The background task about calls of tools: what several of them show together, and what an erasure left of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from memos.memcube.ledger import tasks
from memos.memcube.ledger.items import in_batches
from memos.memcube.ledger.tasks import NewTask

TOOLS = "tools"


def enqueue(
    connection: sa.Connection, cube: str, messages: Iterable[str], now: datetime, *, again: bool = False
) -> None:
    """Have skills looked for around messages of tools; with `again` their trajectories are made anew first."""
    new = [
        NewTask(TOOLS, {"messages": batch, **({"again": True} if again else {})})
        for batch in in_batches(sorted(set(messages)))
    ]
    if new:
        tasks.enqueue(connection, cube, new, now)
