"""Keep the indexes consistent with the ledger: the worker thread, verification, repair and rebuilds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from memos.core.types import Difference, VerifyReport
from memos.errors import BackendUnavailable, MemosError
from memos.memcube import verify
from memos.memcube.indexing.projection import Projection
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.outbox import Target
from memos.memcube.verify import ScannedIndex

Progress = Callable[[int, int], None]

_STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class Repair:
    ledger: Ledger
    indexes: Mapping[Target, ScannedIndex]
    projections: Mapping[Target, Projection]

    def verify(self, cube_ids: Sequence[str], *, repair: bool, strangers: bool) -> VerifyReport:
        """Compare the indexes with the ledger; `repair` projects items that differ again, and compares again.

        `strangers` also looks for points of cubes that the ledger does not know. A damaged ledger is never repaired.
        """
        # An unavailable index is reported as a difference below.
        with suppress(BackendUnavailable):
            self.catch_up(retry_parked=repair)
        before, ahead = self._differences(cube_ids, strangers=strangers)
        report = before
        if repair and before.differences:
            self._requeue(before.differences, cube_ids, ahead)
            self.catch_up()
            report, _ = self._differences(cube_ids, strangers=strangers)
        fixed = len(before.differences) - len(report.differences)
        return VerifyReport(report.items, report.checked, report.differences, max(0, fixed))

    def lost_writes(self) -> None:
        """Requeue what an index has lost since the last flush recorded in the ledger; cheap if nothing was lost."""
        for target, projection in self.projections.items():
            if not projection.lost_writes():
                continue
            with self.ledger.read() as connection:
                known = verify.cube_ids(connection)
            index = self.indexes[target]
            for cube in known:
                found = verify.index_differences(self.ledger, target, index, cube)
                verify.enqueue_some(self.ledger, cube, found.differences, target, found.ahead)
            if known:
                self._requeue(self._strangers(target, index), known, {})
            projection.compared()

    def reindex(self, cube_ids: Sequence[str], on_progress: Progress | None = None) -> int:
        total = sum(verify.enqueue_all(self.ledger, cube) for cube in cube_ids)
        self.catch_up(None if on_progress is None else lambda left: on_progress(max(0, total - left), total))
        return total

    def catch_up(self, on_left: Callable[[int], None] | None = None, *, retry_parked: bool = True) -> bool:
        """Apply what waits, to the end; return False if some was refused too often."""
        complete = True
        for projection in self.projections.values():
            if retry_parked:
                projection.retry_parked()
            while not projection.drain(_STEP_S):
                if projection.last_error is not None:
                    raise projection.last_error
                if projection.stuck():
                    # Also where another thread has applied the last one: then nothing is left.
                    complete = complete and not projection.left()
                    break
                if on_left is not None:
                    on_left(projection.left())
            projection.flush()
        if on_left is not None:
            on_left(0)
        return complete

    def _differences(
        self, cube_ids: Sequence[str], *, strangers: bool
    ) -> tuple[VerifyReport, dict[Target, dict[str, int]]]:
        """Return the report, and by index the revisions there of items whose revision in the ledger is lower."""
        ahead: dict[Target, dict[str, int]] = {}
        found = verify.ledger_differences(self.ledger, cube_ids)
        checked: dict[str, int] = {}
        for target, index in self.indexes.items():
            try:
                for cube in cube_ids:
                    one = verify.index_differences(self.ledger, target, index, cube)
                    checked[target] = checked.get(target, 0) + one.checked
                    found += one.differences.values()
                    ahead.setdefault(target, {}).update(one.ahead)
                if strangers:
                    found += self._strangers(target, index)
            except BackendUnavailable as error:
                found.append(Difference(target, "unavailable", target, str(error)))
        with self.ledger.read() as connection:
            total = verify.count_items(connection, cube_ids)
        return VerifyReport(total, checked, tuple(found), 0), ahead

    def _strangers(self, target: Target, index: ScannedIndex) -> list[Difference]:
        with self.ledger.read() as connection:
            known = set(verify.cube_ids(connection))
        return [
            Difference(target, "extra", stamp.item, f"belongs to the unknown cube {cube}")
            for cube in index.cubes()
            if cube not in known
            for stamp in index.scan(cube)
        ]

    def _requeue(
        self,
        differences: Sequence[Difference],
        cube_ids: Sequence[str],
        ahead: Mapping[Target, Mapping[str, int]],
    ) -> None:
        for target in self.indexes:
            wrong = [d.subject for d in differences if d.store == target and d.kind in ("missing", "outdated", "extra")]
            if wrong:
                verify.enqueue_some(self.ledger, cube_ids[0], dict.fromkeys(wrong), target, ahead.get(target, {}))
        if any(d.kind == verify.NAMES for d in differences):
            verify.read_names_again(self.ledger, cube_ids)


_TICK_S = 0.25
_DRAIN_S = 5.0
_BACKOFF_MAX_S = 30.0

log = logging.getLogger("memos.worker")


class Worker:
    def __init__(self, projections: Sequence[Projection], chores: Sequence[Callable[[], object]]) -> None:
        self._projections = projections
        self._chores = chores
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memos-worker", daemon=True)
        self.last_error: str | None = None

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        if not self.running:
            self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = _TICK_S
        while not self._stop.wait(pause):
            pause = _TICK_S if self._tick() else min(pause * 2, _BACKOFF_MAX_S)

    def _tick(self) -> bool:
        self.last_error = None
        for step in (*(self._follow(projection) for projection in self._projections), *self._chores):
            if self._stop.is_set():
                break
            try:
                step()
            except MemosError as error:
                if not self._stop.is_set():
                    self._failed(error)
            except Exception as error:
                self._failed(error)
                log.exception("upkeep failed unexpectedly")
        return self.last_error is None

    def _failed(self, error: Exception) -> None:
        self.last_error = f"{type(error).__name__}: {error}"
        log.warning("upkeep failed: %s", self.last_error)

    @staticmethod
    def _follow(projection: Projection) -> Callable[[], object]:
        def follow() -> None:
            projection.drain(_DRAIN_S)
            if projection.last_error is not None:
                raise projection.last_error
            projection.flush_if_due()

        return follow
