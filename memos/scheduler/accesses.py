"""Buffer accesses in memory and write them in batches, so that no search waits for a write.

A crash loses the accesses of the last seconds, never a memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.errors import NotFound
from memos.memcube.ledger import cubes, items, queues, tier_moves
from memos.memcube.ledger import segments as segment_rows
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import items as item_rows
from memos.memcube.ledger.schema import warmth
from memos.memcube.ledger.segments import ARCHIVED, SegmentRow
from memos.scheduler.heat import Access, History, Policy, Warmth, remembered
from memos.scheduler.rules import CubeRules, HeatRules

_MOST_WAITING = 10_000
_FLUSH_EVERY_S = 5.0
# Seconds after which a transaction takes no further cube; one with some hundred accesses takes that long by itself.
_COMMIT_S = 0.02

_WARMTH = PreparedSelect(
    sa.select(item_rows.c.id, warmth.c.level, warmth.c.visits, warmth.c.interactions, warmth.c.last, warmth.c.history)
    .select_from(item_rows.outerjoin(warmth, warmth.c.item_id == item_rows.c.id))
    .where(
        item_rows.c.id.in_(sa.bindparam("ids", expanding=True)),
        item_rows.c.cube_id.in_(sa.bindparam("cubes", expanding=True)),
    )
)

# Called with a cube's segments in the transaction that wrote their heat.
Warmed = Callable[[sa.Connection, str, HeatRules, Iterable[SegmentRow], datetime], None]


@dataclass(frozen=True, slots=True)
class PendingAccess:
    cube: str
    item: str
    access: Access
    at: datetime


class Accesses:
    """The buffered accesses of one process; thread-safe."""

    def __init__(self, ledger: Ledger, clock: Clock, rules: CubeRules, warmed: Warmed) -> None:
        self._ledger = ledger
        self._clock = clock
        self._rules = rules
        self._warmed = warmed
        self._waiting: list[PendingAccess] = []
        self._lock = threading.Lock()
        # One flush at a time: when `flush` returns, what was recorded before is written, whoever took it to write.
        self._writing = threading.Lock()
        self._flushed_at = time.monotonic()

    def record(self, found: Iterable[tuple[str, str]], access: Access) -> None:
        """Buffer an access of these (cube, item) pairs; dropped if 10,000 are waiting to be written."""
        now = self._clock.now()
        counted = [PendingAccess(cube, item, access, now) for cube, item in found]
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting += counted

    def flush_if_due(self) -> None:
        if time.monotonic() - self._flushed_at >= _FLUSH_EVERY_S:
            self._flushed_at = time.monotonic()
            self._flush(yields=True)

    def flush(self) -> None:
        """Write the heat of items and their segments; after a failure the next flush tries again."""
        self._flush(yields=False)

    def _flush(self, *, yields: bool) -> None:
        with self._writing:
            self._write_waiting(yields=yields)

    def _write_waiting(self, *, yields: bool) -> None:
        with self._lock:
            counted, self._waiting = self._waiting, []
        by_cube: dict[str, list[PendingAccess]] = {}
        for one in counted:
            by_cube.setdefault(one.cube, []).append(one)
        try:
            while by_cube:
                began = time.monotonic()
                written = self._write_some(by_cube, began + _COMMIT_S)
                for cube in written:
                    del by_cube[cube]
                if yields and by_cube:
                    time.sleep(time.monotonic() - began)
        finally:
            with self._lock:
                self._waiting = [one for left in by_cube.values() for one in left] + self._waiting

    def _write_some(self, by_cube: Mapping[str, Sequence[PendingAccess]], until: float) -> list[str]:
        """Write cubes in one transaction until `until`, at least one; on PostgreSQL, which locks its row, only one."""
        written: list[str] = []
        with self._ledger.write() as connection:
            for cube, counted in by_cube.items():
                # The cube may have been dropped meanwhile.
                with suppress(NotFound):
                    cubes.lock(connection, cube)
                    self._write(connection, cube, counted)
                written.append(cube)
                if time.monotonic() >= until or not self._ledger.is_sqlite:
                    break
        return written

    def _write(self, connection: sa.Connection, cube: str, counted: Sequence[PendingAccess]) -> None:
        now = self._clock.now()
        rules = self._rules.ready(connection, cube)
        warm, histories = _stored_warmth(connection, cube, {one.item for one in counted})
        for one in counted:
            if one.item in warm:
                before, at = warm[one.item], min(one.at, now)
                after = warm[one.item] = rules.policy.accessed(before, one.access, one.at, now)
                heats = (rules.policy.heat(before, at), rules.policy.heat(after, at))
                histories[one.item] = remembered(histories[one.item], at, *heats)
        rows = [
            {"item_id": item, "cube_id": cube, "history": histories[item], **asdict(after)}
            for item, after in warm.items()
        ]
        queues.upsert(connection, warmth, rows)
        self._warmed(connection, cube, rules, _warm_segments(connection, rules.policy, counted, set(warm), now), now)


def _warm_segments(
    connection: sa.Connection, policy: Policy, counted: Sequence[PendingAccess], known: set[str], now: datetime
) -> list[SegmentRow]:
    origins = items.origins_of(connection, known)
    places = segment_rows.segments_by_item(connection, known.union(*origins.values()))
    segments = segment_rows.get_segments(connection, set(places.values()))
    for one in counted:
        said = {one.item, *origins.get(one.item, ())} if one.item in known else set()
        for segment_id in {places[item] for item in said if item in places}:
            segment = segments[segment_id]
            heat(segment, policy.accessed(warmth_of(segment), one.access, one.at, now))
    segment_rows.save_heats(connection, segments.values())
    return list(segments.values())


def warmth_of(segment: SegmentRow) -> Warmth:
    return Warmth(segment.level, segment.visits, segment.interactions, segment.last) if segment.last else Warmth()


def heat(segment: SegmentRow, warm: Warmth) -> None:
    segment.level = warm.level
    segment.visits = warm.visits
    segment.interactions = warm.interactions
    segment.last = warm.last


def _stored_warmth(
    connection: sa.Connection, cube: str, ids: Iterable[str]
) -> tuple[dict[str, Warmth], dict[str, History]]:
    found, histories = {}, {}
    for batch in items.in_batches(ids):
        for row in _WARMTH.rows(connection, ids=batch, cubes=[cube]):
            known = row.last is not None
            found[row.id] = Warmth(row.level, row.visits, row.interactions, row.last) if known else Warmth()
            histories[row.id] = row.history or []
    return found, histories


# Unread pages from which a model is called; fewer wait for the next sweep, so that no call is made for a single page.
MODEL_BATCH = 8


@dataclass(frozen=True, slots=True)
class Triggers:
    """Enqueues tasks for hot and growing segments; `reads` and `tells`: if a model extracts facts, writes summaries."""

    reads: Callable[[], bool]
    tells: Callable[[], bool]

    @property
    def least_pages(self) -> int:
        return MODEL_BATCH if self.reads() else 1

    def warmed(
        self, connection: sa.Connection, cube: str, rules: HeatRules, touched: Iterable[SegmentRow], now: datetime
    ) -> None:
        hot = [segment for segment in touched if is_hot(segment, rules, now)]
        if any(segment.state == ARCHIVED for segment in hot):
            tier_moves.enqueue(connection, cube, tier_moves.sweep_task(), now)
        unread = [segment for segment in hot if segment.unread and segment.state != ARCHIVED]
        least = self.least_pages
        if any(least == 1 or tier_moves.unread_count(connection, segment.id) >= least for segment in unread):
            tier_moves.enqueue(connection, cube, tier_moves.analyse_task(least=least), now)

    def grown(
        self, connection: sa.Connection, cube: str, rules: HeatRules, touched: Iterable[SegmentRow], now: datetime
    ) -> None:
        """Enqueue the tasks of segments with new pages; extraction also writes the summary."""
        touched = list(touched)
        self.warmed(connection, cube, rules, touched, now)
        if not self.tells():
            return
        for segment in touched:
            if segment.pages - segment.told_pages >= MODEL_BATCH and not (self.reads() and is_hot(segment, rules, now)):
                tier_moves.enqueue(connection, cube, tier_moves.summarise_task(segment.id), now)


def is_hot(segment: SegmentRow, rules: HeatRules, now: datetime) -> bool:
    return rules.policy.heat(warmth_of(segment), now) >= rules.thresholds.promote_above
