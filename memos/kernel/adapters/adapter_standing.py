"""Where a cube's adapters stand: which can answer here, and what would be learned that they lack."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from memos.core.lora import wrong_with
from memos.core.lora_recipe import taught_alike
from memos.core.types import Status
from memos.kernel.adapters.choosing import CONSIDERED, KINDS, MOST_LOOKED_AT
from memos.kernel.adapters.training import AdapterTraining
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapters import AdapterRow, AdapterState
from memos.memcube.parametric import training as lessons


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
