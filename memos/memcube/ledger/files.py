"""Rows of files: metadata, and bytes in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.core.browsing import DocumentPassage
from memos.core.types import FileKind, FileState, Status, StoredFile, TaskState
from memos.errors import NotFound
from memos.memcube.ledger import items
from memos.memcube.ledger.columns import CUBE, is_sealed, sealed_columns
from memos.memcube.ledger.schema import (
    fields_of,
    file_items,
    file_parts,
    files,
    messages,
    row_of,
    sources,
    tasks,
    versions,
)

READ = "file"
"""Kind of the tasks that read a document; the task key is the file's id."""

ABANDONED = (
    "was not read, as its task failed or was cancelled; retry the task (`memos task list --kind file`), or add the "
    "file again"
)

PART_BYTES = 1_048_576
"""Maximum bytes in a row, to keep rows of backups and copies small."""


def add(connection: sa.Connection, file: StoredFile, data: bytes) -> None:
    connection.execute(sa.insert(files).values(row_of(files, file, info=dict(file.info))))
    _add_parts(connection, file.id, file.cube, data)


def replace_content(connection: sa.Connection, file_id: str, cube: str, data: bytes) -> None:
    connection.execute(sa.delete(file_parts).where(file_parts.c.file_id == file_id))
    connection.execute(sa.update(files).where(files.c.id == file_id).values(bytes=len(data)))
    _add_parts(connection, file_id, cube, data)


def _add_parts(connection: sa.Connection, file_id: str, cube: str, data: bytes) -> None:
    for ordinal, start in enumerate(range(0, len(data), PART_BYTES)):
        part = {"file_id": file_id, "ordinal": ordinal, "data": data[start : start + PART_BYTES]}
        connection.execute(sa.insert(file_parts), [part], execution_options={CUBE: cube})


def change(connection: sa.Connection, file_id: str, cube: str, **values: Any) -> None:
    changed = sa.update(files).where(files.c.id == file_id).values(**values)
    connection.execute(changed, execution_options={CUBE: cube})


def require(connection: sa.Connection, cubes: Collection[str], file_id: str) -> StoredFile:
    query = sa.select(files).where(files.c.id == file_id, files.c.cube_id.in_(list(cubes)))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound("file", file_id)
    return to_file(row)


def find(connection: sa.Connection, cube: str, **equal: Any) -> list[StoredFile]:
    query = sa.select(files).where(files.c.cube_id == cube, files.c.kind == FileKind.DOCUMENT)
    unread = {column.name for column in sealed_columns(files)} if is_sealed(connection) else set()
    query = query.where(*(files.c[name] == value for name, value in equal.items() if name not in unread))
    found = [to_file(row) for row in connection.execute(query.order_by(files.c.created_at.desc(), files.c.id.desc()))]
    same = [file for file in found if all(getattr(file, name) == equal[name] for name in unread & equal.keys())]
    return shown(connection, same)


def page(
    connection: sa.Connection, cube: str, states: Collection[FileState], limit: int, after: str | None
) -> list[StoredFile]:
    """Return the documents of a cube in these effective states, newest first, behind the file `after`."""
    # The state of a file whose task was lost is only known by `shown`.
    stored = set(states) | ({FileState.PROCESSING} if FileState.FAILED in states else set())
    order = (files.c.created_at, files.c.id)
    query = sa.select(files).where(
        files.c.cube_id == cube, files.c.kind == FileKind.DOCUMENT, files.c.state.in_(sorted(stored))
    )
    query = query.order_by(*(column.desc() for column in order)).limit(limit)
    last = None
    if after is not None:
        place = sa.select(*order).where(files.c.id == after, files.c.cube_id == cube)
        last = connection.execute(place).one_or_none()
    if after is not None and last is None:
        raise unknown(after)
    found: list[StoredFile] = []
    while len(found) < limit:
        following = query
        if last is not None:
            made, id_ = order
            earlier = sa.or_(made < last.created_at, sa.and_(made == last.created_at, id_ < last.id))
            following = query.where(made <= last.created_at, earlier)  # the first condition uses the index
        rows = connection.execute(following).all()
        found += [file for file in shown(connection, [to_file(row) for row in rows]) if file.state in states]
        if len(rows) < limit:
            break
        last = rows[-1]
    return found[:limit]


