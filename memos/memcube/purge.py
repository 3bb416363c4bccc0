"""Finishes erasures: index files rewritten, caches emptied, the write-ahead log truncated; then the receipt says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from memos.core.ports import Rewritable
from memos.core.types import EraseReceipt
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

    `take_back` has servers forget what they were given; all else is clean without them.
    """

    projections: Sequence[Projection]
    files: Mapping[Target, Rewritable]
    forget_caches: Callable[[Collection[str]], Mapping[str, Mapping[str, int]]]
    take_back: Callable[[], None]


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
    if all(_lacks_servers_alone(receipt) for receipt in receipts):
        places.take_back()
        for receipt in receipts:
            erase.finish(ledger, [receipt], {**receipt.stores, "parametric": "purged"})
        return len(receipts)
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
    unreached: BackendUnavailable | None = None
    try:
        places.take_back()
    except BackendUnavailable as error:
        unreached, stores["parametric"] = error, "purging"
    # The state is written before the log is emptied: the log then holds nothing but this.
    erase.finish(ledger, receipts, {**stores, "ledger": "purging"})
    ledger.vacuum()
    _truncate(ledger)
    erase.finish(ledger, receipts, {**stores, "ledger": "purged" if ledger.is_sqlite else "deleted"})
    if unreached is not None:
        raise unreached
    return len(receipts)


def waits_for_servers(ledger: Ledger) -> bool:
    """Say whether there are unfinished erasures, and all is clean but servers that could not be told."""
    receipts = erase.unfinished(ledger)
    return bool(receipts) and all(_lacks_servers_alone(receipt) for receipt in receipts)


def _lacks_servers_alone(receipt: EraseReceipt) -> bool:
    """Say whether all is clean but servers that could not be told."""
    return {name for name, state in receipt.stores.items() if state == "purging"} == {"parametric"}


def _truncate(ledger: Ledger) -> None:
    for _ in range(_WAL_TRIES):
        if ledger.truncate_wal():
            return
        time.sleep(_WAL_PAUSE_S)
    raise BackendUnavailable("Readers kept the ledger's log busy; the erased text leaves it with the next purge.")
