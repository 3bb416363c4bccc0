"""Finishes erasures: index files rewritten, caches emptied, the write-ahead log truncated; then the receipt says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from memos.core.ports import Rewritable
from memos.errors import BackendUnavailable
from memos.memcube import erasure as erase
from memos.memcube.backup import backups
from memos.memcube.indexing.projection import Projection
from memos.memcube.ledger import outbox
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.outbox import Target

_WAL_TRIES = 50
_WAL_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Purgeable:
    """What a purge has to clean besides the ledger; `forget_caches` is told the cubes in which something was erased.

    It returns by cube how many of what it removed.
    """

    projections: Sequence[Projection]
    files: Mapping[Target, Rewritable]
    forget_caches: Callable[[Collection[str]], Mapping[str, Mapping[str, int]]]


def purge(ledger: Ledger, places: Purgeable) -> int:
    """Finish every unfinished erasure at once; return how many.

    Raises: BackendUnavailable, and they stay unfinished.
    """
    receipts = erase.unfinished(ledger)
    if not receipts:
        return 0
    with ledger.write() as connection:
        others = set(outbox.targets(connection)).difference(p.target for p in places.projections)
    if others:  # only a process that has these indexes can finish
        return 0
    backups.tell(ledger)
    for projection in places.projections:
        if not projection.drain(600) and projection.last_error is not None:
            raise projection.last_error
        projection.flush()
    erase.count(ledger, receipts, places.forget_caches({receipt.cube for receipt in receipts}))
    for files in places.files.values():
        files.rewrite()
    stores: dict[str, str] = {p.target: "purged" if p.target in places.files else "deleted" for p in places.projections}
    stores |= dict.fromkeys(("cache", "activation", "parametric"), "purged")
    # The state is written before the log is emptied: the log then holds nothing but this.
    erase.finish(ledger, receipts, {**stores, "ledger": "purging"})
    ledger.vacuum()
    _truncate(ledger)
    erase.finish(ledger, receipts, {**stores, "ledger": "purged" if ledger.is_sqlite else "deleted"})
    return len(receipts)


def _truncate(ledger: Ledger) -> None:
    for _ in range(_WAL_TRIES):
        if ledger.truncate_wal():
            return
        time.sleep(_WAL_PAUSE_S)
    raise BackendUnavailable("Readers kept the ledger's log busy; the erased text leaves it with the next purge.")
