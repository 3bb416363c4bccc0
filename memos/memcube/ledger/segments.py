"""Rows of pages and segments: pages that leave the short tier, their segments, and the hottest segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from memos.core.types import UNUSED, Item, ItemType, Tier
from memos.memcube.ledger import items, tasks
from memos.memcube.ledger.columns import CUBE
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import conversations, cubes, fields_of, pages, row_of, segments, versions, warmth
from memos.memcube.ledger.schema import items as item_rows
from memos.memcube.ledger.tasks import NewTask

OPEN, ARCHIVED = "open", "archived"

OVERFLOW, REMAKE = "overflow", "remake"
"""Kinds of tasks: move pages out of the short tier; rebuild a segment from its pages."""

# Delay of tasks, so that several causes become one task, which does not compete with the calls that caused it.
_GATHERING = timedelta(seconds=2)

KEPT_KEYWORDS = 32
"""Number of keywords stored for a segment: those on the most pages."""

ON_PAGES = (
    sa.and_(pages.c.conversation_id == item_rows.c.conversation_id, pages.c.number == item_rows.c.page),
    sa.and_(pages.c.conversation_id.is_(None), pages.c.id == item_rows.c.id),
)
"""Conditions that join items to pages: by number within a conversation; an item outside one is a page of its own."""

_IDS: sa.BindParameter[str] = sa.bindparam("ids", expanding=True)
_SEGMENTS = PreparedSelect(sa.select(segments).where(segments.c.id.in_(_IDS)))
_SEGMENTS_OF = [
    PreparedSelect(sa.select(item_rows.c.id, pages.c.segment_id).join(pages, joined).where(item_rows.c.id.in_(_IDS)))
    for joined in ON_PAGES
]


@dataclass(slots=True)
class SegmentRow:
    """A segment's row; `vector` is float32 (dimension,), the sum of its pages' unit vectors."""

    id: str
    cube: str
    created_at: datetime
    updated_at: datetime
    state: str = OPEN
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    told: str | None = None
    told_pages: int = 0
    keywords: dict[str, int] = field(default_factory=dict)
    vector: NDArray[np.float32] | None = None
    pages: int = 0
    unread: bool = False
    pinned: bool = False
    level: float = 0.0
    visits: int = 0
    interactions: int = 0
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """The messages of one exchange, oldest first; `number` is the page's number in its conversation."""

    number: int
    messages: tuple[Item, ...]

    @property
    def id(self) -> str:
        return self.messages[0].id


@dataclass(frozen=True, slots=True)
class Overflow:
    """Pages to move out of the short tier: numbers `first` to `end`, exclusive.

    Without a conversation they are messages created after `since` and up to `until`, each a page of its own.
    """

    conversation: str | None
    pages: tuple[Page, ...]
    first: int = 0
    end: int = 0
    since: datetime | None = None
    until: datetime | None = None


def overflow_task(conversation: str | None, now: datetime) -> NewTask:
    return NewTask(OVERFLOW, {"conversation": conversation}, key=conversation or "", not_before=now + _GATHERING)


def idle_task(conversation: str, *, read: bool = False) -> NewTask:
    payload = {"conversation": conversation, "all": True, **({"read": True} if read else {})}
    return NewTask(OVERFLOW, payload, key=f"all:{conversation}")


def idle(
    connection: sa.Connection, before: datetime | None, limit: int, after: str = "", cube: str | None = None
) -> list[tuple[str, str]]:
    query = sa.select(conversations.c.id, conversations.c.cube_id).where(
        conversations.c.next_position > 0,
        conversations.c.next_page >= conversations.c.first_short,
        conversations.c.id > after,
    )
    if before is not None:
        place = (item_rows.c.conversation_id == conversations.c.id) & (
            item_rows.c.position == conversations.c.next_position - 1
        )
        last = sa.select(item_rows.c.created_at).where(place).scalar_subquery()
        query = query.where(sa.func.coalesce(last, conversations.c.created_at) < before)
    if cube is not None:
        query = query.where(conversations.c.cube_id == cube)
    return [(row.id, row.cube_id) for row in connection.execute(query.order_by(conversations.c.id).limit(limit))]


def remake(connection: sa.Connection, cube: str, changed: Iterable[str], now: datetime) -> None:
    due = now + _GATHERING
    new = [NewTask(REMAKE, {"segment": id_}, key=id_, not_before=due) for id_ in sorted(set(changed))]
    tasks.enqueue(connection, cube, new, now)


