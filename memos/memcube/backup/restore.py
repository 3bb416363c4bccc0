"""Fill a ledger in one transaction, from a backup or from another ledger; its outbox updates the indexes.

Items erased after the backup was made are erased again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from memos.errors import Conflict
from memos.memcube import erasure as erase
from memos.memcube.backup import archive, backups, rows
from memos.memcube.backup.backups import Erased
from memos.memcube.backup.files import Progress, ProgressReporter
from memos.memcube.backup.places import place_of
from memos.memcube.changes import Change
from memos.memcube.encryption.keys import Keyring
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import audit_chain, cubes, entities, outbox
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.items import rows_in, scalars_in

_KEPT = (t.tombstones, t.tombstone_items, t.backups, t.tombstone_backups)


@dataclass(frozen=True, slots=True)
class Restored:
    backup: str
    created_at: datetime
    rows: int
    items: int
    erased_again: int
    unreadable: int
    """Cubes of an encrypted backup whose keys were destroyed when they were erased."""


def restore_archive(
    where: Path | str,
    ledger: Ledger,
    now: datetime,
    *,
    replace: bool = False,
    on_progress: Progress | None = None,
    keys: Keyring | None = None,
) -> Restored:
    """Fill a ledger from a backup; it is seen whole or not at all. With `replace` what it has goes, erasures stay.

    `keys` open an encrypted backup.

    Raises: NotFound (no backup), IntegrityError (damaged, newer), Conflict (the ledger is not empty).
    """
    folder = place_of(where)
    manifest = archive.read_manifest(folder)
    with ledger.read() as connection:
        refuse_unless_blank(connection, replace=replace)
    told = backups.read_erased(folder, manifest)
    backup = archive.Backup(folder, manifest, keys)
    archive.check(backup)
    with ledger.write() as connection:
        refuse_unless_blank(connection, replace=replace)
        kept = {table: list(rows.stream(connection, table)) for table in _KEPT}
        unlearned, excluded = _without_consent(connection), list(rows.stream(connection, t.adapter_exclusions))
        raised = _give_way(connection)
        try:
            count = _load(connection, backup, raised, ProgressReporter(on_progress, manifest.rows))
        except exc.IntegrityError as error:
            why = " ".join(str(error.orig).split("DETAIL:")[0].split())  # what follows shows values
            raise archive.damaged(folder, f"its rows contradict each other ({why})") from error
        audit_chain.adopt(connection)  # a backup of an earlier version has no chain
        entities.rebuild(connection)
        for cube in unlearned:  # who took consent back since has not given it again
            adapter_rows.disallow(connection, cube)
        for table, entries in kept.items():
            _add_missing(connection, table, entries)
        _bury(connection, told)
        cut_off = sa.update(t.backups).where(t.backups.c.id == manifest.id, t.backups.c.finished_at.is_(None))
        connection.execute(cut_off.values(finished_at=manifest.created_at, newest=manifest.newest))
        erased_again = replay(connection, now)
        _exclude_again(connection, excluded)
        enqueue_everything(connection)
        items = rows.count(connection, t.items)
    return Restored(manifest.id, manifest.created_at, count, items, erased_again, len(backup.destroyed))


def refuse_unless_blank(connection: sa.Connection, *, replace: bool) -> None:
    if not replace and not rows.is_blank(connection):
        where = connection.engine.url.render_as_string(hide_password=True)
        raise Conflict(
            f"The target {where} contains memories already; choose another one (--data-dir, or MEMOS_LEDGER_URL if it "
            "is set), or replace them permanently with --replace."
        )


def enqueue_everything(connection: sa.Connection) -> None:
    for target in outbox.targets(connection):
        every = sa.select(sa.literal(target), t.items.c.cube_id, t.items.c.id)
        connection.execute(sa.insert(t.outbox).from_select(["target", "cube_id", "item_id"], every))


def replay(connection: sa.Connection, now: datetime) -> int:
    now = max(now, cubes.newest_event(connection) or now)
    before = rows.count(connection, t.items)
    found: dict[tuple[str, str, str], list[str]] = {}
    # The digest marks a file without bytes, which are gone for good.
    for table, there in ((t.items, sa.true()), (t.files, t.files.c.sha256 != "")):
        back = (
            sa.select(table.c.id, table.c.cube_id, t.tombstones.c.actor, t.tombstone_items.c.tombstone_id)
            .join(t.tombstone_items, t.tombstone_items.c.item_id == table.c.id)
            .join(t.tombstones, t.tombstones.c.id == t.tombstone_items.c.tombstone_id)
            .where(there)
            .order_by(table.c.id)
        )
        for row in connection.execute(back):
            found.setdefault((row.cube_id, row.actor, row.tombstone_id), []).append(row.id)
    for (cube, actor, receipt_id), item_ids in found.items():
        erase.erase_again(Change(connection, cube, actor, now), receipt_id, item_ids)
    for grave in backups.graves(connection, t.tombstones.c.cube_id.in_(sa.select(t.cubes.c.id))):
        if grave.whole_cube:
            _drop_again(connection, grave, now)
    return before - rows.count(connection, t.items)


def _drop_again(connection: sa.Connection, grave: Erased, now: datetime) -> None:
    """Drop a cube that was dropped; one that was made under the same name later stays."""
    same = sa.select(t.cubes.c.id).where(t.cubes.c.id == grave.cube, t.cubes.c.created_at <= grave.at)
    if connection.scalar(same) is None:
        return
    left = list(connection.scalars(sa.select(t.items.c.id).where(t.items.c.cube_id == grave.cube)))
    erase.erase_again(Change(connection, grave.cube, grave.actor, now), grave.receipt, left)
    erase.remove_cube(connection, grave.cube)


def _without_consent(connection: sa.Connection) -> list[str]:
    consents = sa.select(t.adapter_consents.c.cube_id)
    return list(connection.scalars(sa.select(t.cubes.c.id).where(t.cubes.c.id.not_in(consents))))


def _exclude_again(connection: sa.Connection, entries: Sequence[rows.Row]) -> None:
    query = sa.select(t.items.c.id, t.items.c.cube_id)
    rows_there = rows_in(connection, query, t.items.c.id, (row["item_id"] for row in entries))
    there = {(row.id, row.cube_id) for row in rows_there}
    left = (row for row in entries if (row["item_id"], row["cube_id"]) in there)
    _add_missing(connection, t.adapter_exclusions, left)


def _give_way(connection: sa.Connection) -> int:
    """Empty the ledger and have the indexes forget its items; return what to add to the revisions that come.

    An index tells an item's states apart by revision: none that it may have seen already comes back with other content.
    """
    newest = connection.scalar(sa.select(sa.func.max(t.items.c.revision)))
    connection.execute(sa.delete(t.outbox))
    enqueue_everything(connection)
    # Where the indexes are stays, how far they are is no longer true.
    places = t.meta.c.key.like("mark:%") & t.meta.c.key.not_in(["mark:vector", "mark:graph"])
    for table in (t.adapter_items, t.adapters):  # in no backup, and of memories that go
        connection.execute(sa.delete(table))
    for table in reversed(rows.tables()):
        connection.execute(sa.delete(table).where(~places) if table is t.meta else sa.delete(table))
    return 0 if newest is None else newest + 1


def _load(connection: sa.Connection, backup: archive.Backup, raised: int, ticker: ProgressReporter) -> int:
    count = 0
    for table in rows.tables():
        entries = backup.rows(table)
        if table is t.items:
            entries = ({**row, "revision": row["revision"] + raised} for row in entries)
        count += rows.insert_all(connection, table, entries, ticker)
    ticker.finish()
    return count


def _add_missing(connection: sa.Connection, table: sa.Table, entries: Iterable[rows.Row]) -> None:
    known = {tuple(rows.key_of(table, row)) for row in rows.stream(connection, table)}
    rows.insert_all(connection, table, (row for row in entries if tuple(rows.key_of(table, row)) not in known))


def _bury(connection: sa.Connection, told: Sequence[Erased]) -> None:
    for grave in told:
        if connection.scalar(sa.select(t.tombstones.c.id).where(t.tombstones.c.id == grave.receipt)) is None:
            row = {"id": grave.receipt, "cube_id": grave.cube, "actor": grave.actor, "at": grave.at}
            sums = {"removed": {"cubes": 1} if grave.whole_cube else {}, "rebuilt": [], "stores": {"ledger": "purging"}}
            connection.execute(sa.insert(t.tombstones).values(**row, **sums, state="purging"))
        buried = t.tombstone_items.c.item_id
        known = set(scalars_in(connection, sa.select(buried), buried, grave.items))
        fresh = [item_id for item_id in dict.fromkeys(grave.items) if item_id not in known]
        if fresh:
            entries = [{"item_id": item_id, "tombstone_id": grave.receipt} for item_id in fresh]
            connection.execute(sa.insert(t.tombstone_items), entries)


@dataclass(frozen=True, slots=True)
class CopySummary:
    rows: int
    known: int


def unfinished_copy(connection: sa.Connection) -> str | None:
    """Return why a ledger may not be served: version 0.1 began to fill it from another. None when it is whole."""
    begun = _begun(connection)
    if begun is None:
        return None
    return (
        f"This ledger is an unfinished copy of {begun['source']}; run the same `memos data migrate` again to finish "
        "it. Nothing was changed."
    )


def copy_ledger(source: Ledger, target: Ledger, on_progress: Progress | None = None) -> CopySummary:
    """Stream every row into a blank ledger, which has all of them or none, and have the indexes follow.

    Raises: Conflict (the target has other content, or the source was changed meanwhile), BackendUnavailable.
    """
    with source.read() as theirs, target.write() as ours:
        total = sum(rows.count(theirs, table) for table in rows.tables())
        begun = _begun(ours)
        if begun is None and _contains(ours, theirs):
            return CopySummary(total, total)
        if begun is None and not rows.is_blank(ours):
            raise Conflict(f"{target.description} contains memories already; migrate into an empty installation.")
        if begun is not None and begun["ledger"] != rows.ledger_id(theirs):
            raise Conflict(
                f"{target.description} holds an unfinished copy of {begun['source']}, not of {source.description}; "
                "finish that migration, or choose another target."
            )
        rows.clear(ours)
        ticker = ProgressReporter(on_progress, total)
        for table in rows.tables():
            rows.insert_all(ours, table, rows.stream(theirs, table), ticker)
        ticker.finish()
        with source.read() as now:
            different = [table.name for table in rows.tables() if rows.tally(ours, table) != rows.tally(now, table)]
        if different:
            raise Conflict(
                f"{source.description} was changed while it was copied ({', '.join(different)} differ); stop the "
                "programs that use it and run the command again."
            )
        entities.rebuild(ours)
        enqueue_everything(ours)
    return CopySummary(total, 0)


def _contains(ours: sa.Connection, theirs: sa.Connection) -> bool:
    """Return True if a ledger is a copy of another as that is now; the copy may have gone on since."""
    if rows.ledger_id(ours) != rows.ledger_id(theirs):
        return False
    # Every change of a cube is an event of its chain, which goes on in the copy; users and keys have no events.
    if any(
        rows.tally(ours, table) != rows.tally(theirs, table)
        for table in (t.identities, t.memberships, t.grants, t.api_keys)
    ):
        return False
    for cube, seq, chain in theirs.execute(sa.select(t.cubes.c.id, t.cubes.c.event_seq, t.cubes.c.event_chain)):
        there = sa.select(t.events.c.chain).where(t.events.c.cube_id == cube, t.events.c.seq == seq)
        if seq == 0:
            there = sa.select(sa.literal(chain)).where(sa.exists().where(t.cubes.c.id == cube))
        if ours.scalar(there) != chain:
            return False
    return True


def _begun(connection: sa.Connection) -> dict[str, str] | None:
    told = connection.scalar(sa.select(t.meta.c.value).where(t.meta.c.key == rows.COPYING))
    return None if told is None else json.loads(told)
