"""Rows of items, versions and sources."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.clock import new_id, to_micros
from memos.core.filters import Node, info_paths
from memos.core.types import Item, ItemType, Json, LinkKind, Role, Source, Status, Tier, Trust, Version
from memos.errors import Conflict, NotFound
from memos.memcube.ledger import entities, expiry, filter_sql
from memos.memcube.ledger.columns import is_sealed
from memos.memcube.ledger.filter_sql import compile_sql
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import (
    conversations,
    identities,
    items,
    links,
    messages,
    row_of,
    sources,
    tombstone_items,
    versions,
)

# SQLite allows 32,766 variables per statement; small batches also keep PostgreSQL's planner fast.
_BATCH = 500

SELECT = (
    sa.select(
        versions,
        items.c.position,
        items.c.page,
        items.c.session,
        items.c.said_at,
        items.c.created_at,
        items.c.conversation_id,
        items.c.revision,
        items.c.record_id,
        items.c.expires_at,
        conversations.c.name.label("conversation"),
    )
    .select_from(versions.join(items, items.c.id == versions.c.item_id))
    .outerjoin(conversations, conversations.c.id == items.c.conversation_id)
)


# Built once, since building a statement takes as long as executing it.
_IDS: sa.BindParameter[str] = sa.bindparam("ids", expanding=True)
_CUBES: sa.BindParameter[str] = sa.bindparam("cubes", expanding=True)
_THESE = SELECT.where(versions.c.item_id.in_(_IDS), versions.c.cube_id.in_(_CUBES))
_CURRENT = PreparedSelect(_THESE.where(versions.c.recorded_to.is_(None)))
_said_in = conversations.alias("said_in")
_SOURCE_COLUMNS = (
    sources.c.start.label("source_start"),
    sources.c.end.label("source_end"),
    messages.c.id.label("source_id"),
    messages.c.text.label("source_text"),
    messages.c.name.label("source_name"),
    messages.c.chat_time.label("source_time"),
    messages.c.external_id.label("source_external"),
    messages.c.trust.label("source_trust"),
    _said_in.c.name.label("source_conversation"),
)
_SOURCES = (
    sa.select(sources.c.item_id, *_SOURCE_COLUMNS)
    .select_from(sources.join(messages, messages.c.id == sources.c.message_id))
    .outerjoin(_said_in, _said_in.c.id == messages.c.conversation_id)
    .where(sources.c.item_id.in_(_IDS))
    .order_by(sources.c.item_id, sources.c.ordinal)
)
_WITH_SOURCES = (
    SELECT.add_columns(*_SOURCE_COLUMNS)
    .outerjoin(sources, sources.c.item_id == items.c.id)
    .outerjoin(messages, messages.c.id == sources.c.message_id)
    .outerjoin(_said_in, _said_in.c.id == messages.c.conversation_id)
    .where(versions.c.item_id.in_(_IDS), versions.c.cube_id.in_(_CUBES))
    .order_by(sources.c.item_id, sources.c.ordinal)
)
_WITH_SOURCES_NOW = PreparedSelect(_WITH_SOURCES.where(versions.c.recorded_to.is_(None)))


_LINKS = PreparedSelect(sa.select(links.c.from_id, links.c.kind, links.c.to_id).where(links.c.from_id.in_(_IDS)))
_VERSIONS = PreparedSelect(SELECT.where(versions.c.item_id.in_(_IDS)).order_by(versions.c.item_id, versions.c.version))
_REVISIONS = PreparedSelect(sa.select(items.c.id, items.c.revision).where(items.c.id.in_(_IDS)))


def in_batches(values: Iterable[str]) -> Iterator[list[str]]:
    pending = list(values)
    for start in range(0, len(pending), _BATCH):
        yield pending[start : start + _BATCH]


def rows_in(
    connection: sa.Connection, query: sa.Select[Any], column: sa.Column[Any], values: Iterable[str]
) -> Iterator[Any]:
    """Yield the rows of a query in which the column has one of the values, batch by batch."""
    for batch in in_batches(values):
        yield from connection.execute(query.where(column.in_(batch))).all()


def scalars_in(
    connection: sa.Connection, query: sa.Select[Any], column: sa.Column[Any], values: Iterable[str]
) -> Iterator[Any]:
    return (row[0] for row in rows_in(connection, query, column, values))


def adders(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Return which user added each item; an agent adds for the user it acts for."""
    return {id_: by for batch in in_batches(ids) for id_, by in _ADDERS.rows(connection, ids=batch)}


