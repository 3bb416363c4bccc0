"""Queries of the timeline: items by time, their successors, and items that ended.

An item is told when it was said, or stored if nobody said it. Queries go along the index of that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.types import REPLACING, TOLD, Item, ItemType, Role, Status
from memos.memcube.ledger.columns import UtcMicros, is_sealed
from memos.memcube.ledger.expiry import is_live
from memos.memcube.ledger.items import SELECT, rows_in, standing, to_item
from memos.memcube.ledger.schema import items, links, versions

LIKELY, SURE = 0.5, 0.95
"""Confidence from which a statement was probably replaced, and from which it counts as replaced."""

_MOST_CHANGES, _MOST_LATE = 1_000, 200
_MANY = 2_000
_FEW_BEFORE = 5_000

_HELD = tuple(map(str, (Status.ACTIVE, Status.ARCHIVED, Status.SUPERSEDED)))
_STATES = tuple(map(str, (Status.ACTIVE, Status.ARCHIVED)))
_TOLD_TYPES = tuple(map(str, sorted(TOLD)))
_OTHERS = tuple(map(str, (ItemType.TOOL_SCHEMA, ItemType.TOOL_TRAJECTORY, ItemType.SKILL, ItemType.PROFILE)))
_NEWER = items.alias("newer_item")
_OLDER = items.alias("older_item")
_NEWER_VERSION = versions.alias("newer_version")


def _told(table: Any = items) -> sa.ColumnElement[datetime]:
    return sa.type_coerce(sa.func.coalesce(table.c.said_at, table.c.created_at), UtcMicros)


class Choice(NamedTuple):
    """Which items to look at: `values` are those with a value, `statements` what people said and facts, or `all`.

    With `ids` only these. What has expired by `now` is left out.
    """

    now: datetime
    kind: str = "statements"
    ids: Collection[str] | None = None


KINDS = ("statements", "values", "all")


class Place(NamedTuple):
    """The item after which a list goes on: its time and id."""

    at: datetime
    id: str


def span(connection: sa.Connection, cube: str, now: datetime) -> tuple[datetime, datetime] | None:
    """Return when the first and the last item of a cube was told."""
    mine = sa.select(_told().label("at")).where(items.c.cube_id == cube, is_live(now))
    first = connection.scalar(mine.order_by(_told(), items.c.id).limit(1))
    last = connection.scalar(mine.order_by(_told().desc(), items.c.id.desc()).limit(1))
    return None if first is None or last is None else (first, last)


def counts(connection: sa.Connection, cube: str, first: datetime, step: timedelta, now: datetime) -> dict[int, int]:
    """Return how many items were told in each step of time since `first`."""
    at = sa.type_coerce(sa.func.coalesce(items.c.said_at, items.c.created_at), sa.BigInteger)
    place = (at - to_micros(first)) // (step // timedelta(microseconds=1))
    query = sa.select(place.label("place"), sa.func.count()).where(items.c.cube_id == cube, is_live(now))
    query = query.group_by("place")
    return {int(number): count for number, count in connection.execute(query)}


def held_at(
    connection: sa.Connection, cube: str, at: datetime, choice: Choice, limit: int, after: Place | None = None
) -> list[Item]:
    """Return what held at a time by all that is known now, told last first."""
    query = _chosen(cube, choice).where(standing(None), _told() <= at, _holds_at(at))
    if choice.kind == "values" and (few := _few_with_value(connection, cube)) is not None:
        query = query.where(items.c.id.in_(few))
    return _page(connection, query, _told(), limit, after)


def _few_with_value(connection: sa.Connection, cube: str) -> list[str] | None:
    """Return the items with a value now, None if they are many: then the index on times finds some soon."""
    mine = (versions.c.cube_id == cube, versions.c.key.is_not(None), versions.c.recorded_to.is_(None))
    found = list(connection.scalars(sa.select(versions.c.item_id).where(*mine).limit(_MANY + 1)))
    return found if len(found) <= _MANY else None


def stored_at(
    connection: sa.Connection, cube: str, at: datetime, choice: Choice, limit: int, after: Place | None = None
) -> list[Item]:
    """Return what the cube contained at a time, as it was then, stored last first."""
    query = _chosen(cube, choice).where(standing(at), items.c.created_at <= at, versions.c.status.in_(_STATES))
    return _page(connection, query, items.c.created_at, limit, after)


def _page(connection: sa.Connection, query: sa.Select[Any], at: Any, limit: int, after: Place | None) -> list[Item]:
    if after is not None:
        query = query.where(at <= after.at, sa.or_(at < after.at, items.c.id < after.id))
    return [to_item(row) for row in connection.execute(query.order_by(at.desc(), items.c.id.desc()).limit(limit))]


def _chosen(cube: str, choice: Choice) -> sa.Select[Any]:
    query = SELECT.where(items.c.cube_id == cube, is_live(choice.now))
    if choice.kind == "values":
        query = query.where(versions.c.key.contains("|"), versions.c.type.not_in(_OTHERS))
    elif choice.kind == "statements":
        others = (Role.ASSISTANT, Role.SYSTEM, Role.TOOL)
        query = query.where(versions.c.role.not_in([str(role) for role in others]), versions.c.type.not_in(_OTHERS))
    if choice.ids is not None:
        query = query.where(items.c.id.in_(choice.ids))
    return query


def _holds_at(at: datetime) -> sa.ColumnElement[bool]:
    v = versions.c
    return sa.and_(
        v.status.in_(_HELD),
        sa.or_(v.status != Status.SUPERSEDED, v.valid_to > at),
        sa.or_(v.type.in_(_TOLD_TYPES), v.valid_to.is_(None), v.valid_to > at),
        ~_replaced_by(at),
    )


def _replaced_by(at: datetime) -> sa.ColumnElement[bool]:
    mine = (links.c.to_id == items.c.id, links.c.confidence >= SURE)
    query = sa.select(sa.literal(1)).select_from(links.join(_NEWER, _NEWER.c.id == links.c.from_id))
    query = query.join(_NEWER_VERSION, _NEWER_VERSION.c.id == _NEWER.c.version_id)
    stands = (_NEWER_VERSION.c.status.in_(_HELD), _told(_NEWER) <= at)
    return sa.exists(query.where(*mine, links.c.kind.in_(sorted(REPLACING)), *stands).correlate(items))


def added(
    connection: sa.Connection, cube: str, since: datetime, until: datetime, choice: Choice, limit: int
) -> list[Item]:
    """Return what was told between two times and held at the second, told last first."""
    query = _chosen(cube, choice).where(standing(None), _told() > since, _told() <= until, _holds_at(until))
    return _page(connection, query, _told(), limit, None)


class Changed(NamedTuple):
    """An item that stopped holding, when, what replaced it, and whether that is sure."""

    item: Item
    at: datetime
    by: str | None
    sure: bool


def changed(
    connection: sa.Connection, cube: str, since: datetime, until: datetime, choice: Choice, limit: int
) -> list[Changed]:
    """Return what held at the first time and not at the second, with what replaced or ended it, last first.

    Of what was only likely replaced, values of one property count. The newest changes are looked through.
    """
    pairs = [*_by_link(connection, cube, since, until), *_by_time(connection, cube, since, until)]
    pairs += _stored_late(connection, cube, since, until)
    chosen = _chosen(cube, choice).where(standing(None), _told() <= since, _holds_at(since))
    older = {pair.older for pair in pairs}
    states = {row.item_id: to_item(row) for row in rows_in(connection, chosen, versions.c.item_id, older)}
    unsure = {pair.by for pair in pairs if not pair.sure and pair.by and pair.older in states}
    keys = sa.select(versions.c.item_id, versions.c.key).where(standing(None))
    key_of = {row.item_id: row.key for row in rows_in(connection, keys, versions.c.item_id, unsure)}
    found: dict[str, Changed] = {}
    for older_id, at, by, sure in pairs:
        item = states.get(older_id)
        if item is None or not (sure or (item.key is not None and key_of.get(by or "") == item.key)):
            continue
        before = found.get(item.id)
        if before is None or (not sure, at) < (not before.sure, before.at):
            found[item.id] = Changed(item, at, by, sure)
    return sorted(found.values(), key=lambda each: (each.at, each.item.id), reverse=True)[:limit]


class _Pair(NamedTuple):
    older: str
    at: datetime
    by: str | None
    sure: bool


def _by_link(connection: sa.Connection, cube: str, since: datetime, until: datetime) -> list[_Pair]:
    """Return what statements between two times replaced or ended, likely or surely.

    The newer statements are gone through, the latest first; if there are few older ones, those are, as then few of the
    newer ones replaced any of them.
    """
    told = _told(_NEWER)
    query = sa.select(links.c.to_id, told.label("at"), links.c.from_id, links.c.confidence)
    query = query.join_from(_NEWER, links, links.c.from_id == _NEWER.c.id)
    query = query.join(_NEWER_VERSION, _NEWER_VERSION.c.id == _NEWER.c.version_id)
    query = query.where(links.c.kind.in_(sorted(REPLACING)), links.c.confidence >= LIKELY)
    query = query.where(_NEWER_VERSION.c.status.in_(_HELD))
    before = sa.select(items.c.id).where(items.c.cube_id == cube, _told() <= since).order_by(_told().desc())
    few = list(connection.scalars(before.limit(_FEW_BEFORE + 1)))
    if len(few) <= _FEW_BEFORE:
        # Without a condition on the newer ones, along whose index SQLite would rather go.
        found = [row for row in rows_in(connection, query, links.c.to_id, few) if since < row.at <= until]
        found = sorted(found, key=lambda row: row.at, reverse=True)[:_MOST_CHANGES]
    else:
        older_told = sa.select(_told(_OLDER)).where(_OLDER.c.id == links.c.to_id).scalar_subquery()
        query = query.where(_NEWER.c.cube_id == cube, told > since, told <= until, older_told <= since)
        found = list(connection.execute(query.order_by(told.desc()).limit(_MOST_CHANGES)))
    return [_Pair(row.to_id, row.at, row.from_id, row.confidence >= SURE) for row in found]


def _by_time(connection: sa.Connection, cube: str, since: datetime, until: datetime) -> list[_Pair]:
    """Return what ended or was superseded between two times."""
    v = versions.c
    query = sa.select(v.item_id, v.valid_to, v.superseded_by).where(v.cube_id == cube, standing(None))
    query = query.where(v.valid_to.is_not(None), v.valid_to > since, v.valid_to <= until)
    query = query.where(sa.or_(v.status == Status.SUPERSEDED, v.type.not_in(_TOLD_TYPES)))
    rows = connection.execute(query.order_by(v.valid_to.desc()).limit(_MOST_CHANGES))
    return [_Pair(row.item_id, row.valid_to, row.superseded_by, True) for row in rows]


def _stored_late(connection: sa.Connection, cube: str, since: datetime, until: datetime) -> list[_Pair]:
    """Return what was superseded later by a correction, where another value of it was told between two times."""
    v = versions.c
    query = sa.select(v.item_id, v.key, v.value).where(v.cube_id == cube, standing(None), v.status == Status.SUPERSEDED)
    query = query.where(v.valid_to.is_not(None), v.valid_to > until, v.key.is_not(None))
    late = connection.execute(query.order_by(v.valid_to.desc()).limit(_MOST_LATE)).all()
    told = _told()
    others = sa.select(v.item_id, v.key, v.value, told.label("at")).join(items, items.c.id == v.item_id)
    others = others.where(v.cube_id == cube, standing(None), v.status.in_(_HELD), told > since, told <= until)
    by_key: dict[str, list[Any]] = defaultdict(list)
    for row in rows_in(connection, others, v.key, {row.key for row in late}):
        by_key[row.key].append(row)
    return [
        _Pair(row.item_id, other.at, other.item_id, False)
        for row in late
        for other in by_key[row.key]
        if other.value != row.value
    ]


def told_at(item: Item) -> datetime:
    return item.said_at or item.created_at


class Quote(NamedTuple):
    """The first words of an item, and when it was told."""

    memory: str
    at: datetime


def quotes_of(connection: sa.Connection, cube: str, ids: Sequence[str], chars: int, now: datetime) -> dict[str, Quote]:
    """Return the first words of items, by id."""
    whole = versions.c.memory
    words = (whole if is_sealed(connection) else sa.func.substr(whole, 1, chars)).label("words")
    query = sa.select(versions.c.item_id, words, _told().label("at")).join(items, items.c.id == versions.c.item_id)
    query = query.where(versions.c.cube_id == cube, standing(None), is_live(now))
    return {
        row.item_id: Quote(row.words[:chars], row.at) for row in rows_in(connection, query, versions.c.item_id, ids)
    }


def by_ids(connection: sa.Connection, cube: str, ids: Sequence[str], now: datetime) -> list[Item]:
    """Return the current state of items that have not expired, told first first."""
    query = SELECT.where(versions.c.cube_id == cube, standing(None), versions.c.item_id.in_(ids), is_live(now))
    return sorted((to_item(row) for row in connection.execute(query)), key=lambda item: (told_at(item), item.id))


def with_property(connection: sa.Connection, cube: str, name: str, limit: int, now: datetime) -> list[Item]:
    """Return the items with the key `<subject>|name`, also those that were superseded."""
    v = versions.c
    query = SELECT.where(v.cube_id == cube, standing(None), v.key.is_not(None), v.status.in_(_HELD))
    query = query.where(v.key.endswith(f"|{name}", autoescape=True), is_live(now)).limit(limit)
    return [to_item(row) for row in connection.execute(query)]
