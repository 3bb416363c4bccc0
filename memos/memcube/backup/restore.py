"""Puts a backup back into a ledger in one transaction, and erases again what was erased since it was made.

Knows one ledger; the indexes are told through its outbox.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from memos.errors import Conflict
from memos.memcube import erasure as erase
from memos.memcube.backup import archive, backups, rows
from memos.memcube.backup.archive import Manifest
from memos.memcube.backup.backups import Erased
from memos.memcube.backup.files import Progress, ProgressReporter
from memos.memcube.changes import Change
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import cubes, outbox
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.items import in_batches

_REVISION = [column.name for column in t.items.columns].index("revision")
_KEPT = (t.tombstones, t.tombstone_items, t.backups, t.tombstone_backups)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did: of which backup, and how many items of it were erased since and left out."""

    backup: str
    created_at: datetime
    rows: int
    items: int
    erased_again: int


def restore_archive(
    folder: Path, ledger: Ledger, now: datetime, *, replace: bool = False, on_progress: Progress | None = None
) -> Restored:
    """Fill a ledger from a backup; it is seen whole or not at all. With `replace` what it has goes, erasures stay.

    Raises: NotFound (no backup), IntegrityError (damaged, newer), Conflict (the ledger is not empty).
    """
    manifest = archive.read_manifest(folder)
    with ledger.read() as connection:
        refuse_unless_blank(connection, replace=replace)
    told = backups.read_erased(folder, manifest)
    archive.check(folder, manifest)
    with ledger.write() as connection:
        refuse_unless_blank(connection, replace=replace)
        kept = {table: list(rows.stream(connection, table)) for table in _KEPT}
        unlearned, excluded = _without_consent(connection), list(rows.stream(connection, t.adapter_exclusions))
        raised = _give_way(connection)
        try:
            count = _load(connection, folder, manifest, raised, ProgressReporter(on_progress, manifest.rows))
        except exc.IntegrityError as error:
            why = " ".join(str(error.orig).split("DETAIL:")[0].split())  # what follows shows values
            raise archive.damaged(folder, f"its rows contradict each other ({why})") from error
        for cube in unlearned:  # who took consent back since has not given it again
            adapter_rows.disallow(connection, cube)
        for table, entries in kept.items():
            _add_missing(connection, table, entries)
        _bury(connection, told)
        connection.execute(
            sa.update(t.backups)
            .where(t.backups.c.id == manifest.id, t.backups.c.finished_at.is_(None))
            .values(finished_at=manifest.created_at, newest=manifest.newest)
        )
        erased_again = replay(connection, now)
        _exclude_again(connection, excluded)
        enqueue_everything(connection)
        items = rows.count(connection, t.items)
    return Restored(manifest.id, manifest.created_at, count, items, erased_again)


def refuse_unless_blank(connection: sa.Connection, *, replace: bool) -> None:
    """Raise Conflict when a ledger has content that may not be replaced."""
    if not replace and not rows.is_blank(connection):
        where = connection.engine.url.render_as_string(hide_password=True)
        raise Conflict(
            f"There are memories in the place to restore to, {where}: choose another one (--data-dir, or "
            "MEMOS_LEDGER_URL where it is set), or replace them for good (--replace)."
        )


def enqueue_everything(connection: sa.Connection) -> None:
    """Queue every item for every index that follows the ledger."""
    for target in outbox.targets(connection):
        every = sa.select(sa.literal(target), t.items.c.cube_id, t.items.c.id)
        connection.execute(sa.insert(t.outbox).from_select(["target", "cube_id", "item_id"], every))


