"""Files as rows: what is known of each, and its bytes in parts; knows nothing of what is in them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.errors import NotFound
from memos.memcube.ledger import items
from memos.memcube.ledger.schema import file_items, file_parts, files
from memos.model import FileKind, FileState, StoredFile

PART_BYTES = 1_048_576
"""Bytes in one row, so that no row of a backup or a copy is large."""


def add(connection: sa.Connection, file: StoredFile, data: bytes) -> None:
    """Store a new file with its bytes."""
    connection.execute(
        sa.insert(files).values(
            id=file.id, cube_id=file.cube, kind=file.kind, name=file.name, media_type=file.media_type,
            bytes=file.bytes, sha256=file.sha256, state=file.state, error=file.error, info=dict(file.info),
            item_id=file.item, replaced_by=file.replaced_by, actor=file.actor, created_at=file.created_at,
            finished_at=file.finished_at,
        )
    )  # fmt: skip
    for ordinal, start in enumerate(range(0, len(data), PART_BYTES)):
        part = {"file_id": file.id, "ordinal": ordinal, "data": data[start : start + PART_BYTES]}
        connection.execute(sa.insert(file_parts), [part])


def change(connection: sa.Connection, file_id: str, **values: Any) -> None:
    """Set columns of a file."""
    connection.execute(sa.update(files).where(files.c.id == file_id).values(**values))


def require(connection: sa.Connection, cubes: Collection[str], file_id: str) -> StoredFile:
    """Return a file of these cubes. Raises: NotFound."""
    query = sa.select(files).where(files.c.id == file_id, files.c.cube_id.in_(list(cubes)))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound("file", file_id)
    return to_file(row)


def content(connection: sa.Connection, file_id: str) -> bytes:
    """Return a file's bytes."""
    query = sa.select(file_parts.c.data).where(file_parts.c.file_id == file_id).order_by(file_parts.c.ordinal)
    return b"".join(bytes(part) for part in connection.scalars(query))


def of_items(connection: sa.Connection, item_ids: Collection[str]) -> dict[str, str]:
    """Return the file of each of these items that is part of one, or that has one, by item."""
    found: dict[str, str] = {}
    for batch in items.in_batches(item_ids):
        part_of = sa.select(file_items.c.item_id, file_items.c.file_id).where(file_items.c.item_id.in_(batch))
        has = sa.select(files.c.item_id, files.c.id).where(files.c.item_id.in_(batch))
        for query in (part_of, has):
            found.update((item, file) for item, file in connection.execute(query))
    return found


def parts(connection: sa.Connection, file_id: str) -> list[sa.Row[Any]]:
    """Return the items that a document was read into, in its order: item_id, ordinal, start, end, page."""
    query = sa.select(file_items).where(file_items.c.file_id == file_id).order_by(file_items.c.ordinal)
    return list(connection.execute(query))


def remove(connection: sa.Connection, file_ids: Collection[str]) -> int:
    """Remove files with their bytes; return how many there were."""
    removed = 0
    for batch in items.in_batches(file_ids):
        connection.execute(sa.delete(file_items).where(file_items.c.file_id.in_(batch)))
        connection.execute(sa.delete(file_parts).where(file_parts.c.file_id.in_(batch)))
        removed += connection.execute(sa.delete(files).where(files.c.id.in_(batch))).rowcount
    return removed


def to_file(row: sa.Row[Any]) -> StoredFile:
    """Return a row as a value."""
    created: datetime = row.created_at
    return StoredFile(
        row.id, row.cube_id, FileKind(row.kind), row.name, row.media_type, row.bytes, row.sha256,
        FileState(row.state), row.actor, created, row.error, row.info, row.item_id, row.replaced_by, row.finished_at,
    )  # fmt: skip