_ADDERS = PreparedSelect(
    sa.select(versions.c.item_id, sa.func.coalesce(identities.c.acts_for, versions.c.actor))
    .outerjoin(identities, identities.c.id == versions.c.actor)
    .where(versions.c.item_id.in_(sa.bindparam("ids", expanding=True)), versions.c.version == 1)
)


def lock(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Wait for whoever relates to these items, and keep others from it, on PostgreSQL; SQLite has one writer."""
    for batch in in_batches(sorted(ids)):
        connection.execute(sa.select(items.c.id).where(items.c.id.in_(batch)).order_by(items.c.id).with_for_update())


def to_item(row: Any, sources: tuple[Source, ...] = ()) -> Item:
    return Item(
        id=row.item_id,
        cube=row.cube_id,
        version=row.version,
        version_id=row.id,
        memory=row.memory,
        type=ItemType(row.type),
        tier=Tier(row.tier),
        status=Status(row.status),
        speaker=row.speaker,
        role=Role(row.role),
        key=row.key,
        value=row.value,
        tags=tuple(row.tags),
        info=row.info,
        confidence=row.confidence,
        entities=tuple(row.entities),
        keywords=tuple(row.keywords),
        conversation=row.conversation,
        position=row.position,
        page=row.page,
        session=row.session,
        said_at=row.said_at,
        valid_from=row.valid_from,
        valid_to=row.valid_to,
        created_at=row.created_at,
        updated_at=row.recorded_at,
        recorded_to=row.recorded_to,
        superseded_by=row.superseded_by,
        sources=sources,
        record_id=row.record_id,
        expires_at=row.expires_at,
    )


def record_of(item: Item) -> dict[str, Json]:
    record: dict[str, Json] = {
        "id": item.id,
        "memory": item.memory,
        "type": item.type,
        "tier": item.tier,
        "status": item.status,
        "key": item.key,
        "conversation": item.conversation,
        "cube": item.cube,
        "role": item.role,
        "speaker": item.speaker,
        "tags": list(item.tags),
        "entities": list(item.entities),
        "keywords": list(item.keywords),
        "confidence": item.confidence,
        "version": item.version,
        "said_at": None if item.said_at is None else to_micros(item.said_at),
        "created_at": to_micros(item.created_at),
        "updated_at": to_micros(item.updated_at),
        "valid_from": None if item.valid_from is None else to_micros(item.valid_from),
        "valid_to": None if item.valid_to is None else to_micros(item.valid_to),
        "record_id": item.record_id,
        "expires_at": None if item.expires_at is None else to_micros(item.expires_at),
    }
    if item.info:
        record.update({f"info.{path}": value for path, value in info_paths(item.info)})
    return record


def current(
    connection: sa.Connection, cubes: Sequence[str], ids: Iterable[str], at: datetime | None = None
) -> dict[str, Item]:
    found: dict[str, Item] = {}
    for batch in in_batches(ids):
        rows = _these(connection, _CURRENT, _THESE, batch, cubes, at)
        found.update((row.item_id, to_item(row)) for row in rows)
    return found


def standing(at: datetime | None) -> sa.ColumnElement[bool]:
    if at is None:
        return versions.c.recorded_to.is_(None)
    open_ended = sa.or_(versions.c.recorded_to.is_(None), versions.c.recorded_to > at)
    return sa.and_(versions.c.recorded_at <= at, open_ended)


class Brief(NamedTuple):
    """The fields of an item that ranking needs; `memory` is its first `BRIEF_CHARS` characters, `length` counts all."""

    id: str
    version: int
    cube: str
    memory: str
    length: int
    type: str
    status: str
    speaker: str
    role: str
    conversation: str | None
    session: int | None
    position: int | None
    said_at: int | None
    valid_from: int | None
    valid_to: int | None
    cold: bool
    outdated: bool
    key: str | None
    expires_at: int | None = None
    searchable: bool = True


BRIEF_CHARS = 2_000
_BRIEF = (
    sa.select(
        versions.c.item_id,
        versions.c.version,
        versions.c.cube_id,
        sa.func.substr(versions.c.memory, 1, BRIEF_CHARS),
        sa.func.length(versions.c.memory),
        versions.c.type,
        versions.c.status,
        versions.c.speaker,
        versions.c.role,
        items.c.conversation_id,
        items.c.session,
        items.c.position,
        # Left as stored integers: they are only compared, and converting all rows would be wasted.
        sa.type_coerce(items.c.said_at, sa.BigInteger),
        sa.type_coerce(versions.c.valid_from, sa.BigInteger),
        sa.type_coerce(versions.c.valid_to, sa.BigInteger),
        # SQLite stores booleans as integers.
        sa.type_coerce(items.c.cold, sa.Integer),
        sa.type_coerce(items.c.outdated, sa.Integer),
        versions.c.key,
        sa.type_coerce(items.c.expires_at, sa.BigInteger),
        sa.type_coerce(items.c.searchable, sa.Integer),
    )
    .select_from(versions.join(items, items.c.id == versions.c.item_id))
    .where(versions.c.item_id.in_(_IDS), versions.c.cube_id.in_(_CUBES))
)
_BRIEF_NOW = PreparedSelect(_BRIEF.where(versions.c.recorded_to.is_(None)), Brief._make)


def _shortened(values: Iterable[Any]) -> Brief:
    id_, version, cube, memory, _, *others = values
    return Brief(id_, version, cube, memory[:BRIEF_CHARS], len(memory), *others)


# Where SQL cannot cut a text.
_columns = list(_BRIEF.selected_columns)
_SEALED_BRIEF = _BRIEF.with_only_columns(*_columns[:3], versions.c.memory, sa.null(), *_columns[5:])
_SEALED_BRIEF_NOW = PreparedSelect(_SEALED_BRIEF.where(versions.c.recorded_to.is_(None)), _shortened)


def briefs(
    connection: sa.Connection, cubes: Sequence[str], ids: Collection[str], at: datetime | None = None
) -> list[Brief]:
    found: list[Brief] = []
    now, then = (_SEALED_BRIEF_NOW, _SEALED_BRIEF) if is_sealed(connection) else (_BRIEF_NOW, _BRIEF)
    for batch in in_batches(ids):
        found += _these(connection, now, then, batch, cubes, at)
    return found


def _these(
    connection: sa.Connection,
    now: PreparedSelect,
    then: sa.Select[Any],
    ids: list[str],
    cubes: Sequence[str],
    at: datetime | None,
) -> Iterable[Any]:
    if at is None:
        return now.rows(connection, ids=ids, cubes=cubes)
    rows = connection.execute(then.where(standing(at)), {"ids": ids, "cubes": list(cubes)})
    return rows if now.make is None else map(now.make, rows)


def all_versions(connection: sa.Connection, ids: Iterable[str]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for batch in in_batches(ids):
        for row in _VERSIONS.rows(connection, ids=batch):
            found[row.item_id].append(to_item(row))
    return found


def cube_of(connection: sa.Connection, item_id: str, now: datetime) -> str:
    """Return the cube of an item that has not expired. Raises: NotFound."""
    query = sa.select(items.c.cube_id, items.c.expires_at).where(items.c.id == item_id)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise _unknown(connection, item_id)
    if found.expires_at is not None and found.expires_at <= now:
        raise unknown(item_id)
    return str(found.cube_id)


def require(connection: sa.Connection, cubes: Sequence[str], item_id: str) -> Item:
    item = current(connection, cubes, [item_id]).get(item_id)
    if item is None:
        raise _unknown(connection, item_id)
    return item


def _unknown(connection: sa.Connection, item_id: str) -> NotFound:
    erased = connection.scalar(sa.select(tombstone_items.c.tombstone_id).where(tombstone_items.c.item_id == item_id))
    return NotFound("item", item_id, f"It was erased (receipt {erased}).") if erased else unknown(item_id)


def unknown(item_id: str) -> NotFound:
    return NotFound("item", item_id, "List memories with `memos list`.")


def matching(
    connection: sa.Connection,
    cubes: Sequence[str],
    node: Node | None,
    *,
    limit: int,
    offset: int = 0,
    newest: bool = False,
) -> list[Item]:
    query = SELECT.where(
        items.c.cube_id.in_(cubes), standing(None), compile_sql(node, filter_sql.of(connection, cubes))
    )
    order = [items.c.created_at, items.c.id]
    query = query.order_by(*(column.desc() for column in order)) if newest else query.order_by(*order)
    return [to_item(row) for row in connection.execute(query.limit(limit).offset(offset))]


def count(connection: sa.Connection, cubes: Sequence[str], node: Node | None) -> int:
    query = SELECT.with_only_columns(sa.func.count())
    query = query.where(items.c.cube_id.in_(cubes), standing(None), compile_sql(node, filter_sql.of(connection, cubes)))
    return connection.execute(query).scalar_one()


def matching_ids(
    connection: sa.Connection,
    cubes: Sequence[str],
    node: Node | None,
    *,
    at: datetime | None = None,
    limit: int | None = None,
) -> list[str]:
    query = SELECT.with_only_columns(versions.c.item_id)
    query = query.where(items.c.cube_id.in_(cubes), standing(at))
    query = query.where(compile_sql(node, filter_sql.of(connection, cubes, standing(at)))).limit(limit)
    return list(connection.scalars(query))


def tally_of(connection: sa.Connection, ids: Iterable[str]) -> tuple[dict[str, int], int]:
    """Return how many of these items are of each type, and in how many conversations they are."""
    kinds: Counter[str] = Counter()
    talks: set[str] = set()
    query = SELECT.with_only_columns(versions.c.type, items.c.conversation_id).where(standing(None))
    for row in rows_in(connection, query, items.c.id, ids):
        kinds[str(row.type)] += 1
        talks.update([row.conversation_id] if row.conversation_id else [])
    return dict(kinds), len(talks)


def passing(
    connection: sa.Connection,
    cubes: Sequence[str],
    node: Node | None,
    ids: Iterable[str],
    *,
    at: datetime | None = None,
) -> set[str]:
    query = SELECT.with_only_columns(versions.c.item_id).where(versions.c.cube_id.in_(cubes), standing(at))
    wanted = list(ids)
    among = sa.and_(standing(at), versions.c.item_id.in_(wanted)) if len(wanted) <= _BATCH else standing(at)
    query = query.where(compile_sql(node, filter_sql.of(connection, cubes, among)))
    return set(scalars_in(connection, query, versions.c.item_id, wanted))


def newest(connection: sa.Connection, cubes: Sequence[str], limit: int, at: datetime | None = None) -> list[Item]:
    query = SELECT.where(items.c.cube_id.in_(cubes), standing(at))
    return [to_item(row) for row in connection.execute(query.order_by(items.c.created_at.desc()).limit(limit))]


def with_key(connection: sa.Connection, cube: str, attribute: str) -> list[Item]:
    """Return the cube's active items with the key `<subject>|attribute`, newest first."""
    query = SELECT.where(
        versions.c.cube_id == cube,
        versions.c.recorded_to.is_(None),
        versions.c.key.like(f"%|{_escape(attribute)}", escape="\\"),
        versions.c.status == Status.ACTIVE,
    ).order_by(versions.c.recorded_at.desc())
    return [to_item(row) for row in connection.execute(query)]


def with_keys(connection: sa.Connection, cube: str, keys: Sequence[str]) -> list[Item]:
    query = SELECT.where(versions.c.cube_id == cube, versions.c.recorded_to.is_(None), versions.c.key.in_(keys))
    return [to_item(row) for row in connection.execute(query)]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def history(connection: sa.Connection, cubes: Sequence[str], item_id: str) -> list[Version]:
    require(connection, cubes, item_id)
    rows = connection.execute(SELECT.where(versions.c.item_id == item_id).order_by(versions.c.version)).all()
    entries: list[Version] = []
    before: Item | None = None
    for row in rows:
        after = to_item(row)
        entries.append(Version(row.id, item_id, row.version, row.actor, row.reason, row.recorded_at, before, after))
        before = after
    return entries


def sources_of(connection: sa.Connection, ids: Iterable[str]) -> dict[str, tuple[Source, ...]]:
    found: dict[str, list[Source]] = defaultdict(list)
    for batch in in_batches(ids):
        for row in connection.execute(_SOURCES, {"ids": batch}):
            found[row.item_id].append(_source(row))
    return {item_id: tuple(entries) for item_id, entries in found.items()}


def with_sources(
    connection: sa.Connection, cubes: Sequence[str], ids: Iterable[str], at: datetime | None = None
) -> dict[str, Item]:
    rows: dict[str, list[Any]] = defaultdict(list)
    for batch in in_batches(ids):
        for row in _these(connection, _WITH_SOURCES_NOW, _WITH_SOURCES, batch, cubes, at):
            rows[row.item_id].append(row)
    return {
        item_id: to_item(same[0], tuple(_source_then(row, at) for row in same if row.source_id is not None))
        for item_id, same in rows.items()
    }


def _source_then(row: Any, at: datetime | None) -> Source:
    """Return the source of an item at a moment: a put replaces the message of a record, whose text then it repeats."""
    source = _source(row)
    if at is None or row.type != ItemType.RECORD:
        return source
    return replace(source, start=0, end=len(row.memory), passage=row.memory, at=row.recorded_at)


def _source(row: Any) -> Source:
    start, end = row.source_start, row.source_end
    return Source(
        row.source_id,
        start,
        end,
        row.source_name,
        row.source_time,
        row.source_text[start:end],
        row.source_conversation,
        row.source_external,
        Trust(row.source_trust),
    )


def insert_versions(connection: sa.Connection, states: Sequence[Item], actor: str, reason: str) -> None:
    if states:
        connection.execute(sa.insert(versions), [_version_row(state, actor, reason) for state in states])
        entities.follow(connection, states)


def append(connection: sa.Connection, before: Item, after: Item, actor: str, reason: str) -> None:
    closed = connection.execute(
        sa.update(versions)
        .where(versions.c.id == before.version_id, versions.c.recorded_to.is_(None))
        .values(recorded_to=after.updated_at)
    )
    if closed.rowcount != 1:
        raise Conflict(f"Item {before.id} changed meanwhile; read it again and retry.")
    insert_versions(connection, [after], actor, reason)
    connection.execute(
        sa.update(items)
        .where(items.c.id == after.id)
        .values(version=after.version, version_id=after.version_id, revision=items.c.revision + 1)
    )


def revisions(connection: sa.Connection, ids: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in in_batches(ids):
        found.update(_REVISIONS.rows(connection, ids=batch))
    return found


def unsearchable(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    query = sa.select(items.c.id).where(items.c.searchable.is_(False))
    return set(scalars_in(connection, query, items.c.id, ids))


def before_in_conversation(connection: sa.Connection, item: Item | Brief, reach: int) -> list[str]:
    """Return ids of up to `reach` items just before one in its session, nearest first, including deleted ones."""
    if item.conversation is None or item.position is None:
        return []
    return [row.id for row in _before(reach).rows(connection, ids=[item.id])]


@cache
def _before(reach: int) -> PreparedSelect:
    own = items.alias("own")
    return PreparedSelect(
        sa.select(items.c.id)
        .join(
            own,
            sa.and_(
                items.c.conversation_id == own.c.conversation_id,
                items.c.session == own.c.session,
                items.c.position < own.c.position,
            ),
        )
        .where(own.c.id.in_(_IDS))
        .order_by(items.c.position.desc())
        .limit(reach)
    )


def links_from(connection: sa.Connection, ids: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for batch in in_batches(ids):
        for row in _LINKS.rows(connection, ids=batch):
            found[row.from_id].append((row.kind, row.to_id))
    return found


def origins_of(connection: sa.Connection, ids: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for batch in in_batches(ids):
        for item_id, kind, target in _LINKS.rows(connection, ids=batch):
            if kind == LinkKind.DERIVED_FROM:
                found[item_id].add(target)
    return found


def whole_messages(
    connection: sa.Connection,
    facts: Mapping[str, Hashable],
    said: Callable[[Collection[str]], Mapping[str, Hashable]],
) -> dict[str, str]:
    """Return the message of each fact that is the whole of one, by the fact's id.

    Args:
        connection: The ledger.
        facts: What each fact says, by its id, in a form that can be compared.
        said: Returns the same of messages, by their ids.
    """
    single = {fact: next(iter(of)) for fact, of in origins_of(connection, facts).items() if len(of) == 1}
    messages = said(set(single.values()))
    return {fact: origin for fact, origin in single.items() if messages.get(origin) == facts[fact]}


def mark_outdated(connection: sa.Connection, ids: Iterable[str], *, outdated: bool = True) -> None:
    """Flag messages whose statement was superseded; this creates no new version."""
    for batch in in_batches(ids):
        connection.execute(sa.update(items).where(items.c.id.in_(batch)).values(outdated=outdated))


_MOST_CORRECTIONS = 10  # of one statement that are followed


def superseded_by(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Return, by id, what superseded each of these items."""
    query = sa.select(versions.c.item_id, versions.c.superseded_by).where(
        versions.c.recorded_to.is_(None),
        versions.c.status == Status.SUPERSEDED,
        versions.c.superseded_by.is_not(None),
    )
    return {row.item_id: row.superseded_by for row in rows_in(connection, query, versions.c.item_id, ids)}


def replaced_by(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Return, by id, the last item in the chain of what superseded each of these."""
    latest = {id_: id_ for id_ in ids}
    for _ in range(_MOST_CORRECTIONS):
        after = superseded_by(connection, set(latest.values()))
        if not after:
            break
        latest = {id_: after.get(last, last) for id_, last in latest.items()}
    return {id_: last for id_, last in latest.items() if last != id_}


def successors(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str]:
    now = versions.alias("now")
    query = (
        sa.select(links.c.to_id, now.c.item_id)
        .join(versions, sa.and_(versions.c.item_id == links.c.from_id, versions.c.recorded_to.is_(None)))
        .join(now, sa.and_(now.c.cube_id == versions.c.cube_id, now.c.key == versions.c.key))
        .where(links.c.kind == LinkKind.DERIVED_FROM)
        .where(versions.c.status == Status.SUPERSEDED, versions.c.key.is_not(None))
        .where(now.c.recorded_to.is_(None), now.c.status == Status.ACTIVE)
        # Profile traits repeat facts.
        .where(now.c.type == versions.c.type, now.c.type != ItemType.PROFILE)
        .order_by(now.c.item_id)
    )
    return {row.to_id: row.item_id for row in rows_in(connection, query, links.c.to_id, ids)}


def derived_from(connection: sa.Connection, ids: Iterable[str]) -> set[str]:
    made = sa.select(links.c.from_id).where(links.c.kind == LinkKind.DERIVED_FROM)
    return set(scalars_in(connection, made, links.c.to_id, ids))


def raise_revisions(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Increment the revision of items that must be indexed again because a neighbour in their window changed."""
    for batch in in_batches(ids):
        connection.execute(sa.update(items).where(items.c.id.in_(batch)).values(revision=items.c.revision + 1))


def raise_revisions_above(connection: sa.Connection, seen: Mapping[str, int]) -> None:
    """Give items a revision above the ones that an index has of them."""
    for id_, revision in seen.items():
        above = sa.update(items).where(items.c.id == id_, items.c.revision <= revision)
        connection.execute(above.values(revision=revision + 1))


def followers(connection: sa.Connection, changed: Sequence[Item], reach: int) -> list[str]:
    """Return items whose windows contain a changed item: the next `reach` live ones after it."""
    found: set[str] = set()
    for item in changed:
        if item.conversation is None or item.position is None:
            continue
        mine = sa.select(items.c.conversation_id).where(items.c.id == item.id).scalar_subquery()
        # By order, not by difference: erased messages leave gaps in the positions.
        query = sa.select(items.c.id).where(items.c.conversation_id == mine, items.c.position > item.position)
        found.update(connection.scalars(query.order_by(items.c.position).limit(reach)))
    return sorted(found - {item.id for item in changed})


def link(connection: sa.Connection, pairs: Iterable[tuple[str, LinkKind, str]], cube: str, now: datetime) -> None:
    made: set[str] = set()
    for from_id, kind, to_id in pairs:
        known = sa.select(links.c.from_id).where(
            links.c.from_id == from_id, links.c.kind == kind, links.c.to_id == to_id
        )
        if connection.scalar(known) is None:
            connection.execute(
                sa.insert(links).values(from_id=from_id, kind=kind, to_id=to_id, cube_id=cube, created_at=now)
            )
            made.update([from_id] if kind is LinkKind.DERIVED_FROM else [])
    expiry.inherit(connection, made)


def _version_row(state: Item, actor: str, reason: str) -> dict[str, Any]:
    ids = {"id": state.version_id, "item_id": state.id}
    recorded = {"recorded_at": state.updated_at, "recorded_to": None, "actor": actor, "reason": reason}
    lists = {name: list(getattr(state, name)) for name in ("tags", "entities", "keywords")}
    return row_of(versions, state, **ids, **recorded, **lists, info=dict(state.info))


def blank(cube: str, now: datetime, **fields: Any) -> Item:
    """Return the first version of a new item, active and with confidence 1; fields that are not given are empty."""
    ids = {"id": new_id(), "cube": cube, "version": 1, "version_id": new_id()}
    nothing = dict.fromkeys(("key", "value", "conversation", "position", "page", "session", "record_id", "expires_at"))
    times = dict.fromkeys(("said_at", "valid_from", "valid_to")) | {"created_at": now, "updated_at": now}
    usual: dict[str, Any] = {"tier": Tier.LONG, "status": Status.ACTIVE, "tags": (), "confidence": 1.0}
    return Item(**{**usual, **ids, **nothing, **times, **fields})


def first_row(state: Item, conversation_id: str | None = None) -> dict[str, Any]:
    names = ("position", "page", "session", "said_at", "version", "version_id", "created_at", "record_id", "expires_at")
    same = {name: getattr(state, name) for name in names}
    return {"id": state.id, "cube_id": state.cube, "conversation_id": conversation_id, "revision": 1, **same}


def source_row(
    item: str, ordinal: int, message: str, span: tuple[int, int], reader: str, extraction: str | None = None
) -> dict[str, Any]:
    about = {"item_id": item, "ordinal": ordinal, "message_id": message, "start": span[0], "end": span[1]}
    return {**about, "reader": reader, "extraction_id": extraction}


def next_version(before: Item, version_id: str, now: datetime, **changes: Any) -> Item:
    return replace(
        before, version=before.version + 1, version_id=version_id, updated_at=now, recorded_to=None, **changes
    )
