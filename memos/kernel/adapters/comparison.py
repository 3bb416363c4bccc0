"""What two adapters of one cube saw, and how that differs; reads the ledger alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from memos.core.lora import taught_alike, wrong_with
from memos.core.types import Status
from memos.errors import InvalidInput
from memos.kernel.adapters.choosing import CONSIDERED, KINDS, MOST_LOOKED_AT
from memos.kernel.adapters.training import AdapterTraining
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapters import TRAINED, AdapterRow, AdapterState
from memos.memcube.ledger.schema import versions
from memos.memcube.parametric import training as lessons

# Where a cube's adapters stand: which can answer here, and what would be learned that they lack.


def answering(training: AdapterTraining, connection: sa.Connection, cube: str) -> list[AdapterRow]:
    """Return the adapters that answer for a cube if they know all that would be learned now, by the recipe of now.

    None of them where a training is due.
    """
    if not adapter_rows.is_allowed(connection, cube):
        return []
    rows = [row for row in adapter_rows.of(connection, cube) if row.state is AdapterState.ACTIVE]
    stale = {row.id for row in adapter_rows.stale(connection, cube)}
    model, recipe = training.settings.learning_model, lessons.told_recipe(training.recipe)
    if model is None or not all(row.model == model.model and taught_alike(row.recipe, recipe) for row in rows):
        return []
    if any(row.id in stale for row in rows):
        return []
    known = {(each.item, each.version) for row in rows for each in adapter_rows.seen(connection, row.id)}
    wanted = {(fact.item, fact.version) for fact in training.selected(connection, cube).facts}
    return rows if wanted <= known else []


def unfit(training: AdapterTraining, row: AdapterRow, base: Callable[[], str | None]) -> str | None:
    """Return why an adapter that passed cannot answer here, None when it can: its files, or the model.

    `base` returns the digest of the model that adapters answer on, None where there is none.
    """
    if training.folder is None:
        return "this process has no folder of its own for adapters."
    if (wrong := wrong_with(training.folder / row.id, row.digest)) is not None:
        return f"{wrong}. Remove it, and train again."
    if base() not in (None, row.base):
        return "it was trained for another model than is configured, or that one has changed: train again."
    return None


def of_other_kinds(connection: sa.Connection, cube: str) -> int:
    """Return how many memories of a cube are of kinds that are never learned."""
    return _count(connection, cube, t.versions.c.status == Status.ACTIVE, t.versions.c.type.not_in(KINDS))


def beyond(connection: sa.Connection, cube: str) -> int:
    """Return how many memories of a cube that could be learned are not looked at, since there are too many."""
    there = _count(connection, cube, t.versions.c.status.in_(CONSIDERED), t.versions.c.type.in_(KINDS))
    return max(0, there - MOST_LOOKED_AT)


def _count(connection: sa.Connection, cube: str, *which: sa.ColumnElement[bool]) -> int:
    query = (
        sa.select(sa.func.count())
        .select_from(t.items)
        .join(t.versions, t.versions.c.id == t.items.c.version_id)
        .where(t.items.c.cube_id == cube, *which)
    )
    return connection.scalar(query) or 0


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
        row.cube,
        row.id,
        None if other is None else other.id,
        tuple(told(item, version) for item, version in mine.items() if item not in theirs),
        tuple(told(item, version) for item, version in theirs.items() if item not in mine),
        tuple(
            SeenChange(told(item, theirs[item]), told(item, version))
            for item, version in mine.items()
            if theirs.get(item, version) != version
        ),
    )


def before(connection: sa.Connection, row: AdapterRow) -> AdapterRow | None:
    """Return the adapter of the same cube and topic that passed its examination before this one."""
    earlier = [
        each
        for each in adapter_rows.of(connection, row.cube)
        if each.shard == row.shard and each.number < row.number and each.state in TRAINED
    ]
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
