"""Every change to a cube as one ledger transaction: add, update, delete, roll back, correct.

Each function takes an open write transaction and writes items, versions, links, the event and outbox rows to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from memos.core.clock import Clock, new_id
from memos.core.text.redaction import mask
from memos.core.types import AddReceipt, Draft, Item, Json, LinkKind, Role, Scope, Status
from memos.errors import Conflict, NotFound
from memos.memcube import prompt_prefix
from memos.memcube.ledger import cubes, expiry, idempotency, items, outbox, segments, tasks
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.cubes import NextMessage
from memos.memcube.ledger.idempotency import Request

WINDOW = 3
"""Messages a window covers: one and the two before it, so that appending never changes an older window."""

SESSION_GAP = timedelta(hours=2)
"""Silence that ends a session. Migration 0002 split older conversations by the same one."""


ChargeQuota = Callable[[sa.Connection, int, int], None]
"""Counts items and bytes that a transaction stores for somebody. Raises: LimitReached."""


def free(connection: sa.Connection, items: int, size_bytes: int) -> None:
    """Charge nothing, for background work."""


@dataclass(frozen=True, slots=True)
class Change:
    connection: sa.Connection
    cube: str
    actor: str
    now: datetime
    charge: ChargeQuota = free


Changing = Callable[[Scope], AbstractContextManager[Change]]
"""Opens a transaction in which an actor changes a cube."""


def begin(connection: sa.Connection, cube: str, actor: str, clock: Clock, charge: ChargeQuota = free) -> Change:
    """Lock a cube against other writers. The time is taken after that, so that record times rise in commit order."""
    last = cubes.lock(connection, cube)
    now = clock.now()
    return Change(connection, cube, actor, now if last is None else max(now, last + timedelta(microseconds=1)), charge)


def add(
    change: Change,
    drafts: Sequence[Draft],
    conversation: str | None,
    request: Request | None,
    short_capacity: int,
    ttl_s: float | None = None,
) -> AddReceipt:
    """Store drafts in order; a message id the conversation has already is not stored again."""
    if request is not None and (earlier := idempotency.find_add(change.connection, change.cube, request)) is not None:
        return earlier
    if conversation is None and len(drafts) > 1:
        conversation = new_id()
    place = None
    if conversation is not None:
        place = cubes.conversation(change.connection, change.cube, conversation, change.now)
    known = _known_messages(change, None if place is None else place.id, drafts)
    ids: list[str] = []
    duplicates: list[str] = []
    rows: dict[sa.Table, list[dict[str, Any]]] = {t.messages: [], t.items: [], t.sources: []}
    states: list[Item] = []
    for draft in drafts:
        if (same := _known(draft, known)) is not None:
            ids.append(same)
            duplicates.append(same)
            continue
        place = None if place is None else _next(place, draft)
        state = _first_state(change, draft, conversation, place, ttl_s)
        _collect(rows, change, draft, state, None if place is None else place.id, ttl_s)
        states.append(state)
        ids.append(state.id)
        place = None if place is None else replace(place, position=place.position + 1)
        if draft.message.message_id is not None:
            known[draft.message.message_id] = (state.id, _said(draft.message.text, draft.message.content))
    for table, entries in rows.items():
        if entries:
            change.connection.execute(sa.insert(table), entries)
    items.insert_versions(change.connection, states, change.actor, "added")
    change.charge(change.connection, len(states), sum(size_of(state.memory) for state in states))
    fresh = [state.id for state in states]
    if place is not None:
        cubes.advance(change.connection, place)
    outbox.enqueue(change.connection, change.cube, fresh)
    if fresh:
        _event(change, "add", None, {"items": fresh})
        if place is None or segments.is_crowded(place.first_short, place.page, short_capacity):
            overflow = segments.overflow_task(None if place is None else place.id, change.now)
            tasks.enqueue(change.connection, change.cube, [overflow], change.now)
    receipt = AddReceipt(change.cube, conversation, tuple(ids), tuple(duplicates), indexed=False)
    if request is not None:
        idempotency.remember_add(change.connection, request, receipt, change.now)
    return receipt


def _next(place: NextMessage, draft: Draft) -> NextMessage:
    page, session, said_at = place.page, place.session, draft.message.chat_time
    if (draft.message.role is Role.USER and place.position > 0) or page < place.first_short:
        page += 1  # a page that has moved on gets nothing more
    if place.said_at is not None and abs(said_at - place.said_at) > SESSION_GAP:
        session += 1
    return replace(place, page=page, session=session, said_at=said_at)


def _first_state(
    change: Change, draft: Draft, conversation: str | None, place: NextMessage | None, ttl_s: float | None
) -> Item:
    names = ("memory", "type", "tier", "status", "key", "value", "tags", "info", "confidence", "entities", "keywords")
    told = {name: getattr(draft, name) for name in (*names, "valid_from", "valid_to")}
    told["expires_at"] = None if ttl_s is None else change.now + timedelta(seconds=ttl_s)
    if place is not None:
        told |= {"position": place.position, "page": place.page, "session": place.session}
    message = draft.message
    said = {"speaker": message.name or message.role, "role": message.role, "said_at": message.chat_time}
    return items.blank(change.cube, change.now, **told, **said, conversation=conversation)


def _collect(
    rows: Mapping[sa.Table, list[dict[str, Any]]],
    change: Change,
    draft: Draft,
    state: Item,
    conversation: str | None,
    ttl_s: float | None,
) -> None:
    message, message_row = draft.message, new_id()
    given = {"role": message.role, "text": message.text, "chat_time": message.chat_time, "trust": message.trust}
    rows[t.messages].append(
        {
            "id": message_row,
            "cube_id": change.cube,
            "conversation_id": conversation,
            "external_id": message.message_id,
            "name": state.speaker,
            "content": None if isinstance(message.content, str) else message.content,
            "tool_calls": [asdict(call) for call in message.tool_calls] or None,
            "tool_call_id": message.tool_call_id,
            "created_at": change.now,
            **given,
        }
    )
    rows[t.items].append({**items.first_row(state, conversation), "ttl_s": ttl_s})
    span = (draft.start, draft.end)
    rows[t.sources].append(items.source_row(state.id, 0, message_row, span, draft.reader))


def _known_messages(change: Change, conversation_id: str | None, drafts: Sequence[Draft]) -> dict[str, tuple[str, str]]:
    wanted = [draft.message.message_id for draft in drafts if draft.message.message_id is not None]
    # Compared with None, a column is NULL.
    query = (
        sa.select(t.messages.c.external_id, t.messages.c.text, t.messages.c.content, t.sources.c.item_id)
        .join(t.sources, t.sources.c.message_id == t.messages.c.id)
        .where(t.messages.c.cube_id == change.cube, t.messages.c.conversation_id == conversation_id)
    )
    rows = items.rows_in(change.connection, query, t.messages.c.external_id, wanted)
    return {row.external_id: (row.item_id, _said(row.text, row.content)) for row in rows}


def _known(draft: Draft, known: Mapping[str, tuple[str, str]]) -> str | None:
    external = draft.message.message_id
    if external is None or external not in known:
        return None
    item_id, said = known[external]
    if not _same(said, _said(draft.message.text, draft.message.content)):
        conflict = Conflict(
            f"Message {external!r} is already stored with other text as item {item_id}; use update to change it."
        )
        conflict.item = item_id
        raise conflict
    return item_id


def _same(stored: str, given: str) -> bool:
    if stored == given:
        return True
    for secrets, personal in ((True, False), (True, True), (False, True)):
        one, other = (mask(text, secrets=secrets, personal=personal)[0] for text in (stored, given))
        if one == given or other == stored:
            return True
    return False


def _said(text: str, content: Json) -> str:
    """Return a message's text and its images' digests: another picture of the same name is another message."""
    parts = content if isinstance(content, list) else []
    given = [part["file"].get("sha256") for part in parts if isinstance(part.get("file"), Mapping)]
    return "\0".join([text, *(str(digest) for digest in given if digest)])


def update(
    change: Change,
    item_id: str,
    expected_version: int | None,
    fields: Mapping[str, Any],
    reason: str,
    **lives: float | None,
) -> Item:
    """Write an item's next version, if there are fields, and its `ttl_s`, if it is given."""
    before = items.require(change.connection, [change.cube], item_id)
    _expect(before, expected_version)
    if before.status is Status.DELETED:
        raise Conflict(f"Item {item_id} is deleted; restore it with rollback before you change it.")
    if "ttl_s" in lives:
        expiry.set_ttl(change.connection, item_id, lives["ttl_s"], change.now)
        _event(change, "ttl", item_id, lives)
    if not fields:
        return before
    change.charge(change.connection, 0, size_of(fields.get("memory") or ""))
    return _append(change, [(before, fields)], "update", reason)[0]


