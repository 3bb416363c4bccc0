"""What earlier trainings of a shard left in the registry, for the one that comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from memos.core.lora_recipe import taught_alike
from memos.core.types import Json
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger.adapters import AdapterRow, AdapterState
from memos.memcube.parametric.quiz import KnownFact


def ended(
    connection: sa.Connection, cube: str, shard: str, facts: Sequence[KnownFact], base: str, recipe: Mapping[str, Json]
) -> AdapterRow | None:
    """Return the training of the very same by this very recipe that was ended before its examination."""
    return next(
        (
            row
            for row in _saw(connection, adapter_rows.of(connection, cube), shard, facts)
            if row.state is AdapterState.TRAINING and (row.base, dict(row.recipe)) == (base, recipe)
        ),
        None,
    )


def serving(
    connection: sa.Connection, cube: str, shard: str, facts: Sequence[KnownFact], base: str, recipe: Mapping[str, Json]
) -> AdapterRow | None:
    """Return the adapter that answers and learned the very same, by whatever seed."""
    there = _saw(connection, adapter_rows.serving(connection, cube, base), shard, facts)
    return next((row for row in there if taught_alike(row.recipe, recipe)), None)


def refused(
    connection: sa.Connection, cube: str, shard: str, facts: Sequence[KnownFact], recipe: Mapping[str, Json]
) -> AdapterRow | None:
    """Return the newest that learned the very same, by whatever seed, and failed its examination."""
    there = [row for row in adapter_rows.of(connection, cube) if row.failed_here]
    return next((row for row in _saw(connection, there, shard, facts) if taught_alike(row.recipe, recipe)), None)


def answering(connection: sa.Connection, cube: str, shard: str) -> str | None:
    """Return the adapter of a shard that is put to answer."""
    rows = (each for each in adapter_rows.of(connection, cube) if each.shard == shard)
    return next((each.id for each in rows if each.state is AdapterState.ACTIVE), None)


def _saw(
    connection: sa.Connection, rows: Iterable[AdapterRow], shard: str, facts: Sequence[KnownFact]
) -> Iterable[AdapterRow]:
    wanted = {(fact.item, fact.version) for fact in facts}
    for row in rows:
        seen = adapter_rows.seen(connection, row.id)
        if row.shard == shard and {(each.item, each.version) for each in seen} == wanted:
            yield row
