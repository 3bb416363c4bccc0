"""The backups a ledger knows of: making one, which of them hold what is erased, and telling them so.

A backup's folder has `erased.jsonl`: the ids of what was erased after it was made, so that a restore of it, also on
another machine, brings none of that back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from memos.core.clock import Clock, from_micros, new_id, to_micros
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError, NotFound
from memos.memcube.backup import archive
from memos.memcube.backup.archive import ERASED, Manifest
from memos.memcube.backup.files import Progress, disk_errors, signed, unsigned
from memos.memcube.backup.places import S3, BucketPlace, FolderPlace, Place, beside, place_of
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
    where: Path | str,
    clock: Clock,
    on_progress: Progress | None = None,
    *,
    apart_from: Path | None = None,
    keys: Keyring | None = None,
) -> Manifest:
    """Write a backup into a new folder or prefix of a bucket; it is of one moment, whatever is changed meanwhile.

    With the `keys` of an encrypted installation it is sealed, and a copy of them, wrapped, is put beside its folder.

    Raises: Conflict (the folder holds something), InvalidInput, PermissionDenied, BackendUnavailable (disk full).
    """
    place = place_of(where)
    if (
        apart_from is not None
        and isinstance(place, FolderPlace)
        and Path(str(place)).is_relative_to(apart_from.resolve())
    ):
        raise InvalidInput(
            str(where), "is in the installation's own folder and would be lost with it; choose another folder"
        )
    archive.prepare(place)
    if keys is not None:
        keys.copy_into(beside(place))  # where it cannot be written nothing is begun
    backup_id, now = new_id(), clock.now()
    with disk_errors(place), place.create(ERASED) as file:
        file.write(signed({"backup": backup_id}))
    # Known before its moment: an erasure that comes after the moment finds it and tells it.
    with ledger.write() as connection:
        _fence(connection, alone=True)
        _forget(connection, t.backups.c.folder == str(place))
        connection.execute(sa.insert(t.backups).values(id=backup_id, folder=str(place), created_at=now))
    try:
        manifest = archive.write(ledger, place, backup_id, now, on_progress, keys)
        if _backup_of(place) != backup_id:
            raise Conflict(f"Another backup was started in {place} meanwhile; give each backup its own folder.")
        if keys is not None:
            # Before the backup is one: without its keys it is of no use.
            keys.copy_into(beside(place))
        archive.seal(place, manifest)
    except BaseException:
        with suppress(OSError, MemosError):
            if _backup_of(place) == backup_id:
                archive.discard(place)
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
        waiting = [(row.id, place_of(row.folder)) for row in connection.execute(query)]
    for backup_id, place in waiting:
        try:
            with _TELLING, ledger.write() if _is_shared(ledger, place) else ledger.read() as connection:
                if _is_shared(ledger, place):
                    # A bucket has no locks: processes take turns by the backup's row.
                    connection.execute(sa.select(t.backups.c.id).where(t.backups.c.id == backup_id).with_for_update())
                graves = _untold(connection, backup_id)
                _append(place, backup_id, graves)
        except (OSError, MemosError) as error:
            what = (
                "cannot record erasures in the backup in %s, which still contains erased memories (%s); retrying at "
                "the next erasure"
            )
            log.warning(what, place, error)
            continue
        with ledger.write() as connection:
            for grave in graves:
                its = sa.update(t.tombstone_backups).where(t.tombstone_backups.c.backup_id == backup_id)
                connection.execute(its.where(t.tombstone_backups.c.tombstone_id == grave.receipt).values(told=True))


# One thread at a time rewrites the list of a backup's erasures.
_TELLING = threading.Lock()


def _is_shared(ledger: Ledger, place: Place) -> bool:
    return isinstance(place, BucketPlace) and not ledger.is_sqlite


def read_erased(where: Path | str | Place, manifest: Manifest) -> list[Erased]:
    folder = place_of(where)
    with disk_errors(folder):
        try:
            with folder.open(ERASED) as file:
                *lines, rest = file.read().split(b"\n")
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


def places(folders: Iterable[str]) -> list[Place]:
    """Return the places that hold these backups, and copies of an encrypted installation's keys."""
    found: dict[str, Place] = {}
    for folder in folders:
        with suppress(InvalidInput):  # a backup that was not sealed may lie anywhere
            place = beside(folder)
            found[str(place)] = place
    return [found[name] for name in sorted(found)]


def forget(ledger: Ledger, where: Path | str | Place) -> None:
    """Leave a backup that is no more out of later receipts. Raises: NotFound, Conflict (it is still there)."""
    place = place_of(where)
    if place.exists():
        raise Conflict(f"{place} still exists; remove the folder first, then forget the backup.")
    with ledger.write() as connection:
        here = t.backups.c.folder == str(place)
        if connection.scalar(sa.select(t.backups.c.id).where(here)) is None:
            raise NotFound("backup", str(place), "List backups with `memos data backups`.")
        _forget(connection, here)


def keep_newest(ledger: Ledger, where: Path | str, kept: int) -> None:
    """Remove the oldest of the periodic backups in a place beyond those to keep. Raises: BackendUnavailable."""
    beginning = f"{str(where).rstrip('/') if str(where).startswith(S3) else Path(where).resolve()}/periodic-"
    mine = [made for made in known(ledger) if made.folder.startswith(beginning)]
    for old in mine[:-kept]:
        gone = place_of(old.folder)
        if _backup_of(gone) == old.id:
            archive.remove(gone)
        if not gone.exists():
            with suppress(NotFound):  # another process forgot it first
                forget(ledger, gone)


def periodic_name(moment: datetime, attempt: str) -> str:
    return f"periodic-{moment:%Y%m%dT%H%M%SZ}-{attempt}"


def manual_name(moment: datetime, attempt: str) -> str:
    """Return the name of a backup that a person asked for; it is not removed when newer ones are made."""
    return f"manual-{moment:%Y%m%dT%H%M%SZ}-{attempt}"


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


def _append(place: Place, backup_id: str, graves: Sequence[Erased]) -> None:
    def lines(before: bytes) -> bytes:
        if unsigned(before.split(b"\n", 1)[0]) != {"backup": backup_id}:
            raise BackendUnavailable("that folder now contains another backup")
        return b"".join(signed(asdict(grave) | {"at": to_micros(grave.at)}) for grave in graves)

    place.append(ERASED, lines)


def _backup_of(place: Place) -> str | None:
    with suppress(OSError), place.open(ERASED) as file:
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
