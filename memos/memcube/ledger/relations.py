"""Rows of relations between items: store, read and decide them.

Whoever changes relations locks their items first and writes in the order of ids, as an erase does, so that no two
transactions of PostgreSQL wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from memos.core.types import FOUND, JUDGED, REPLACING, LinkKind, Relation
from memos.memcube.ledger import items
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import items as items_
from memos.memcube.ledger.schema import links, versions

RULES = "rules"
"""`decided_by` of a relation that no model and no person judged."""

MODEL = "model"
"""`decided_by` of a relation that a language model judged together with the rules."""

FEEDBACK = "feedback"
"""`decided_by` of a relation that a correction supposes and nobody has confirmed."""

_RESERVED = frozenset({RULES, MODEL, FEEDBACK})  # users may have these ids, too

_JUDGED = sorted(JUDGED)


def store(
    connection: sa.Connection, relations: Iterable[tuple[str, Relation]], now: datetime, *, again: Collection[str] = ()
) -> None:
    """Store relations of cubes; one that a person or a model decided, or that is there, stays as it is.

    What was erased since it was judged gets none; what another process stores now is stored once. First, of the items
    `again` goes what rules found, and what a model judged of former versions.
    """
    wanted = {(relation.newer, relation.older): (cube, relation) for cube, relation in relations}
    there = _hold(connection, {*again, *(id_ for pair in wanted for id_ in pair)})
    for batch in items.in_batches(again):
        either = sa.or_(links.c.from_id.in_(batch), links.c.to_id.in_(batch))
        connection.execute(sa.delete(links).where(links.c.kind.in_(_JUDGED), either, _OUTDATED))
    if not wanted:
        return
    newer_ids = {newer for newer, _ in wanted}
    known = {(row.from_id, row.to_id) for row in items.rows_in(connection, _PAIRS, links.c.from_id, newer_ids)}
    rows = [
        _row(cube, newer, older, now, relation.kind, relation.confidence, relation.decided_by)
        for (newer, older), (cube, relation) in sorted(wanted.items(), key=lambda each: each[0])
        if (newer, older) not in known and {newer, older} <= there
    ]
    if rows:
        insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        connection.execute(insert(links).on_conflict_do_nothing(), rows)


def _row(cube: str, newer: str, older: str, now: datetime, kind: str, sure: float, by: str) -> dict[str, Any]:
    link = {"from_id": newer, "kind": kind, "to_id": older, "cube_id": cube, "created_at": now}
    return link | {"confidence": sure, "decided_by": by}


def _hold(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    """Return which items are there, and keep them from being erased until the transaction ends."""
    return set(items.scalars_in(connection, _THERE, items_.c.id, sorted(ids)))


_THERE = sa.select(items_.c.id).order_by(items_.c.id).with_for_update(read=True, key_share=True)
_PAIRS = sa.select(links.c.from_id, links.c.to_id).where(links.c.kind.in_(_JUDGED))


def store_judged(connection: sa.Connection, cube: str, relations: Sequence[Relation], now: datetime) -> None:
    """Store what a model judged, in place of what rules did; what a person decided stays as it is."""
    _hold(connection, {id_ for each in relations for id_ in (each.newer, each.older)})
    for each in sorted(relations, key=lambda each: (each.newer, each.older)):
        pair = (links.c.from_id == each.newer, links.c.to_id == each.older, links.c.kind.in_(_JUDGED))
        connection.execute(sa.delete(links).where(*pair, links.c.decided_by == RULES))
    store(connection, [(cube, each) for each in relations], now)


_CHANGED = sa.exists().where(
    versions.c.item_id.in_([links.c.from_id, links.c.to_id]),
    versions.c.recorded_to.is_(None),
    versions.c.recorded_at > links.c.created_at,
)
_OUTDATED = sa.or_(links.c.decided_by == RULES, sa.and_(links.c.decided_by == MODEL, _CHANGED))


def decided(connection: sa.Connection, newer: Collection[str]) -> set[tuple[str, str]]:
    """Return the pairs of newer statements that a model or a person has judged, newer first."""
    by_others = _PAIRS.where(links.c.decided_by != RULES)
    return {(row.from_id, row.to_id) for row in items.rows_in(connection, by_others, links.c.from_id, newer)}


def of_items(connection: sa.Connection, ids: Collection[str]) -> list[Relation]:
    """Return the relations in which an item is the newer or the older one, those of people first, then the surest."""
    found: dict[tuple[str, str], Relation] = {}
    for batch in items.in_batches(ids):
        either = sa.or_(links.c.from_id.in_(batch), links.c.to_id.in_(batch))
        for row in connection.execute(_RELATIONS.where(either)):
            found[row.from_id, row.to_id] = _relation(row)
    return sorted(found.values(), key=lambda each: (each.decided_by == RULES, -each.confidence, each.newer, each.older))


def by_item(connection: sa.Connection, ids: Collection[str]) -> dict[str, tuple[Relation, ...]]:
    """Return the relations of items by the id of each, in the order of `of_items`."""
    found: dict[str, list[Relation]] = {id_: [] for id_ in ids}
    for relation in of_items(connection, ids):
        for id_ in (relation.newer, relation.older):
            if id_ in found:
                found[id_].append(relation)
    return {id_: tuple(related) for id_, related in found.items()}


def supposed(connection: sa.Connection, cube: str, limit: int) -> list[Relation]:
    """Return the relations of a cube that corrections suppose and nobody has decided, oldest first."""
    waiting = _RELATIONS.where(links.c.cube_id == cube, _SUPPOSED)
    rows = connection.execute(waiting.order_by(links.c.created_at, links.c.from_id).limit(limit))
    return [_relation(row) for row in rows]


def count_supposed(connection: sa.Connection, cube: str, most: int) -> int:
    """Return how many relations of a cube await a decision, `most` if there are more."""
    waiting = sa.select(sa.literal(1)).where(links.c.cube_id == cube, _SUPPOSED).limit(most)
    return connection.scalar(sa.select(sa.func.count()).select_from(waiting.subquery())) or 0


def replacements(
    connection: sa.Connection, ids: Sequence[str], *, of_newer: bool = False
) -> list[tuple[str, str, float, int | None, str]]:
    """Return what replaced or repeated items: older id, newer id, confidence, when it was said (µs), the kind.

    With `of_newer` what these items replaced or repeated.
    """
    query = _REPLACED if of_newer else _REPLACEMENTS
    return [tuple(row) for batch in items.in_batches(ids) for row in query.rows(connection, ids=batch)]


def decide(
    connection: sa.Connection, cube: str, newer: str, older: str, *, holds: bool, actor: str, now: datetime
) -> None:
    """Store a person's decision on whether a newer item replaces an older one; it stands until another decision.

    What does not hold is the relation of any kind that is there.
    """
    items.lock(connection, (newer, older))
    pair = (links.c.from_id == newer, links.c.to_id == older, links.c.kind.in_(_JUDGED))
    kind = connection.execute(sa.select(links.c.kind).where(*pair)).scalar()
    if kind is None or (holds and kind not in REPLACING):
        kind = LinkKind.UPDATES
    connection.execute(sa.delete(links).where(*pair))
    connection.execute(sa.insert(links), [_row(cube, newer, older, now, kind, float(holds), _person(actor))])


IN_DOUBT = 0.5
"""Confidence of a relation that a correction supposes."""


def reopen(connection: sa.Connection, cube: str, newer: str, older: str, now: datetime) -> bool:
    """Take a person's decision back, so that another is awaited; False if there is none."""
    pair = (links.c.from_id == newer, links.c.to_id == older, links.c.kind.in_(_JUDGED))
    by_person = links.c.decided_by.not_in(sorted(_RESERVED))
    if not connection.execute(sa.delete(links).where(*pair, by_person)).rowcount:
        return False
    suppose(connection, cube, newer, older, IN_DOUBT, now)
    return True


