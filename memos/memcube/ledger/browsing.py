"""Reads for people who look through a cube: sorted pages, counts by property, passages, and places of an item."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from memos.core.browsing import (
    Facet,
    FacetName,
    Facets,
    FacetValue,
    LearnedBy,
    Link,
    Passage,
    Said,
    SortField,
    StoredMessage,
)
from memos.core.filters import Node
from memos.core.types import Event, Item, ItemType, LinkKind, Role, Status, ToolCall, Trust
from memos.memcube.ledger import filter_sql, items, segments
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.columns import is_sealed
from memos.memcube.ledger.expiry import is_live
from memos.memcube.ledger.filter_sql import compile_sql

COUNTED = 10_000
"""The newest items of a filter that are counted by property: a tenth of a second."""
_DAY_MICROS = 86_400_000_000
# Below every level: an item that was never used is the coldest.
_NEVER = -1e300

_ITEMS = t.items.join(t.versions, t.versions.c.id == t.items.c.version_id).outerjoin(
    t.conversations, t.conversations.c.id == t.items.c.conversation_id
)
_SORTED_BY: dict[SortField, sa.ColumnElement[Any]] = {
    SortField.CREATED_AT: sa.type_coerce(t.items.c.created_at, sa.BigInteger),
    SortField.SAID_AT: sa.type_coerce(sa.func.coalesce(t.items.c.said_at, t.items.c.created_at), sa.BigInteger),
    SortField.UPDATED_AT: sa.type_coerce(t.versions.c.recorded_at, sa.BigInteger),
    SortField.CONFIDENCE: t.versions.c.confidence,
    SortField.HEAT: sa.func.coalesce(t.warmth.c.level, _NEVER),
}


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a list: by a field, then by id."""

    field: SortField
    descending: bool = False


def page(
    connection: sa.Connection, cube: str, node: Node | None, order: Order, *, after: str | None, limit: int, offset: int
) -> list[Item] | None:
    """Return the items that pass a filter, in an order, after an item; None if there is no such item."""
    value = _SORTED_BY[order.field]
    tables = _ITEMS
    if order.field is SortField.HEAT:
        tables = tables.outerjoin(t.warmth, t.warmth.c.item_id == t.items.c.id)
    query = sa.select(t.items.c.id).select_from(tables).where(*_passing(connection, cube, node))
    if after is not None:
        here = sa.select(value).select_from(tables).where(t.items.c.id == after, t.items.c.cube_id == cube)
        found = connection.execute(here).one_or_none()
        if found is None:
            return None
        place = sa.tuple_(sa.literal(found[0], value.type), sa.literal(after, sa.String))
        at = sa.tuple_(value, t.items.c.id)
        query = query.where(at < place if order.descending else at > place)
    columns: list[sa.ColumnElement[Any]] = [value, t.items.c.id]
    query = query.order_by(*(column.desc() if order.descending else column.asc() for column in columns))
    ids = list(connection.scalars(query.limit(limit).offset(offset)))
    states = items.current(connection, [cube], ids)
    return [states[id_] for id_ in ids]


def _passing(connection: sa.Connection, cube: str, node: Node | None) -> tuple[sa.ColumnElement[bool], ...]:
    return t.items.c.cube_id == cube, compile_sql(node, filter_sql.of(connection, [cube]))


_VALUES: dict[FacetName, sa.ColumnElement[Any]] = {
    FacetName.TYPE: t.versions.c.type,
    FacetName.STATUS: t.versions.c.status,
    FacetName.TIER: t.versions.c.tier,
    FacetName.SPEAKER: t.versions.c.speaker,
    FacetName.TAG: sa.cast(t.versions.c.tags, sa.Text),
    FacetName.CONVERSATION: t.conversations.c.name,
    FacetName.MONTH: sa.type_coerce(t.items.c.said_at, sa.BigInteger),
}


def facets(
    connection: sa.Connection,
    cube: str,
    node: Node | None,
    names: Sequence[FacetName],
    most: int,
    now: datetime,
    *,
    deleted: bool,
) -> Facets:
    """Count the newest items that pass a filter by property, with at most `most` values each.

    Unless `deleted` ones are wanted too, only the counts of statuses have them.
    """
    values = {**_VALUES, FacetName.TAG: t.versions.c.tags} if is_sealed(connection) else _VALUES
    columns = [values[name].label(f"value_{name}") for name in names]
    newest = (t.items.c.created_at.desc(), t.items.c.id.desc())
    query = sa.select(t.versions.c.status, *columns).select_from(_ITEMS)
    query = query.where(*_passing(connection, cube, node), is_live(now))
    rows = connection.execute(query.order_by(*newest).limit(COUNTED)).all()
    shown = rows if deleted else [row for row in rows if row.status != Status.DELETED]
    found = []
    for place, name in enumerate(names, 1):
        told = [row[place] for row in (rows if name is FacetName.STATUS else shown)]
        if name is FacetName.TAG:
            told = [tags if isinstance(tags, str) else json.dumps(tags) for tags in told]
        found.append(_facet(name, _COUNTERS.get(name, Counter)(told), most))
    return Facets(len(shown), len(rows) == COUNTED, tuple(found))


