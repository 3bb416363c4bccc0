"""Decides for every id of a dump what it becomes in a ledger where others have ids too.

An id stays where it may; one that something else has, here or in another cube, becomes another that nobody can
foretell, and who loads is not told so. What this cube has already keeps its id and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from memos.core.types import ItemType
from memos.errors import Conflict
from memos.memcube.dump.check import OWN, Bounds, table_rows
from memos.memcube.dump.container import DumpReader
from memos.memcube.dump.ids import IdResolution, Ids, Kind, other_id
from memos.memcube.ledger import files
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers

# Sees in the ledger whether a cube's rows belong together, before a load is committed.

_SHOWN = 1000


def problems(connection: sa.Connection, cube: str, *, trusted: bool) -> set[str]:
    """Return what is wrong with a cube, each in a few words and with ids alone.

    What is `trusted` may have items without a source: nothing says then that their text was untrusted.
    """
    found = {f"{subject} {what}" for subject, what in tiers.misplaced(connection, cube, _SHOWN)}
    found |= {f"{file} {what}" for file, what in files.broken(connection, cube, _SHOWN)}
    queries = {
        "is at none of its versions": _without_version(cube),
        "has versions that do not follow each other": _gaps(cube),
        "has no source": _sourceless(cube, trusted=trusted),
        "stands behind the end of its conversation": _beyond(cube),
    }
    for what, query in queries.items():
        found |= {f"{id_} {what}" for id_ in connection.scalars(query.limit(_SHOWN))}
    return found


def _without_version(cube: str) -> sa.Select[tuple[str]]:
    v = t.versions.c
    same = sa.and_(
        v.id == t.items.c.version_id,
        v.item_id == t.items.c.id,
        v.version == t.items.c.version,
        v.recorded_to.is_(None),
    )
    return sa.select(t.items.c.id).outerjoin(t.versions, same).where(t.items.c.cube_id == cube, v.id.is_(None))


def _gaps(cube: str) -> sa.Select[tuple[str]]:
    one, before, after = t.versions, t.versions.alias("before"), t.versions.alias("after")
    follows = sa.and_(after.c.item_id == one.c.item_id, after.c.version == one.c.version + 1)
    precedes = sa.and_(before.c.item_id == one.c.item_id, before.c.version == one.c.version - 1)
    wrong = sa.or_(
        sa.and_(after.c.id.is_(None), one.c.recorded_to.is_not(None)),
        sa.and_(after.c.id.is_not(None), one.c.recorded_to.is_(None)),
        one.c.recorded_to != after.c.recorded_at,
        sa.and_(before.c.id.is_(None), one.c.version != 1),
    )
    joined = one.outerjoin(after, follows).outerjoin(before, precedes)
    return sa.select(one.c.item_id).select_from(joined).where(one.c.cube_id == cube, wrong)


def _sourceless(cube: str, *, trusted: bool) -> sa.Select[tuple[str]]:
    query = (
        sa.select(t.items.c.id)
        .join(t.versions, t.versions.c.id == t.items.c.version_id)
        .outerjoin(t.sources, t.sources.c.item_id == t.items.c.id)
        .where(t.items.c.cube_id == cube, t.sources.c.item_id.is_(None))
    )
    return query.where(t.versions.c.type != ItemType.WORKING) if trusted else query


def _beyond(cube: str) -> sa.Select[tuple[str]]:
    talk = t.conversations.c
    return (
        sa.select(t.items.c.id)
        .join(t.conversations, talk.id == t.items.c.conversation_id)
        .where(t.items.c.cube_id == cube)
        .where(sa.or_(t.items.c.position >= talk.next_position, t.items.c.page > talk.next_page))
    )


_TRIES = 20
_BATCH = 500
_TABLES: dict[Kind, sa.Table] = {kind: t.metadata.tables[name] for name, kind in OWN.items()}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a dump goes and how far it is trusted.

    `keeps_ids`: who loads may see every cube, so that ids need not hide which others are taken. `sees` are the cubes
    the actor may look at, None for all; what was erased from those stays erased unless `restore_erased`.
    """

    cube: str
    actor: str
    merge: bool = False
    trust: bool = False
    restore_erased: bool = False
    keeps_ids: bool = True
    sees: frozenset[str] | None = None


@dataclass(slots=True)
class IdResolver:
    """What is needed to settle ids; `erased` fills with the receipts of what was erased here, by its new id."""

    connection: sa.Connection
    reader: DumpReader
    bounds: Bounds
    ids: Ids
    target: Target
    secret: bytes
    erased: dict[str, str] = field(default_factory=dict)


def settle(work: IdResolver) -> None:
    """Decide about every id. Raises: InvalidInput, Conflict."""
    ids, target = work.ids, work.target
    left_out = {Kind.SEGMENT, Kind.PAGE, Kind.RULE} if target.merge else set() if target.trust else {Kind.RULE}
    if target.merge:
        _settle_conversations(work)
        _settle_messages(work)
    for kind in Kind:
        for batch in ids.batches(kind):
            if kind in left_out:
                for old in batch:
                    ids.settle(kind, old, old, IdResolution.LEFT_OUT)
                continue
            if kind is Kind.PAGE:
                batch = _pages_of_items(ids, batch)  # noqa: PLW2901 - what is left of it
            _settle_batch(work, kind, [old for old in batch if ids.find(kind, old) is None])
    if target.merge and not target.trust:
        # Nobody is to put words into the mouth of a message that is trusted here.
        ids.leave_out_unspoken()
    ids.leave_out_empty(Kind.EXTRACTION)
    if target.merge:
        ids.leave_out_empty(Kind.MESSAGE)


