"""Read-only queries across tables: counts for overviews, pending items, trust and speakers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.message_shapes import ROLES
from memos.core.types import LOCAL_OWNER, Item, PendingItem, Role, Task, Trust
from memos.memcube.ledger import items, queues
from memos.memcube.ledger.entities import fold
from memos.memcube.ledger.expiry import is_live
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import (
    conversations,
    cubes,
    events,
    mentions,
    messages,
    outbox,
    pages,
    segments,
    sources,
    tasks,
    versions,
)
from memos.memcube.ledger.schema import items as items_table
from memos.memcube.ledger.segments import ON_PAGES, pages_of
from memos.memcube.ledger.tasks import RUNNING, to_task

WHY = "pending"
"""Key in an item's `info` with the reason why it is pending."""

_WHY_CHARS = 300
# As the partial index has it: with a parameter SQLite would not use it.
_PENDING = sa.text("versions.status = 'pending' AND versions.recorded_to IS NULL")


def pending_items(connection: sa.Connection, cube: str, limit: int, now: datetime) -> list[PendingItem]:
    waiting = items.SELECT.where(versions.c.cube_id == cube, _PENDING, is_live(now))
    rows = connection.execute(waiting.order_by(items_table.c.created_at, items_table.c.id).limit(limit))
    found = [items.to_item(row) for row in rows]
    sources = items.sources_of(connection, [state.id for state in found])
    reasons = _reasons(connection, found)
    return [
        PendingItem(replace(state, sources=sources.get(state.id, ())), _why(state, reasons[state.id]))
        for state in found
    ]


_ROLLED_BACK = re.compile(r"rolled back to version (\d+)")


def _reasons(connection: sa.Connection, states: Sequence[Item]) -> dict[str, str]:
    """Return why each item is as it is: of one that was rolled back, why the version was made that it is like."""
    query = sa.select(versions.c.item_id, versions.c.version, versions.c.reason)
    told: dict[str, dict[int, str]] = defaultdict(dict)
    for row in items.rows_in(connection, query, versions.c.item_id, [state.id for state in states]):
        told[row.item_id][row.version] = row.reason
    found = {}
    for state in states:
        version, reasons = state.version, told[state.id]
        while (back := _ROLLED_BACK.fullmatch(reasons[version])) and int(back[1]) < version and int(back[1]) in reasons:
            version = int(back[1])
        found[state.id] = reasons[version]
    return found


def count_pending(connection: sa.Connection, cube: str, most: int, now: datetime) -> int:
    """Return how many items of a cube are pending, `most` if there are more."""
    current = items_table.join(versions, versions.c.item_id == items_table.c.id)
    waiting = sa.select(sa.literal(1)).select_from(current)
    waiting = waiting.where(versions.c.cube_id == cube, _PENDING, is_live(now)).limit(most)
    return connection.scalar(sa.select(sa.func.count()).select_from(waiting.subquery())) or 0


def _why(state: Item, reason: str) -> str:
    told = state.info.get(WHY)
    return (told if isinstance(told, str) and told.strip() else reason)[:_WHY_CHARS]


def has_untrusted(connection: sa.Connection, segment: str) -> bool:
    for joined in ON_PAGES:
        query = (
            sa.select(items_table.c.id)
            .join(pages, joined)
            .join(sources, sources.c.item_id == items_table.c.id)
            .join(messages, messages.c.id == sources.c.message_id)
            .where(pages.c.segment_id == segment, messages.c.trust == Trust.UNTRUSTED)
            .limit(1)
        )
        if connection.scalar(query) is not None:
            return True
    return False


@dataclass(frozen=True, slots=True)
class CubeSummary:
    """Number and time of a cube's newest event; 0 and None before the first."""

    cube: str
    seq: int
    at: datetime | None


def newest_events(connection: sa.Connection, named: Sequence[str] | None) -> list[CubeSummary]:
    newest = sa.and_(events.c.cube_id == cubes.c.id, events.c.seq == cubes.c.event_seq)
    query = sa.select(cubes.c.id, cubes.c.event_seq, events.c.at).join(events, newest, isouter=True)
    if named is not None:
        query = query.where(cubes.c.id.in_(named))
    return [CubeSummary(row.id, row.event_seq, row.at) for row in connection.execute(query.order_by(cubes.c.id))]


