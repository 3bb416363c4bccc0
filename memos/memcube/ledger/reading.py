"""Rows of fact extraction: queued messages, the next window to read, and records of extractions.

Functions take an open write transaction unless they only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa

from memos.core.types import ExtractionRecord, Item, ItemType, Reading, TaskState
from memos.memcube.ledger import items, tasks
from memos.memcube.ledger.schema import conversations, extraction_items, extractions, sources, versions
from memos.memcube.ledger.schema import items as item_rows
from memos.memcube.ledger.schema import tasks as task_rows
from memos.memcube.ledger.tasks import RUNNING, NewTask

READ = "read"
"""Kind of the task that extracts facts from the queued messages of a conversation, one window per run."""

# Delay of tasks, so that messages added in quick succession are read together.
_GATHERING = timedelta(seconds=2)

# Written as in the partial index, otherwise the database would not use it.
_WANTED = sa.text("items.reading = 'wanted'")


class MessageRange(NamedTuple):
    """Messages of a conversation in order: the queued ones, and those before and between them."""

    messages: tuple[Item, ...]
    wanted: frozenset[str]


def queue(connection: sa.Connection, cube: str, item_ids: Iterable[str], now: datetime) -> list[str]:
    """Queue messages that were never read for extraction; return the tasks, one per conversation."""
    ids = list(item_ids)
    said = sa.select(versions.c.item_id).where(
        versions.c.item_id == item_rows.c.id, versions.c.recorded_to.is_(None), versions.c.type == ItemType.MESSAGE
    )
    for batch in items.in_batches(ids):
        new = sa.update(item_rows).where(item_rows.c.id.in_(batch), item_rows.c.reading.is_(None), sa.exists(said))
        connection.execute(new.values(reading=Reading.WANTED))
    return _enqueue(connection, cube, ids, now)


def requeue(connection: sa.Connection, cube: str, item_ids: Iterable[str], now: datetime) -> None:
    ids = list(item_ids)
    for batch in items.in_batches(ids):
        read = sa.update(item_rows).where(item_rows.c.id.in_(batch), item_rows.c.reading == Reading.READ)
        connection.execute(read.values(reading=Reading.WANTED))
    _enqueue(connection, cube, ids, now)


def queue_all(connection: sa.Connection, cube: str, conversation: str | None, now: datetime) -> list[str]:
    query = sa.select(item_rows.c.id).where(item_rows.c.cube_id == cube, item_rows.c.reading != Reading.READ)
    unread = sa.select(item_rows.c.id).where(item_rows.c.cube_id == cube, item_rows.c.reading.is_(None))
    if conversation is not None:
        here = item_rows.c.conversation_id.in_(_named(cube, conversation))
        query, unread = query.where(here), unread.where(here)
    ids = [*connection.scalars(query), *connection.scalars(unread)]
    return queue(connection, cube, ids, now)


def _named(cube: str, name: str) -> sa.Select[tuple[str]]:
    return sa.select(conversations.c.id).where(conversations.c.cube_id == cube, conversations.c.name == name)


def is_conversation(connection: sa.Connection, cube: str, name: str) -> bool:
    return connection.scalar(_named(cube, name)) is not None


def _enqueue(connection: sa.Connection, cube: str, ids: Sequence[str], now: datetime) -> list[str]:
    query = sa.select(item_rows.c.conversation_id).where(_WANTED).distinct()
    found = dict.fromkeys(items.scalars_in(connection, query, item_rows.c.id, ids))
    due = now + _GATHERING
    return tasks.enqueue(connection, cube, [read_task(conversation, due) for conversation in found], now)


def read_task(conversation: str | None, not_before: datetime | None = None) -> NewTask:
    return NewTask(READ, {"conversation": conversation}, key=conversation or "", not_before=not_before)


def enqueue_next(connection: sa.Connection, cube: str, conversation: str | None, task: str, now: datetime) -> None:
    """Enqueue the next window's task while messages are queued, unless another task is reading them."""
    left = connection.scalar(_wanted(cube, conversation).limit(1)) is not None
    if left and not is_read_elsewhere(connection, cube, conversation, task):
        tasks.enqueue(connection, cube, [read_task(conversation)], now)