def size_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def delete(change: Change, item_ids: Sequence[str], reason: str) -> list[Item]:
    states = [items.require(change.connection, [change.cube], item_id) for item_id in dict.fromkeys(item_ids)]
    live = [(state, {"status": Status.DELETED}) for state in states if state.status is not Status.DELETED]
    return _append(change, live, "delete", reason)


def archive(change: Change, item_ids: Sequence[str], reason: str) -> list[Item]:
    states = items.current(change.connection, [change.cube], item_ids)
    live = [(state, {"status": Status.ARCHIVED}) for state in states.values() if state.status is Status.ACTIVE]
    return _append(change, live, "archive", reason)


def rollback(change: Change, item_id: str, to_version: int | None = None, expected_version: int | None = None) -> Item:
    before = items.require(change.connection, [change.cube], item_id)
    _expect(before, expected_version)
    versions = {entry.version: entry.after for entry in items.history(change.connection, [change.cube], item_id)}
    if to_version is None:
        to_version = max((version for version in versions if version < before.version), default=None)
        if to_version is None:
            raise Conflict(f"Item {item_id} has no version before the current one; nothing to roll back to.")
    if to_version not in versions:
        raise NotFound("version", f"{item_id} v{to_version}", "List versions with `memos memory history`.")
    kept = {name: getattr(versions[to_version], name) for name in _STATE}
    return _append(change, [(before, kept)], "rollback", f"rolled back to version {to_version}")[0]


