"""Archives of rows: a part a table, each known by its size and digest, in a folder (a backup) or in a zip (a dump).

`RowArchive` reads and checks parts wherever they are; here is also the folder, with one compressed file a table and a
manifest that is written last: without `manifest.json` it is no backup. The zip is in `memos.memcube.dump.container`,
and which backups there are `memos.memcube.backup.backups` knows. The files hold memory text.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.errors import Conflict, IntegrityError, MemosError, NotFound, PermissionDenied
from memos.memcube.backup import rows, sealed
from memos.memcube.backup.files import (
    DigestedFile,
    Progress,
    ProgressReporter,
    disk_errors,
    signed,
    unsigned,
)
from memos.memcube.backup.places import FolderPlace, Place, place_of
from memos.memcube.backup.sealed import TableSealer
from memos.memcube.encryption.files import SUFFIX
from memos.memcube.encryption.keys import SETTING
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import HEAD, Ledger
from memos.version import __version__

if TYPE_CHECKING:
    from memos.memcube.encryption.keys import Keyring

Entry = TypeVar("Entry")

MANIFEST = "manifest.json"
ERASED = "erased.jsonl"

_PART = f"{MANIFEST}.part"
_FORMAT = "memstrata backup 1"
_SEALED_FORMAT = "hippocube sealed backup 1"
_LEVEL = 3  # a third of the time of gzip's usual 6, for a tenth more bytes
_MANIFEST_BYTES = 1 << 20
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class TablePart(Part):
    columns: tuple[str, ...] = ()
    file_bytes: int = 0
    file_sha256: str = ""


class PartWriter(DigestedFile):
    line_count = 0

    def write_line(self, told: rows.Row | list[Any]) -> None:
        self.line_count += 1
        self.write(rows.line(told))

    def write_rows(
        self, given: Iterable[rows.Row], told: Callable[[rows.Row], rows.Row | list[Any]], ticker: ProgressReporter
    ) -> None:
        for row in given:
            self.write_line(told(row))
            ticker.tick()

    def told(self, *, lines: bool = True) -> Part:
        return Part(self.size, self.hexdigest(), self.line_count if lines else None)


class RowArchive(ABC):
    line_bytes: float = math.inf

    @abstractmethod
    def bad(self, what: str) -> MemosError: ...

    @abstractmethod
    def part(self, name: str) -> Part: ...

    @abstractmethod
    def unpacked(self, name: str) -> Iterator[bytes]: ...

    def blocks(self, name: str, part: Part | None = None) -> Iterator[bytes]:
        """Yield a part's bytes, never more than declared; raise at the end when they are others."""
        part, digest, size = part or self.part(name), hashlib.sha256(), 0
        for block in self.unpacked(name):
            size += len(block)
            if size > part.bytes:
                raise self.bad(f"{name} is larger than {MANIFEST} says")
            digest.update(block)
            yield block
        if size != part.bytes or digest.hexdigest() != part.sha256:
            raise self.bad(f"{name} does not match {MANIFEST}: it was changed or damaged")

    def lines(self, name: str) -> Iterator[bytes]:
        part, held, count = self.part(name), b"", 0
        for block in self.blocks(name):
            *whole, held = (held + block).split(b"\n")
            if len(held) > self.line_bytes:
                raise self.bad(f"{name} has a line of more than {self.line_bytes:,} bytes")
            count += len(whole)
            if count > (part.rows or 0):
                raise self.bad(f"{name} has more lines than {MANIFEST} says")
            yield from whole
        if held or count != part.rows:
            raise self.bad(f"{name} does not have the number of lines that {MANIFEST} says")

    def entries(self, name: str, read: Callable[[bytes], Entry]) -> Iterator[Entry]:
        for number, line in enumerate(self.lines(name), start=1):
            try:
                entry = read(line)
            except (ValueError, KeyError, TypeError) as error:
                why = str(error) if type(error) is ValueError and str(error) else "has missing or invalid fields"
                raise self.bad(f"{name}, line {number}: {why}") from error
            yield entry


@dataclass(frozen=True, slots=True)
class Manifest:
    id: str
    ledger: str
    created_at: datetime
    newest: datetime | None
    program: str
    schema: str
    tables: Mapping[str, TablePart]
    keys: str | None = None
    """The id of the keys that seal its tables, which are not in it; None in a backup that anybody can read."""

    @property
    def rows(self) -> int:
        return sum(part.rows or 0 for part in self.tables.values())