def replay(connection: sa.Connection, now: datetime) -> int:
    """Erase the items, and the cubes, that a tombstone names and that are there all the same; return how many items."""
    now = max(now, cubes.newest_event(connection) or now)
    before = rows.count(connection, t.items)
    back = (
        sa.select(
            t.tombstone_items.c.item_id, t.tombstone_items.c.tombstone_id, t.items.c.cube_id, t.tombstones.c.actor
        )
        .join(t.items, t.items.c.id == t.tombstone_items.c.item_id)
        .join(t.tombstones, t.tombstones.c.id == t.tombstone_items.c.tombstone_id)
        .order_by(t.tombstone_items.c.item_id)
    )
    # A file whose bytes are gone for good says so by its digest.
    whole = (
        sa.select(
            t.tombstone_items.c.item_id, t.tombstone_items.c.tombstone_id, t.files.c.cube_id, t.tombstones.c.actor
        )
        .join(t.files, t.files.c.id == t.tombstone_items.c.item_id)
        .join(t.tombstones, t.tombstones.c.id == t.tombstone_items.c.tombstone_id)
        .where(t.files.c.sha256 != "")
        .order_by(t.tombstone_items.c.item_id)
    )
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in [*connection.execute(back), *connection.execute(whole)]:
        found.setdefault((row.cube_id, row.actor, row.tombstone_id), []).append(row.item_id)
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
    """Return the cubes of which nothing may be learned."""
    consents = sa.select(t.adapter_consents.c.cube_id)
    return list(connection.scalars(sa.select(t.cubes.c.id).where(t.cubes.c.id.not_in(consents))))


def _exclude_again(connection: sa.Connection, entries: Sequence[rows.Values]) -> None:
    """Let what was excluded from learning be excluded again, where it is there in the same cube."""
    there: set[tuple[str, str]] = set()
    for batch in in_batches(item for item, *_ in entries):
        query = sa.select(t.items.c.id, t.items.c.cube_id).where(t.items.c.id.in_(batch))
        there.update((row.id, row.cube_id) for row in connection.execute(query))
    _add_missing(connection, t.adapter_exclusions, (row for row in entries if (row[0], row[1]) in there))


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


def _load(connection: sa.Connection, folder: Path, manifest: Manifest, raised: int, ticker: ProgressReporter) -> int:
    count = 0
    for table in rows.tables():
        for batch in rows.batches(archive.read(folder, manifest, table)):
            for values in batch if table is t.items else ():
                values[_REVISION] += raised
            rows.insert(connection, table, batch)
            count += len(batch)
            ticker.tick(len(batch))
    ticker.finish()
    return count


def _add_missing(connection: sa.Connection, table: sa.Table, entries: Iterable[rows.Values]) -> None:
    known = {tuple(rows.key_of(table, values)) for values in rows.stream(connection, table)}
    for batch in rows.batches(values for values in entries if tuple(rows.key_of(table, values)) not in known):
        rows.insert(connection, table, batch)


def _bury(connection: sa.Connection, told: Sequence[Erased]) -> None:
    """Give the ledger the tombstones that the backup's own file tells of."""
    for grave in told:
        if connection.scalar(sa.select(t.tombstones.c.id).where(t.tombstones.c.id == grave.receipt)) is None:
            connection.execute(
                sa.insert(t.tombstones).values(
                    id=grave.receipt,
                    cube_id=grave.cube,
                    actor=grave.actor,
                    at=grave.at,
                    state="purging",
                    removed={"cubes": 1} if grave.whole_cube else {},
                    rebuilt=[],
                    stores={"ledger": "purging"},
                )
            )
        known: set[str] = set()
        for batch in in_batches(grave.items):
            query = sa.select(t.tombstone_items.c.item_id).where(t.tombstone_items.c.item_id.in_(batch))
            known.update(connection.scalars(query))
        fresh = [item_id for item_id in dict.fromkeys(grave.items) if item_id not in known]
        if fresh:
            entries = [{"item_id": item_id, "tombstone_id": grave.receipt} for item_id in fresh]
            connection.execute(sa.insert(t.tombstone_items), entries)


# Copies a whole ledger into an empty one, of the same database or another; a copy that was cut off goes on.


@dataclass(frozen=True, slots=True)
class CopySummary:
    """What a copy did: rows of the whole ledger, and how many of them were there from before."""

    rows: int
    known: int


@dataclass(slots=True)
class _Done:
    """How far one table is: the last key and the rows up to it."""

    after: list[Any] | None = None
    rows: int = 0