_STATE = (
    "memory", "type", "tier", "status", "key", "value", "tags", "info", "confidence", "entities", "keywords",
    "valid_from", "valid_to", "superseded_by",
)  # fmt: skip


def correct(change: Change, new_item: str, related: Iterable[str], replaced: Sequence[Item], at: datetime) -> None:
    """Link a correction to what it is about, and supersede what it replaces from `at` on."""
    items.link(change.connection, [(new_item, LinkKind.RELATES, other) for other in related], change.cube, change.now)
    superseded = [(new_item, LinkKind.SUPERSEDES, old.id) for old in replaced]
    items.link(change.connection, superseded, change.cube, change.now)
    changes = [(old, {"status": Status.SUPERSEDED, "valid_to": at, "superseded_by": new_item}) for old in replaced]
    _append(change, changes, "supersede", f"superseded by {new_item}")
    items.raise_revisions(change.connection, [new_item])
    outbox.enqueue(change.connection, change.cube, [new_item])


def _append(change: Change, edits: Sequence[tuple[Item, Mapping[str, Any]]], kind: str, reason: str) -> list[Item]:
    after = []
    for before, fields in edits:
        state = items.next_version(before, new_id(), change.now, **fields)
        items.append(change.connection, before, state, change.actor, reason)
        _event(change, kind, before.id, {"from": before.version, "to": state.version})
        after.append(replace(state))
    if after:
        # Vector, keywords and summary of a segment are made from what its messages say now.
        held = segments.pages_of(change.connection, [state.id for state in after])
        segments.remake(change.connection, change.cube, (page.segment for page in held), change.now)
        prompt_prefix.items_changed(change.connection, change.cube, [state.id for state in after], change.now)
        covered = items.followers(change.connection, after, WINDOW - 1)
        items.raise_revisions(change.connection, covered)
        outbox.enqueue(change.connection, change.cube, [*(state.id for state in after), *covered])
    return after


def _expect(before: Item, expected_version: int | None) -> None:
    if expected_version is not None and expected_version != before.version:
        raise Conflict(
            f"Item {before.id} is at version {before.version}, not {expected_version}; read it again and retry."
        )


def record(change: Change, kind: str, body: Json) -> None:
    """Append an event about the cube to its chain; the body holds ids and numbers only."""
    _event(change, kind, None, body)


def record_item(change: Change, kind: str, item_id: str, body: Json) -> None:
    _event(change, kind, item_id, body)


def requeue_indexing(change: Change, item_id: str) -> None:
    items.raise_revisions(change.connection, [item_id])
    outbox.enqueue(change.connection, change.cube, [item_id])


def edit(change: Change, before: Item, fields: Mapping[str, Any], reason: str, *, kind: str = "update") -> Item:
    """Write an item's next version with changed fields, from a state just read."""
    return _append(change, [(before, fields)], kind, reason)[0]


def _event(change: Change, kind: str, item_id: str | None, body: Json) -> None:
    cubes.record_event(change.connection, change.cube, change.now, change.actor, kind, item_id, body)