def is_crowded(first_short: int, last_page: int, capacity: int) -> bool:
    """Return True if a conversation has more pages in the short tier than its capacity."""
    return last_page - first_short + 1 > capacity


def crowded(connection: sa.Connection, capacity: int, limit: int, after: str = "") -> list[tuple[str, str]]:
    too_many = conversations.c.next_page - conversations.c.first_short + 1 > capacity
    query = sa.select(conversations.c.id, conversations.c.cube_id).where(too_many, conversations.c.id > after)
    query = query.order_by(conversations.c.id).limit(limit)
    return [(row.id, row.cube_id) for row in connection.execute(query)]


def overflow(
    connection: sa.Connection, cube: str, conversation: str | None, capacity: int, most: int
) -> Overflow | None:
    """Return the oldest pages beyond the capacity; messages without a conversation have no short tier."""
    if conversation is None:
        return _lone(connection, cube, most)
    query = sa.select(conversations.c.first_short, conversations.c.next_page)
    here = (conversations.c.id == conversation, conversations.c.cube_id == cube)
    place = connection.execute(query.where(*here)).one_or_none()
    if place is None or not is_crowded(place.first_short, place.next_page, capacity):
        return None
    first, end = place.first_short, min(place.next_page + 1 - capacity, place.first_short + most)
    return Overflow(conversation, _pages(connection, cube, conversation, first, end), first, end)


def _lone(connection: sa.Connection, cube: str, most: int) -> Overflow | None:
    since = connection.scalar(sa.select(cubes.c.lone_until).where(cubes.c.id == cube))
    alone = (item_rows.c.cube_id == cube, item_rows.c.conversation_id.is_(None))
    query = sa.select(item_rows.c.id, item_rows.c.created_at).where(*alone)
    if since is not None:
        query = query.where(item_rows.c.created_at > since)
    rows = connection.execute(query.order_by(item_rows.c.created_at, item_rows.c.id).limit(most)).all()
    if not rows:
        return None
    states = items.current(connection, [cube], [row.id for row in rows])
    found = tuple(Page(0, (states[row.id],)) for row in rows if states[row.id].type is ItemType.MESSAGE)
    return Overflow(None, found, since=since, until=rows[-1].created_at)


def _pages(connection: sa.Connection, cube: str, conversation: str, first: int, end: int) -> tuple[Page, ...]:
    inside = (item_rows.c.conversation_id == conversation, item_rows.c.page >= first, item_rows.c.page < end)
    states = items.current(connection, [cube], connection.scalars(sa.select(item_rows.c.id).where(*inside)).all())
    by_number: dict[int, list[Item]] = {}
    for state in sorted(states.values(), key=lambda state: state.position or 0):
        by_number.setdefault(state.page or 0, []).append(state)
    return tuple(Page(number, tuple(messages)) for number, messages in sorted(by_number.items()))


def segment_of(connection: sa.Connection, conversation: str, number: int) -> str | None:
    """Return the segment of a page, None if it is in the short tier or erased."""
    here = (pages.c.conversation_id == conversation, pages.c.number == number)
    found: str | None = connection.scalar(sa.select(pages.c.segment_id).where(*here))
    return found


def place_pages(
    connection: sa.Connection, cube: str, conversation: str | None, placed: Sequence[tuple[Page, str]], now: datetime
) -> None:
    if not placed:
        return
    same = {"cube_id": cube, "conversation_id": conversation, "moved_at": now}
    rows = [{"id": page.id, "number": page.number, "segment_id": segment, **same} for page, segment in placed]
    connection.execute(sa.insert(pages), rows)
    set_tier(connection, (message.id for page, _ in placed for message in page.messages), Tier.MID)


def set_tier(connection: sa.Connection, item_ids: Iterable[str], tier: Tier) -> None:
    """Set the tier of items; this creates no new version."""
    for batch in items.in_batches(item_ids):
        now = sa.update(versions).where(versions.c.item_id.in_(batch), versions.c.recorded_to.is_(None))
        connection.execute(now.values(tier=tier))


def advance_short_tier(connection: sa.Connection, cube: str, found: Overflow) -> None:
    if found.conversation is None:
        connection.execute(sa.update(cubes).where(cubes.c.id == cube).values(lone_until=found.until))
    else:
        here = sa.update(conversations).where(conversations.c.id == found.conversation)
        connection.execute(here.values(first_short=found.end))


# Segments