def passages(
    connection: sa.Connection, file: StoredFile, start: int, limit: int, on_page: int | None
) -> list[DocumentPassage]:
    """Return the passages of a document from a character on, in order."""
    query = sa.select(file_items).where(file_items.c.file_id == file.id, file_items.c.end > start)
    if on_page is not None:
        query = query.where(file_items.c.page == on_page)
    rows = connection.execute(query.order_by(file_items.c.ordinal).limit(limit)).all()
    states = items.current(connection, [file.cube], [row.item_id for row in rows])
    found = []
    for row in rows:
        if (state := states.get(row.item_id)) is None:
            continue
        path = state.info.get("path")
        found.append(
            DocumentPassage(
                item=row.item_id,
                number=row.ordinal + 1,
                page=row.page,
                start=row.start,
                end=row.end,
                path=tuple(map(str, path)) if isinstance(path, list) else (),
                text="" if state.status is Status.DELETED else state.memory,
                status=state.status,
                version=state.version,
            )
        )
    return found


def shown(connection: sa.Connection, found: Sequence[StoredFile]) -> list[StoredFile]:
    """Return files with their effective state: one in `processing` without a task has failed."""
    waiting = [file.id for file in found if file.state is FileState.PROCESSING]
    alive = (tasks.c.kind == READ, tasks.c.state.in_([TaskState.WAITING, TaskState.RUNNING]))
    query = sa.select(tasks.c.idempotency_key).where(*alive)
    lost = set(waiting).difference(items.scalars_in(connection, query, tasks.c.idempotency_key, waiting))
    return [replace(file, state=FileState.FAILED, error=ABANDONED) if file.id in lost else file for file in found]


def has_live_items(connection: sa.Connection, file_id: str) -> bool:
    query = (
        sa.select(file_items.c.item_id)
        .join(versions, versions.c.item_id == file_items.c.item_id)
        .where(file_items.c.file_id == file_id, versions.c.recorded_to.is_(None), versions.c.status != Status.DELETED)
    )
    return connection.scalar(query.limit(1)) is not None


def text(connection: sa.Connection, file_id: str) -> str:
    """Return the Markdown of a document without erased passages, as it was read; edits of items do not change it."""
    query = (
        sa.select(messages.c.text)
        .select_from(file_items)
        .join(sources, sa.and_(sources.c.item_id == file_items.c.item_id, sources.c.ordinal == 0))
        .join(messages, messages.c.id == sources.c.message_id)
        .where(file_items.c.file_id == file_id)
        .order_by(file_items.c.ordinal)
    )
    return "".join(connection.scalars(query))


def require_document(connection: sa.Connection, file_id: str) -> StoredFile:
    query = sa.select(files).where(files.c.id == file_id, files.c.kind == FileKind.DOCUMENT)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise unknown(file_id)
    return to_file(row)


def unknown(file_id: str) -> NotFound:
    return NotFound("file", file_id, "List files with `memos docs files`.")


def content(connection: sa.Connection, file_id: str) -> bytes:
    query = sa.select(file_parts.c.data).where(file_parts.c.file_id == file_id).order_by(file_parts.c.ordinal)
    return b"".join(bytes(part) for part in connection.scalars(query))


