"""What two adapters of one cube saw, and how that differs; reads the ledger alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from memos.errors import InvalidInput
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import items
from memos.memcube.ledger.adapters import TRAINED, AdapterRow
from memos.memcube.ledger.schema import versions


@dataclass(frozen=True, slots=True)
class SeenMemory:
    """A memory at the version that an adapter saw; `memory` is its text then, None where that is erased."""

    item: str
    version: int
    memory: str | None


@dataclass(frozen=True, slots=True)
class SeenChange:
    """A memory that two adapters saw at different versions."""

    before: SeenMemory
    after: SeenMemory


@dataclass(frozen=True, slots=True)
class AdapterDiff:
    """What an adapter saw and `other` did not (`added`), the other way round (`removed`), or at another version.

    `other` is None where there is none before: then all is added.
    """

    cube: str
    adapter: str
    other: str | None
    added: tuple[SeenMemory, ...]
    removed: tuple[SeenMemory, ...]
    changed: tuple[SeenChange, ...]


def diff(connection: sa.Connection, row: AdapterRow, other: AdapterRow | None) -> AdapterDiff:
    """Return how what an adapter saw differs from what another one saw, by id. Raises: InvalidInput."""
    if other is not None and other.cube != row.cube:
        raise InvalidInput("other", f"must be an adapter of the same cube; {other.id} is not")
    mine, theirs = _seen(connection, row), {} if other is None else _seen(connection, other)
    texts = _texts(connection, row.cube, {*mine.items(), *theirs.items()})

    def told(item: str, version: int) -> SeenMemory:
        return SeenMemory(item, version, texts.get((item, version)))

    return AdapterDiff(
        row.cube, row.id, None if other is None else other.id,
        tuple(told(item, version) for item, version in mine.items() if item not in theirs),
        tuple(told(item, version) for item, version in theirs.items() if item not in mine),
        tuple(
            SeenChange(told(item, theirs[item]), told(item, version))
            for item, version in mine.items()
            if theirs.get(item, version) != version
        ),
    )  # fmt: skip


def before(connection: sa.Connection, row: AdapterRow) -> AdapterRow | None:
    """Return the adapter of the same cube and topic that passed its examination before this one."""
    earlier = [
        each for each in adapter_rows.of(connection, row.cube)
        if each.shard == row.shard and each.number < row.number and each.state in TRAINED
    ]  # fmt: skip
    return max(earlier, key=lambda each: each.number, default=None)


def _seen(connection: sa.Connection, row: AdapterRow) -> dict[str, int]:
    return {each.item: each.version for each in adapter_rows.seen(connection, row.id)}


def _texts(connection: sa.Connection, cube: str, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
    pairs = set(wanted)
    found: dict[tuple[str, int], str] = {}
    for batch in items.in_batches(sorted({item for item, _ in pairs})):
        query = sa.select(versions.c.item_id, versions.c.version, versions.c.memory)
        query = query.where(versions.c.item_id.in_(batch), versions.c.cube_id == cube)
        for row in connection.execute(query):
            if (row.item_id, row.version) in pairs:
                found[row.item_id, row.version] = row.memory
    return found
