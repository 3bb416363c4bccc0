"""Compare the ledger with itself and with the indexes, and queue repairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import sqlalchemy as sa

from memos.core.ports import Stamp
from memos.core.types import Difference, ItemType, Status
from memos.memcube.ledger import cubes, entities, files, items, outbox, segments
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.outbox import Target

_SHOWN = 1000

NAMES = "names"
"""Kind of the difference of an item whose names are not those in the graph."""


class ScannedIndex(Protocol):
    def scan(self, cube: str) -> Iterator[Stamp]: ...

    def cubes(self) -> list[str]: ...


def ledger_differences(ledger: Ledger, cube_ids: Iterable[str]) -> list[Difference]:
    found = [Difference("ledger", "damaged", ledger.description, line) for line in ledger.check()]
    with ledger.read() as connection:
        for cube in cube_ids:
            broken = cubes.broken_event(connection, cube)
            if broken is not None:
                found.append(Difference("events", "broken", cube, broken))
        sourceless = (
            sa.select(t.items.c.id)
            .join(t.versions, t.versions.c.id == t.items.c.version_id)
            .outerjoin(t.sources, t.sources.c.item_id == t.items.c.id)
            .where(t.items.c.cube_id.in_(list(cube_ids)), t.sources.c.item_id.is_(None))
            .where(t.versions.c.type != ItemType.WORKING)
            .limit(_SHOWN)
        )
        ids = connection.scalars(sourceless)
        found += [Difference("ledger", "sourceless", id_, "has no source message") for id_ in ids]
        for cube in cube_ids:
            misplaced = segments.misplaced(connection, cube, _SHOWN)
            found += [Difference("tiers", "misplaced", subject, what) for subject, what in misplaced]
            renamed = entities.differing(connection, cube, _SHOWN)
            found += [Difference("ledger", NAMES, id_, "has other names than the graph has of it") for id_ in renamed]
            broken_files = files.broken(connection, cube, _SHOWN)
            found += [Difference("files", "broken", file, what) for file, what in broken_files]
        found += [
            Difference(row.target, "parked", row.item, row.error)
            for row in outbox.parked_rows(connection)
            if row.cube in set(cube_ids)
        ]
    return found


class IndexCheck(NamedTuple):
    """What a comparison of an index with the ledger found."""

    checked: int
    """Points compared."""
    differences: dict[str, Difference]
    """What is missing, extra or outdated, by item."""
    ahead: dict[str, int]
    """Revisions in the index of items whose revision in the ledger is lower: the ledger lost changes."""


def index_differences(ledger: Ledger, target: Target, index: ScannedIndex, cube_id: str) -> IndexCheck:
    """Compare an index with the ledger, without what waits in the outbox."""
    with ledger.read() as connection:
        expected, waiting = _expected(connection, target, cube_id)
    seen: dict[str, set[str]] = {}
    found: dict[str, Difference] = {}
    ahead: dict[str, int] = {}
    checked = 0
    for stamp in index.scan(cube_id):
        checked += 1
        wanted = expected.get(stamp.item)
        if stamp.item in waiting:
            continue
        if wanted is None:
            found[stamp.item] = Difference(target, "extra", stamp.item, "is in the index but not in the ledger")
        elif stamp.revision != wanted[0]:
            detail = f"has revision {stamp.revision}, but the ledger has {wanted[0]}"
            found[stamp.item] = Difference(target, "outdated", stamp.item, detail)
            if stamp.revision > wanted[0]:
                ahead[stamp.item] = max(stamp.revision, ahead.get(stamp.item, 0))
        seen.setdefault(stamp.item, set()).add(stamp.id)
    for item_id, (_, points) in expected.items():
        if item_id not in waiting and item_id not in found and not points <= seen.get(item_id, set()):
            found[item_id] = Difference(target, "missing", item_id, "is missing in the index, or only partly in it")
    if found:
        # What was added or changed while the index was scanned is not wrong either.
        with ledger.read() as connection:
            now, waiting = _expected(connection, target, cube_id)
        found = {
            item_id: difference
            for item_id, difference in found.items()
            if item_id not in waiting and now.get(item_id) == expected.get(item_id)
        }
    return IndexCheck(checked, found, {item_id: revision for item_id, revision in ahead.items() if item_id in found})


def _expected(
    connection: sa.Connection, target: Target, cube_id: str
) -> tuple[dict[str, tuple[int, set[str]]], set[str]]:
    """Return item id -> (revision, point ids that must be there), and the items an index still waits for."""
    query = (
        sa.select(t.items.c.id, t.items.c.revision, t.versions.c.id.label("version_id"), t.versions.c.status)
        .join(t.versions, t.versions.c.item_id == t.items.c.id)
        .where(t.items.c.cube_id == cube_id)
    )
    if target == "graph":
        query = query.where(t.versions.c.recorded_to.is_(None), t.versions.c.status != Status.DELETED)
    else:
        query = query.where(t.items.c.searchable.is_(True))
    expected: dict[str, tuple[int, set[str]]] = {}
    for row in connection.execute(query.execution_options(yield_per=1000)):
        point = row.version_id if target == "vector" else row.id
        expected.setdefault(row.id, (row.revision, set()))[1].add(point)
    waiting = sa.select(t.outbox.c.item_id).where(t.outbox.c.target == target, t.outbox.c.cube_id == cube_id)
    return expected, set(connection.scalars(waiting))


def enqueue_all(ledger: Ledger, cube_id: str) -> int:
    with ledger.write() as connection:
        # In the order in which they came, as which their statements are judged.
        ids = list(
            connection.scalars(sa.select(t.items.c.id).where(t.items.c.cube_id == cube_id).order_by(t.items.c.id))
        )
        for batch in items.in_batches(ids):
            outbox.enqueue(connection, cube_id, batch)
    return len(ids)


def enqueue_some(
    ledger: Ledger, cube_id: str, item_ids: Iterable[str], target: Target, ahead: Mapping[str, int]
) -> None:
    """Have an index write items again; those `ahead` in it get a revision above the one that it has of them.

    Otherwise the points of changes that the ledger lost could not be told from those of the next change.
    """
    with ledger.write() as connection:
        items.raise_revisions_above(connection, ahead)
        outbox.enqueue(connection, cube_id, list(item_ids), (target,))


def cube_ids(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(sa.select(t.cubes.c.id).order_by(t.cubes.c.id)))


def count_items(connection: sa.Connection, cubes_: Iterable[str]) -> int:
    query = sa.select(sa.func.count()).select_from(t.items).where(t.items.c.cube_id.in_(list(cubes_)))
    return connection.scalar(query) or 0


def read_names_again(ledger: Ledger, cube_ids_: Iterable[str]) -> None:
    with ledger.write() as connection:
        for cube in cube_ids_:
            entities.rebuild(connection, cube)
