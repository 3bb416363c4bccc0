"""Rows of submissions: recognised by a keyed digest for a minute, by their id for a week.

Functions take an open write transaction unless they only read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import Json, TaskState
from memos.memcube.ledger import queues
from memos.memcube.ledger.schema import conversations, meta, submissions, tasks
from memos.memcube.ledger.schema import items as item_rows

SAME_WITHIN = timedelta(minutes=1)
"""What is sent again later than this is a new request."""

_KEPT = timedelta(days=7)
_REMOVED_AT_ONCE = 500
_SECRET = "submissions"  # noqa: S105 - the name of a row
# Spelt as the partial index is, or the database would not use it.
_YOUNG = sa.text("submissions.digest IS NOT NULL")
_LIVE = (TaskState.WAITING, TaskState.RUNNING)


class Row(NamedTuple):
    """A request; `answer` is None until it is done, `fresh` if it is new."""

    id: str
    caller: str
    cubes: tuple[str, ...]
    answer: Mapping[str, Json] | None
    fresh: bool = False


def find_or_create(connection: sa.Connection, caller: str, body: str, cubes: Sequence[str], now: datetime) -> Row:
    """Return the same request of this caller within the last minute, or else a new one."""
    digest = _digest(connection, caller, body)
    tidy(connection, now)
    id_ = new_id()
    row = {"id": id_, "caller": caller, "digest": digest, "cubes": list(cubes), "created_at": now}
    same = sa.select(submissions).where(submissions.c.caller == caller, submissions.c.digest == digest)
    while not queues.insert_new(connection, submissions, row):
        found = connection.execute(same).one_or_none()
        if found is not None:  # else another process has just dropped it
            return _to_row(found)
    return Row(id_, caller, tuple(cubes), None, fresh=True)


def answer(connection: sa.Connection, id_: str, told: Mapping[str, Json], *, known: bool = True) -> None:
    """Store a request's answer, unless it has one, and whether repeats are still recognised."""
    unanswered = sa.update(submissions).where(submissions.c.id == id_, submissions.c.answer.is_(None))
    connection.execute(unanswered.values(answer=dict(told)))
    if not known:
        connection.execute(sa.update(submissions).where(submissions.c.id == id_).values(digest=None))


def get(connection: sa.Connection, id_: str) -> Row | None:
    """Return a request, None when there is none of this id."""
    row = connection.execute(sa.select(submissions).where(submissions.c.id == id_)).one_or_none()
    return None if row is None else _to_row(row)


def remove(connection: sa.Connection, id_: str) -> None:
    """Remove a failed request, so that it can be repeated at once."""
    connection.execute(sa.delete(submissions).where(submissions.c.id == id_, submissions.c.answer.is_(None)))


def tidy(connection: sa.Connection, now: datetime) -> None:
    """Drop digests of requests older than a minute, and requests older than a week."""
    s = submissions
    known = sa.update(s).where(_YOUNG, s.c.created_at <= now - SAME_WITHIN)
    connection.execute(known.values(digest=None))
    old = sa.select(s.c.id).where(s.c.created_at <= now - _KEPT).limit(_REMOVED_AT_ONCE)
    connection.execute(sa.delete(s).where(s.c.id.in_(old)))


def forget(connection: sa.Connection, cube: str) -> None:
    """Drop the digests of requests to a cube after an erasure."""
    s = submissions
    known = connection.execute(sa.select(s.c.id, s.c.cubes).where(_YOUNG))
    ids = [row.id for row in known if cube in row.cubes]
    if ids:
        connection.execute(sa.update(s).where(s.c.id.in_(ids)).values(digest=None))


def is_read_on(connection: sa.Connection, item_ids: Sequence[str], kind: str) -> bool:
    """Return True if a task waits or runs for the conversation of one of these items."""
    for place in range(0, len(item_ids), 500):
        of_items = (
            sa.select(item_rows.c.cube_id, sa.func.coalesce(conversations.c.id, "").label("key"))
            .select_from(item_rows.outerjoin(conversations, conversations.c.id == item_rows.c.conversation_id))
            .where(item_rows.c.id.in_(item_ids[place : place + 500]))
            .distinct()
        )
        for row in connection.execute(of_items).all():
            live = sa.select(tasks.c.id).where(
                tasks.c.cube_id == row.cube_id,
                tasks.c.kind == kind,
                tasks.c.idempotency_key == row.key,
                tasks.c.state.in_(_LIVE),
            )
            if connection.scalar(live.limit(1)) is not None:
                return True
    return False


def _digest(connection: sa.Connection, caller: str, body: str) -> str:
    found = connection.scalar(sa.select(meta.c.value).where(meta.c.key == _SECRET))
    if found is None:
        queues.insert_new(connection, meta, {"key": _SECRET, "value": secrets.token_hex(32)})
        found = connection.execute(sa.select(meta.c.value).where(meta.c.key == _SECRET)).scalar_one()
    text = f"{caller}\0{body}".encode("utf-8", "surrogatepass")
    return hmac.new(bytes.fromhex(str(found)), text, hashlib.sha256).hexdigest()


def _to_row(row: sa.Row[Any]) -> Row:
    return Row(row.id, row.caller, tuple(row.cubes), row.answer)
