"""`Context`: what the services of an open installation share, and the check that every call passes first."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

from memos.core.aliases import bind, known_words, own_signature
from memos.core.clock import Clock
from memos.core.identities import EVERYONE, Right
from memos.core.settings import Settings
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Fingerprint, Json, Scope
from memos.errors import Aborted, BackendUnavailable, Conflict, ConnectionLost, InvalidInput, PermissionDenied
from memos.kernel.access.guard import AccessControl, caller, first_read
from memos.kernel.access.quotas import Quotas
from memos.kernel.idempotency import Idempotency
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.indexing.projection import Projection
from memos.memcube.ledger import access, expiry, items
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger.engine import Ledger, Tries
from memos.memcube.signing import SigningKey
from memos.reader.masking import Masking


@dataclass(slots=True)
class Scopes:
    """Resolves actors and cubes to scopes, for an embedder with this `fingerprint`. Thread-safe."""

    ledger: Ledger
    guard: AccessControl
    fingerprint: Fingerprint
    settings: Settings
    lifecycle: Lifecycle
    clock: Clock
    _heads: dict[str, cube_rows.CubeHead] = field(default_factory=dict, init=False)
    _records_reads: bool | None = field(default=None, init=False)

    def check(
        self,
        cubes: Sequence[str],
        actor: str,
        *,
        embeds: bool = True,
        right: Right = Right.READ,
        item: str | None = None,
        recorded: bool = True,
    ) -> Scope:
        """Check the actor and cubes of a call; with `embeds` the cubes must use the configured embedder.

        A string as `cubes` is one cube.
        Where reads are recorded, this records one of the cubes, or of the `item`, unless nothing of them is read.

        Raises: InvalidInput, NotFound, PermissionDenied, Conflict (vectors of another embedder).
        """
        self.lifecycle.check_open()
        if isinstance(cubes, str):
            cubes = [cubes]
        if not isinstance(cubes, Collection):
            raise InvalidInput("cubes", f"must be a list of names, not {type(cubes).__name__}")
        if not cubes:
            raise InvalidInput("cubes", "must not be empty; name at least one cube")
        names = tuple(dict.fromkeys(check_name("cube", cube, 128) for cube in cubes))
        self.guard.check(check_name("actor", actor, 128), names, right)
        known = self._heads_of(names)
        for name in names:
            if embeds and known[name].fingerprint != self.fingerprint:
                raise Conflict(
                    f"Cube {name!r} was embedded with {known[name].fingerprint.name}, but this process uses "
                    f"{self.fingerprint.name}; run `memos data reembed`, or restore the former MEMOS_EMBED__MODEL."
                )
        if recorded and right is Right.READ:
            self.record_read(actor, names, item)
        first = known[names[0]]
        return Scope(actor, names, first.time_zone, first.redact_pii, right)

    def check_item(
        self, item: str, cube: str | None, actor: str, *, embeds: bool = True, right: Right = Right.READ
    ) -> Scope:
        """Check a call about one item; without a cube, in the cube the item is in.

        Raises: as `check`, NotFound (also when it has expired).
        """
        self.lifecycle.check_open()
        check_name("item", item, 64)
        if cube is not None:
            scope = self.check([cube], actor, embeds=embeds, right=right, item=item)
            with self.ledger.read() as connection:
                if expiry.expired_among(connection, [item], self.clock.now()):
                    raise items.unknown(item)
            return scope
        with self.ledger.read() as connection:
            cube = items.cube_of(connection, item, self.clock.now())
        readable = self.guard.readable(check_name("actor", actor, 128))
        if readable is not None and cube not in readable:
            raise items.unknown(item)
        return self.check([cube], actor, embeds=embeds, right=right, item=item)

    def cubes_of(
        self, cubes: Sequence[str] | None, actor: str, right: Right, *, recorded: bool = True
    ) -> tuple[str, ...] | None:
        """Check a call that needs no scope; without cubes it covers all cubes the actor has a role on."""
        if cubes is not None:
            return self.check(cubes, actor, embeds=False, right=right, recorded=recorded).cubes
        self.lifecycle.check_open()
        self.guard.check(check_name("actor", actor, 128), (), right)  # what the key may do, whatever the cubes
        readable = self.guard.readable(actor)
        if recorded and right is Right.READ:
            self.record_read(actor, [EVERYONE])
        return None if readable is None else tuple(sorted(readable))

    @property
    def records_reads(self) -> bool:
        """Return True if reads are recorded; read anew where another process may change it."""
        known = self._records_reads
        if known is None or not self.ledger.is_sqlite:
            with self.ledger.read() as connection:
                known = access.records_reads(connection)
            self._records_reads = known
        return known

    def record_reads(self, *, enabled: bool, actor: str) -> None:
        """Begin or end the recording of reads, itself an entry of the access log."""
        with self.ledger.write() as connection:
            access.set_records_reads(connection, enabled=enabled)
            access.record(connection, self.clock.now(), actor, "record-reads", actor, {"enabled": enabled})
        self._records_reads = enabled

    def record_read(self, actor: str, cubes: Sequence[str], item: str | None = None) -> None:
        """Record a read before anything is read: what cannot be recorded is not answered.

        Not of the local owner, as whom background work runs too: whoever has the folder reads without a trace.
        """
        if actor == LOCAL_OWNER or not self.records_reads:
            return
        new = [cube for cube in cubes if first_read(f"{cube} {item or ''}")]
        if not new:
            return
        asking, now = caller(), self.clock.now()
        body: dict[str, Json] = {} if asking is None else {"key": asking.key.id}
        if asking is not None and asking.identity.id != actor:
            body["by"] = asking.identity.id
        if item is not None:
            body["item"] = item
        with self.ledger.write(may_be_repeated=True) as connection:
            for cube in new:
                access.record(connection, now, actor, access.READ, cube, body)

    def readable(self, actor: str) -> frozenset[str] | None:
        return self.guard.readable(actor)

    def check_admin(self, actor: str) -> None:
        self.lifecycle.check_open()
        self.guard.check_admin(check_name("actor", actor, 128))

    def masking(self, scope: Scope) -> Masking:
        return Masking(secrets=self.settings.mask_secrets, personal=scope.redact_pii)

    def masking_of(self, cube: str) -> Masking:
        return self.masking(self.check([cube], LOCAL_OWNER, embeds=False))

    def forget(self) -> None:
        self._heads = {}

    def _heads_of(self, names: Sequence[str]) -> Mapping[str, cube_rows.CubeHead]:
        """Return the heads of cubes, cached where the embedded ledger has no other writer."""
        heads = self._heads
        if not all(name in heads for name in names):
            with self.ledger.read() as connection:
                found = cube_rows.heads(connection, names)
            if not self.ledger.is_sqlite:
                return found
            # Into the object taken before reading: what was forgotten meanwhile stays forgotten.
            heads.update(found)
        return heads


@dataclass(slots=True)
class Lifecycle:
    """Open or closed state of an installation, and the free space of its `disk_folder` (None: no files here)."""

    settings: Settings
    disk_folder: Path | None
    closed: bool = False

    def check_open(self) -> None:
        if self.closed:
            raise BackendUnavailable("This MemOS is closed; open it again with MemOS.open().")

    def check_space(self) -> None:
        """Raise BackendUnavailable before the disk is full: memory-mapped index files cannot fail politely."""
        if self.disk_folder is None:
            return
        free, least = shutil.disk_usage(self.disk_folder).free, self.settings.limits.min_free_bytes
        if free < least:
            raise BackendUnavailable(
                f"The disk that holds {self.disk_folder} has {free // 1_048_576:,} MiB free, under the reserve of "
                f"{least // 1_048_576:,} MiB: free some space, or lower MEMOS_LIMITS__MIN_FREE_BYTES. "
                "Nothing was written."
            )


class Following:
    """Background thread that updates the indexes during a bulk write; it ends when nothing is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = self._closed = False
        self._thread: threading.Thread | None = None

    def wake(self, projections: Sequence[Projection]) -> None:
        with self._lock:
            self._asked = True
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, args=(projections,), name="memos-following", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Stop the thread; changes not applied yet stay in the outbox."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            thread.join()

    def _run(self, projections: Sequence[Projection]) -> None:
        try:
            while self._is_asked():
                for projection in projections:
                    while not (
                        self._closed or projection.drain(_STEP_S) or projection.last_error or projection.stuck()
                    ):
                        pass
        finally:
            # After a failure too, which the next call or the worker meets again and reports.
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _is_asked(self) -> bool:
        with self._lock:
            asked, self._asked = self._asked and not self._closed, False
            if not asked:
                self._thread = None
            return asked


