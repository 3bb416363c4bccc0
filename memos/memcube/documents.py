"""Documents of a cube: store a file with its task, replace and delete its passages as a whole.

Runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import FileState, Item, ItemType, Json, Role, Status, StoredFile, Trust
from memos.errors import Conflict
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.erasure import retract
from memos.memcube.ledger import files, items, outbox, tasks
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.tasks import PRIORITY, NewTask

READER = "document/1"
"""Name of this reader in the sources of its items."""

_ROWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Part:
    text: str
    start: int
    end: int
    page: int | None
    info: Mapping[str, Json]
    entities: tuple[str, ...]
    keywords: tuple[str, ...]


def store_document(change: Change, file: StoredFile, data: bytes) -> StoredFile:
    for same in files.find(change.connection, change.cube, sha256=file.sha256):
        if same.state is FileState.PROCESSING:
            return same
        if same.state is FileState.AVAILABLE and files.has_live_items(change.connection, same.id):
            return same
    change.charge(change.connection, 0, len(data))
    files.add(change.connection, file, data)
    reading = NewTask(files.READ, {"file": file.id}, key=file.id, priority=PRIORITY - 1)
    tasks.enqueue(change.connection, change.cube, [reading], change.now)
    _record_event(change, file.id, file.state)
    return file


def read_again(change: Change, file: StoredFile, data: bytes) -> StoredFile:
    """Store a file anew with its task; its passages take the place of the old ones when it was read."""
    for same in files.find(change.connection, change.cube, sha256=file.sha256):
        if same.state is FileState.PROCESSING:
            return same
    kept = {"masked": file.info["masked"]} if "masked" in file.info else {}
    new = replace(
        file,
        id=new_id(),
        state=FileState.PROCESSING,
        actor=change.actor,
        created_at=change.now,
        error=None,
        info=kept,
        replaced_by=None,
        finished_at=None,
    )
    change.charge(change.connection, 0, len(data))
    files.add(change.connection, new, data)
    reading = NewTask(files.READ, {"file": new.id}, key=new.id, priority=PRIORITY - 1)
    tasks.enqueue(change.connection, change.cube, [reading], change.now)
    _record_event(change, new.id, new.state)
    if file.state is FileState.FAILED:
        delete(change, file, "read again")
    return new


def store_passages(
    change: Change, file: StoredFile, parts: Sequence[Part], info: Mapping[str, Json], media_type: str
) -> None:
    """Store a file's passages in place of its namesake's, unless it was deleted or replaced meanwhile."""
    connection = change.connection
    if not _still_read(change, file):
        return
    named = [other for other in files.find(connection, change.cube, name=file.name) if other.id != file.id]
    current = [other for other in named if other.state is FileState.AVAILABLE]
    newer = next((other for other in current if (other.created_at, other.id) > (file.created_at, file.id)), None)
    values: dict[str, Any] = {"info": {**file.info, **info}, "media_type": media_type, "finished_at": change.now}
    if newer is not None:
        files.change(connection, file.id, file.cube, state=FileState.SUPERSEDED, replaced_by=newer.id, **values)
        _record_event(change, file.id, FileState.SUPERSEDED)
        return
    states = _store(change, file, parts)
    files.change(connection, file.id, file.cube, state=FileState.AVAILABLE, **values)
    _record_event(change, file.id, FileState.AVAILABLE, len(parts))
    follower = {state.memory: state.id for state in reversed(states)}
    for old in current:
        _retire(change, old, Status.SUPERSEDED, f"{file.name} was added anew", follower)
        files.change(connection, old.id, old.cube, state=FileState.SUPERSEDED, replaced_by=file.id)
        _record_event(change, old.id, FileState.SUPERSEDED)


def check_rollback(change: Change, item_id: str) -> None:
    """Refuse to restore a passage of a document that is not current."""
    file_id = files.of_items(change.connection, [item_id]).get(item_id)
    if file_id is None:
        return
    file = files.require(change.connection, [change.cube], file_id)
    if file.state in (FileState.DELETED, FileState.SUPERSEDED):
        raise Conflict(f"Item {item_id} belongs to a file that is {file.state}; add the file again.")


def mark_failed(change: Change, file: StoredFile, why: str) -> None:
    if _still_read(change, file):
        files.change(change.connection, file.id, file.cube, state=FileState.FAILED, error=why, finished_at=change.now)
        _record_event(change, file.id, FileState.FAILED)


def delete(change: Change, file: StoredFile, reason: str) -> int:
    if file.state is FileState.DELETED:
        return 0
    gone = _retire(change, file, Status.DELETED, reason, {})
    files.change(change.connection, file.id, file.cube, state=FileState.DELETED, finished_at=change.now)
    _record_event(change, file.id, FileState.DELETED, len(gone))
    return len(gone)


def _still_read(change: Change, file: StoredFile) -> bool:
    query = sa.select(t.files.c.state).where(t.files.c.id == file.id, t.files.c.cube_id == change.cube)
    return bool(change.connection.scalar(query) == FileState.PROCESSING)


def _record_event(change: Change, file_id: str, state: FileState, count: int | None = None) -> None:
    body = {"file": file_id, "state": state}
    changes.record(change, "file", body if count is None else {**body, "items": count})


def _store(change: Change, file: StoredFile, parts: Sequence[Part]) -> list[Item]:
    connection, states = change.connection, [_state(change, file, part) for part in parts]
    rows: dict[sa.Table, list[dict[str, Any]]] = {t.messages: [], t.items: [], t.sources: [], t.file_items: []}
    same = {"cube_id": change.cube, "chat_time": file.created_at, "created_at": change.now, "trust": Trust.UNTRUSTED}
    for ordinal, (state, part) in enumerate(zip(states, parts, strict=True)):
        message = new_id()
        said = {"id": message, "role": state.role, "name": state.speaker, "text": part.text}
        rows[t.messages].append(same | said)
        rows[t.items].append(items.first_row(state))
        rows[t.sources].append(items.source_row(state.id, 0, message, (0, len(part.text)), READER))
        place = {"ordinal": ordinal, "start": part.start, "end": part.end, "page": part.page}
        rows[t.file_items].append({"item_id": state.id, "file_id": file.id, **place})
    for table, entries in rows.items():
        for start in range(0, len(entries), _ROWS_AT_ONCE):
            connection.execute(sa.insert(table), entries[start : start + _ROWS_AT_ONCE])
    items.insert_versions(connection, states, file.actor, "read from a document")
    outbox.enqueue(connection, change.cube, [state.id for state in states])
    return states


def _state(change: Change, file: StoredFile, part: Part) -> Item:
    place = {"start": part.start, "end": part.end, **({} if part.page is None else {"page": part.page})}
    return items.blank(
        change.cube,
        change.now,
        memory=part.text,
        type=ItemType.DOCUMENT,
        speaker=file.name,
        role=Role.TOOL,
        info={"file": file.id, "name": file.name, **place, **part.info},
        entities=part.entities,
        keywords=part.keywords,
    )


def _retire(change: Change, file: StoredFile, status: Status, reason: str, follower: Mapping[str, str]) -> list[str]:
    connection = change.connection
    ids = [row.item_id for row in files.parts(connection, file.id)]
    leave = {Status.DELETED, status}
    before = [state for state in items.current(connection, [change.cube], ids).values() if state.status not in leave]
    after = [
        items.next_version(state, new_id(), change.now, **_ended(state, status, change, follower)) for state in before
    ]
    v, closed = t.versions, 0
    for batch in items.in_batches(state.version_id for state in before):
        query = sa.update(v).where(v.c.id.in_(batch), v.c.recorded_to.is_(None)).values(recorded_to=change.now)
        closed += connection.execute(query).rowcount
    if closed != len(before):
        raise Conflict(f"File {file.id} changed meanwhile; try again.")
    items.insert_versions(connection, after, change.actor, reason)
    if after:
        its: dict[str, Any] = {"version": sa.bindparam("its_version"), "version_id": sa.bindparam("its_id")}
        new = sa.update(t.items).where(t.items.c.id == sa.bindparam("item"))
        rows = [{"item": state.id, "its_version": state.version, "its_id": state.version_id} for state in after]
        connection.execute(new.values(**its, revision=t.items.c.revision + 1), rows)
    changed = [state.id for state in after]
    outbox.enqueue(connection, change.cube, changed)
    for batch in items.in_batches(changed):
        retract(change, batch)
    return changed


def _ended(state: Item, status: Status, change: Change, follower: Mapping[str, str]) -> dict[str, Any]:
    if status is not Status.SUPERSEDED:
        return {"status": status}
    return {"status": status, "valid_to": change.now, "superseded_by": follower.get(state.memory)}
