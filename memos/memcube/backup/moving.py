"""Copies a whole ledger into an empty one, of the same database or another; a copy that was cut off goes on.

Until it is whole the target has a mark in `meta`, and is served by nobody (`unfinished_copy`). Indexes are not copied.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa

from memos.errors import Conflict
from memos.memcube.backup import restore as restoring
from memos.memcube.backup import rows
from memos.memcube.backup.files import Progress, Ticker
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger


@dataclass(frozen=True, slots=True)
class Copied:
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
        f"This ledger is a copy of {state.source} that was not finished: run the same `memos migrate` again to finish "
        "it. Nothing was changed."
    )


def copy_ledger(source: Ledger, target: Ledger, on_progress: Progress | None = None) -> Copied:
    """Copy every row into a blank ledger, or go on with that; then compare both, and have the indexes follow.

    Raises: Conflict (the target has other content, or the source was changed meanwhile), BackendUnavailable.
    """
    with source.read() as reading:
        every = rows.tables()
        total = sum(rows.count(reading, table) for table in every)
        begun = _State(rows.ledger_id(reading), source.description, _stamp(reading))
        state = _begin(target, begun)
        if state is None:
            return Copied(total, total)
        known = sum(done.rows for done in state.tables.values())
        ticker = Ticker(on_progress, total, known)
        for table in every:
            _copy_table(reading, target, table, state, ticker)
    ticker.finish()
    _compare(source, target, state)
    with target.write() as connection:
        connection.execute(sa.delete(t.meta).where(t.meta.c.key == rows.COPYING))
        connection.execute(sa.delete(t.outbox))
        restoring.enqueue_everything(connection)
    return Copied(total, known)


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


def _copy_table(reading: sa.Connection, target: Ledger, table: sa.Table, state: _State, ticker: Ticker) -> None:
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