# Tiers


@dataclass(frozen=True, slots=True)
class StoredCounts:
    messages: int = 0
    items: int = 0


def stored(connection: sa.Connection, named: Sequence[str]) -> dict[str, StoredCounts]:
    """Return the counts of these cubes; the cost is linear in their size."""
    said = _by_cube(connection, sa.select(messages.c.cube_id, sa.func.count()), messages.c.cube_id, named)
    kept = _by_cube(connection, sa.select(items_table.c.cube_id, sa.func.count()), items_table.c.cube_id, named)
    return {cube: StoredCounts(said.get(cube, 0), kept.get(cube, 0)) for cube in named}


def short_pages(connection: sa.Connection, named: Sequence[str]) -> dict[str, int]:
    """Return the number of pages in the short tier by cube, including erased ones."""
    pages = sa.func.sum(conversations.c.next_page - conversations.c.first_short + 1)
    return _by_cube(connection, sa.select(conversations.c.cube_id, pages), conversations.c.cube_id, named)


def short_pages_at(connection: sa.Connection, cube: str, capacity: int) -> int:
    """Return how many pages a short tier of this capacity would have; conversations that were left have none."""
    pages = conversations.c.next_page + 1
    held = sa.func.sum(sa.case((pages < capacity, pages), else_=capacity))
    query = sa.select(held).where(conversations.c.cube_id == cube)
    return int(connection.scalar(query.where(conversations.c.next_page >= conversations.c.first_short)) or 0)


def segments_by_state(connection: sa.Connection, named: Sequence[str]) -> dict[tuple[str, str], int]:
    query = sa.select(segments.c.cube_id, segments.c.state, sa.func.count()).where(segments.c.cube_id.in_(named))
    rows = connection.execute(query.group_by(segments.c.cube_id, segments.c.state))
    return {(cube, state): number for cube, state, number in rows}


def _by_cube(
    connection: sa.Connection, query: sa.Select[Any], column: sa.Column[Any], named: Sequence[str]
) -> dict[str, int]:
    rows = connection.execute(query.where(column.in_(named)).group_by(column))
    return {cube: int(number or 0) for cube, number in rows}


# Tasks


def waiting(connection: sa.Connection, named: Sequence[str] | None) -> dict[tuple[str, str], int]:
    query = sa.select(tasks.c.cube_id, tasks.c.kind, sa.func.count()).where(queues.WAITING)
    rows = connection.execute(_of(named, query).group_by(tasks.c.cube_id, tasks.c.kind))
    return {(cube, kind): number for cube, kind, number in rows}


def running(connection: sa.Connection, named: Sequence[str] | None) -> list[Task]:
    # A task has a lease exactly while it runs; the second condition makes SQLite use the index.
    leased = sa.select(tasks).where(RUNNING, tasks.c.lease_until.is_not(None))
    query = _of(named, leased).order_by(tasks.c.started_at, tasks.c.id)
    return [to_task(row) for row in connection.execute(query)]


def ended(connection: sa.Connection, named: Sequence[str] | None, since: datetime) -> dict[tuple[str, str], int]:
    query = sa.select(tasks.c.kind, tasks.c.state, sa.func.count()).where(tasks.c.finished_at >= since)
    rows = connection.execute(_of(named, query).group_by(tasks.c.kind, tasks.c.state))
    return {(kind, state): number for kind, state, number in rows}


def concerned(connection: sa.Connection, about: str) -> tuple[frozenset[str], datetime | None]:
    """Return what tasks name that deal with an item: itself, its conversation and its segment; and since when."""
    query = sa.select(items_table.c.conversation_id, items_table.c.created_at).where(items_table.c.id == about)
    row = connection.execute(query).one_or_none()
    if row is None:
        return frozenset({about}), None
    names = {about, row.conversation_id, *(page.segment for page in pages_of(connection, [about]))}
    return frozenset(name for name in names if name), row.created_at


def _of(named: Sequence[str] | None, query: sa.Select[Any]) -> sa.Select[Any]:
    return query if named is None else query.where(tasks.c.cube_id.in_(named))


# The whole installation


@dataclass(frozen=True, slots=True)
class InstallationCounts:
    """Totals over all cubes; the query scans them all."""

    cubes: int
    messages: int
    items: int
    short_pages: int
    segments: dict[str, int]
    outbox: dict[tuple[str, bool], int]


