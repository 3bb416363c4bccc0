"""What background work spent, by cube, UTC day and purpose: language model calls and tokens, and seconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from memos.core.types import WHOLE
from memos.memcube.ledger import queues
from memos.memcube.ledger.schema import cubes as known
from memos.memcube.ledger.schema import usage


@dataclass(frozen=True, slots=True)
class Spending:
    """Calls and tokens of language models, and seconds of work."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Return the tokens of both directions."""
        return self.prompt_tokens + self.completion_tokens


def add(connection: sa.Connection, cube: str, purpose: str, now: datetime, spending: Spending) -> None:
    """Add to what a cube spent today."""
    where = (usage.c.cube_id == cube, usage.c.day == _day(now), usage.c.purpose == purpose)
    start = {"cube_id": cube, "day": _day(now), "purpose": purpose}
    nothing = dict.fromkeys(("calls", "prompt_tokens", "completion_tokens", "seconds"), 0)
    queues.insert_new(connection, usage, {**start, **nothing})
    sums = {
        "calls": usage.c.calls + spending.calls,
        "prompt_tokens": usage.c.prompt_tokens + spending.prompt_tokens,
        "completion_tokens": usage.c.completion_tokens + spending.completion_tokens,
        "seconds": usage.c.seconds + spending.seconds,
    }
    connection.execute(sa.update(usage).where(*where).values(sums))


def today(connection: sa.Connection, cube: str, now: datetime, besides: Collection[str] = ()) -> Spending:
    """Return what a cube spent since midnight UTC, without these purposes."""
    columns = (usage.c.calls, usage.c.prompt_tokens, usage.c.completion_tokens, usage.c.seconds)
    query = sa.select(*(sa.func.sum(column) for column in columns))
    query = query.where(usage.c.cube_id == cube, usage.c.day == _day(now), usage.c.purpose.not_in(besides))
    row = connection.execute(query).one()
    return Spending(int(row[0] or 0), int(row[1] or 0), int(row[2] or 0), float(row[3] or 0.0))


def seconds_today(connection: sa.Connection, purpose: str, now: datetime) -> float:
    """Return the seconds of work that all cubes together spent on a purpose since midnight UTC."""
    query = sa.select(sa.func.sum(usage.c.seconds)).where(usage.c.day == _day(now), usage.c.purpose == purpose)
    return float(connection.scalar(query.where(usage.c.cube_id.in_(_every_cube()))) or 0.0)


def tokens_today(connection: sa.Connection, cubes: Sequence[str] | None, now: datetime) -> dict[str, int]:
    """Return the tokens these cubes, without a list all, spent since midnight UTC; cubes without any are left out."""
    query = sa.select(usage.c.cube_id, sa.func.sum(usage.c.prompt_tokens + usage.c.completion_tokens))
    query = query.where(usage.c.cube_id.in_(_every_cube() if cubes is None else cubes), usage.c.day == _day(now))
    return {cube: int(tokens) for cube, tokens in connection.execute(query.group_by(usage.c.cube_id)) if tokens}


def next_day(now: datetime) -> datetime:
    """Return when a new day's budget begins."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + timedelta(days=1)


def _every_cube() -> sa.CompoundSelect[tuple[str]]:
    # The key begins with the cube, so the days of all cubes are looked up cube by cube.
    return sa.select(known.c.id).union_all(sa.select(sa.literal(WHOLE)))


def _day(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y-%m-%d}"
