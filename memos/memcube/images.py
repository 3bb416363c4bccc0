"""Images of messages as files: stored, described once, and erased with their messages.

Every function that writes runs inside the caller's transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import (
    AddReceipt,
    Draft,
    Fact,
    FileKind,
    FileState,
    Item,
    Picture,
    Role,
    Status,
    StoredFile,
    Trust,
)
from memos.memcube import changes, facts
from memos.memcube.changes import Change
from memos.memcube.ledger import files, items, tasks
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.tasks import NewTask

DESCRIBE = "describe"
"""Kind of the tasks that describe an image; their key is the file's id."""

IMAGE_TAG = "image"
"""Tag of a description."""


def store(change: Change, drafts: Sequence[Draft], receipt: AddReceipt) -> list[str]:
    """Store the images of an add, but of messages that were there already, and queue their description."""
    given = {item: draft for draft, item in reversed(list(zip(drafts, receipt.item_ids, strict=False)))}
    given = {item: draft for item, draft in given.items() if draft.message.pictures}
    if receipt.replayed or not given:
        return []
    have = set(files.of_items(change.connection, given))
    stored = []
    for item, draft in given.items():
        for picture in () if item in have else draft.message.pictures:
            change.charge(change.connection, 0, len(picture.data))
            files.add(change.connection, _file(change, item, picture), picture.data)
            stored.append(picture.file)
    tasks.enqueue(change.connection, change.cube, [describe_task(file) for file in stored], change.now)
    return stored


def describe_task(file_id: str) -> NewTask:
    return NewTask(DESCRIBE, {"file": file_id}, key=file_id)


def _file(change: Change, item: str, picture: Picture) -> StoredFile:
    told = (picture.name, picture.media_type, len(picture.data), picture.sha256)
    made = (FileState.PROCESSING, change.actor, change.now)
    return StoredFile(picture.file, change.cube, FileKind.IMAGE, *told, *made, info=picture.info, item=item)


def find(connection: sa.Connection, cube: str, file_id: str) -> StoredFile | None:
    query = sa.select(t.files).where(t.files.c.id == file_id, t.files.c.cube_id == cube)
    row = connection.execute(query.where(t.files.c.kind == FileKind.IMAGE)).one_or_none()
    return None if row is None else files.to_file(row)


def cube_of(connection: sa.Connection, file_id: str) -> str | None:
    found: str | None = connection.scalar(sa.select(t.files.c.cube_id).where(t.files.c.id == file_id))
    return found


def of_item(connection: sa.Connection, cube: str, item_id: str) -> list[StoredFile]:
    query = sa.select(t.files).where(t.files.c.item_id == item_id, t.files.c.cube_id == cube)
    rows = connection.execute(query.where(t.files.c.kind == FileKind.IMAGE).order_by(t.files.c.id))
    return [files.to_file(row) for row in rows]


def described(change: Change, file: StoredFile, fact: Fact) -> Item:
    """Store a model's description of an image as an item made of its message.

    The text is a source of its own, placed before the message and untrusted, as is all that an image may say.
    """
    state, message = facts.store(change, fact), new_id()
    said = {"role": Role.TOOL, "name": IMAGE_TAG, "text": fact.memory, "trust": Trust.UNTRUSTED}
    made = {"id": message, "cube_id": change.cube, "chat_time": fact.said_at, "created_at": change.now}
    change.connection.execute(sa.insert(t.messages), [said | made])
    mine = t.sources.c.item_id == state.id
    change.connection.execute(sa.update(t.sources).where(mine).values(ordinal=t.sources.c.ordinal + 1))
    source = items.source_row(state.id, 0, message, (0, len(fact.memory)), fact.reader, fact.extraction)
    change.connection.execute(sa.insert(t.sources), [source])
    if fact.extraction is not None:
        # An erasure of the description alone takes the model's own words with it.
        row = {"item_id": state.id, "extraction_id": fact.extraction, "cube_id": change.cube}
        change.connection.execute(sa.insert(t.extraction_items), [row])
    finish(change.connection, file, FileState.AVAILABLE, change.now, info={**file.info, "description": state.id})
    return state


def finish(connection: sa.Connection, file: StoredFile, state: FileState, now: datetime, **values: Any) -> None:
    files.change(connection, file.id, file.cube, **{"state": state, "finished_at": now, "error": None, **values})


def sync_description(change: Change, state: Item, withdrawn: str) -> bool:
    """Restore a description `withdrawn` with its message; True if it is one and its message is there."""
    if IMAGE_TAG not in state.tags or "file" not in state.info:
        return False
    connection = change.connection
    origins = items.current(connection, [change.cube], items.origins_of(connection, [state.id]).get(state.id, ()))
    if all(origin.status is Status.DELETED for origin in origins.values()):
        return False
    if state.status is Status.DELETED and withdrawn in state.info:
        info = {key: value for key, value in state.info.items() if key != withdrawn}
        changes.edit(change, state, {"status": Status.ACTIVE, "info": info}, "its message is there again")
    return True


def requeue_descriptions(change: Change, item_ids: Collection[str]) -> None:
    skipped = (t.files.c.kind == FileKind.IMAGE, t.files.c.state == FileState.PROCESSING)
    waiting = items.scalars_in(change.connection, sa.select(t.files.c.id).where(*skipped), t.files.c.item_id, item_ids)
    tasks.enqueue(change.connection, change.cube, [describe_task(file) for file in waiting], change.now)


def forget(connection: sa.Connection, item_ids: Collection[str], removed: Counter[str]) -> None:
    for batch in items.in_batches(item_ids):
        mine = sa.select(t.files.c.id).where(t.files.c.item_id.in_(batch))
        removed["files"] += files.remove(connection, list(connection.scalars(mine)))
