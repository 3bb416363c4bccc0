"""Which adapters of a cube are of no use any more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from memos.memcube.ledger.adapters import AdapterRow, AdapterState


def superfluous(rows: Sequence[AdapterRow], stale: Collection[str], answered: str | None) -> list[AdapterRow]:
    """Return those of a cube's adapters, given with the newest first, that nobody misses.

    Of each shard stay: the one that answers, one that answered before, which is `answered` where that may answer
    again, else the newest, and the newest that was refused. What is stale can never answer again.
    """
    seen: set[tuple[str, AdapterState]] = set()
    gone = []
    for row in sorted(rows, key=lambda row: row.id != answered):
        kind = (row.shard, row.state)
        if row.id in stale:
            gone.append(row)
        elif row.state in (AdapterState.RETIRED, AdapterState.REFUSED):
            if kind in seen:
                gone.append(row)
            seen.add(kind)
    return gone
