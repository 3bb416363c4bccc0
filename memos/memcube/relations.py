"""Relations between statements: which older statement a newer one updates or ends, and how sure that is.

A relation is a link from the newer to the older item. Rules judge it when either is indexed, so a rebuild judges anew;
what a person decided stays. No relation changes or hides an item: searches put the newer one first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from memos.core.clock import Clock
from memos.core.ports import ArmQuery, Vector, VectorIndex, VectorSearch
from memos.core.text.acknowledgements import acknowledges
from memos.core.text.claims import Claim, Owner, read_claim
from memos.core.text.matching import normalized_value
from memos.core.types import FOUND, JUDGED, Arm, Fingerprint, Item, ItemType, LinkKind, Relation, Role
from memos.memcube.judge import conflicts, judge_for, pair_features
from memos.memcube.ledger import items
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import items as items_
from memos.memcube.ledger.schema import links, versions

RULES = "rules"
"""`decided_by` of a relation that no model and no person judged."""

FEEDBACK = "feedback"
"""`decided_by` of a relation that a correction supposes and nobody has confirmed."""

STORED = 0.15
"""Least confidence of a relation that is stored: below it, it changes no order."""

_NEAREST = 24


class Told(NamedTuple):
    """A statement with the vector of its turn."""

    item: Item
    vector: Vector


class RelationFinder:
    """Judges newly indexed statements against those near them. Thread-safe."""

    def __init__(self, ledger: Ledger, index: VectorIndex, embedder: Fingerprint, clock: Clock) -> None:
        self._ledger = ledger
        self._index = index
        self._judge = judge_for(embedder)
        self._clock = clock

    def find(self, told: Sequence[Told], again: Collection[str] = ()) -> None:
        """Judge statements against the nearest older and newer ones of their cubes, and store what was found.

        `again` are those judged before: their former relations by rules are replaced. Raises: BackendUnavailable.
        """
        by_cube: dict[str, list[Told]] = defaultdict(list)
        for each in told:
            if is_statement(each.item):
                by_cube[each.item.cube].append(each)
        found: list[tuple[str, Relation]] = []
        for cube, mine in by_cube.items():
            found += [(cube, relation) for relation in self._judged(cube, mine)]
        if found or again:
            with self._ledger.write() as connection:
                forget(connection, again)
                store(connection, found, self._clock.now())

    def _judged(self, cube: str, told: Sequence[Told]) -> list[Relation]:
        arms = tuple(ArmQuery(Arm.TURN, each.vector) for each in told)
        near = self._index.search(VectorSearch((cube,), arms, _NEAREST, live=True))
        with self._ledger.read() as connection:
            states = items.current(connection, [cube], {point.item for points in near for point in points})
        vectors = {each.item.id: each.vector for each in told}
        pairs: dict[tuple[str, str], _Pair] = {}
        for each, points in zip(told, near, strict=True):
            for point in points:
                other = states.get(point.item)
                if other is None or other.id == each.item.id or not is_statement(other):
                    continue
                older, newer = sorted((each.item, other), key=_told_at)
                if _may_be_related(older, newer):
                    pairs.setdefault((older.id, newer.id), _Pair(older, newer, point.score))
        return self._decided(list(pairs.values()), vectors)

    def _decided(self, pairs: Sequence[_Pair], vectors: dict[str, Vector]) -> list[Relation]:
        if not pairs:
            return []
        features = [pair_features(read_claim(p.older.memory), read_claim(p.newer.memory), p.cosine) for p in pairs]
        older = newer = None
        if self._judge.reads_vectors:
            ids = {item.version_id: item.id for p in pairs for item in (p.older, p.newer) if item.id not in vectors}
            vectors |= {ids[point]: vector for point, vector in self._index.turns(list(ids)).items()}
            pairs = [p for p in pairs if p.older.id in vectors and p.newer.id in vectors]
            older = np.stack([vectors[p.older.id] for p in pairs])
            newer = np.stack([vectors[p.newer.id] for p in pairs])
        odds = self._judge.log_odds(features, older, newer)
        found = []
        for pair, confidence in zip(pairs, 1 / (1 + np.exp(-odds)), strict=True):
            if confidence >= STORED:
                found.append(_relation_of(pair, float(confidence)))
        return found


class _Pair(NamedTuple):
    older: Item
    newer: Item
    cosine: float


_MOST_WORDS = 30  # longer texts say several things, of which a newer one may replace any


def _may_be_related(older: Item, newer: Item) -> bool:
    """Return False for long texts, for wishes, dreams and near misses, and for statements about different people.

    That one names a person whom the other does not mention was a change in 8 of 1,000 pairs of the judge's stories, and
    that a relative's follows one's own in 35; wishes and the like tell of one in 90.
    """
    old, new = read_claim(older.memory), read_claim(newer.memory)
    wished = new.unreal and not (new.sure or new.ends)
    if max(old.count, new.count) > _MOST_WORDS or wished or _about_others(old, new):
        return False
    own = Owner.SPEAKER in (old.owner, new.owner)
    return not own or normalized_value(older.speaker) == normalized_value(newer.speaker)


def _about_others(older: Claim, newer: Claim) -> bool:
    relative, named = conflicts(older, newer)
    own_first = older.owner is Owner.SPEAKER and newer.owner is Owner.RELATIVE
    return bool(named or (relative and own_first))


def _relation_of(pair: _Pair, confidence: float) -> Relation:
    claim = read_claim(pair.newer.memory)
    kind = LinkKind.ENDS if claim.ends and not claim.changes else LinkKind.UPDATES
    return Relation(pair.newer.id, pair.older.id, kind, round(confidence, 3), RULES, pair.newer.said_at)


def is_statement(item: Item) -> bool:
    """Return True for what a user told and a search finds."""
    said = item.type is ItemType.MESSAGE and item.role is Role.USER and item.status in FOUND
    return said and not acknowledges(item.memory)


def _told_at(item: Item) -> tuple[datetime, datetime, str]:
    """Return when a statement was made; what was corrected is as new as its correction."""
    said = item.said_at or item.created_at
    return said if item.version == 1 else max(said, item.updated_at), item.created_at, item.id


_JUDGED = sorted(JUDGED)


def store(connection: sa.Connection, relations: Iterable[tuple[str, Relation]], now: datetime) -> None:
    """Store relations of cubes; one that a person decided, or that is there, stays as it is.

    What was erased since it was judged gets none; what another process stores at this moment is stored once.
    """
    wanted = {(relation.newer, relation.older): (cube, relation) for cube, relation in relations}
    if not wanted:
        return
    newer_ids = {newer for newer, _ in wanted}
    known = {(row.from_id, row.to_id) for row in items.rows_in(connection, _PAIRS, links.c.from_id, newer_ids)}
    there = set(items.scalars_in(connection, _THERE, items_.c.id, {id_ for pair in wanted for id_ in pair}))
    rows = [
        {
            "from_id": newer,
            "kind": relation.kind,
            "to_id": older,
            "cube_id": cube,
            "created_at": now,
            "confidence": relation.confidence,
            "decided_by": relation.decided_by,
        }
        for (newer, older), (cube, relation) in wanted.items()
        if (newer, older) not in known and {newer, older} <= there
    ]
    if rows:
        insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        connection.execute(insert(links).on_conflict_do_nothing(), rows)


# Locked on PostgreSQL, so that no erase takes an item away before the link is there; SQLite has one writer.
_THERE = sa.select(items_.c.id).with_for_update(read=True, key_share=True)
_PAIRS = sa.select(links.c.from_id, links.c.to_id).where(links.c.kind.in_(_JUDGED))


def forget(connection: sa.Connection, ids: Collection[str]) -> None:
    """Remove what rules found about items; decisions of people stay."""
    by_rules = (links.c.kind.in_(_JUDGED), links.c.decided_by == RULES)
    for batch in items.in_batches(ids):
        either = sa.or_(links.c.from_id.in_(batch), links.c.to_id.in_(batch))
        connection.execute(sa.delete(links).where(*by_rules, either))


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
    waiting = _RELATIONS.where(links.c.cube_id == cube, links.c.decided_by == FEEDBACK)
    rows = connection.execute(waiting.order_by(links.c.created_at, links.c.from_id).limit(limit))
    return [_relation(row) for row in rows]


def replacements(connection: sa.Connection, ids: Sequence[str]) -> list[tuple[str, str, float, int | None]]:
    """Return what replaced items: older id, newer id, confidence, and when that was said in microseconds."""
    return [tuple(row) for batch in items.in_batches(ids) for row in _REPLACEMENTS.rows(connection, ids=batch)]


def decide(
    connection: sa.Connection, cube: str, newer: str, older: str, *, holds: bool, actor: str, now: datetime
) -> None:
    """Store a person's decision on whether a newer item replaces an older one; it stands until another decision."""
    pair = (links.c.from_id == newer, links.c.to_id == older, links.c.kind.in_(_JUDGED))
    connection.execute(sa.delete(links).where(*pair))
    row = {"from_id": newer, "kind": LinkKind.UPDATES, "to_id": older, "cube_id": cube, "created_at": now}
    connection.execute(sa.insert(links), [row | {"confidence": float(holds), "decided_by": actor}])


