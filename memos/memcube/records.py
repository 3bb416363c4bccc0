"""Records: memories with an id of the caller's, which a put replaces. Each function takes an open write transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.text.matching import entities, keywords
from memos.core.types import Item, ItemType, Json, Role, Status, Trust
from memos.errors import Conflict, NotFound
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import expiry, items, outbox
from memos.memcube.ledger import records as rows
from memos.memcube.ledger import schema as t

READER = "record/1"

_SPEAKER = str(Role.USER)
# Names and keywords are read in the beginning of a text, as in messages.
_SCAN_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record as it is put; `expected_version` 0 means that there must be none."""

    id: str
    memory: str
    tags: tuple[str, ...]
    info: Mapping[str, Json]
    ttl_s: float | None
    searchable: bool
    trust: Trust
    expected_version: int | None


def put(change: Change, records: Sequence[NewRecord]) -> list[str]:
    """Store records with different ids; return the ids of their items, in order.

    An existing record gets its next version, unless nothing is different; a deleted one is brought back by that. An
    expired one, which will be erased, gives its id up. Raises: Conflict (another version than expected).
    """
    connection = change.connection
    here = rows.find(connection, change.cube, [record.id for record in records])
    expired = [row.item for row in here.values() if row.expires_at is not None and row.expires_at <= change.now]
    rows.release(connection, expired)
    states = items.current(connection, [change.cube], {row.item for row in here.values()}.difference(expired))
    known = {state.record_id: state for state in states.values()}
    fresh: list[tuple[Item, NewRecord]] = []
    ids = []
    for record in records:
        before = known.get(record.id)
        _expect(record, before)
        if before is None:
            state = _first_state(change, record)
            fresh.append((state, record))
            ids.append(state.id)
        else:
            _replace(change, before, record, searchable=here[record.id].searchable)
            ids.append(before.id)
    _insert(change, fresh)
    return ids


def require(connection: sa.Connection, cube: str, record_id: str, now: datetime) -> Item:
    """Return a record as it stands, also a deleted one. Raises: NotFound."""
    found = rows.find(connection, cube, [record_id]).get(record_id)
    if found is None or (found.expires_at is not None and found.expires_at <= now):
        raise unknown(record_id)
    return items.require(connection, [cube], found.item)


def unknown(record_id: str) -> NotFound:
    return NotFound("record", record_id, """List records with `memos list --filter '{"type": "record"}'`.""")


def present(connection: sa.Connection, cube: str, record_ids: Iterable[str], now: datetime) -> list[Item]:
    """Return those of these records that are there, neither deleted nor expired, in the order of the ids given."""
    wanted = list(record_ids)
    found = rows.find(connection, cube, wanted)
    states = items.with_sources(connection, [cube], [row.item for row in found.values()])
    live = {state.record_id: state for state in states.values() if _is_live(state, now)}
    return [live[id_] for id_ in wanted if id_ in live]


def _is_live(state: Item, now: datetime) -> bool:
    return state.status is not Status.DELETED and (state.expires_at is None or state.expires_at > now)


def _expect(record: NewRecord, before: Item | None) -> None:
    if record.expected_version is None:
        return
    version = 0 if before is None or before.status is Status.DELETED else before.version
    if version != record.expected_version:
        told = f"is at version {version}" if version else "does not exist"
        raise Conflict(
            f"Record {record.id!r} {told}, but version {record.expected_version} was expected (0: none); read it again "
            "and retry."
        )


def _first_state(change: Change, record: NewRecord) -> Item:
    return items.blank(
        change.cube,
        change.now,
        **_told(record),
        type=ItemType.RECORD,
        speaker=_SPEAKER,
        role=Role.USER,
        said_at=change.now,
        record_id=record.id,
        expires_at=expiry.end_of(record.ttl_s, change.now),
    )


def _told(record: NewRecord) -> dict[str, Any]:
    return {"memory": record.memory, "tags": record.tags, "info": record.info, **names_in(record.memory)}


def names_in(memory: str) -> dict[str, Any]:
    """Return the names and keywords of a record's text, which states nothing else."""
    head = memory[:_SCAN_CHARS]
    return {"entities": entities(head), "keywords": keywords(head)}


def _insert(change: Change, fresh: Sequence[tuple[Item, NewRecord]]) -> None:
    if not fresh:
        return
    connection = change.connection
    messages, firsts, sources = [], [], []
    for state, record in fresh:
        message = new_id()
        told = {"role": Role.USER, "name": _SPEAKER, "text": record.memory, "trust": record.trust}
        times = {"chat_time": change.now, "created_at": change.now}
        messages.append({"id": message, "cube_id": change.cube, **told, **times})
        firsts.append({**items.first_row(state), "ttl_s": record.ttl_s, "searchable": record.searchable})
        sources.append(items.source_row(state.id, 0, message, (0, len(record.memory)), READER))
    for table, entries in ((t.messages, messages), (t.items, firsts), (t.sources, sources)):
        connection.execute(sa.insert(table), entries)
    states = [state for state, _ in fresh]
    items.insert_versions(connection, states, change.actor, "added")
    change.charge(connection, len(states), sum(changes.size_of(state.memory) for state in states))
    outbox.enqueue(connection, change.cube, [state.id for state in states])
    changes.record(change, "add", {"items": [state.id for state in states]})


def _replace(change: Change, before: Item, record: NewRecord, *, searchable: bool) -> None:
    """Write what is different: the next version, the time to live, whether searches find it."""
    connection, told = change.connection, {**_told(record), "status": Status.ACTIVE}
    expiry.set_ttl(connection, before.id, record.ttl_s, change.now)
    if record.searchable != searchable:
        rows.set_searchable(connection, before.id, searchable=record.searchable)
    if _is_same(before, told) and rows.trust_of(connection, before.id) is record.trust:
        if record.searchable != searchable:
            changes.requeue_indexing(change, before.id)
        return
    change.charge(connection, 0, changes.size_of(record.memory))
    rows.say(connection, before.id, before.cube, record.memory, record.trust, change.now)
    changes.edit(change, before, told, "put")


def _is_same(before: Item, told: Mapping[str, Any]) -> bool:
    same = all(getattr(before, name) == value for name, value in told.items())
    # Equal in Python are also 1, 1.0 and True.
    return same and json.dumps(before.info, sort_keys=True) == json.dumps(told["info"], sort_keys=True)
