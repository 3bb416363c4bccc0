"""Sees in the ledger whether a cube's rows belong together, before a load is committed."""

from __future__ import annotations

import sqlalchemy as sa

from memos.core.types import ItemType
from memos.memcube.ledger import files
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers

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
        v.id == t.items.c.version_id, v.item_id == t.items.c.id, v.version == t.items.c.version,
        v.recorded_to.is_(None),
    )  # fmt: skip
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