def comparable(
    connection: sa.Connection, cube: str, most: int
) -> list[tuple[str, NDArray[np.float32] | None, dict[str, int]]]:
    query = (
        sa.select(segments.c.id, segments.c.vector, segments.c.words)
        .where(segments.c.cube_id == cube, segments.c.state == OPEN)
        .order_by(segments.c.level.desc(), segments.c.id)
        .limit(most)
    )
    return [
        (row.id, None if row.vector is None else np.frombuffer(row.vector, dtype=np.float32), dict(row.words))
        for row in connection.execute(query)
    ]


def hottest(
    connection: sa.Connection, cube: str, limit: int, *, state: str | None = None, after: SegmentRow | None = None
) -> list[SegmentRow]:
    """Return segments by heat, open ones first; only those in a state, or that come after another one."""
    found: list[SegmentRow] = []
    for each in (OPEN, ARCHIVED) if state is None else (state,):
        if after is not None and after.state == ARCHIVED and each == OPEN:
            continue
        both: list[SegmentRow] = []
        for unread in (True, False):  # two queries, since `unread` comes before `level` in the index
            here = (segments.c.cube_id == cube, segments.c.state == each, segments.c.unread.is_(unread))
            query = sa.select(segments).where(*here).order_by(segments.c.level.desc(), segments.c.id)
            if after is not None and after.state == each:
                same = sa.and_(segments.c.level == after.level, segments.c.id > after.id)
                query = query.where(sa.or_(segments.c.level < after.level, same))
            both += [to_segment(row) for row in connection.execute(query.limit(limit - len(found)))]
        both.sort(key=lambda segment: (-segment.level, segment.id))
        found += both[: limit - len(found)]
    return found


def get_segments(connection: sa.Connection, ids: Iterable[str]) -> dict[str, SegmentRow]:
    found: dict[str, SegmentRow] = {}
    for batch in items.in_batches(ids):
        found.update((row.id, to_segment(row)) for row in _SEGMENTS.rows(connection, ids=batch))
    return found


def save(connection: sa.Connection, changed: Iterable[SegmentRow], known: Iterable[str]) -> None:
    before = set(known)
    for segment in changed:
        values = _row(segment)
        if segment.id in before:
            del values["id"], values["cube_id"]
            changed_row = sa.update(segments).where(segments.c.id == segment.id).values(values)
            connection.execute(changed_row, execution_options={CUBE: segment.cube})
        else:
            connection.execute(sa.insert(segments).values(values))
            _count(connection, segment.cube, 1)


_HEAT = ("level", "visits", "interactions", "last")
_SET_HEAT = (
    sa.update(segments)
    .where(segments.c.id == sa.bindparam("segment"))
    .values({name: sa.bindparam(f"new_{name}") for name in _HEAT})
)


def save_heats(connection: sa.Connection, warmed: Iterable[SegmentRow]) -> None:
    """Update the heat of segments; none are inserted."""
    rows = [{"segment": one.id, **{f"new_{name}": getattr(one, name) for name in _HEAT}} for one in warmed]
    if rows:
        connection.execute(_SET_HEAT, rows)


def _count(connection: sa.Connection, cube: str, more: int) -> None:
    here = sa.update(cubes).where(cubes.c.id == cube)
    connection.execute(here.values(segments=cubes.c.segments + more))


def members(connection: sa.Connection, segment: str) -> list[Item]:
    states: dict[str, Item] = {}
    for joined in ON_PAGES:
        query = sa.select(item_rows.c.id, item_rows.c.cube_id).join(pages, joined)
        rows = connection.execute(query.where(pages.c.segment_id == segment)).all()
        states |= items.current(connection, list({row.cube_id for row in rows}), [row.id for row in rows])
    return sorted(states.values(), key=lambda state: (state.said_at or state.created_at, state.id))


def newest_members(connection: sa.Connection, segment: str, limit: int, after: str | None = None) -> list[str]:
    """Return the ids of a segment's messages, the newest first; with `after` those that are older than that one."""
    place = sa.tuple_(item_rows.c.created_at, item_rows.c.id)
    older: sa.ColumnElement[bool] = sa.true()
    if after is not None:
        at = sa.select(item_rows.c.created_at).where(item_rows.c.id == after).scalar_subquery()
        older = place < sa.tuple_(at, after)
    found: list[Any] = []
    for joined in ON_PAGES:
        query = sa.select(item_rows.c.id, item_rows.c.created_at).join(pages, joined)
        query = query.where(pages.c.segment_id == segment, older)
        found += connection.execute(query.order_by(item_rows.c.created_at.desc(), item_rows.c.id.desc()).limit(limit))
    found.sort(key=lambda row: (row.created_at, row.id), reverse=True)
    return [row.id for row in found[:limit]]


