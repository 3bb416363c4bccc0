"""`MemOS.adapters`: what is hot and stable in a cube, learned as a LoRA adapter that answers beside what is looked up.

An adapter is derived, as an index is: the ledger says what it saw, and whether that still stands (docs/adr/0019).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from memos.adapter_training import AdapterTraining, Progress, activated, check_allowed
from memos.errors import Conflict, NotFound
from memos.handles import Handles
from memos.identities import Right
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import adapter_rows
from memos.memcube.ledger.adapter_rows import AdapterRow, AdapterState
from memos.model import DEFAULT_CUBE, LOCAL_OWNER, Json
from memos.text.checks import check_name


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter of a cube; `number` counts them from 1.

    `state` is training, refused, ready, active or retired. One that is `stale` saw a memory that is different now, and
    answers nothing. `reason` says why it was refused, `measures` what its examination found.
    """

    id: str
    cube: str
    number: int
    state: str
    stale: bool
    model: str
    facts: int
    reason: str | None
    measures: Mapping[str, Json] | None
    size_bytes: int | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Learnable:
    """What a cube's next adapter would know; `left_out` are how many memories are not learned for each reason."""

    cube: str
    allowed: bool
    memories: tuple[str, ...]
    left_out: Mapping[str, int]


Found = list[Adapter]  # `list` is a method here


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of an installation.

    `forget` removes the files of what is no more, and what was kept under it in some cubes.
    """

    handles: Handles
    forget: Callable[[Collection[str]], object]
    training: AdapterTraining

    def allow(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> None:
        """Allow that memories of a cube are learned, which they are not otherwise; its owner does.

        Raises: NotFound, PermissionDenied.
        """
        with self._deciding(cube, actor) as change:
            if not adapter_rows.is_allowed(change.connection, change.cube):
                adapter_rows.allow(change.connection, change.cube, actor, change.now)
                changes.record(change, "allow_learning", {})

    def disallow(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> int:
        """Take that back and remove what was learned; return how many adapters.

        Raises: NotFound, PermissionDenied, BackendUnavailable (files, or a server that is told later).
        """
        with self._deciding(cube, actor) as change:
            rows = adapter_rows.of(change.connection, change.cube)
            for row in rows:
                adapter_rows.remove(change.connection, row.id)
            if adapter_rows.is_allowed(change.connection, change.cube):
                adapter_rows.disallow(change.connection, change.cube)
                changes.record(change, "disallow_learning", {"adapters": [row.id for row in rows]})
        self.forget([cube])
        return len(rows)

    def list(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Found:
        """Return a cube's adapters, the newest first. Raises: NotFound, PermissionDenied."""
        [cube] = self.handles.scoping([cube], actor, embeds=False).cubes
        with self.handles.ledger.read() as connection:
            stale = {row.id for row in adapter_rows.outdated(connection, [cube])}
            return [_told(connection, row, row.id in stale) for row in adapter_rows.of(connection, cube)]

    def get(self, id_: str, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Return one adapter. Raises: NotFound."""
        row = self._row(id_, actor)
        for each in self.list(row.cube, actor=actor):
            if each.id == id_:
                return each
        raise NotFound("adapter", id_)  # it was removed meanwhile

    def preview(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Learnable:
        """Return what would be learned now, and why other memories would not. Raises: NotFound, PermissionDenied."""
        [cube] = self.handles.scoping([cube], actor, embeds=False).cubes
        with self.handles.ledger.read() as connection:
            chosen = self.training.selected(connection, cube)
            allowed = adapter_rows.is_allowed(connection, cube)
        left_out = {str(reason): count for reason, count in sorted(chosen.left_out.items())}
        return Learnable(cube, allowed, tuple(fact.memory for fact in chosen.facts), left_out)

    def train(
        self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER, on_progress: Progress | None = None
    ) -> Adapter:
        """Train an adapter on what is hot and stable in a cube, examine it, and let it answer if it passes.

        One that fails is `refused`, says why, and changes nothing that answers. A training that was ended goes on at
        the next call. Raises: NotFound, PermissionDenied, Conflict (not allowed, nothing to learn, one is under way),
        InvalidInput (no model in this process, or it cannot be loaded), BackendUnavailable (no memory, a full disk).
        """
        return self.get(self.training.train(cube, actor, on_progress).id, actor=actor)

    def activate(self, id_: str, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Let an adapter that passed its examination answer, instead of the one that does.

        Raises: NotFound, PermissionDenied, Conflict (it was refused, or saw what is different now).
        """
        row = self._row(id_, actor)
        with self._deciding(row.cube, actor) as change:
            check_allowed(change.connection, row.cube)
            return _told(change.connection, activated(change, id_), stale=False)

    def rollback(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Let the adapter answer that did before. Raises: NotFound, PermissionDenied, Conflict (there is none)."""
        [cube] = self.handles.scoping([cube], actor, embeds=False, right=Right.OWN).cubes
        with self._deciding(cube, actor) as change:
            check_allowed(change.connection, cube)
            stale = {row.id for row in adapter_rows.stale(change.connection, cube)}
            rows = adapter_rows.of(change.connection, cube)
            active = next((row.number for row in rows if row.state is AdapterState.ACTIVE), None)
            for row in rows:
                before = active is None or row.number < active
                if before and row.state is AdapterState.RETIRED and row.id not in stale:
                    return _told(change.connection, activated(change, row.id), stale=False)
        raise Conflict(
            f"No earlier adapter of cube {cube!r} may answer: none passed, or they saw what is different now."
        )

    def remove(self, id_: str, *, actor: str = LOCAL_OWNER) -> None:
        """Remove an adapter and its files. Raises: NotFound, PermissionDenied, BackendUnavailable."""
        row = self._row(id_, actor)
        with self._deciding(row.cube, actor) as change:
            adapter_rows.remove(change.connection, id_)
            changes.record(change, "unlearn", {"adapters": [id_]})
        self.forget([row.cube])

    def _row(self, id_: str, actor: str) -> AdapterRow:
        """Return an adapter that an actor decides about. Raises: NotFound (also where it may not), PermissionDenied."""
        self.handles.check_open()
        readable = self.handles.readable(check_name("actor", actor, 128))
        with self.handles.ledger.read() as connection:
            row = adapter_rows.get(connection, check_name("id", id_, 64))
        if row is None or (readable is not None and row.cube not in readable):
            raise NotFound("adapter", id_)
        return row

    @contextmanager
    def _deciding(self, cube: str, actor: str) -> Iterator[Change]:
        scope = self.handles.scoping([cube], actor, embeds=False, right=Right.OWN)
        with self.handles.changing(scope) as change:
            yield change


def _told(connection: sa.Connection, row: AdapterRow, stale: bool) -> Adapter:
    return Adapter(
        row.id, row.cube, row.number, str(row.state), stale, row.model, len(adapter_rows.seen(connection, row.id)),
        row.reason, row.measures, row.size_bytes, row.created_at, row.finished_at,
    )  # fmt: skip