def installation_counts(connection: sa.Connection) -> InstallationCounts:
    pages = sa.func.sum(conversations.c.next_page - conversations.c.first_short + 1)
    by_state = sa.select(segments.c.state, sa.func.count()).group_by(segments.c.state)
    left = sa.select(outbox.c.target, outbox.c.parked, sa.func.count()).group_by(outbox.c.target, outbox.c.parked)
    return InstallationCounts(
        connection.scalar(sa.select(sa.func.count()).select_from(cubes)) or 0,
        connection.scalar(sa.select(sa.func.count()).select_from(messages)) or 0,
        connection.scalar(sa.select(sa.func.count()).select_from(items_table)) or 0,
        int(connection.scalar(sa.select(pages)) or 0),
        {row[0]: row[1] for row in connection.execute(by_state)},
        {(target, bool(parked)): number for target, parked, number in connection.execute(left)},
    )


MOST = 8
"""Number of speakers up to which a name in a question says little: one of two is 1 bit, one of a hundred nearly 7."""

_SPEAKING = (Role.USER.value, Role.ASSISTANT.value)


def _distinct() -> sa.Select[tuple[str]]:
    """Return a recursive query for distinct names, with one index probe per name (a loose index scan).

    It must be run for one cube and role at a time, otherwise the probes cannot use the index.
    """
    theirs = sa.and_(
        messages.c.cube_id.in_(sa.bindparam("cubes", expanding=True)),
        messages.c.role.in_(sa.bindparam("roles", expanding=True)),
    )
    names = sa.select(sa.func.min(messages.c.name).label("name")).where(theirs).cte("names", recursive=True)
    following = sa.select(sa.func.min(messages.c.name)).where(theirs, messages.c.name > names.c.name)
    names = names.union_all(sa.select(following.scalar_subquery()).where(names.c.name.is_not(None)))
    return sa.select(names.c.name).where(names.c.name.is_not(None)).limit(MOST + 2)


def _name(row: Iterable[str]) -> str:
    [name] = row
    return name


_DISTINCT = PreparedSelect(_distinct(), _name)


class Speakers(NamedTuple):
    """Names that may be those of speakers in a question, and whether more people speak than `MOST`."""

    names: list[str]
    many: bool


def speakers(connection: sa.Connection, cubes: Sequence[str], asked: Iterable[str]) -> Speakers:
    """Return the names of all speakers, except role names, or of those `asked` for if there are more than `MOST`."""
    found: dict[str, None] = {}
    many = len(cubes) > MOST
    for cube in () if many else cubes:
        for role in _SPEAKING:
            found |= dict.fromkeys(_DISTINCT.rows(connection, cubes=[cube], roles=[role]))
    names = [name for name in found if name not in tuple(Role)]
    if many or len(names) > MOST:
        return Speakers(_speaking(connection, cubes, asked), many=True)
    return Speakers(names, many=False)


def _speaking(connection: sa.Connection, cubes: Sequence[str], names: Iterable[str]) -> list[str]:
    theirs = sa.and_(messages.c.cube_id.in_(cubes), messages.c.role.in_(_SPEAKING))
    each = [
        sa.select(sa.literal(name).label("name")).where(sa.exists().where(theirs, messages.c.name == name))
        for name in names
        if name not in tuple(Role)
    ]
    return list(connection.scalars(sa.union_all(*each))) if each else []


MOST_LOOKED_THROUGH = 200
"""Messages of a conversation up to which it is looked through for a name."""


def _among(column: sa.ColumnElement[str], parameter: str) -> sa.ColumnElement[bool]:
    return column.in_(sa.bindparam(parameter, expanding=True))


