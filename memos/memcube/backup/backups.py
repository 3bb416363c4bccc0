"""The backups a ledger knows of: making one, which of them hold what is erased, and telling them so.

A backup's folder has `erased.jsonl`: the ids of what was erased after it was made, so that a restore of it, also on
another machine, brings none of that back.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from memos.core.clock import Clock, from_micros, new_id, to_micros
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError, NotFound
from memos.memcube.backup import archive
from memos.memcube.backup.archive import ERASED, Manifest
from memos.memcube.backup.files import Progress, created, disk_errors, signed, sync_folder, unsigned
from memos.memcube.encryption.keys import Keyring
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger

log = logging.getLogger("memos.backups")


@dataclass(frozen=True, slots=True)
class Erased:
    """An erasure, as recorded for a backup: ids, never content; `whole_cube` if the cube itself was erased."""

    receipt: str
    cube: str
    actor: str
    at: datetime
    items: tuple[str, ...]
    whole_cube: bool


def back_up(
    ledger: Ledger,
    folder: Path,
    clock: Clock,
    on_progress: Progress | None = None,
    *,
    apart_from: Path | None = None,
    keys: Keyring | None = None,
) -> Manifest:
    """Write a backup into a new folder; the ledger may be changed meanwhile, the backup is of one moment.

    With the `keys` of an encrypted installation it is sealed, and a copy of them, wrapped, is put beside its folder.

    Raises: Conflict (the folder holds something), InvalidInput, PermissionDenied, BackendUnavailable (disk full).
    """
    if apart_from is not None and folder.resolve().is_relative_to(apart_from.resolve()):
        raise InvalidInput(
            str(folder), "is in the installation's own folder and would be lost with it; choose another folder"
        )
    archive.prepare(folder)
    if keys is not None:
        keys.copy_beside(folder.resolve().parent)  # where it cannot be written nothing is begun
    place, backup_id, now = folder.resolve(), new_id(), clock.now()
    with disk_errors(folder), created(folder / ERASED) as file:
        file.write(signed({"backup": backup_id}))
    # Known before its moment: an erasure that comes after the moment finds it and tells it.
    with ledger.write() as connection:
        _fence(connection, alone=True)
        _forget(connection, t.backups.c.folder == str(place))
        connection.execute(sa.insert(t.backups).values(id=backup_id, folder=str(place), created_at=now))
    try:
        manifest = archive.write(ledger, folder, backup_id, now, on_progress, keys)
        if _backup_of(folder) != backup_id:
            raise Conflict(f"Another backup was started in {folder} meanwhile; give each backup its own folder.")
        if keys is not None:
            keys.copy_beside(place.parent)  # before the backup is one: without its keys it is of no use
        archive.seal(folder, manifest)
    except BaseException:
        with suppress(OSError, MemosError):
            if _backup_of(folder) == backup_id:
                archive.discard(folder)
            with ledger.write() as connection:
                _forget(connection, t.backups.c.id == backup_id)
        raise
    with ledger.write() as connection:
        finished = {"finished_at": clock.now(), "newest": manifest.newest}
        connection.execute(sa.update(t.backups).where(t.backups.c.id == backup_id).values(finished))
    tell(ledger)
    return manifest


def holding(connection: sa.Connection, made_at: datetime | None, cube_made_at: datetime | None = None) -> list[str]:
    """Return the ids of the backups that hold an item made at a moment, or a cube; cut-off ones always do."""
    _fence(connection, alone=False)
    held: list[sa.ColumnElement[bool]] = [t.backups.c.finished_at.is_(None)]
    if made_at is not None:
        held.append(t.backups.c.newest >= made_at)
    if cube_made_at is not None:
        held.append(t.backups.c.finished_at >= cube_made_at)
    return list(connection.scalars(sa.select(t.backups.c.id).where(sa.or_(*held)).order_by(t.backups.c.created_at)))


def note(connection: sa.Connection, receipt_id: str, backup_ids: Sequence[str]) -> None:
    if backup_ids:
        rows = [{"tombstone_id": receipt_id, "backup_id": backup_id} for backup_id in backup_ids]
        connection.execute(sa.insert(t.tombstone_backups), rows)


def affected(connection: sa.Connection, receipt_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    query = (
        sa.select(t.backups.c.folder, t.tombstone_backups.c.told)
        .join(t.tombstone_backups, t.tombstone_backups.c.backup_id == t.backups.c.id)
        .where(t.tombstone_backups.c.tombstone_id == receipt_id)
        .order_by(t.backups.c.created_at, t.backups.c.id)
    )
    rows = connection.execute(query).all()
    return tuple(row.folder for row in rows), tuple(row.folder for row in rows if not row.told)


def tell(ledger: Ledger) -> None:
    """Write into every backup that can be reached what was erased since; the others are named in the log."""
    with ledger.read() as connection:
        query = (
            sa.select(t.backups.c.id, t.backups.c.folder)
            .join(t.tombstone_backups, t.tombstone_backups.c.backup_id == t.backups.c.id)
            .where(t.tombstone_backups.c.told == sa.false())
            .distinct()
        )
        waiting = [(row.id, Path(row.folder)) for row in connection.execute(query)]
    for backup_id, folder in waiting:
        with ledger.read() as connection:
            graves = _untold(connection, backup_id)
        try:
            _append(folder, backup_id, graves)
        except (OSError, MemosError) as error:
            what = (
                "cannot record erasures in the backup in %s, which still contains %d erased memories (%s); retrying "
                "at the next erasure"
            )
            log.warning(what, folder, len(graves), error)
            continue
        with ledger.write() as connection:
            for grave in graves:
                its = sa.update(t.tombstone_backups).where(t.tombstone_backups.c.backup_id == backup_id)
                connection.execute(its.where(t.tombstone_backups.c.tombstone_id == grave.receipt).values(told=True))


def read_erased(folder: Path, manifest: Manifest) -> list[Erased]:
    with disk_errors(folder):
        try:
            *lines, rest = (folder / ERASED).read_bytes().split(b"\n")
        except FileNotFoundError as error:
            raise archive.damaged(folder, f"{ERASED} is missing, so what was erased since is not known") from error
    if not lines or unsigned(lines[0]) != {"backup": manifest.id}:
        raise archive.damaged(folder, f"{ERASED} belongs to another backup")
    found = []
    for number, line in enumerate([*lines[1:], *([rest] if rest else [])], start=2):
        grave = _grave(unsigned(line))
        if grave is None:
            raise archive.damaged(
                folder, f"{ERASED}, line {number} was changed or cut off, so what was erased since is not known"
            )
        found.append(grave)
    return found


@dataclass(frozen=True, slots=True)
class KnownBackup:
    """A backup that the ledger knows."""

    id: str
    folder: str
    created_at: datetime
    finished_at: datetime | None
    untold: int


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """Where backups are written and how often, and those that are known."""

    folder: str | None
    every_h: float | None
    kept: int
    backups: tuple[KnownBackup, ...]


def known(ledger: Ledger) -> list[KnownBackup]:
    untold = (
        sa.select(sa.func.count())
        .where(t.tombstone_backups.c.backup_id == t.backups.c.id, t.tombstone_backups.c.told == sa.false())
        .scalar_subquery()
    )
    query = sa.select(t.backups, untold.label("untold")).order_by(t.backups.c.created_at, t.backups.c.id)
    with ledger.read() as connection:
        rows = connection.execute(query).all()
    return [KnownBackup(row.id, row.folder, row.created_at, row.finished_at, row.untold) for row in rows]


def places(ledger: Ledger) -> list[Path]:
    """Return the folders that hold the known backups, with copies of an encrypted installation's keys."""
    return sorted({Path(made.folder).parent for made in known(ledger)})