def prepare(place: Place) -> None:
    """Make the folder, or take away what a backup that was cut off left in it.

    Raises: Conflict (it holds something), InvalidInput, PermissionDenied, BackendUnavailable.
    """
    with disk_errors(place):
        place.prepare()
        found = place.names()
        if MANIFEST in found:
            raise Conflict(f"{place} holds a backup already: choose another folder, or remove that one first.")
        if others := sorted(found - _own_names()):
            raise Conflict(f"{place} is not empty (it contains {others[0]!r}); give each backup its own folder.")
        discard(place)
        if isinstance(place, FolderPlace):
            place.folder.chmod(0o700)


def discard(place: Place) -> None:
    for name in _own_names() & place.names():
        place.unlink(name)


def remove(place: Place) -> None:
    """Remove a finished backup and its folder, unless that holds something else. Raises: BackendUnavailable."""
    with disk_errors(place):
        place.unlink(MANIFEST)  # first: what a crash leaves is no backup
        discard(place)
        place.remove()


def write(
    ledger: Ledger,
    place: Place,
    backup_id: str,
    created_at: datetime,
    on_progress: Progress | None = None,
    keys: Keyring | None = None,
) -> Manifest:
    """Write every table as it is at one moment; the place becomes a backup by `seal`. Raises: BackendUnavailable."""
    with disk_errors(place), ledger.read() as connection:
        every = rows.tables()
        ticker = ProgressReporter(on_progress, sum(rows.count(connection, table) for table in every))
        if keys is None:
            parts = {table.name: _write_table(place, connection, table, ticker) for table in every}
        else:
            sealer = TableSealer(keys, connection)
            parts = {table.name: _seal_table(place, sealer, table, ticker) for table in every}
        # A file comes before what is read out of it.
        made = [connection.scalar(sa.select(sa.func.max(table.c.created_at))) for table in (t.items, t.files)]
        newest = max((at for at in made if at is not None), default=None)
        named = rows.ledger_id(connection)
    ticker.finish()
    return Manifest(backup_id, named, created_at, newest, __version__, HEAD, parts, keys.id if keys else None)


def seal(place: Place, manifest: Manifest) -> None:
    told = asdict(manifest) | {
        "format": _FORMAT if manifest.keys is None else _SEALED_FORMAT,
        "created_at": to_micros(manifest.created_at),
        "newest": None if manifest.newest is None else to_micros(manifest.newest),
    }
    with disk_errors(place):
        place.put_last(MANIFEST, signed(told))


def read_manifest(where: Path | str | Place) -> Manifest:
    folder = place_of(where)
    with disk_errors(folder):
        try:
            with folder.open(MANIFEST) as file:
                told = unsigned(file.read(_MANIFEST_BYTES))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(
                "backup", str(folder), f"It has no {MANIFEST}, so it is not a backup, or an incomplete one."
            ) from error
    if told is None or told.get("format") not in (_FORMAT, _SEALED_FORMAT):
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
            str(told["keys"]) if told["format"] == _SEALED_FORMAT else None,
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise damaged(folder, f"{MANIFEST} has missing or invalid fields ({type(error).__name__})") from error
    if unknown := sorted(manifest.tables.keys() - {table.name for table in rows.tables()}):
        raise damaged(folder, f"{MANIFEST} names the unknown table {unknown[0]!r:.60}")
    return manifest