@dataclass(frozen=True, slots=True)
class Uses:
    """Recorded use of a segment: times of its pages, number of lookups, and time of the last one."""

    pages: Sequence[tuple[datetime, datetime]]
    """When each page was said and when it was placed."""
    found: Sequence[tuple[int, datetime, datetime]]
    """Of each message that was ever found: how often, from when on, and when last."""


def uses_of(connection: sa.Connection, cube: str, ids: Sequence[str], most: int, most_pages: int) -> dict[str, Uses]:
    """Return the recorded use of a cube's segments, from the newest pages of each and the `most` hottest messages."""
    placed: dict[str, list[tuple[datetime, datetime]]] = {id_: [] for id_ in ids}
    found: dict[str, list[tuple[int, datetime, datetime]]] = {id_: [] for id_ in ids}
    for batch in items.in_batches(ids):
        newest = sa.func.row_number().over(partition_by=pages.c.segment_id, order_by=pages.c.moved_at.desc())
        ranked = sa.select(pages.c.segment_id, pages.c.id, pages.c.moved_at, newest.label("place"))
        page = ranked.where(pages.c.segment_id.in_(batch)).subquery().c
        said = sa.func.coalesce(item_rows.c.said_at, page.moved_at).label("said")
        query = sa.select(page.segment_id, said, page.moved_at).outerjoin(item_rows, item_rows.c.id == page.id)
        for row in connection.execute(query.where(page.place <= most_pages)):
            placed[row.segment_id].append((row.said, row.moved_at))
    uses = sa.select(warmth.c.item_id, warmth.c.visits, item_rows.c.created_at, warmth.c.last)
    uses = uses.join(item_rows, item_rows.c.id == warmth.c.item_id).where(warmth.c.cube_id == cube, warmth.c.visits > 0)
    warm = connection.execute(uses.order_by(warmth.c.level.desc()).limit(most)).all()
    of_item = segments_by_item(connection, [row.item_id for row in warm])
    for item, visits, since, last in warm:
        if (segment := of_item.get(item)) in found:
            found[segment].append((visits, since, last))
    return {id_: Uses(placed[id_], found[id_]) for id_ in ids}


def to_segment(row: Any) -> SegmentRow:
    told = fields_of(row)
    words, vector = dict(told.pop("words")), told.pop("vector")
    told["spans"] = [(item, start, end) for item, start, end in row.spans]
    return SegmentRow(keywords=words, vector=None if vector is None else np.frombuffer(vector, np.float32), **told)


def _row(segment: SegmentRow) -> dict[str, Any]:
    lists = {"spans": [list(span) for span in segment.spans], "words": [list(one) for one in segment.keywords.items()]}
    vector = None if segment.vector is None else segment.vector.astype(np.float32).tobytes()
    return row_of(segments, segment, vector=vector, **lists)


@dataclass(frozen=True, slots=True)
class MidTierPage:
    id: str
    conversation: str | None
    number: int
    segment: str


def pages_of(connection: sa.Connection, item_ids: Iterable[str]) -> list[MidTierPage]:
    found: dict[str, MidTierPage] = {}
    for batch in items.in_batches(item_ids):
        said_in = sa.select(item_rows.c.conversation_id, item_rows.c.page).where(
            item_rows.c.id.in_(batch), item_rows.c.page.is_not(None)
        )
        pairs = [tuple(row) for row in connection.execute(said_in.distinct())]
        in_conversation = sa.tuple_(pages.c.conversation_id, pages.c.number).in_(pairs)
        alone = sa.and_(pages.c.conversation_id.is_(None), pages.c.id.in_(batch))
        for row in connection.execute(sa.select(pages).where(sa.or_(in_conversation, alone) if pairs else alone)):
            found[row.id] = MidTierPage(row.id, row.conversation_id, row.number, row.segment_id)
    return list(found.values())