def forget(ledger: Ledger, folder: Path) -> None:
    """Leave a backup that is no more out of later receipts. Raises: NotFound, Conflict (it is still there)."""
    place = folder.resolve()
    if place.exists():
        raise Conflict(f"{place} still exists; remove the folder first, then forget the backup.")
    with ledger.write() as connection:
        here = t.backups.c.folder == str(place)
        if connection.scalar(sa.select(t.backups.c.id).where(here)) is None:
            raise NotFound("backup", str(place), "List backups with `memos data backups`.")
        _forget(connection, here)


def keep_newest(ledger: Ledger, folder: Path, kept: int) -> None:
    """Remove the oldest of the periodic backups in a folder beyond those to keep. Raises: BackendUnavailable."""
    place = folder.resolve()
    mine = [made for made in known(ledger) if _is_periodic(Path(made.folder), place)]
    for old in mine[:-kept]:
        gone = Path(old.folder)
        if _backup_of(gone) == old.id:
            archive.remove(gone)
        if not gone.exists():
            forget(ledger, gone)


def periodic_name(moment: datetime, attempt: str) -> str:
    return f"periodic-{moment:%Y%m%dT%H%M%SZ}-{attempt}"


def manual_name(moment: datetime, attempt: str) -> str:
    """Return the name of a backup that a person asked for; it is not removed when newer ones are made."""
    return f"manual-{moment:%Y%m%dT%H%M%SZ}-{attempt}"