def is_read_elsewhere(connection: sa.Connection, cube: str, conversation: str | None, task: str) -> bool:
    """Return True if another task is reading the conversation; it also continues with the queued messages."""
    running = sa.select(task_rows.c.id).where(
        RUNNING,
        task_rows.c.cube_id == cube,
        task_rows.c.kind == READ,
        task_rows.c.idempotency_key == (conversation or ""),
        task_rows.c.id != task,
    )
    return connection.scalar(running.limit(1)) is not None


def next_range(connection: sa.Connection, cube: str, conversation: str | None, most: int, around: int) -> MessageRange:
    wanted: list[str] = list(connection.scalars(_wanted(cube, conversation).limit(most)))
    ids = wanted
    if conversation is not None and wanted:
        places = connection.scalars(sa.select(item_rows.c.position).where(item_rows.c.id.in_(wanted))).all()
        known = [place for place in places if place is not None]
        here = (
            item_rows.c.conversation_id == conversation,
            item_rows.c.position >= min(known) - around,
            item_rows.c.position <= max(known),
        )
        near = sa.select(item_rows.c.id).where(*here).order_by(item_rows.c.position).limit(most * 2 + around)
        ids = list(connection.scalars(near))
    states = items.current(connection, [cube], ids).values()
    order = sorted(states, key=lambda state: (state.position or 0, state.id))
    return MessageRange(tuple(order), frozenset(wanted).intersection(ids))


def _wanted(cube: str, conversation: str | None) -> sa.Select[tuple[str]]:
    here = item_rows.c.conversation_id
    query = sa.select(item_rows.c.id).where(_WANTED, item_rows.c.cube_id == cube)
    query = query.where(here.is_(None) if conversation is None else here == conversation)
    return query.order_by(item_rows.c.id)


def mark(connection: sa.Connection, item_ids: Iterable[str]) -> None:
    for batch in items.in_batches(item_ids):
        done = sa.update(item_rows).where(item_rows.c.id.in_(batch), _WANTED)
        connection.execute(done.values(reading=Reading.READ))


def states(connection: sa.Connection, item_ids: Iterable[str]) -> dict[str, Reading]:
    query = sa.select(item_rows.c.id, item_rows.c.reading).where(item_rows.c.reading.is_not(None))
    return {row.id: Reading(row.reading) for row in items.rows_in(connection, query, item_rows.c.id, item_ids)}


def is_coming(connection: sa.Connection, item_ids: Iterable[str]) -> bool:
    live = task_rows.c.state.in_((TaskState.WAITING, TaskState.RUNNING))
    same = task_rows.c.idempotency_key == sa.func.coalesce(item_rows.c.conversation_id, "")
    query = sa.select(task_rows.c.id).join(item_rows, sa.and_(task_rows.c.cube_id == item_rows.c.cube_id, same))
    query = query.where(task_rows.c.kind == READ, live).limit(1)
    return any(items.scalars_in(connection, query, item_rows.c.id, item_ids))


def records(connection: sa.Connection, item_id: str) -> list[ExtractionRecord]:
    e = extractions
    shown = sa.select(extraction_items.c.extraction_id).where(extraction_items.c.item_id == item_id)
    named = sa.select(sources.c.extraction_id).where(sources.c.item_id == item_id, sources.c.extraction_id.is_not(None))
    query = sa.select(e).where(sa.or_(e.c.id.in_(shown), e.c.id.in_(named))).order_by(e.c.created_at, e.c.id)
    return [
        ExtractionRecord(row.id, row.reader, row.model or None, row.created_at, row.output or None)
        for row in connection.execute(query)
    ]
