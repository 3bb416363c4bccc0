"""Queries for tier moves: hot segments with unread pages, cold ones, and those beyond the capacity.

Every query by heat is a range scan of `ix_segments_hot` (cube, state, unread, level), so its cost is linear in its
result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa

from memos.core.types import FOUND, Item
from memos.memcube.ledger import items, reading, tasks
from memos.memcube.ledger import segments as segment_rows
from memos.memcube.ledger.schema import conversations, cubes, pages, segments, warmth
from memos.memcube.ledger.schema import items as item_rows
from memos.memcube.ledger.segments import ARCHIVED, OPEN, Page, SegmentRow
from memos.memcube.ledger.tasks import NewTask


def numbered(connection: sa.Connection, cube: str, conversation: str, numbers: Collection[int]) -> dict[int, Page]:
    here = conversations.c.id == item_rows.c.conversation_id
    query = sa.select(item_rows.c.id).join(conversations, here)
    query = query.where(conversations.c.cube_id == cube, conversations.c.name == conversation)
    ids = connection.scalars(query.where(item_rows.c.page.in_(sorted(numbers)))).all()
    found: dict[int, list[Item]] = {}
    for state in sorted(items.current(connection, [cube], ids).values(), key=_in_order):
        if state.status in FOUND:
            found.setdefault(state.page or 0, []).append(state)
    return {number: Page(number, tuple(messages)) for number, messages in found.items()}


def newest(connection: sa.Connection, cube: str, conversation: str, most: int) -> tuple[Page, ...]:
    here = (conversations.c.cube_id == cube, conversations.c.name == conversation)
    query = sa.select(conversations.c.first_short, conversations.c.next_page).where(*here)
    place = connection.execute(query).one_or_none()
    if place is None:
        return ()
    first = max(place.first_short, place.next_page + 1 - most)
    found = numbered(connection, cube, conversation, range(first, place.next_page + 1))
    return tuple(found[number] for number in sorted(found))


ANALYSE = "analyse"
SWEEP = "sweep"
SUMMARISE = "summarise"
"""Kinds of tasks: extract facts from unread pages of hot segments; move a cube's segments between tiers by their heat;
summarise a segment with a model."""


def analyse_task(
    *, segment: str | None = None, least: int = 1, everything: bool = False, cheaply: bool = False
) -> NewTask:
    """Return the task that extracts facts from one segment, from all, or from hot ones with `least` unread pages.

    `cheaply` reads the one segment without a model.
    """
    if segment is not None:
        return NewTask(ANALYSE, {"segment": segment, **({"cheaply": True} if cheaply else {})}, key=segment)
    if everything:
        return NewTask(ANALYSE, {"all": True}, key="all")
    return NewTask(ANALYSE, {"least": least}, key=f"hot:{least}")


def sweep_task() -> NewTask:
    return NewTask(SWEEP, {}, key="")


def summarise_task(segment: str) -> NewTask:
    return NewTask(SUMMARISE, {"segment": segment}, key=segment)


def hot_unread(connection: sa.Connection, cube: str, level: float, limit: int, least: int = 1) -> list[SegmentRow]:
    query = sa.select(segments).where(*_range(cube, OPEN, unread=True), segments.c.level >= level)
    if least > 1:
        query = query.where(_unread_pages(segments.c.id) >= least)
    query = query.order_by(segments.c.level.desc()).limit(limit)
    return [segment_rows.to_segment(row) for row in connection.execute(query)]


def _unread_pages(segment: sa.ColumnElement[str]) -> sa.ScalarSelect[int]:
    unread = (pages.c.segment_id == segment, pages.c.read.is_(False))
    return sa.select(sa.func.count()).select_from(pages).where(*unread).correlate(segments).scalar_subquery()


def unread_count(connection: sa.Connection, segment: str) -> int:
    unread = (pages.c.segment_id == segment, pages.c.read.is_(False))
    return int(connection.scalar(sa.select(sa.func.count()).select_from(pages).where(*unread)) or 0)


def any_unread(connection: sa.Connection, cube: str, limit: int = 1) -> list[SegmentRow]:
    found: list[SegmentRow] = []
    for state in (OPEN, ARCHIVED):
        query = sa.select(segments).where(*_range(cube, state, unread=True)).order_by(segments.c.level.desc())
        found += [segment_rows.to_segment(row) for row in connection.execute(query.limit(limit - len(found)))]
        if len(found) >= limit:
            break
    return found


def cold(connection: sa.Connection, cube: str, level: float, before: datetime, limit: int) -> list[SegmentRow]:
    query = (
        sa.select(segments)
        .where(*_range(cube, OPEN, unread=False), segments.c.level < level)
        .where(segments.c.pinned.is_(False), segments.c.created_at < before)
        .order_by(segments.c.level)
        .limit(limit)
    )
    return [segment_rows.to_segment(row) for row in connection.execute(query)]


def cold_unread(connection: sa.Connection, cube: str, level: float, before: datetime, limit: int) -> list[str]:
    query = (
        sa.select(segments.c.id)
        .where(*_range(cube, OPEN, unread=True), segments.c.level < level)
        .where(segments.c.pinned.is_(False), segments.c.created_at < before)
        .order_by(segments.c.level)
        .limit(limit)
    )
    return list(connection.scalars(query))


def revived(connection: sa.Connection, cube: str, level: float, limit: int) -> list[SegmentRow]:
    found: list[SegmentRow] = []
    for unread in (True, False):
        query = sa.select(segments).where(*_range(cube, ARCHIVED, unread=unread), segments.c.level >= level)
        rows = connection.execute(query.order_by(segments.c.level.desc()).limit(limit))
        found += [segment_rows.to_segment(row) for row in rows]
    return found[:limit]


def border_of(connection: sa.Connection, cube: str, capacity: int) -> float | None:
    """Return the level of the hottest open segment beyond the capacity, None if all of them fit."""
    if count(connection, cube) <= capacity:
        return None
    # Two range scans, since `unread` comes before `level` in the index, merged up to the capacity.
    levels: list[float] = []
    for unread in (True, False):
        query = sa.select(segments.c.level).where(*_range(cube, OPEN, unread=unread))
        levels += connection.scalars(query.order_by(segments.c.level.desc()).limit(capacity + 1))
    levels.sort(reverse=True)
    return levels[capacity] if len(levels) > capacity else None


def count(connection: sa.Connection, cube: str) -> int:
    return int(connection.scalar(sa.select(cubes.c.segments).where(cubes.c.id == cube)) or 0)


def cubes_with_segments(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(sa.select(cubes.c.id).where(cubes.c.segments > 0).order_by(cubes.c.id)))


def _range(cube: str, state: str, *, unread: bool) -> tuple[sa.ColumnElement[bool], ...]:
    return segments.c.cube_id == cube, segments.c.state == state, segments.c.unread.is_(unread)


# Reading pages


def unread_pages(connection: sa.Connection, segment: SegmentRow, most: int) -> list[Page]:
    query = sa.select(pages).where(pages.c.segment_id == segment.id, pages.c.read.is_(False))
    rows = connection.execute(query.order_by(pages.c.moved_at, pages.c.conversation_id, pages.c.number).limit(most))
    found = []
    for row in rows.all():
        if row.conversation_id is None:
            ids = [row.id]
        else:
            said_in = (item_rows.c.conversation_id == row.conversation_id, item_rows.c.page == row.number)
            ids = list(connection.scalars(sa.select(item_rows.c.id).where(*said_in)))
        states = items.current(connection, [segment.cube], ids)
        if states:
            found.append(Page(row.number, tuple(sorted(states.values(), key=_in_order))))
    return found


def _in_order(state: Item) -> tuple[int, str]:
    return state.position or 0, state.id


def mark_read(connection: sa.Connection, segment: SegmentRow, read: Sequence[Page]) -> None:
    members = {message.id for page in read for message in page.messages}
    done = [held.id for held in segment_rows.pages_of(connection, members)]
    for batch in items.in_batches(done):
        connection.execute(sa.update(pages).where(pages.c.id.in_(batch)).values(read=True))
    segment.unread = has_unread(connection, segment.id)


def has_unread(connection: sa.Connection, segment: str) -> bool:
    left = sa.select(pages.c.id).where(pages.c.segment_id == segment, pages.c.read.is_(False)).limit(1)
    return connection.scalar(left) is not None


def read_again(connection: sa.Connection, cube: str, item_ids: Iterable[str], now: datetime) -> None:
    """Mark the pages of these messages unread, and queue them for `fine` extraction again, as their facts are gone."""
    ids = list(item_ids)
    reading.requeue(connection, cube, ids, now)
    held = segment_rows.pages_of(connection, ids)
    for batch in items.in_batches(page.id for page in held):
        connection.execute(sa.update(pages).where(pages.c.id.in_(batch)).values(read=False))
    for batch in items.in_batches({page.segment for page in held}):
        connection.execute(sa.update(segments).where(segments.c.id.in_(batch)).values(unread=True))


# Moving


def set_state(connection: sa.Connection, moved: Iterable[SegmentRow], state: str, now: datetime) -> None:
    for segment in moved:
        segment.state, segment.updated_at = state, now
        here = sa.update(segments).where(segments.c.id == segment.id)
        connection.execute(here.values(state=state, updated_at=now))
        said = [message.id for message in segment_rows.members(connection, segment.id)]
        for batch in items.in_batches(said):
            is_cold = sa.update(item_rows).where(item_rows.c.id.in_(batch))
            connection.execute(is_cold.values(cold=state == ARCHIVED))


def pin(connection: sa.Connection, cube: str, id_: str, *, pinned: bool) -> bool:
    for table in (item_rows, segments):
        here = sa.update(table).where(table.c.id == id_, table.c.cube_id == cube).values(pinned=pinned)
        if connection.execute(here).rowcount:
            return True
    return False


def tau_of(connection: sa.Connection, cube: str) -> float | None:
    """Return the tau in seconds that a cube's levels use, None before the first access."""
    found: float | None = connection.scalar(sa.select(cubes.c.heat_tau_s).where(cubes.c.id == cube))
    return found


def set_tau(connection: sa.Connection, cube: str, tau_s: float, shift: float = 0.0) -> None:
    """Set a cube's tau, and add `shift` to every level so that heats stay the same."""
    connection.execute(sa.update(cubes).where(cubes.c.id == cube).values(heat_tau_s=tau_s))
    if shift:
        for table in (segments, warmth):
            moved = sa.update(table).where(table.c.cube_id == cube, table.c.last.is_not(None))
            connection.execute(moved.values(level=table.c.level + shift))


def enqueue(connection: sa.Connection, cube: str, new: NewTask, now: datetime) -> None:
    tasks.enqueue(connection, cube, [new], now)