def suppose(connection: sa.Connection, cube: str, newer: str, older: str, confidence: float, now: datetime) -> None:
    """Store a relation for a person to decide; rules leave it as it is."""
    row = {"from_id": newer, "kind": LinkKind.UPDATES, "to_id": older, "cube_id": cube, "created_at": now}
    connection.execute(sa.insert(links), [row | {"confidence": confidence, "decided_by": FEEDBACK}])


_RELATIONS = (
    sa.select(links.c.from_id, links.c.to_id, links.c.kind, links.c.confidence, links.c.decided_by, items_.c.said_at)
    .join(items_, items_.c.id == links.c.from_id)
    .where(links.c.kind.in_(_JUDGED))
)
_newer = versions.alias("newer")
_REPLACEMENTS = PreparedSelect(
    sa.select(links.c.to_id, links.c.from_id, links.c.confidence, sa.type_coerce(items_.c.said_at, sa.BigInteger))
    .join(items_, items_.c.id == links.c.from_id)
    .join(_newer, sa.and_(_newer.c.item_id == links.c.from_id, _newer.c.recorded_to.is_(None)))
    .where(links.c.to_id.in_(sa.bindparam("ids", expanding=True)), links.c.confidence > 0)
    .where(sa.or_(*(_newer.c.status == status for status in sorted(FOUND))))
)


def _relation(row: Any) -> Relation:
    kind = LinkKind(row.kind)
    return Relation(row.from_id, row.to_id, kind, row.confidence or 0.0, row.decided_by or RULES, row.said_at)
