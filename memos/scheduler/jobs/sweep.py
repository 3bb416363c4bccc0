"""Sends a cube's segments where their heat says: hot ones to be read or back from the archive, cold ones into it.

Reads ranges of heat only, so it costs what moves; repeating it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import tasks
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.segments import ARCHIVED, OPEN, SegmentRow
from memos.scheduler.accesses import warmth_of
from memos.scheduler.cube_rules import CubeRules
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.rules import HeatRules
from memos.scheduler.task import Run
from memos.scheduler.triggers import is_hot

_MOVED_AT_ONCE = 64
# What just opened has had no time to be looked up.
GRACE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SweepJob:
    """Compares the segments of one cube with its thresholds and its capacity."""

    rules: CubeRules

    def run(self, run: Run) -> None:
        """Move what has to, at most so much a task, and leave a task for the rest."""
        with run.finishing() as connection:
            change = changes.begin(connection, run.task.cube, ACTOR, run.clock)
            self.rules.follow_share(connection, change.cube, change.now)
            rules = self.rules.ready(connection, change.cube)
            back = self._bring_back(change, rules)
            down = self._archive(change, rules)
            if self._hot_unread(connection, change.cube, rules, change.now):
                moves.enqueue(connection, change.cube, moves.analyse_task(), change.now)
            if max(back, down) == _MOVED_AT_ONCE:
                tasks.enqueue(connection, change.cube, [moves.sweep_task()], change.now)

    @staticmethod
    def _hot_unread(connection: sa.Connection, cube: str, rules: HeatRules, now: datetime) -> bool:
        level = rules.policy.level_of(rules.thresholds.promote_above, now) - rules.policy.slack
        return any(is_hot(segment, rules, now) for segment in moves.hot_unread(connection, cube, level, 8))

    @staticmethod
    def _bring_back(change: Change, rules: HeatRules) -> int:
        level = rules.policy.level_of(rules.thresholds.promote_above, change.now) - rules.policy.slack
        found = moves.revived(change.connection, change.cube, level, _MOVED_AT_ONCE)
        hot = [segment for segment in found if is_hot(segment, rules, change.now)]
        move(change, rules, hot, OPEN)
        return len(hot)

    def _archive(self, change: Change, rules: HeatRules) -> int:
        """Archive what is below the lower border, then the coldest beyond the capacity; unread ones are read first."""
        connection, cube = change.connection, change.cube
        level = rules.policy.level_of(rules.thresholds.demote_below, change.now)
        beyond = moves.border_of(connection, cube, rules.mid_capacity)
        if beyond is not None:
            # That one and all colder ones; "below" leaves the border itself out.
            level = max(level, _just_above(beyond))
        before = change.now - GRACE
        found = moves.cold(connection, cube, level, before, _MOVED_AT_ONCE)
        move(change, rules, found, ARCHIVED)
        for unread in moves.cold_unread(connection, cube, level, before, _MOVED_AT_ONCE):
            moves.enqueue(connection, cube, moves.analyse_task(segment=unread, cheaply=True), change.now)
        return len(found)


def _just_above(level: float) -> float:
    return level + max(1e-9, abs(level) * 1e-12)


def move(change: Change, rules: HeatRules, segments: Sequence[SegmentRow], state: str) -> None:
    """Archive segments or bring them back, and write down at which heat."""
    if not segments:
        return
    heats = {segment.id: rules.policy.heat(warmth_of(segment), change.now) for segment in segments}
    moves.set_state(change.connection, segments, state, change.now)
    tier = "archive" if state == ARCHIVED else "mid"
    body = {"tier": tier, "segments": list(heats), "heat": {id_: round(heat, 4) for id_, heat in heats.items()}}
    changes.record(change, "move", body)
