"""Looks at segments whose heat was just written, and enqueues what follows: reading them, or bringing them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.segments import ARCHIVED, SegmentRow
from memos.scheduler.accesses import warmth_of
from memos.scheduler.rules import HeatRules

GATHERED = 8
"""Unread pages that a model reads at once; fewer wait for the next sweep, so that no page costs a call of its own."""


@dataclass(frozen=True, slots=True)
class Triggers:
    """What heat and growth cause; `reads` says whether reading asks a model, `tells` whether summaries do."""

    reads: Callable[[], bool]
    tells: Callable[[], bool]

    @property
    def least_pages(self) -> int:
        """Return how many unread pages a hot segment has to have before it is read."""
        return GATHERED if self.reads() else 1

    def warmed(
        self, connection: sa.Connection, cube: str, rules: HeatRules, touched: Iterable[SegmentRow], now: datetime
    ) -> None:
        """Enqueue what hot ones among these segments need."""
        hot = [segment for segment in touched if is_hot(segment, rules, now)]
        if any(segment.state == ARCHIVED for segment in hot):
            moves.enqueue(connection, cube, moves.sweep_task(), now)
        unread = [segment for segment in hot if segment.unread and segment.state != ARCHIVED]
        least = self.least_pages
        if any(least == 1 or moves.unread_count(connection, segment.id) >= least for segment in unread):
            moves.enqueue(connection, cube, moves.analyse_task(least=least), now)

    def grown(
        self, connection: sa.Connection, cube: str, rules: HeatRules, touched: Iterable[SegmentRow], now: datetime
    ) -> None:
        """Enqueue what segments with new pages need; reading writes a summary too, so what is read is not told."""
        touched = list(touched)
        self.warmed(connection, cube, rules, touched, now)
        if not self.tells():
            return
        for segment in touched:
            if segment.pages - segment.told_pages >= GATHERED and not (self.reads() and is_hot(segment, rules, now)):
                moves.enqueue(connection, cube, moves.summarise_task(segment.id), now)


def is_hot(segment: SegmentRow, rules: HeatRules, now: datetime) -> bool:
    """Say whether a segment's heat has reached the upper border."""
    return rules.policy.heat(warmth_of(segment), now) >= rules.thresholds.promote_above
