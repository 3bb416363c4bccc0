"""Rows of tool calls and their results, by message, page and derived item."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.core.text.tool_calls import Turn
from memos.core.types import ItemType, LinkKind, Role, Status, ToolCall
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import tasks
from memos.memcube.ledger.items import in_batches, rows_in, scalars_in
from memos.memcube.ledger.tasks import NewTask

TOOLS = "tools"


def enqueue(
    connection: sa.Connection, cube: str, messages: Iterable[str], now: datetime, *, again: bool = False
) -> None:
    """Enqueue tasks that learn skills from tool messages; `again` rebuilds their trajectories first."""
    new = [
        NewTask(TOOLS, {"messages": batch, **({"again": True} if again else {})})
        for batch in in_batches(sorted(set(messages)))
    ]
    if new:
        tasks.enqueue(connection, cube, new, now)


REACH = 100
"""Positions before and after a message that are searched for its calls and results."""

_COLUMNS = (
    t.items.c.id, t.items.c.conversation_id, t.items.c.position, t.items.c.page, t.messages.c.role,
    t.messages.c.tool_calls, t.messages.c.tool_call_id,
)  # fmt: skip
_OF_TOOLS = t.messages.c.tool_calls.is_not(None) | (t.messages.c.role == Role.TOOL)
# Derived items have the message as a source too, but no position.
_TURNS = (
    sa.select(*_COLUMNS)
    .join(t.sources, t.sources.c.item_id == t.items.c.id)
    .join(t.messages, t.messages.c.id == t.sources.c.message_id)
    .where(t.items.c.position.is_not(None), _OF_TOOLS)
)


def turns(connection: sa.Connection, cube: str, ids: Iterable[str]) -> list[Turn]:
    return [_turn(row) for row in rows_in(connection, _TURNS.where(t.items.c.cube_id == cube), t.items.c.id, ids)]


def around(connection: sa.Connection, near: Iterable[Turn]) -> list[Turn]:
    places: dict[str, list[int]] = defaultdict(list)
    for turn in near:
        places[turn.conversation].append(turn.position)
    found: dict[str, Turn] = {}
    for conversation, positions in places.items():
        low, high = min(positions) - REACH, max(positions) + REACH
        here = (t.items.c.conversation_id == conversation, t.items.c.position.between(low, high))
        found |= {row.id: _turn(row) for row in connection.execute(_TURNS.where(*here))}
    return list(found.values())


def goals(connection: sa.Connection, asked: Iterable[Turn]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for page in dict.fromkeys((turn.conversation, turn.page) for turn in asked):
        query = (
            sa.select(t.items.c.id, t.messages.c.role)
            .join(t.sources, t.sources.c.item_id == t.items.c.id)
            .join(t.messages, t.messages.c.id == t.sources.c.message_id)
            .where(t.items.c.conversation_id == page[0], t.items.c.page == page[1])
            .order_by(t.items.c.position)
            .limit(1)
        )
        row = connection.execute(query).one_or_none()
        if row is not None and row.role == Role.USER:
            found[page] = row.id
    return found


def of_pages(connection: sa.Connection, places: Iterable[tuple[str, int]]) -> list[Turn]:
    found: list[Turn] = []
    for conversation, page in dict.fromkeys(places):
        here = (t.items.c.conversation_id == conversation, t.items.c.page == page)
        found += [_turn(row) for row in connection.execute(_TURNS.where(*here))]
    return found


def places(connection: sa.Connection, cube: str, ids: Iterable[str]) -> list[tuple[str, int]]:
    query = sa.select(t.items.c.conversation_id, t.items.c.page)
    query = query.where(t.items.c.cube_id == cube, t.items.c.page.is_not(None))
    return list(dict.fromkeys((row[0], row[1]) for row in rows_in(connection, query, t.items.c.id, ids)))


def derived_items(
    connection: sa.Connection, cube: str, ids: Iterable[str], kind: ItemType, *, deleted: bool = False
) -> list[str]:
    query = (
        sa.select(t.links.c.from_id)
        .join(t.versions, (t.versions.c.item_id == t.links.c.from_id) & t.versions.c.recorded_to.is_(None))
        .where(t.links.c.kind == LinkKind.DERIVED_FROM, t.links.c.cube_id == cube, t.versions.c.type == kind)
        .order_by(t.links.c.from_id)
    )
    if not deleted:
        query = query.where(t.versions.c.status != Status.DELETED)
    return list(dict.fromkeys(scalars_in(connection, query, t.links.c.to_id, ids)))


def with_prefix(
    connection: sa.Connection, cube: str, prefix: str, kind: ItemType, limit: int, *, live: bool = True
) -> list[str]:
    v = t.versions
    # Neither a range nor LIKE: PostgreSQL orders text by locale, and SQLite's LIKE ignores case.
    begins = sa.func.substr(v.c.key, 1, len(prefix)) == prefix
    here = (v.c.cube_id == cube, v.c.recorded_to.is_(None), v.c.key.is_not(None), begins, v.c.type == kind)
    states = (Status.ACTIVE, Status.ARCHIVED) if live else (Status.ACTIVE, Status.ARCHIVED, Status.SUPERSEDED)
    query = sa.select(v.c.item_id).where(*here, v.c.status.in_(states))
    return list(connection.scalars(query.order_by(v.c.recorded_at.desc(), v.c.item_id).limit(limit)))


def _turn(row: Any) -> Turn:
    calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in row.tool_calls or ())
    return Turn(row.id, row.conversation_id, row.position, row.page, Role(row.role), calls, row.tool_call_id)