@dataclass(frozen=True, slots=True)
class Indexes:
    """The projections that keep the vector index, and a graph index if there is one, in step with the ledger."""

    vector: Projection
    graph: Projection | None
    wait_s: float
    following: Following = field(default_factory=Following, init=False)

    @property
    def projections(self) -> tuple[Projection, ...]:
        return (self.vector,) if self.graph is None else (self.vector, self.graph)

    def wait(self) -> bool:
        """Apply waiting changes for at most `wait_s` seconds an index; return True if nothing is left."""
        caught_up = [projection.drain(self.wait_s) for projection in self.projections]
        return all(caught_up)

    def follow(self) -> None:
        """Apply waiting changes in the background; block while too many are left, for at most `wait_s` seconds."""
        self.following.wake(self.projections)
        deadline = time.monotonic() + self.wait_s
        for projection in self.projections:
            while time.monotonic() < deadline and projection.last_error is None and projection.is_behind(_MOST_BEHIND):
                time.sleep(_LOOK_S)


# Three batches of a projection: one that is written, one that is embedded meanwhile, and one that comes together.
_MOST_BEHIND = 384
_STEP_S = 1.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Context:
    """Dependencies shared by every service of an open installation."""

    settings: Settings
    clock: Clock
    ledger: Ledger
    key: SigningKey
    scopes: Scopes
    access: AccessControl
    quotas: Quotas
    indexes: Indexes
    idempotency: Idempotency
    lifecycle: Lifecycle

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction that writes. Raises: BackendUnavailable (closed, the disk is full, no ledger)."""
        self.lifecycle.check_open()
        self.lifecycle.check_space()
        # Another process may be rebuilding an index alone: it must not be disturbed, nor followed by half a change.
        self.ledger.renew_hold()
        with self.idempotency.write() as connection:
            yield connection

    @contextmanager
    def change(self, scope: Scope) -> Iterator[Change]:
        """Open a transaction that changes a scope's first cube. Raises: PermissionDenied (read-only), as `write`."""
        if scope.right is Right.READ:
            raise PermissionDenied(f"Read-only scope: {scope.actor!r} cannot change this cube.")
        with self.write() as connection:
            yield changes.begin(connection, scope.cubes[0], scope.actor, self.clock, self.quotas.charge)

    def wait_indexed(self) -> bool:
        return self.indexes.wait()


_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def retry_read(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    @wraps(method)
    def twice(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        try:
            return method(*given, **named)
        except ConnectionLost:
            return method(*given, **named)

    return twice


def retry_write(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Repeat a change after a deadlock, as `Tries` allows, unless an argument is an iterator."""

    @wraps(method)
    def again(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        tries = Tries()
        while True:
            try:
                return method(*given, **named)
            except Aborted:
                if any(isinstance(each, Iterator) for each in (*given, *named.values())) or not tries.are_left():
                    raise

    return again


def accept_aliases(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Accept the aliases in `memos.core.aliases` as keyword arguments of a method.

    For type checkers it declares those it takes as `**_aliases: Unpack[…]`; the method itself never sees them. Another
    word is a TypeError, as without that parameter.
    """
    signature = own_signature(method)
    known = known_words(signature)

    @wraps(method)
    def resolved(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        if known.issuperset(named):
            return method(*given, **named)
        bound: Any = bind(signature, given, named)
        return method(*bound.args, **bound.kwargs)

    return resolved