def _of_tags(texts: Iterable[str]) -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for text, number in Counter(texts).items():
        for tag in set(json.loads(text)) if text != "[]" else ():
            found[tag] += number
    return found


def _of_months(moments: Iterable[int | None]) -> Counter[str | None]:
    days = Counter(None if micros is None else micros // _DAY_MICROS for micros in moments)
    found: Counter[str | None] = Counter()
    for day, number in days.items():
        if day is not None:
            found[f"{datetime.fromtimestamp(0, UTC) + timedelta(days=day):%Y-%m}"] += number
    return found


_COUNTERS: dict[FacetName, Callable[[Iterable[Any]], Counter[str | None]]] = {
    FacetName.TAG: _of_tags,
    FacetName.MONTH: _of_months,
}


def _facet(name: FacetName, counts: Counter[str | None], most: int) -> Facet:
    told = [(value, number) for value, number in counts.items() if value is not None]
    if name is FacetName.MONTH:
        told.sort(reverse=True)
    else:
        told.sort(key=lambda each: (-each[1], each[0]))
    values = tuple(FacetValue(value, number) for value, number in told[:most])
    return Facet(name, values, max(0, len(told) - most))


def passages(connection: sa.Connection, cube: str, item: str, around: int, most: int, now: datetime) -> list[Passage]:
    """Return the messages an item comes from, each with `around` neighbours on both sides."""
    said_in = t.conversations.alias()
    query = (
        sa.select(t.sources.c.start, t.sources.c.end, t.messages, said_in.c.name.label("conversation"))
        .select_from(t.sources.join(t.messages, t.messages.c.id == t.sources.c.message_id))
        .outerjoin(said_in, said_in.c.id == t.messages.c.conversation_id)
        .where(t.sources.c.item_id == item, t.messages.c.cube_id == cube)
        .order_by(t.sources.c.ordinal)
        .limit(most)
    )
    return [_passage(connection, row, around, now) for row in connection.execute(query).all()]


def _passage(connection: sa.Connection, row: Any, around: int, now: datetime) -> Passage:
    # The first item of a message is the message itself; what was derived from it came later.
    own = (
        sa.select(t.items.c.id, t.items.c.conversation_id, t.items.c.position)
        .join(t.sources, t.sources.c.item_id == t.items.c.id)
        .where(t.sources.c.message_id == row.id)
        .order_by(t.items.c.created_at, t.items.c.id)
        .limit(1)
    )
    message = connection.execute(own).one()
    before, after = [], []
    if around and message.conversation_id is not None and message.position is not None:
        before = _beside(connection, message, around, now, earlier=True)[::-1]
        after = _beside(connection, message, around, now, earlier=False)
    return Passage(
        message.id,
        row.name,
        Role(row.role),
        row.chat_time,
        row.text,
        row.start,
        row.end,
        row.conversation,
        Trust(row.trust),
        tuple(before),
        tuple(after),
    )


def _beside(connection: sa.Connection, message: Any, around: int, now: datetime, *, earlier: bool) -> list[Said]:
    place = t.items.c.position
    query = (
        sa.select(t.items.c.id, t.items.c.said_at, t.versions.c.speaker, t.versions.c.role, t.versions.c.memory)
        .join(t.versions, t.versions.c.id == t.items.c.version_id)
        .where(t.items.c.conversation_id == message.conversation_id, t.versions.c.status != Status.DELETED)
        .where(is_live(now))
        .where(place < message.position if earlier else place > message.position)
        .order_by(place.desc() if earlier else place)
        .limit(around)
    )
    return [Said(row.id, row.speaker, Role(row.role), row.said_at, row.memory) for row in connection.execute(query)]


def messages(connection: sa.Connection, cube: str, ids: Iterable[str], now: datetime) -> dict[str, StoredMessage]:
    """Return messages that are neither deleted nor expired, by the ids of their memories."""
    query = _MESSAGES.where(t.items.c.cube_id == cube, is_live(now))
    rows = items.rows_in(connection, query, t.items.c.id, ids)
    return {row.item_id: _stored(row) for row in rows}


def transcript(
    connection: sa.Connection, cube: str, conversation: str, most: int, now: datetime
) -> list[StoredMessage]:
    """Return the newest messages of a conversation that are neither deleted nor expired, the oldest first."""
    said_in = t.conversations.c.cube_id == cube, t.conversations.c.name == conversation, is_live(now)
    query = _MESSAGES.join(t.conversations, t.conversations.c.id == t.items.c.conversation_id).where(*said_in)
    newest = connection.execute(query.order_by(t.items.c.position.desc()).limit(most)).all()
    return [_stored(row) for row in reversed(newest)]


# Derived items have the message as a source too, but are no messages.
_MESSAGES = (
    sa.select(
        t.items.c.id.label("item_id"),
        t.versions.c.memory,
        t.messages.c.text,
        t.messages.c.role,
        t.messages.c.chat_time,
        t.messages.c.content,
        t.messages.c.tool_calls,
        t.messages.c.tool_call_id,
    )
    .join(t.versions, t.versions.c.id == t.items.c.version_id)
    .join(t.sources, t.sources.c.item_id == t.items.c.id)
    .join(t.messages, t.messages.c.id == t.sources.c.message_id)
    .where(t.versions.c.type == ItemType.MESSAGE, t.versions.c.status != Status.DELETED)
)


def _stored(row: Any) -> StoredMessage:
    # What was corrected must not be shown as it was written.
    parts = row.content if row.memory == row.text and isinstance(row.content, list) else []
    calls = tuple(ToolCall(**call) for call in row.tool_calls or ())
    return StoredMessage(row.item_id, Role(row.role), row.chat_time, row.memory, tuple(parts), calls, row.tool_call_id)


def events_of(connection: sa.Connection, cube: str, item: str, limit: int) -> list[Event]:
    """Return the events about an item, newest first."""
    e = t.events.c
    query = sa.select(e.seq, e.at, e.actor, e.kind, e.item_id, e.body).where(e.item_id == item, e.cube_id == cube)
    return [
        Event(cube, *row[:-1], None if row.body is None else json.loads(row.body))
        for row in connection.execute(query.order_by(e.seq.desc()).limit(limit))
    ]


def links_of(connection: sa.Connection, cube: str, item: str, limit: int) -> list[Link]:
    """Return the links of an item in both directions, the newest first."""
    k = t.links.c
    query = sa.select(k.kind, k.from_id, k.to_id, k.confidence, k.decided_by, k.created_at).where(k.cube_id == cube)
    query = query.where(sa.or_(k.from_id == item, k.to_id == item)).order_by(k.created_at.desc(), k.from_id, k.to_id)
    return [Link(LinkKind(row.kind), *row[1:]) for row in connection.execute(query.limit(limit))]


def place_of(connection: sa.Connection, item: str) -> Any:
    """Return the row of an item with what is stored of its heat, and its place in the prefix."""
    w, p, i = t.warmth.c, t.prefix_entries.c, t.items.c
    heat = (w.level, w.visits, w.interactions, w.last, w.history)
    query = (
        sa.select(i.pinned, i.cold, i.conversation_id, i.page, p.ordinal, *heat)
        .outerjoin(t.warmth, w.item_id == i.id)
        .outerjoin(t.prefix_entries, p.item_id == i.id)
        .where(i.id == item)
    )
    return connection.execute(query).one()


def segment_of(connection: sa.Connection, item: str, place: Any) -> str | None:
    """Return the segment of an item's page, None if it has none."""
    if place.conversation_id is not None:
        return segments.segment_of(connection, place.conversation_id, place.page)
    found: str | None = connection.scalar(sa.select(t.pages.c.segment_id).where(t.pages.c.id == item))
    return found


def learned_by(connection: sa.Connection, cube: str, item: str) -> list[LearnedBy]:
    a = t.adapters.c
    query = (
        sa.select(a.id, a.number, a.state)
        .join(t.adapter_items, t.adapter_items.c.adapter_id == a.id)
        .where(t.adapter_items.c.item_id == item, a.cube_id == cube)
        .order_by(a.number)
    )
    return [LearnedBy(*row) for row in connection.execute(query)]


def is_excluded(connection: sa.Connection, item: str) -> bool:
    excluded = t.adapter_exclusions.c.item_id
    return connection.scalar(sa.select(excluded).where(excluded == item)) is not None
