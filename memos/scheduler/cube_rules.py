"""The heat rules of each cube: settings are the installation's, tau is the cube's own and stands in the ledger.

Levels counted under another tau or policy mean other heats, so whoever writes levels asks here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.core.settings import HeatSettings
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.schema import segments, warmth
from memos.scheduler.heat import ForwardDecay
from memos.scheduler.policy import Policy, Warmth
from memos.scheduler.rules import HeatRules, rules_of, wanted_tau

# In place of a tau: levels are those of `memoryos`.
_COUNTS = 0.0
# A tau that is less off than this is not worth writing every level of a cube.
_OFF = 1.25
_BATCH = 500


@dataclass(frozen=True, slots=True)
class CubeRules:
    """What the tiers of each cube go by."""

    settings: HeatSettings

    def of(self, connection: sa.Connection, cube: str) -> HeatRules:
        """Return the rules under which a cube's levels were counted."""
        tau_s = moves.tau_of(connection, cube)
        return rules_of(self.settings, timedelta(seconds=tau_s) if tau_s else None)

    def ready(self, connection: sa.Connection, cube: str) -> HeatRules:
        """Return the rules for writing levels of a cube, in a transaction that holds the cube.

        Levels of another policy are counted anew first.
        """
        tau_s, counts = moves.tau_of(connection, cube), self.settings.policy == "memoryos"
        if tau_s is None:
            wanted = _COUNTS if counts else wanted_tau(self.settings).total_seconds()
            moves.set_tau(connection, cube, wanted)
        elif (tau_s == _COUNTS) is not counts:
            wanted = _COUNTS if counts else wanted_tau(self.settings).total_seconds()
            moves.set_tau(connection, cube, wanted)
            _recount(connection, cube, self.of(connection, cube).policy)
        return self.of(connection, cube)

    def follow_share(self, connection: sa.Connection, cube: str, now: datetime) -> bool:
        """Give a cube the tau that suits its size now if it is far off, and keep every heat; say whether it did."""
        rules = self.ready(connection, cube)
        tau_s = moves.tau_of(connection, cube)
        if not tau_s:
            return False
        known = moves.count(connection, cube) if self.settings.tau_days is None else 0
        wanted = wanted_tau(self.settings, min(1.0, rules.mid_capacity / max(1, known))).total_seconds()
        if (1 / _OFF < tau_s / wanted < _OFF and self.settings.tau_days is None) or tau_s == wanted:
            return False
        shift = ForwardDecay.shift(timedelta(seconds=tau_s), timedelta(seconds=wanted), now)
        moves.set_tau(connection, cube, wanted, shift)
        return True


def _recount(connection: sa.Connection, cube: str, policy: Policy) -> None:
    """Give every level of a cube the value that its counts have under a policy."""
    for table, key in ((segments, segments.c.id), (warmth, warmth.c.item_id)):
        for rows in _pages(connection, table, key, cube):
            for row in rows:
                after = policy.recounted(Warmth(row.level, row.visits, row.interactions, row.last))
                connection.execute(sa.update(table).where(key == row.key).values(level=after.level))


def _pages(
    connection: sa.Connection, table: sa.Table, key: sa.Column[str], cube: str
) -> Iterator[list[sa.Row[tuple[object, ...]]]]:
    last = ""
    columns = (key.label("key"), table.c.level, table.c.visits, table.c.interactions, table.c.last)
    while True:
        query = sa.select(*columns).where(table.c.cube_id == cube, key > last).order_by(key).limit(_BATCH)
        rows = list(connection.execute(query))
        if not rows:
            return
        yield rows
        last = rows[-1].key