def segments_by_item(connection: sa.Connection, item_ids: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for batch in items.in_batches(item_ids):
        for select in _SEGMENTS_OF:
            found.update((row[0], row[1]) for row in select.rows(connection, ids=batch))
    return found


def remove_pages(connection: sa.Connection, held: Iterable[MidTierPage]) -> list[str]:
    """Remove pages with erased messages from their segments; return the segments to rebuild.

    Nothing of the erased text remains: keywords are counted anew, a model's summary and the vector are dropped.
    """
    held = list(held)
    empty = [page.id for page in held if not _has_messages(connection, page)]
    for batch in items.in_batches(empty):
        connection.execute(sa.delete(pages).where(pages.c.id.in_(batch)))
    touched = get_segments(connection, sorted({page.segment for page in held}))
    return [segment.id for segment in touched.values() if recount(connection, segment)]


def _has_messages(connection: sa.Connection, page: MidTierPage) -> bool:
    inside = (
        item_rows.c.id == page.id
        if page.conversation is None
        else sa.and_(item_rows.c.conversation_id == page.conversation, item_rows.c.page == page.number)
    )
    return connection.scalar(sa.select(item_rows.c.id).where(inside).limit(1)) is not None


def recount(connection: sa.Connection, segment: SegmentRow) -> bool:
    """Recompute a segment except for its vector and summary; False if it was empty and is removed."""
    messages = members(connection, segment.id)
    count = connection.scalar(sa.select(sa.func.count()).where(pages.c.segment_id == segment.id)) or 0
    if not count:
        connection.execute(sa.delete(segments).where(segments.c.id == segment.id))
        _count(connection, segment.cube, -1)
        return False
    words = Counter(word for message in messages for word in message.keywords if message.status not in UNUSED)
    present = {message.id for message in messages}
    segment.pages, segment.keywords = count, dict(words.most_common(KEPT_KEYWORDS))
    segment.spans = [span for span in segment.spans if span[0] in present]
    segment.told, segment.told_pages, segment.vector = None, 0, None
    save(connection, [segment], [segment.id])
    return True


def forget_vectors(connection: sa.Connection) -> dict[str, list[str]]:
    connection.execute(sa.update(segments).values(vector=None))
    found: dict[str, list[str]] = {}
    for row in connection.execute(sa.select(segments.c.cube_id, segments.c.id)):
        found.setdefault(row.cube_id, []).append(row.id)
    return found


def misplaced(connection: sa.Connection, cube: str, limit: int) -> list[tuple[str, str]]:
    wrong: list[tuple[str, str]] = []
    here = conversations.c.cube_id == cube
    said_on = (
        sa.select(item_rows.c.conversation_id, item_rows.c.page)
        .where(item_rows.c.cube_id == cube, item_rows.c.page.is_not(None))
        .distinct()
        .subquery()
    )
    same = sa.and_(pages.c.conversation_id == said_on.c.conversation_id, pages.c.number == said_on.c.page)
    mid = said_on.c.page < conversations.c.first_short
    lost = (
        sa.select(said_on.c.conversation_id, said_on.c.page)
        .join(conversations, conversations.c.id == said_on.c.conversation_id)
        .outerjoin(pages, same)
        .where(here, mid, pages.c.id.is_(None))
    )
    wrong += [
        (row.conversation_id, f"page {row.page} is missing in every tier")
        for row in connection.execute(lost.limit(limit))
    ]
    both = sa.select(pages.c.id).join(conversations, conversations.c.id == pages.c.conversation_id)
    both = both.where(here, pages.c.number >= conversations.c.first_short)
    wrong += [(id_, "is in both the short and the mid tier") for id_ in connection.scalars(both.limit(limit))]
    alone = (
        sa.select(item_rows.c.id)
        .join(cubes, cubes.c.id == item_rows.c.cube_id)
        .join(versions, versions.c.id == item_rows.c.version_id)
        .outerjoin(pages, pages.c.id == item_rows.c.id)
        .where(cubes.c.id == cube, item_rows.c.conversation_id.is_(None), versions.c.type == ItemType.MESSAGE)
        .where(item_rows.c.created_at <= cubes.c.lone_until, pages.c.id.is_(None))
    )
    wrong += [(id_, "is missing in every tier") for id_ in connection.scalars(alone.limit(limit))]
    count = sa.select(sa.func.count()).where(pages.c.segment_id == segments.c.id).scalar_subquery()
    miscounted = sa.select(segments.c.id).where(segments.c.cube_id == cube, segments.c.pages != count)
    wrong += [(id_, "has a wrong page count") for id_ in connection.scalars(miscounted.limit(limit))]
    here = sa.select(sa.func.count()).where(segments.c.cube_id == cube).scalar_subquery()
    if connection.scalar(sa.select(cubes.c.segments == here).where(cubes.c.id == cube)) in (False, 0):
        wrong.append((cube, "has a wrong segment count"))
    return wrong