def _settle_batch(work: IdResolver, kind: Kind, batch: Sequence[str]) -> None:
    target = work.target
    holders = _holders(work.connection, kind, batch)
    buried = _buried(work, kind, batch)
    left: list[str] = []
    for old in batch:
        if target.merge and holders.get(old) == target.cube:
            work.ids.settle(kind, old, old, IdResolution.KEPT)
        elif not target.keeps_ids or old in holders or not _settle_new(work, kind, old, old, buried):
            left.append(old)
    for number in range(_TRIES):
        if not left:
            return
        wanted = {old: other_id(work.secret, kind, old, number) for old in left}
        holders = _holders(work.connection, kind, wanted.values())
        buried |= _buried(work, kind, wanted.values())
        still: list[str] = []
        for old, new in wanted.items():
            if target.merge and holders.get(new) == target.cube:
                done = work.ids.settle(kind, old, new, IdResolution.KEPT)
            else:
                done = new not in holders and _settle_new(work, kind, old, new, buried)
            if not done:
                still.append(old)
        left = still
    if left:
        raise Conflict("The ids of this dump cannot be made fit here: load it under another id.")


def _settle_new(work: IdResolver, kind: Kind, old: str, new: str, buried: Mapping[str, str | None]) -> bool:
    """Give an id to a new row, unless something that was erased had it and must not be known by it again."""
    receipt = None if work.target.restore_erased else buried.get(old) or buried.get(new)
    if new in buried and receipt is None:
        return False
    if not work.ids.settle(kind, old, new, IdResolution.NEW):
        return False
    if receipt is not None:
        work.erased[new] = receipt
    return True


def _holders(connection: sa.Connection, kind: Kind, ids: Iterable[str]) -> dict[str, str]:
    """Return the cube of each of these ids that is taken."""
    table, wanted = _TABLES[kind], list(ids)
    found = connection.execute(sa.select(table.c.id, table.c.cube_id).where(table.c.id.in_(wanted))) if wanted else ()
    return {row.id: row.cube_id for row in found}


def _buried(work: IdResolver, kind: Kind, ids: Iterable[str]) -> dict[str, str | None]:
    """Return those of these ids that were erased, with the receipt where the actor may know of it."""
    wanted, target = list(ids), work.target
    if kind not in (Kind.ITEM, Kind.FILE) or not wanted:
        return {}
    graves = t.tombstone_items.join(t.tombstones, t.tombstones.c.id == t.tombstone_items.c.tombstone_id)
    columns = (t.tombstone_items.c.item_id, t.tombstones.c.id, t.tombstones.c.cube_id, t.tombstones.c.actor)
    query = sa.select(*columns).select_from(graves).where(t.tombstone_items.c.item_id.in_(wanted))
    return {
        row.item_id: row.id
        if target.sees is None or row.cube_id in target.sees or row.actor == target.actor or row.cube_id == target.cube
        else None
        for row in work.connection.execute(query)
    }


def _pages_of_items(ids: Ids, batch: Sequence[str]) -> list[str]:
    """Let a page keep the id of its first message; return those whose first message is gone."""
    left = []
    for old in batch:
        item = ids.find(Kind.ITEM, old)
        if item is None or not ids.settle(Kind.PAGE, old, item[0], IdResolution.NEW):
            left.append(old)
    return left


def _settle_conversations(work: IdResolver) -> None:
    """Let a conversation be the one of its name that the cube has."""
    for batch in _batches(table_rows(work.reader, t.conversations, work.bounds)):
        names = {row["name"]: row["id"] for row in batch}
        here = sa.select(t.conversations.c.id, t.conversations.c.name).where(
            t.conversations.c.cube_id == work.target.cube, t.conversations.c.name.in_(names)
        )
        for row in work.connection.execute(here):
            work.ids.settle(Kind.CONVERSATION, names[row.name], row.id, IdResolution.KEPT)


def _settle_messages(work: IdResolver) -> None:
    """Let a message with an id of its own be the one of this id that its conversation has, and so its item."""
    ids = work.ids
    named = (row for row in table_rows(work.reader, t.messages, work.bounds) if row["external_id"] is not None)
    for batch in _batches(named):
        known = _known_messages(work, [row["external_id"] for row in batch])
        for row in batch:
            talk = None if row["conversation_id"] is None else ids.find(Kind.CONVERSATION, row["conversation_id"])
            if row["conversation_id"] is not None and talk is None:
                continue
            same = known.get((None if talk is None else talk[0], row["external_id"]))
            item = ids.item_of(row["id"])
            if same is not None and item is not None:
                ids.settle(Kind.MESSAGE, row["id"], same.id, IdResolution.KEPT)
                ids.settle(Kind.ITEM, item[0], same.item_id, IdResolution.KEPT)
                if same.text == row["text"] and same.version == 1:
                    ids.settle(Kind.VERSION, item[1], same.version_id, IdResolution.KEPT)


def _known_messages(work: IdResolver, named: Sequence[str]) -> dict[tuple[str | None, str], Any]:
    """Return the messages of these ids that the cube has, by conversation and id, with their items as they are."""
    m, v = t.messages.c, t.versions.c
    here = sa.select(
        m.id, m.external_id, m.conversation_id, m.text, t.sources.c.item_id, v.id.label("version_id"), v.version
    )
    here = here.join(t.sources, t.sources.c.message_id == m.id).join(t.versions, v.item_id == t.sources.c.item_id)
    here = here.where(m.cube_id == work.target.cube, m.external_id.in_(named))
    here = here.where(v.recorded_to.is_(None), v.type == ItemType.MESSAGE)
    return {(row.conversation_id, row.external_id): row for row in work.connection.execute(here)}


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
