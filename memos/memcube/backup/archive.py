"""A backup's folder: one compressed file a table, and a manifest with counts and digests, written last.

Knows rows and files; which backups there are and what they were told was erased, `memos.memcube.backup.backups` knows.
A folder without `manifest.json` is no backup. The files hold memory text.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.errors import Conflict, IntegrityError, NotFound
from memos.memcube.backup import rows
from memos.memcube.backup.files import (
    DigestedFile,
    Progress,
    ProgressReporter,
    created,
    disk_errors,
    signed,
    sync_folder,
    unsigned,
)
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import HEAD, Ledger
from memos.version import __version__

MANIFEST = "manifest.json"
ERASED = "erased.jsonl"

_PART = f"{MANIFEST}.part"
_FORMAT = "memstrata backup 1"
_LEVEL = 3  # a third of the time of gzip's usual 6, for a tenth more bytes
_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """One table of a backup: its columns, its rows, its content, and its file as it lies on disk."""

    columns: tuple[str, ...]
    rows: int
    bytes: int
    sha256: str
    file_bytes: int
    file_sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself; `newest` is when its newest item was made."""

    id: str
    ledger: str
    created_at: datetime
    newest: datetime | None
    program: str
    schema: str
    tables: Mapping[str, Part]

    @property
    def rows(self) -> int:
        """Return the rows of all tables."""
        return sum(part.rows for part in self.tables.values())


def prepare(folder: Path) -> None:
    """Make the folder, or take away what a backup that was cut off left in it.

    Raises: Conflict (it holds something), InvalidInput, PermissionDenied, BackendUnavailable.
    """
    with disk_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = {path.name for path in folder.iterdir()}
        if MANIFEST in found:
            raise Conflict(f"{folder} holds a backup already: choose another folder, or remove that one first.")
        if others := sorted(found - _own_names()):
            raise Conflict(f"{folder} is not empty (it holds {others[0]!r}): give each backup a folder of its own.")
        discard(folder)
        folder.chmod(0o700)