class Backup(RowArchive):
    def __init__(self, folder: Place, manifest: Manifest, keys: Keyring | None = None) -> None:
        self._folder = folder
        self.manifest = manifest
        self._keys = keys
        self._name = _file_of if manifest.keys is None else _sealed_file_of
        self._parts = {self._name(t.metadata.tables[name]): part for name, part in manifest.tables.items()}
        self.destroyed: set[str] = set()
        """Ids of the keys of erased cubes, whose rows were left out."""

    def bad(self, what: str) -> IntegrityError:
        return damaged(self._folder, what)

    def part(self, name: str) -> TablePart:
        return self._parts[name]

    def unpacked(self, name: str) -> Iterator[bytes]:
        with disk_errors(self._folder):
            try:
                with self._folder.open(name) as file:
                    packed = DigestedFile(file)
                    with gzip.GzipFile("", "rb", fileobj=packed) as content:
                        while block := content.read(BLOCK):
                            yield block
                    while packed.read(BLOCK):
                        pass
            except FileNotFoundError as error:
                raise self.bad(f"{name} is missing") from error
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self.bad(f"{name} cannot be unpacked ({error}): it was changed or cut off") from error
        if (packed.size, packed.hexdigest()) != (self._parts[name].file_bytes, self._parts[name].file_sha256):
            raise self.bad(f"{name} is not as {MANIFEST} says: it was changed or cut off")

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a part; of a sealed one those whose key was not destroyed."""
        if self.manifest.keys is None:
            yield from super().lines(name)
            return
        if self._keys is None:
            raise PermissionDenied(f"The backup in {self._folder} is encrypted: set {SETTING} to restore it.")
        count, part, gone = 0, self._parts[name], set[str]()
        with disk_errors(self._folder):
            try:
                with self._folder.open(name) as file:
                    packed = DigestedFile(file)
                    for line in sealed.lines(cast("IO[bytes]", packed), name.removesuffix(SUFFIX), self._keys, gone):
                        count += 1
                        yield line
                    while packed.read(BLOCK):
                        pass
            except FileNotFoundError as error:
                raise self.bad(f"{name} is missing") from error
            except (IntegrityError, ValueError) as error:
                raise self.bad(f"{name} cannot be opened ({error})") from error
        if (packed.size, packed.hexdigest()) != (part.file_bytes, part.file_sha256):
            raise self.bad(f"{name} is not as {MANIFEST} says: it was changed or cut off")
        self.destroyed |= gone
        if count > (part.rows or 0) or (count != part.rows and not gone):
            raise self.bad(f"{name} does not have the number of lines that {MANIFEST} says")

    def rows(self, table: sa.Table) -> Iterator[rows.Row]:
        """Yield a table's rows, with defaults for columns that an older schema had not. Raises: IntegrityError."""
        name = self._name(table)
        if name in self._parts:
            columns, reader = self._parts[name].columns, rows.RowReader(table)
            yield from self.entries(name, lambda line: reader.read(_parsed(line, columns)))
        elif self.manifest.schema == HEAD:
            raise self.bad(f"{MANIFEST} does not name the table {table.name}")


def check(backup: Backup) -> None:
    """Read a whole backup and look at every row. Raises: IntegrityError naming the file and the line."""
    for table in rows.tables():
        for _ in backup.rows(table):
            pass


def damaged(folder: Place, what: str) -> IntegrityError:
    return IntegrityError(
        f"The backup in {folder} is damaged: {what}. Nothing was changed. Restore another one, or another copy of it."
    )


def _own_names() -> set[str]:
    return {ERASED, _PART, *map(_file_of, rows.tables()), *map(_sealed_file_of, rows.tables())}


def _file_of(table: sa.Table) -> str:
    return f"{table.name}.jsonl.gz"


def _sealed_file_of(table: sa.Table) -> str:
    return f"{table.name}{SUFFIX}"


def _seal_table(place: Place, sealer: TableSealer, table: sa.Table, ticker: ProgressReporter) -> TablePart:
    with place.create(_sealed_file_of(table)) as file:
        packed = DigestedFile(file)
        count = sealer.write(cast("IO[bytes]", packed), table, ticker)
    columns = tuple(column.name for column in table.columns)
    return TablePart(0, "", count, columns=columns, file_bytes=packed.size, file_sha256=packed.hexdigest())


def _write_table(place: Place, connection: sa.Connection, table: sa.Table, ticker: ProgressReporter) -> TablePart:
    with place.create(_file_of(table)) as file:
        packed = DigestedFile(file)
        with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as out:
            writer = PartWriter(out)
            writer.write_rows(rows.stream(connection, table), lambda row: [*row.values()], ticker)
    columns = tuple(column.name for column in table.columns)
    return TablePart(**asdict(writer.told()), columns=columns, file_bytes=packed.size, file_sha256=packed.hexdigest())


def _parsed(line: bytes, columns: tuple[str, ...]) -> rows.Row:
    problem = f"this is no row of {len(columns)} values"

    def refuse(_constant: str) -> None:
        raise ValueError(problem)

    try:
        found = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(problem) from error
    if not isinstance(found, list) or len(found) != len(columns):
        raise ValueError(problem)
    return dict(zip(columns, found, strict=True))


def _part(told: Any) -> TablePart:
    part = TablePart(**{**told, "columns": tuple(map(str, told["columns"]))})
    if not all(type(number) is int and number >= 0 for number in (part.rows, part.bytes, part.file_bytes)):
        raise ValueError
    return part
