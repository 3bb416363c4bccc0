"""Chooses what of a cube is learned next: which memories are ready for it, and which shard wants a training most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa

from memos.core.lora import taught_alike
from memos.core.settings import Settings
from memos.core.types import Item, ItemType, Json, Status
from memos.kernel.context import Context
from memos.memcube.ledger import adapters as adapter_exclusions
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapters import AdapterRow, AdapterState
from memos.memcube.parametric.quiz import KnownFact
from memos.memcube.parametric.selection import Selected, Stable, Vectors, select, shards_of
from memos.scheduler.heat import Warmth
from memos.scheduler.rules import CubeRules

# What earlier trainings of a shard left in the registry, for the one that comes next.


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


KINDS = (ItemType.USER, ItemType.PREFERENCE)
"""The types of memories that are learned."""

MOST_LOOKED_AT = 5_000
# What waits for a review is not learned, nor what it contradicts.
CONSIDERED = (Status.ACTIVE, Status.PENDING)


@dataclass(frozen=True, slots=True)
class Choosing:
    """Reads what is stable and how it is divided; `embed` returns vectors of texts."""

    context: Context
    settings: Settings
    embed: Callable[[Sequence[str]], Vectors]

    def selected(self, connection: sa.Connection, cube: str) -> Selected:
        """Return what is stable among a cube's hottest facts, in order of id."""
        now = self.context.clock.now()
        rules = CubeRules(self.settings.heat).of(connection, cube)
        query = (
            sa.select(
                t.items.c.id,
                t.items.c.pinned,
                t.warmth.c.level,
                t.warmth.c.visits,
                t.warmth.c.interactions,
                t.warmth.c.last,
            )
            .join(t.versions, t.versions.c.id == t.items.c.version_id)
            .outerjoin(t.warmth, t.warmth.c.item_id == t.items.c.id)
            .where(t.items.c.cube_id == cube, t.versions.c.status.in_(CONSIDERED), t.versions.c.type.in_(KINDS))
            .order_by(t.items.c.pinned.desc(), t.warmth.c.level.desc().nulls_last(), t.items.c.id)
            .limit(MOST_LOOKED_AT)
        )
        heats: dict[str, float | None] = {}
        for row in connection.execute(query):
            warmth = None if row.level is None else Warmth(row.level, row.visits, row.interactions, row.last)
            heats[row.id] = None if row.pinned else 0.0 if warmth is None else rules.policy.heat(warmth, now)
        states = items.with_sources(connection, [cube], list(heats))
        stable = Stable(rules.thresholds.promote_above, timedelta(days=self.settings.parametric.stable_days))
        memories: list[tuple[Item, float | None]] = [(state, heats[id_]) for id_, state in states.items()]
        return select(memories, stable, now, adapter_exclusions.excluded(connection, cube))

    def next_shard(
        self, cube: str, facts: Sequence[KnownFact], recipe: Mapping[str, Json]
    ) -> tuple[str, tuple[KnownFact, ...]]:
        """Return the shard that most wants a training, and its facts: none answers for it, or it knows least of them.

        One whose training was ended comes first; one that was refused by this recipe with the same facts, last.
        """
        with self.context.ledger.read() as connection:
            rows = adapter_rows.of(connection, cube)
            newest = {row.shard: row for row in reversed(rows)}
            seen = {
                row.id: {(each.item, each.version) for each in adapter_rows.seen(connection, row.id)} for row in rows
            }
            stale = {row.id for row in adapter_rows.outdated(connection, [cube])}
        answering = {
            row.shard: seen[row.id] for row in rows if row.state is AdapterState.ACTIVE and row.id not in stale
        }
        known = {shard: {item for item, _ in seen[row.id]} for shard, row in newest.items()}
        shards = shards_of(facts, known, self.settings.parametric.facts, self.embed)

        def want(shard: str) -> tuple[bool, bool, bool, int]:
            row, learned = newest.get(shard), answering.get(shard)
            stands = {(fact.item, fact.version) for fact in shards[shard]}
            begun = row is not None and row.state is AdapterState.TRAINING
            failed = row is not None and row.failed_here and taught_alike(row.recipe, recipe)
            hopeless = failed and row is not None and seen[row.id] == stands
            return begun, not hopeless, learned is None, len(stands ^ (learned or set()))

        wanted = max(shards, key=want)
        return wanted, shards[wanted]