def repeat(connection: sa.Connection, cube: str, one: str, other: str, *, actor: str, now: datetime) -> bool:
    """Store a person's decision that two items say the same, if a correction is in doubt about them."""
    items.lock(connection, (one, other))
    for newer, older in ((one, other), (other, one)):
        pair = (links.c.from_id == newer, links.c.to_id == older, links.c.decided_by == FEEDBACK)
        if connection.execute(sa.delete(links).where(*pair)).rowcount:
            connection.execute(sa.insert(links), [_row(cube, newer, older, now, LinkKind.SAME, 1.0, _person(actor))])
            return True
    return False


def _person(actor: str) -> str:
    return f"user {actor}" if actor in _RESERVED else actor


def suppose(connection: sa.Connection, cube: str, newer: str, older: str, confidence: float, now: datetime) -> None:
    """Store a relation for a person to decide; rules leave it as it is."""
    items.lock(connection, (newer, older))
    connection.execute(sa.insert(links), [_row(cube, newer, older, now, LinkKind.UPDATES, confidence, FEEDBACK)])


# As the partial index has it: with a parameter SQLite would not use it.
_SUPPOSED = sa.text("links.decided_by = 'feedback'")
_RELATIONS = (
    sa.select(links.c.from_id, links.c.to_id, links.c.kind, links.c.confidence, links.c.decided_by, items_.c.said_at)
    .join(items_, items_.c.id == links.c.from_id)
    .where(links.c.kind.in_(_JUDGED))
)
_newer = versions.alias("newer")
_JUDGEMENTS = (
    sa.select(
        links.c.to_id,
        links.c.from_id,
        links.c.confidence,
        sa.type_coerce(items_.c.said_at, sa.BigInteger),
        links.c.kind,
    )
    .join(items_, items_.c.id == links.c.from_id)
    .join(_newer, sa.and_(_newer.c.item_id == links.c.from_id, _newer.c.recorded_to.is_(None)))
    .where(links.c.confidence > 0)
    .where(sa.or_(*(links.c.kind == kind for kind in sorted(REPLACING | {LinkKind.SAME}))))
    .where(sa.or_(*(_newer.c.status == status for status in sorted(FOUND))))
)
_REPLACEMENTS = PreparedSelect(_JUDGEMENTS.where(links.c.to_id.in_(sa.bindparam("ids", expanding=True))))
_REPLACED = PreparedSelect(_JUDGEMENTS.where(links.c.from_id.in_(sa.bindparam("ids", expanding=True))))


def _relation(row: Any) -> Relation:
    kind = LinkKind(row.kind)
    return Relation(row.from_id, row.to_id, kind, row.confidence or 0.0, row.decided_by or RULES, row.said_at)