_SPOKEN_IN = PreparedSelect(
    sa.select(messages.c.conversation_id)
    .where(_among(messages.c.conversation_id, "conversations"), _among(messages.c.name, "names"))
    .distinct(),
    _name,
)
_NAMES_BESIDE = PreparedSelect(
    sa.select(items_table.c.id, messages.c.name)
    .join(messages, messages.c.conversation_id == items_table.c.conversation_id)
    .join(conversations, conversations.c.id == items_table.c.conversation_id)
    .where(_among(items_table.c.id, "ids"), conversations.c.next_position <= MOST_LOOKED_THROUGH)
    .distinct()
)
_SHORT = PreparedSelect(
    sa.select(conversations.c.id).where(
        _among(conversations.c.id, "conversations"), conversations.c.next_position <= MOST_LOOKED_THROUGH
    ),
    _name,
)
# Items first: a name may be in most items of a cube.
_MENTIONED_IN = PreparedSelect(
    sa.select(items_table.c.conversation_id)
    .where(
        _among(items_table.c.conversation_id, "conversations"),
        sa.exists().where(mentions.c.item_id == items_table.c.id, _among(mentions.c.name, "names")),
    )
    .distinct(),
    _name,
)


def names_beside(connection: sa.Connection, ids: Sequence[str]) -> dict[str, set[str | None]]:
    """Return who speaks in the conversation of each item, by id; of conversations that are not long."""
    found: dict[str, set[str | None]] = defaultdict(set)
    for id_, name in _NAMES_BESIDE.rows(connection, ids=list(ids)):
        found[id_].add(name)
    return found


def conversations_without(connection: sa.Connection, wanted: Iterable[str], names: Sequence[str]) -> set[str]:
    """Return those of these conversations in which nobody with one of these names speaks or is mentioned.

    None that has more messages than are looked through.
    """
    rest = set(wanted)
    rest -= set(_SPOKEN_IN.rows(connection, conversations=list(rest), names=names))
    rest = set(_SHORT.rows(connection, conversations=list(rest)))
    folded = list(map(fold, names))
    return rest - set(_MENTIONED_IN.rows(connection, conversations=list(rest), names=folded))


def with_persons(
    connection: sa.Connection, cube: str, states: dict[str, Item], adders: Mapping[str, str]
) -> dict[str, Item]:
    """Return items in which two statements have the same speaker if one person made both.

    Some programs name the speaker, others do not, or call everybody "Human". A speaker without a name is taken for the
    only named user of the cube, but not in a conversation with both, nor if another user of the installation added the
    statement. Otherwise it is the user that added it. The local owner adds for anybody, such as by an import.

    Args:
        connection: A connection to the ledger.
        cube: The cube of the items.
        states: Items by id.
        adders: Who added each item (`items.adders`).
    """
    said = {id_: state for id_, state in states.items() if state.role is Role.USER and id_ in adders}
    nameless = {id_ for id_, state in said.items() if _is_nameless(state.speaker)}
    if not nameless:
        return states
    named = _under_one_name(connection, cube, said, nameless, adders) if len(nameless) < len(said) else {}
    several = len({adders[id_] for id_ in said} - {LOCAL_OWNER}) > 1
    apart = {}
    for id_ in nameless - named.keys():
        by_owner = adders[id_] == LOCAL_OWNER
        apart[id_] = replace(said[id_], speaker=f"{Role.USER} {adders[id_]}" if several and not by_owner else Role.USER)
    return states | named | apart


def _under_one_name(
    connection: sa.Connection, cube: str, said: Mapping[str, Item], nameless: set[str], adders: Mapping[str, str]
) -> dict[str, Item]:
    """Return the items without a name that the only named user of the cube said, under that name."""
    found = _DISTINCT.rows(connection, cubes=[cube], roles=[Role.USER.value])
    names = sorted(name for name in found if not _is_nameless(name))
    if len(set(map(fold, names))) != 1:
        return {}
    talks = sa.select(items_table.c.id, items_table.c.conversation_id)
    held = {row.id: row.conversation_id for row in items.rows_in(connection, talks, items_table.c.id, sorted(nameless))}
    among = sorted({talk for talk in held.values() if talk is not None})
    beside = set(_SPOKEN_IN.rows(connection, conversations=among, names=names)) if among else set()
    by = {adders[id_] for id_ in said.keys() - nameless}
    return {
        id_: replace(said[id_], speaker=names[0])
        for id_ in nameless
        if held.get(id_) not in beside and ({adders[id_], LOCAL_OWNER} & by or adders[id_] == LOCAL_OWNER)
    }


def _is_nameless(speaker: str) -> bool:
    """Return True if a speaker has a word for a user instead of a name, such as "Human"."""
    return ROLES.get(fold(speaker)) is Role.USER