def discard(folder: Path) -> None:
    """Remove the files of a backup that was not finished."""
    for name in _own_names():
        (folder / name).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove a finished backup and its folder, unless that holds something else. Raises: BackendUnavailable."""
    with disk_errors(folder):
        (folder / MANIFEST).unlink(missing_ok=True)  # first: what a crash leaves is no backup
        discard(folder)
        with suppress(OSError):
            folder.rmdir()


def write(
    ledger: Ledger, folder: Path, backup_id: str, created_at: datetime, on_progress: Progress | None = None
) -> Manifest:
    """Write every table as it is at one moment; the folder becomes a backup by `seal`. Raises: BackendUnavailable."""
    with disk_errors(folder), ledger.read() as connection:
        every = rows.tables()
        ticker = ProgressReporter(on_progress, sum(rows.count(connection, table) for table in every))
        parts = {table.name: _write_table(folder, connection, table, ticker) for table in every}
        # A file comes before what is read out of it.
        made = [connection.scalar(sa.select(sa.func.max(table.c.created_at))) for table in (t.items, t.files)]
        newest = max((at for at in made if at is not None), default=None)
        named = rows.ledger_id(connection)
    ticker.finish()
    return Manifest(backup_id, named, created_at, newest, __version__, HEAD, parts)


def seal(folder: Path, manifest: Manifest) -> None:
    """Make the folder a backup: its manifest appears whole or not at all."""
    told = asdict(manifest) | {
        "format": _FORMAT,
        "created_at": to_micros(manifest.created_at),
        "newest": None if manifest.newest is None else to_micros(manifest.newest),
    }
    with disk_errors(folder):
        with created(folder / _PART) as file:
            file.write(signed(told))
        (folder / _PART).rename(folder / MANIFEST)
        sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """Return what a backup says of itself. Raises: NotFound (no backup), IntegrityError (damaged, or newer)."""
    with disk_errors(folder):
        if not (folder / MANIFEST).is_file():
            raise NotFound("backup", str(folder), f"There is no {MANIFEST} in it: it is none, or was cut off.")
        with (folder / MANIFEST).open("rb") as file:
            told = unsigned(file.read(_MANIFEST_BYTES))
    if told is None or told.get("format") != _FORMAT:
        raise damaged(folder, f"{MANIFEST} was changed, cut off, or written by another program")
    if str(told.get("schema")) > HEAD:
        raise IntegrityError(
            f"The backup in {folder} was written by a newer hippocube ({told.get('program')}, schema "
            f"{told.get('schema')}; this one knows up to {HEAD}). Upgrade hippocube to restore it. Nothing was changed."
        )
    try:
        manifest = Manifest(
            str(told["id"]),
            str(told["ledger"]),
            from_micros(told["created_at"]),
            None if told["newest"] is None else from_micros(told["newest"]),
            str(told["program"]),
            str(told["schema"]),
            {name: _part(entry) for name, entry in told["tables"].items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise damaged(folder, f"{MANIFEST} does not say what it should ({type(error).__name__})") from error
    if unknown := sorted(manifest.tables.keys() - {table.name for table in rows.tables()}):
        raise damaged(folder, f"{MANIFEST} names the unknown table {unknown[0]!r:.60}")
    return manifest


def check(folder: Path, manifest: Manifest, on_progress: Progress | None = None) -> None:
    """Read the whole backup and look at every row. Raises: IntegrityError naming the file and the line."""
    ticker = ProgressReporter(on_progress, manifest.rows)
    for table in rows.tables():
        for _ in read(folder, manifest, table):
            ticker.tick()


def read(folder: Path, manifest: Manifest, table: sa.Table) -> Iterator[rows.Values]:
    """Yield a table's rows, checked, and with defaults for columns that an older schema had not.

    That they were all, and as they were written, is known when it ends. Raises: IntegrityError.
    """
    part, name = manifest.tables.get(table.name), _file_of(table)
    if part is None:
        if manifest.schema == HEAD:
            raise damaged(folder, f"{MANIFEST} does not name the table {table.name}")
        return
    places = _places(folder, table, part)
    checks = rows.checks(table)
    for number, raw in enumerate(_lines(folder, name, part), start=1):
        given = _parsed(raw)
        if given is None or len(given) != len(part.columns):
            raise damaged(folder, f"{name}, line {number} is no row of {len(part.columns)} values")
        values = [default if place is None else given[place] for place, default in places]
        for (column, wrong), value in zip(checks, values, strict=True):
            if (problem := wrong(value)) is not None:
                raise damaged(folder, f"{name}, line {number}: {column} {problem}")
        yield values


def damaged(folder: Path, what: str) -> IntegrityError:
    """Return the error for a backup that cannot be trusted."""
    return IntegrityError(
        f"The backup in {folder} is damaged: {what}. Nothing was changed. Restore another one, or another copy of it."
    )


def _own_names() -> set[str]:
    return {ERASED, _PART, *map(_file_of, rows.tables())}


def _file_of(table: sa.Table) -> str:
    return f"{table.name}.jsonl.gz"


def _write_table(folder: Path, connection: sa.Connection, table: sa.Table, ticker: ProgressReporter) -> Part:
    content, count, size = hashlib.sha256(), 0, 0
    with created(folder / _file_of(table)) as file:
        packed = DigestedFile(file)
        with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as out:
            for values in rows.stream(connection, table):
                line = rows.line(values) + b"\n"
                content.update(line)
                count, size = count + 1, size + len(line)
                out.write(line)
                ticker.tick()
    columns = tuple(column.name for column in table.columns)
    return Part(columns, count, size, content.hexdigest(), packed.size, packed.hexdigest())


def _lines(folder: Path, name: str, part: Part) -> Iterator[bytes]:
    """Yield the lines of a table's file; raise when they, or the file, are not what the manifest says."""
    content, count, size = hashlib.sha256(), 0, 0
    with disk_errors(folder):
        try:
            with (folder / name).open("rb") as file:
                packed = DigestedFile(file)
                with gzip.GzipFile("", "rb", fileobj=packed) as lines:
                    # Never more than the manifest says, whatever the file unpacks to.
                    while line := lines.readline(part.bytes - size + 1):
                        content.update(line)
                        count, size = count + 1, size + len(line)
                        if count > part.rows or size > part.bytes:
                            raise damaged(folder, f"{name} has more in it than {MANIFEST} says")
                        yield line
                while packed.read(1 << 20):
                    pass
        except FileNotFoundError as error:
            raise damaged(folder, f"{name} is missing") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise damaged(folder, f"{name} cannot be unpacked ({error}): it was changed or cut off") from error
    found = Part(part.columns, count, size, content.hexdigest(), packed.size, packed.hexdigest())
    if found != part:
        raise damaged(folder, f"{name} is not as {MANIFEST} says: it was changed or cut off")


def _parsed(raw: bytes) -> list[Any] | None:
    def refuse(_constant: str) -> None:
        raise ValueError

    try:
        found = json.loads(raw, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _part(told: Any) -> Part:
    part = Part(
        tuple(map(str, told["columns"])),
        told["rows"],
        told["bytes"],
        told["sha256"],
        told["file_bytes"],
        told["file_sha256"],
    )
    if not all(type(number) is int and number >= 0 for number in (part.rows, part.bytes, part.file_bytes)):
        raise ValueError
    return part


def _places(folder: Path, table: sa.Table, part: Part) -> list[tuple[int | None, Any]]:
    """Return for each of today's columns its place in a row, or what stands for it. Raises: IntegrityError."""
    where = {name: place for place, name in enumerate(part.columns)}
    if unknown := sorted(where.keys() - {column.name for column in table.columns}):
        raise damaged(folder, f"{table.name} has the unknown column {unknown[0]!r:.60}")
    try:
        return [
            (where[column.name], None) if column.name in where else (None, rows.default_of(column))
            for column in table.columns
        ]
    except LookupError as error:
        raise damaged(folder, f"{table.name} lacks the column {error.args[0]}") from error