@dataclass(slots=True)
class _State:
    """How far a copy is, as `meta` keeps it; `stamp` is what the source was when it began."""

    ledger: str
    source: str
    stamp: str
    tables: dict[str, _Done] = field(default_factory=dict)

    @classmethod
    def read(cls, connection: sa.Connection) -> _State | None:
        """Return the copy under way."""
        told = connection.scalar(sa.select(t.meta.c.value).where(t.meta.c.key == rows.COPYING))
        if told is None:
            return None
        known: Mapping[str, Any] = json.loads(told)
        tables = {name: _Done(**done) for name, done in known["tables"].items()}
        return cls(known["ledger"], known["source"], known["stamp"], tables)

    def write(self, connection: sa.Connection) -> None:
        """Keep it in the transaction that brought it here."""
        changed = connection.execute(
            sa.update(t.meta).where(t.meta.c.key == rows.COPYING).values(value=json.dumps(asdict(self)))
        )
        if changed.rowcount == 0:
            connection.execute(sa.insert(t.meta).values(key=rows.COPYING, value=json.dumps(asdict(self))))


def unfinished_copy(connection: sa.Connection) -> str | None:
    """Return why a ledger may not be served: it is being filled from another. None when it is whole."""
    state = _State.read(connection)
    if state is None:
        return None
    return (
        f"This ledger is a copy of {state.source} that was not finished: run the same `memos data migrate` again to "
        "finish it. Nothing was changed."
    )


def copy_ledger(source: Ledger, target: Ledger, on_progress: Progress | None = None) -> CopySummary:
    """Copy every row into a blank ledger, or go on with that; then compare both, and have the indexes follow.

    Raises: Conflict (the target has other content, or the source was changed meanwhile), BackendUnavailable.
    """
    with source.read() as reading:
        every = rows.tables()
        total = sum(rows.count(reading, table) for table in every)
        begun = _State(rows.ledger_id(reading), source.description, _stamp(reading))
        state = _begin(target, begun)
        if state is None:
            return CopySummary(total, total)
        known = sum(done.rows for done in state.tables.values())
        ticker = ProgressReporter(on_progress, total, known)
        for table in every:
            _copy_table(reading, target, table, state, ticker)
    ticker.finish()
    _compare(source, target, state)
    with target.write() as connection:
        connection.execute(sa.delete(t.meta).where(t.meta.c.key == rows.COPYING))
        connection.execute(sa.delete(t.outbox))
        enqueue_everything(connection)
    return CopySummary(total, known)


def _begin(target: Ledger, begun: _State) -> _State | None:
    """Mark the target as a copy under way; None when it is this very ledger already. Raises: Conflict."""
    with target.write() as connection:
        state = _State.read(connection)
        if state is None:
            if (rows.ledger_id(connection), _stamp(connection)) == (begun.ledger, begun.stamp):
                return None
            if not rows.is_blank(connection):
                raise Conflict(f"{target.description} holds memories already: copy into an empty place.")
        elif state.ledger != begun.ledger:
            raise Conflict(
                f"{target.description} holds an unfinished copy of {state.source}, not of {begun.source}: finish that "
                "one, or copy into another place."
            )
        elif state.stamp == begun.stamp:
            return state
        # New, or begun from an older state of the source: rows changed since, so all of it is copied anew.
        rows.clear(connection)
        begun.write(connection)
    return begun


def _copy_table(
    reading: sa.Connection, target: Ledger, table: sa.Table, state: _State, ticker: ProgressReporter
) -> None:
    done = state.tables.setdefault(table.name, _Done())
    for batch in rows.batches(rows.stream(reading, table, ordered=True, after=done.after)):
        done.after, done.rows = rows.key_of(table, batch[-1]), done.rows + len(batch)
        with target.write() as connection:
            rows.insert(connection, table, batch)
            state.write(connection)
        ticker.tick(len(batch))


def _compare(source: Ledger, target: Ledger, state: _State) -> None:
    """Compare count and digest of every table, each side at one moment. Raises: Conflict, and the copy starts over."""
    with source.read() as ours, target.read() as theirs:
        different = [table.name for table in rows.tables() if rows.tally(ours, table) != rows.tally(theirs, table)]
    if different:
        state.stamp = ""
        with target.write() as connection:
            state.write(connection)
        raise Conflict(
            f"{source.description} was changed while it was copied ({', '.join(different)} differ): end the programs "
            "that use it and run the command again; it then copies all of it anew."
        )


def _stamp(connection: sa.Connection) -> str:
    """Return what differs when anything was changed: every change is an event, and a cube has the end of its chain."""
    found = rows.tally(connection, t.cubes)
    return hashlib.sha256(f"{found.rows} {found.total}".encode()).hexdigest()
