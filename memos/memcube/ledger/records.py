"""Rows of records: items by the caller's id, in the order of these ids."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.filters import SEPARATOR, Node
from memos.core.types import Item, RecordPrefix, Status, Trust
from memos.memcube.ledger import filter_sql, items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.columns import CUBE
from memos.memcube.ledger.expiry import is_live
from memos.memcube.ledger.filter_sql import between, compile_sql

_ID = t.items.c.record_id


class RecordRow(NamedTuple):
    item: str
    expires_at: datetime | None
    searchable: bool


def find(connection: sa.Connection, cube: str, record_ids: Iterable[str]) -> dict[str, RecordRow]:
    """Return the rows of records by their ids, deleted and expired ones too."""
    query = sa.select(_ID, t.items.c.id, t.items.c.expires_at, t.items.c.searchable).where(t.items.c.cube_id == cube)
    return {row.record_id: RecordRow(*row[1:]) for row in items.rows_in(connection, query, _ID, set(record_ids))}


def release(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Take the records' ids from items that have expired, so that others may have them."""
    for batch in items.in_batches(ids):
        connection.execute(sa.update(t.items).where(t.items.c.id.in_(batch)).values(record_id=None))


def set_searchable(connection: sa.Connection, item_id: str, *, searchable: bool) -> None:
    connection.execute(sa.update(t.items).where(t.items.c.id == item_id).values(searchable=searchable))


def trust_of(connection: sa.Connection, item_id: str) -> Trust:
    query = sa.select(t.messages.c.trust).where(t.messages.c.id == _message(item_id))
    return Trust(connection.scalar(query) or Trust.TRUSTED)


def say(connection: sa.Connection, item_id: str, cube: str, text: str, trust: Trust, now: datetime) -> None:
    """Replace the source of a record: what was put last."""
    message = sa.update(t.messages).where(t.messages.c.id == _message(item_id))
    said = message.values(text=text, trust=trust, chat_time=now)
    connection.execute(said, execution_options={CUBE: cube})
    whole = sa.update(t.sources).where(t.sources.c.item_id == item_id, t.sources.c.ordinal == 0)
    connection.execute(whole.values(start=0, end=len(text)))
    connection.execute(sa.update(t.items).where(t.items.c.id == item_id).values(said_at=now))


def _message(item_id: str) -> sa.ScalarSelect[Any]:
    first = sa.select(t.sources.c.message_id).where(t.sources.c.item_id == item_id, t.sources.c.ordinal == 0)
    return first.scalar_subquery()


def page(  # noqa: PLR0913 - what narrows it, and where it begins
    connection: sa.Connection,
    cube: str,
    node: Node | None,
    now: datetime,
    *,
    prefix: str,
    after: str | None,
    limit: int,
    offset: int,
) -> list[Item]:
    """Return records that pass a filter in the order of their ids."""
    query = items.SELECT.where(*_below(cube, prefix, after), is_live(now), items.standing(None))
    query = query.where(compile_sql(node, filter_sql.of(connection, [cube])))
    found = connection.execute(query.order_by(_ID).limit(limit).offset(offset))
    return [items.to_item(row) for row in found]


def prefixes(
    connection: sa.Connection,
    cube: str,
    now: datetime,
    *,
    prefix: str,
    depth: int | None,
    after: str | None,
    limit: int,
) -> list[RecordPrefix]:
    """Return what ids begin with up to a separator, in order, with the number of records."""
    parts = None if depth is None else prefix.count(SEPARATOR) + depth
    folder = _folder(connection)
    query = (
        sa.select(folder.label("folder"), sa.func.count())
        .select_from(t.items.join(t.versions, t.versions.c.id == t.items.c.version_id))
        .where(*_below(cube, prefix, None), is_live(now), t.versions.c.status != Status.DELETED)
        .group_by(folder)
    )
    counts: dict[str, int] = {}
    for found, number in connection.execute(query):
        cut = _cut(found, parts)
        if len(cut) > len(prefix) or cut == prefix:
            counts[cut] = counts.get(cut, 0) + number
    names = sorted(name for name in counts if name and (after is None or name > after))
    return [RecordPrefix(name, counts[name]) for name in names[:limit]]


def _folder(connection: sa.Connection) -> sa.ColumnElement[str]:
    """Return the part of an id up to its last separator, with it."""
    if connection.dialect.name == "sqlite":
        # Cut from the right every character but the separator: each that is in the id without separators.
        found: sa.ColumnElement[str] = sa.func.rtrim(_ID, sa.func.replace(_ID, SEPARATOR, ""))
        return found
    return sa.func.coalesce(sa.func.substring(_ID, f"^(.*{SEPARATOR})", type_=sa.Text()), "")


def _cut(folder: str, parts: int | None) -> str:
    if parts is None or folder.count(SEPARATOR) <= parts:
        return folder
    return SEPARATOR.join(folder.split(SEPARATOR, parts)[:parts]) + SEPARATOR


def _below(cube: str, prefix: str, after: str | None) -> list[sa.ColumnElement[bool]]:
    here = [t.items.c.cube_id == cube, _ID.is_not(None)]
    if prefix:
        here.append(between(_ID, prefix))
    if after is not None:
        here.append(after < _ID)
    return here