def of_items(connection: sa.Connection, item_ids: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item, file in ((file_items.c.item_id, file_items.c.file_id), (files.c.item_id, files.c.id)):
        found.update((row[0], row[1]) for row in items.rows_in(connection, sa.select(item, file), item, item_ids))
    return found


def of_cube(connection: sa.Connection, cube: str) -> list[str]:
    return list(connection.scalars(sa.select(files.c.id).where(files.c.cube_id == cube)))


def known(connection: sa.Connection, ids: Collection[str]) -> list[str]:
    return list(items.scalars_in(connection, sa.select(files.c.id), files.c.id, ids))


def counts(connection: sa.Connection, cube: str) -> dict[FileState, int]:
    return dict(Counter(file.state for file in find(connection, cube)))


def with_bytes(connection: sa.Connection, file_ids: Collection[str]) -> list[str]:
    return list(items.scalars_in(connection, sa.select(files.c.id).where(files.c.sha256 != ""), files.c.id, file_ids))


def made_at(connection: sa.Connection, file_ids: Collection[str]) -> list[datetime]:
    return list(items.scalars_in(connection, sa.select(files.c.created_at), files.c.id, file_ids))


def parts(connection: sa.Connection, file_id: str) -> list[sa.Row[Any]]:
    query = sa.select(file_items).where(file_items.c.file_id == file_id).order_by(file_items.c.ordinal)
    return list(connection.execute(query))


def forget_bytes(connection: sa.Connection, file_ids: Collection[str]) -> dict[str, int]:
    """Remove the bytes and digests of files, and files without items; return counts."""
    removed = {"files": 0, "file_parts": 0}
    for batch in items.in_batches(file_ids):
        gone = connection.execute(sa.delete(file_parts).where(file_parts.c.file_id.in_(batch)))
        removed["file_parts"] += gone.rowcount
        connection.execute(sa.update(files).where(files.c.id.in_(batch)).values(sha256=""))
        query = sa.select(file_items.c.file_id).where(file_items.c.file_id.in_(batch)).distinct()
        left = set(connection.scalars(query))
        empty = [file for file in batch if file not in left]
        connection.execute(sa.update(files).where(files.c.replaced_by.in_(empty)).values(replaced_by=None))
        removed["files"] += remove(connection, empty)
    return removed


def expired(connection: sa.Connection, before: datetime) -> dict[str, list[str]]:
    left = sa.exists().where(file_items.c.file_id == files.c.id)
    query = sa.select(files.c.cube_id, files.c.id).where(
        files.c.state == FileState.DELETED, files.c.finished_at < before, ~left
    )
    found: dict[str, list[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.cube_id, []).append(row.id)
    return found


def broken(connection: sa.Connection, cube: str, most: int) -> list[tuple[str, str]]:
    if is_sealed(connection):
        return _broken_sealed(connection, cube, most) + _unread(connection, cube, most)
    length = sa.func.coalesce(sa.func.sum(sa.func.length(file_parts.c.data)), 0)
    size = sa.select(length).where(file_parts.c.file_id == files.c.id).scalar_subquery()
    short = sa.select(files.c.id).where(files.c.cube_id == cube, files.c.sha256 != "", files.c.bytes != size)
    found = [(file, "does not have the size recorded for it") for file in connection.scalars(short.limit(most))]
    follows = sa.func.lag(file_items.c.end).over(partition_by=file_items.c.file_id, order_by=file_items.c.ordinal)
    parts = (
        sa.select(file_items.c.file_id, file_items.c.start, file_items.c.end, follows.label("before"), messages.c.text)
        .join(files, files.c.id == file_items.c.file_id)
        .outerjoin(sources, sa.and_(sources.c.item_id == file_items.c.item_id, sources.c.ordinal == 0))
        .outerjoin(messages, messages.c.id == sources.c.message_id)
        .where(files.c.cube_id == cube, files.c.sha256 != "")
        .subquery()
    )
    gap = sa.func.coalesce(parts.c.before, 0) != parts.c.start
    other = sa.func.coalesce(sa.func.length(parts.c.text), -1) != parts.c.end - parts.c.start
    query = sa.select(parts.c.file_id).where(sa.or_(gap, other)).distinct().limit(most)
    found += [(file, "has passages that do not cover its whole text") for file in connection.scalars(query)]
    return found + _unread(connection, cube, most)


def _broken_sealed(connection: sa.Connection, cube: str, most: int) -> list[tuple[str, str]]:
    """Return the same where SQL cannot measure what is stored."""
    found = []
    its = sa.select(files.c.id, files.c.bytes).where(files.c.cube_id == cube, files.c.sha256 != "")
    for file in connection.execute(its).all():
        data = sa.select(file_parts.c.data).where(file_parts.c.file_id == file.id)
        if sum(len(part) for part in connection.scalars(data)) != file.bytes:
            found.append((file.id, "does not have the size recorded for it"))
        parts = (
            sa.select(file_items.c.start, file_items.c.end, messages.c.text)
            .outerjoin(sources, sa.and_(sources.c.item_id == file_items.c.item_id, sources.c.ordinal == 0))
            .outerjoin(messages, messages.c.id == sources.c.message_id)
            .where(file_items.c.file_id == file.id)
            .order_by(file_items.c.ordinal)
        )
        end = 0
        for part in connection.execute(parts):
            if part.start != end or part.text is None or len(part.text) != part.end - part.start:
                found.append((file.id, "has passages that do not cover its whole text"))
                break
            end = part.end
        if len(found) >= most:
            break
    return found[:most]


def _unread(connection: sa.Connection, cube: str, most: int) -> list[tuple[str, str]]:
    states = (FileState.AVAILABLE, FileState.SUPERSEDED)
    none = ~sa.exists().where(file_items.c.file_id == files.c.id)
    query = sa.select(files.c.id).where(files.c.cube_id == cube, files.c.kind == FileKind.DOCUMENT, none)
    # A file that was replaced before it was read has no passages.
    query = query.where(files.c.state.in_(states), files.c.replaced_by.is_(None), files.c.sha256 != "")
    return [(file, "was read but has no passages") for file in connection.scalars(query.limit(most))]


def remove(connection: sa.Connection, file_ids: Collection[str]) -> int:
    removed = 0
    for batch in items.in_batches(file_ids):
        connection.execute(sa.delete(file_items).where(file_items.c.file_id.in_(batch)))
        connection.execute(sa.delete(file_parts).where(file_parts.c.file_id.in_(batch)))
        removed += connection.execute(sa.delete(files).where(files.c.id.in_(batch))).rowcount
    return removed


def to_file(row: sa.Row[Any]) -> StoredFile:
    return StoredFile(**fields_of(row) | {"kind": FileKind(row.kind), "state": FileState(row.state)})