def _is_periodic(made: Path, folder: Path) -> bool:
    return made.parent == folder and made.name.startswith("periodic-")


def graves(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[Erased]:
    found = []
    for row in connection.execute(sa.select(t.tombstones).where(where).order_by(t.tombstones.c.at)).all():
        query = sa.select(t.tombstone_items.c.item_id).where(t.tombstone_items.c.tombstone_id == row.id)
        items = tuple(connection.scalars(query.order_by(t.tombstone_items.c.item_id)))
        found.append(Erased(row.id, row.cube_id, row.actor, row.at, items, bool(row.removed.get("cubes"))))
    return found


def _untold(connection: sa.Connection, backup_id: str) -> list[Erased]:
    waiting = sa.select(t.tombstone_backups.c.tombstone_id).where(
        t.tombstone_backups.c.backup_id == backup_id, t.tombstone_backups.c.told == sa.false()
    )
    return graves(connection, t.tombstones.c.id.in_(waiting))


def _fence(connection: sa.Connection, *, alone: bool) -> None:
    """Wait until no erasure is under way before a backup begins: one that commits later must have seen the backup.

    SQLite has one writer and needs no such row lock; PostgreSQL keeps it until the transaction ends.
    """
    row = sa.select(t.meta.c.key).where(t.meta.c.key == "ledger_id")
    connection.execute(row.with_for_update(read=not alone))


def _forget(connection: sa.Connection, where: sa.ColumnElement[bool]) -> None:
    gone = sa.select(t.backups.c.id).where(where)
    connection.execute(sa.delete(t.tombstone_backups).where(t.tombstone_backups.c.backup_id.in_(gone)))
    connection.execute(sa.delete(t.backups).where(where))


def _append(folder: Path, backup_id: str, graves: Sequence[Erased]) -> None:
    """Write lines at the end, durable; a line that a crash cut off is taken away first."""
    descriptor = os.open(folder / ERASED, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        if unsigned(before.split(b"\n", 1)[0]) != {"backup": backup_id}:
            raise BackendUnavailable("that folder now contains another backup")
        whole = before.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
        file.write(b"".join(signed(asdict(grave) | {"at": to_micros(grave.at)}) for grave in graves))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def _backup_of(folder: Path) -> str | None:
    with suppress(OSError), (folder / ERASED).open("rb") as file:
        return str((unsigned(file.readline()) or {}).get("backup"))
    return None


def _grave(told: dict[str, object] | None) -> Erased | None:
    match told:
        case {
            "receipt": str(receipt),
            "cube": str(cube),
            "actor": str(actor),
            "at": int(at),
            "items": list(items),
            "whole_cube": bool(whole),
        } if all(isinstance(item, str) for item in items):
            return Erased(receipt, cube, actor, from_micros(at), tuple(items), whole)
    return None
