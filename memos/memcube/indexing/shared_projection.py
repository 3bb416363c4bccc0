"""Follows the ledger with an index on a server, which any number of processes write: rows are claimed one by one.

Needs PostgreSQL. A claim is a row lock and, for the item, an advisory lock; both end with the transaction, so what a
dead process had claimed is free again at once. The server keeps what it acknowledged, so a row leaves the outbox in the
transaction that applied it; the marks only show when a server was set back to an older state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial

from memos.core.settings import IndexSettings
from memos.errors import BackendUnavailable, MemosError
from memos.memcube.indexing.projection import Follower, project
from memos.memcube.ledger import outbox
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.outbox import OutboxRow, Target

# Small, so that several processes share what waits.
_BATCH = 64
_PAUSE_S = (0.005, 0.1)
_WRITERS = 4


class SharedProjection:
    """One of the writers of an index on a server."""

    def __init__(self, ledger: Ledger, target: Target, follower: Follower, settings: IndexSettings) -> None:
        self.target = target
        self.last_error: MemosError | None = None
        self._ledger = ledger
        self._follower = follower
        self._settings = settings
        self._lock = threading.Lock()
        # Each writer holds a connection and needs another while it holds it.
        self._turns = threading.BoundedSemaphore(_WRITERS)
        self._unmarked = False
        self._flushed_at = time.monotonic()
        # Items whose claim was lost with the ledger's connection: another writer's newer state may be overwritten.
        self._doubtful: dict[str, list[str]] = {}

    def lost_writes(self) -> bool:
        """Say whether the index is older than the ledger's record of its marks."""
        first, index, last = self._known_mark(), self._follower.mark(), self._known_mark()
        # Others may flush meanwhile; one ahead is a flush whose confirmation is under way or was cut off.
        return not first <= index <= last + 1

    def drain(self, wait_s: float) -> bool:
        """Apply what waits until nothing is left that waited at the start, for at most about `wait_s`."""
        deadline = time.monotonic() + wait_s
        if not self._turns.acquire(timeout=max(0.0, wait_s)):
            return False
        try:
            return self._drain_until(deadline)
        except BackendUnavailable as error:
            self.last_error = error
            return False
        finally:
            self._turns.release()

    def _drain_until(self, deadline: float) -> bool:
        pause, slowest = _PAUSE_S
        tried: set[int] = set()
        self._requeue_doubtful()
        with self._ledger.read() as connection:
            horizon = outbox.newest(connection, self.target)
        while horizon is not None:
            if self._apply_some(tried):
                pause = _PAUSE_S[0]
            else:
                with self._ledger.read() as connection:
                    left = outbox.any_up_to(connection, self.target, horizon)
                if not left:
                    break
                if tried or time.monotonic() + pause >= deadline:
                    return False
                # Another writer has claimed what is left.
                time.sleep(pause)
                pause = min(slowest, pause * 2)
            if time.monotonic() >= deadline:
                with self._ledger.read() as connection:
                    return not outbox.any_up_to(connection, self.target, horizon)
        self.last_error = None
        return True

    def flush_if_due(self) -> None:
        """Leave a mark when changes were applied a while ago. Raises: BackendUnavailable."""
        if time.monotonic() - self._flushed_at >= self._settings.flush_every_s:
            self.flush()

    def flush(self) -> None:
        """Leave a mark of what was applied. Raises: BackendUnavailable."""
        with self._lock:
            if not self._unmarked:
                return
            self._unmarked = False
            try:
                with self._ledger.write() as connection:
                    mark = outbox.next_mark(connection, self.target)
                    self._follower.flush(mark)
                    outbox.set_mark(connection, self.target, mark)
            except BaseException:
                self._unmarked = True
                raise
            self._flushed_at = time.monotonic()

    def pending(self, cubes: Sequence[str], limit: int) -> list[str]:
        """Return items of these cubes with a row left, newest change first."""
        with self._ledger.read() as connection:
            return outbox.items_after(connection, self.target, cubes, 0, limit)

    def stuck(self) -> bool:
        """Say whether only parked rows are left."""
        with self._ledger.read() as connection:
            return outbox.newest(connection, self.target) is None

    def retry_parked(self) -> None:
        """Give parked rows another chance."""
        with self._ledger.write() as connection:
            outbox.unpark(connection, self.target)

    def _known_mark(self) -> int:
        with self._ledger.read() as connection:
            return outbox.mark(connection, self.target)

    def _apply_some(self, tried: set[int]) -> bool:
        """Claim some rows, apply them and take them out of the outbox; False when there was nothing to claim."""
        done: list[OutboxRow] = []
        try:
            with self._ledger.write() as connection:
                rows = outbox.claim(connection, self.target, _BATCH, tried)
                done, refused = self._apply(rows)
                outbox.remove(connection, [row.id for row in done])
                for row, error in refused:
                    outbox.failed(connection, row, str(error), self._settings.park_after)
        except BaseException:
            for row in done:
                self._doubtful.setdefault(row.cube, []).append(row.item)
            raise
        tried.update(row.id for row, _ in refused)
        self._unmarked = self._unmarked or bool(done)
        return bool(rows)

    def _apply(self, rows: Sequence[OutboxRow]) -> tuple[list[OutboxRow], list[tuple[OutboxRow, MemosError]]]:
        """Project a batch; when it is refused, row by row, so that one poisoned item holds up no other."""
        if not rows:
            return [], []
        apply = partial(project, self._follower, self.target)
        try:
            apply(rows)
            return list(rows), []
        except BackendUnavailable:
            raise
        except MemosError as error:
            if len(rows) == 1:
                return [], [(rows[0], error)]
        done: list[OutboxRow] = []
        refused: list[tuple[OutboxRow, MemosError]] = []
        for row in rows:
            one, other = self._apply([row])
            done += one
            refused += other
        return done, refused

    def _requeue_doubtful(self) -> None:
        """Have items written again that were being written when the claim on them was lost."""
        if not self._doubtful:
            return
        doubtful, self._doubtful = self._doubtful, {}
        try:
            with self._ledger.write() as connection:
                for cube, ids in doubtful.items():
                    outbox.enqueue(connection, cube, dict.fromkeys(ids), (self.target,))
        except BaseException:
            self._doubtful = doubtful
            raise
