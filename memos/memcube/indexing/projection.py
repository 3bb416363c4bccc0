"""Make an index follow the ledger: apply outbox rows, and confirm them after a flush.

`OwnProjection` serves an index of this process, `SharedProjection` one that several processes write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from memos.errors import BackendUnavailable, IntegrityError, MemosError
from memos.memcube.ledger import outbox
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.outbox import OutboxRow, Target

_BATCH = 128  # about a second of embedding; a batch of twice as many is embedded 4 % quicker (docs/development/log.md)


class IndexWriter(Protocol):
    def project(self, item_ids: Sequence[str], following: Sequence[str] = ()) -> None:
        """Write the items' current state to the index; visible at once, durable after `flush`.

        `following` are items that are projected next, which may be prepared in the background.
        """
        ...

    def flush(self, mark: int) -> None:
        """Make writes durable, together with the mark."""
        ...

    def mark(self) -> int: ...

    def restart_count(self) -> int:
        """Return a number that grows when the engine restarted and unflushed writes were lost."""
        ...


class Projection(Protocol):
    """Makes one index follow the ledger. Thread-safe."""

    target: Target
    last_error: MemosError | None

    def drain(self, wait_s: float) -> bool:
        """Apply pending changes for at most about `wait_s`; return True if the index is up to date.

        Never raises: an unavailable index ends the drain and is kept in `last_error`.
        """
        ...

    def flush(self) -> None:
        """Make applied changes durable, so that their rows leave the outbox."""
        ...

    def flush_if_due(self) -> None: ...

    def pending(self, cubes: Sequence[str], limit: int) -> list[str]: ...

    def is_behind(self, rows: int) -> bool:
        """Return True if so many changes, or more, are not applied."""
        ...

    def left(self) -> int:
        """Return how many changes are not applied."""
        ...

    def stuck(self) -> bool: ...

    def retry_parked(self) -> None: ...

    def lost_writes(self) -> bool: ...

    def compared(self) -> None:
        """Note that what the index lacks, compared with the ledger, is now in the outbox."""
        ...


FLUSH_EVERY_S = 20.0
"""Longest time an applied change stays unflushed in an index."""

FLUSH_EVERY_ROWS = 2_000
"""Applied outbox rows after which an index is flushed."""

PARK_AFTER = 5
"""Failures after which an outbox row is parked, and reported by `verify`."""


class OwnProjection:
    """The only writer of an index: one thread at a time projects; rows leave the outbox after a flush."""

    def __init__(self, ledger: Ledger, target: Target, follower: IndexWriter) -> None:
        self.target = target
        self._ledger = ledger
        self._follower = follower
        self._lock = threading.Lock()
        # Rows up to the floor are applied, or stand in `_behind`; rows above it are unseen. Only SQLite commits in the
        # order of the numbers: elsewhere the floor stays 0, and what was seen is left out by name.
        self._floor = 0
        self._in_order = ledger.is_sqlite
        self._applied: list[int] = []
        self._behind: dict[int, OutboxRow] = {}
        # The ledger's count of changes at which no row was above the floor.
        self._quiet: int | None = None
        self._incarnation = follower.restart_count()
        self._flushed_at = time.monotonic()
        self.last_error: MemosError | None = None

    def lost_writes(self) -> bool:
        with self._ledger.read() as connection:
            expected = outbox.mark(connection, self.target)
        # One ahead is a flush whose confirmation a crash cut off: its rows are still there and are replayed.
        return self._follower.mark() not in (expected, expected + 1)

    def compared(self) -> None:
        """Leave it to the next flush: nobody else writes this index."""

    def drain(self, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        if not self._lock.acquire(timeout=max(0.0, wait_s)):
            return False
        try:
            try:
                return self._follow_until(deadline)
            except BackendUnavailable:
                if self._follower.restart_count() == self._incarnation:
                    raise
                # The engine had died and was started again by the call that noticed: once more, from the start.
                return self._follow_until(deadline)
        except BackendUnavailable as error:
            self.last_error = error
            return False
        finally:
            self._lock.release()

    def _follow_until(self, deadline: float) -> bool:
        self._ledger.renew_hold()
        self._notice_restart()
        # A change that came back as unavailable is tried again before newer ones overtake it for good.
        self._retry_behind()
        while True:
            changes = self._ledger.changes
            rows = self._waiting()
            if not rows:
                self._quiet = changes
                break
            self._apply(rows, self._waiting(rows) if len(rows) == _BATCH else ())
            if self._in_order:
                self._floor = rows[-1].id
            if len(self._applied) >= FLUSH_EVERY_ROWS:
                self._flush()
            if len(rows) < _BATCH and changes is not None and self._ledger.changes == changes:
                self._quiet, rows = changes, []  # these were the last ones, and nobody has written since
                break
            if time.monotonic() >= deadline:
                break
        self.last_error = None
        return not rows and not self._behind

    def _waiting(self, before: Sequence[OutboxRow] = ()) -> list[OutboxRow]:
        """Return the rows to apply next, or those that follow on rows not yet applied."""
        floor = before[-1].id if before and self._in_order else self._floor
        seen = self._seen() if self._in_order else [*self._seen(), *(row.id for row in before)]
        with self._ledger.read() as connection:
            return outbox.rows_after(connection, self.target, floor, _BATCH, seen)

    def flush_if_due(self) -> None:
        with self._lock:
            self._notice_restart()
            if self._applied and time.monotonic() - self._flushed_at >= FLUSH_EVERY_S:
                self._flush()

    def flush(self) -> None:
        with self._lock:
            self._notice_restart()
            if self._applied:
                self._flush()

    def pending(self, cubes: Sequence[str], limit: int) -> list[str]:
        if self._follower.restart_count() != self._incarnation:
            floor, behind = 0, []
        else:
            quiet, changes = self._quiet, self._ledger.changes
            floor, behind = self._floor, [row.item for row in list(self._behind.values()) if row.cube in cubes]
            if quiet is not None and quiet == changes:
                return list(dict.fromkeys(behind))[:limit]
        with self._ledger.read() as connection:
            fresh = outbox.items_after(connection, self.target, cubes, floor, limit, self._seen())
        return list(dict.fromkeys([*fresh, *behind]))[:limit]

    def is_behind(self, rows: int) -> bool:
        with self._ledger.read() as connection:
            return outbox.is_behind(connection, self.target, self._floor, rows, self._seen())

    def left(self) -> int:
        with self._ledger.read() as connection:
            above = outbox.count(connection, self.target, self._floor)
        return above + len(self._behind) if self._in_order else above - len(self._applied)

    def stuck(self) -> bool:
        with self._lock, self._ledger.read() as connection:
            fresh = outbox.rows_after(connection, self.target, self._floor, 1, self._seen())
        return not fresh and all(row.attempts >= PARK_AFTER for row in self._behind.values())

    def retry_parked(self) -> None:
        with self._lock:
            with self._ledger.write() as connection:
                outbox.retry_parked(connection, self.target)
            self._start_over()

    def _seen(self) -> list[int]:
        return [] if self._in_order else [*self._applied, *self._behind]

    def _notice_restart(self) -> None:
        if self._follower.restart_count() != self._incarnation:
            self._incarnation = self._follower.restart_count()
            self._start_over()

    def _start_over(self) -> None:
        self._floor, self._quiet = 0, None
        self._applied.clear()
        self._behind.clear()

    def _apply(self, rows: Sequence[OutboxRow], following: Sequence[OutboxRow] = ()) -> None:
        """Project a batch; if it is refused, row by row, so that one bad item holds up no other."""
        try:
            self._project(rows, following)
            return
        except BackendUnavailable:
            raise
        except MemosError:
            if len(rows) == 1:
                self._failed(rows[0])
                return
        for row in rows:
            self._apply([row])

    def _project(self, rows: Sequence[OutboxRow], following: Sequence[OutboxRow] = ()) -> None:
        project(self._follower, self.target, rows, following)
        self._applied.extend(row.id for row in rows)

    def _failed(self, row: OutboxRow) -> None:
        try:
            self._project([row])
        except BackendUnavailable:
            raise
        except MemosError as error:
            with self._ledger.write() as connection:
                outbox.count_failure(connection, row, str(error), PARK_AFTER)
            self._behind[row.id] = OutboxRow(row.id, row.cube, row.item, row.attempts + 1)

    def _retry_behind(self) -> None:
        for row in list(self._behind.values()):
            if row.attempts < PARK_AFTER:
                del self._behind[row.id]
                self._failed(row)

    def _flush(self) -> None:
        with self._ledger.read() as connection:
            mark = outbox.mark(connection, self.target) + 1
        self._follower.flush(mark)
        if self._follower.restart_count() != self._incarnation:
            raise BackendUnavailable(f"The {self.target} index restarted during a flush; its rows are replayed.")
        with self._ledger.write() as connection:
            outbox.remove(connection, self._applied)
            outbox.set_mark(connection, self.target, mark)
        self._applied.clear()
        self._flushed_at = time.monotonic()


def project(
    follower: IndexWriter, target: Target, rows: Sequence[OutboxRow], following: Sequence[OutboxRow] = ()
) -> None:
    try:
        follower.project(_items(rows), _items(following))
    except MemosError:
        raise
    except Exception as error:
        told = f"The {target} index cannot store this item ({type(error).__name__}: {error})."
        raise IntegrityError(told) from error


def _items(rows: Sequence[OutboxRow]) -> list[str]:
    return list(dict.fromkeys(row.item for row in rows))


# Small, so that several processes share what waits.
_SHARED_BATCH = 64
_PAUSE_S = (0.005, 0.1)
_WRITERS = 4


class SharedProjection:
    def __init__(self, ledger: Ledger, target: Target, follower: IndexWriter) -> None:
        self.target = target
        self.last_error: MemosError | None = None
        self._ledger = ledger
        self._follower = follower
        self._lock = threading.Lock()
        # Each writer holds a connection and needs another while it holds it.
        self._turns = threading.BoundedSemaphore(_WRITERS)
        self._unmarked = False
        self._flushed_at = time.monotonic()
        # Items that lost their claim with the ledger's connection: another writer's newer state may be overwritten.
        self._doubtful: dict[str, list[str]] = {}

    def lost_writes(self) -> bool:
        first = self._known_mark()
        index = self._follower.mark()
        last = self._known_mark()
        # Others may flush meanwhile; one ahead is a flush whose confirmation is under way or was cut off.
        return not first <= index <= last + 1

    def drain(self, wait_s: float) -> bool:
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
        if time.monotonic() - self._flushed_at >= FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            if not self._unmarked:
                return
            self._unmarked = False
            try:
                # The server lost the index, and another process has made a new one and not yet compared it. A mark from
                # here would say that nothing is missing, for good if that process is killed now.
                if self._follower.mark() or not self._known_mark():
                    self._set_mark()
            except BaseException:
                self._unmarked = True
                raise
            self._flushed_at = time.monotonic()

    def compared(self) -> None:
        with self._lock:
            self._set_mark()

    def pending(self, cubes: Sequence[str], limit: int) -> list[str]:
        with self._ledger.read() as connection:
            return outbox.items_after(connection, self.target, cubes, 0, limit)

    def is_behind(self, rows: int) -> bool:
        with self._ledger.read() as connection:
            return outbox.is_behind(connection, self.target, 0, rows)

    def left(self) -> int:
        with self._ledger.read() as connection:
            return outbox.count(connection, self.target)

    def stuck(self) -> bool:
        with self._ledger.read() as connection:
            return outbox.newest(connection, self.target) is None

    def retry_parked(self) -> None:
        with self._ledger.write() as connection:
            outbox.retry_parked(connection, self.target)

    def _set_mark(self) -> None:
        with self._ledger.write() as connection:
            mark = outbox.next_mark(connection, self.target)
            self._follower.flush(mark)
            outbox.set_mark(connection, self.target, mark)

    def _known_mark(self) -> int:
        with self._ledger.read() as connection:
            return outbox.mark(connection, self.target)

    def _apply_some(self, tried: set[int]) -> bool:
        done: list[OutboxRow] = []
        try:
            with self._ledger.write() as connection:
                rows = outbox.claim(connection, self.target, _SHARED_BATCH, tried)
                done, refused = self._apply(rows)
                outbox.remove(connection, [row.id for row in done])
                for row, error in refused:
                    outbox.count_failure(connection, row, str(error), PARK_AFTER)
        except BaseException:
            for row in done:
                self._doubtful.setdefault(row.cube, []).append(row.item)
            raise
        tried.update(row.id for row, _ in refused)
        self._unmarked = self._unmarked or bool(done)
        return bool(rows)

    def _apply(self, rows: Sequence[OutboxRow]) -> tuple[list[OutboxRow], list[tuple[OutboxRow, MemosError]]]:
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
