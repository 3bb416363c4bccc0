"""What every call passes first: is the installation open, do actor and cubes exist, may the one do this with the other.

Gives a `Scope`, which the rest of a call trusts. Stores nothing but what it remembers of cubes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

from memos.core.clock import Clock
from memos.core.identities import Right
from memos.core.settings import LimitSettings, Settings
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Fingerprint, Scope
from memos.errors import Conflict, ConnectionLost, InvalidInput, shown
from memos.kernel.access.guard import Guard
from memos.memcube.changes import Changing
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger import items
from memos.memcube.ledger.engine import Ledger
from memos.reader.masking import Masking


@dataclass(slots=True)
class Scopes:
    """The scopes of one open installation, whose embedder has this `fingerprint`. Thread-safe."""

    ledger: Ledger
    guard: Guard
    fingerprint: Fingerprint
    settings: Settings
    check_open: Callable[[], None]
    _heads: dict[str, cube_rows.Head] = field(default_factory=dict, init=False)

    def of(self, cubes: Sequence[str], actor: str, *, embeds: bool = True, right: Right = Right.READ) -> Scope:
        """Check actor and cubes of a call; one that stores or compares vectors needs the cubes' own embedder.

        Raises: InvalidInput, NotFound, Conflict (another embedder), PermissionDenied.
        """
        self.check_open()
        if isinstance(cubes, str):
            raise InvalidInput("cubes", f"must be a list; write [{shown(cubes)}]")
        if not isinstance(cubes, Collection):
            raise InvalidInput("cubes", f"must be a list of names, not {type(cubes).__name__}")
        if not cubes:
            raise InvalidInput("cubes", "is empty; name at least one cube")
        names = tuple(dict.fromkeys(check_name("cube", cube, 128) for cube in cubes))
        self.guard.check(check_name("actor", actor, 128), names, right)
        known = self._heads_of(names)
        for name in names:
            if embeds and known[name].fingerprint != self.fingerprint:
                raise Conflict(
                    f"Cube {name!r} was embedded with {known[name].fingerprint.name}, this program uses "
                    f"{self.fingerprint.name}: run `memos reembed`, or set MEMOS_EMBED__MODEL back."
                )
        first = known[names[0]]
        return Scope(actor, names, first.time_zone, first.redact_pii, right)

    def of_item(
        self, item: str, cube: str | None, actor: str, *, embeds: bool = True, right: Right = Right.READ
    ) -> Scope:
        """Check a call about one item; without a cube it is in the one the item is in. Raises: as `of`, NotFound."""
        self.check_open()
        check_name("item", item, 64)
        if cube is None:
            with self.ledger.read() as connection:
                cube = items.cube_of(connection, item)
            readable = self.guard.readable(check_name("actor", actor, 128))
            if readable is not None and cube not in readable:
                raise items.unknown(item)
        return self.of([cube], actor, embeds=embeds, right=right)

    def known(self, cubes: Sequence[str] | None, actor: str, right: Right) -> tuple[str, ...] | None:
        """Check a call that is about what is in no scope; without cubes it is all those the actor has a role on."""
        if cubes is not None:
            return self.of(cubes, actor, embeds=False, right=right).cubes
        self.check_open()
        self.guard.check(check_name("actor", actor, 128), (), right)  # what the key may do, whatever the cubes
        readable = self.guard.readable(actor)
        return None if readable is None else tuple(sorted(readable))

    def check_admin(self, actor: str) -> None:
        """Check a call that only admins may make. Raises: PermissionDenied, BackendUnavailable (closed)."""
        self.check_open()
        self.guard.check_admin(check_name("actor", actor, 128))

    def masking(self, scope: Scope) -> Masking:
        """Return what masks the texts of a call."""
        return Masking(self.settings.limits, secrets=self.settings.mask_secrets, personal=scope.redact_pii)

    def masking_of(self, cube: str) -> Masking:
        """Return what masks texts that the installation itself writes into a cube."""
        return self.masking(self.of([cube], LOCAL_OWNER, embeds=False))

    def forget(self) -> None:
        """Drop what is remembered of cubes: one was changed."""
        self._heads = {}

    def _heads_of(self, names: Sequence[str]) -> Mapping[str, cube_rows.Head]:
        """Return what calls need to know of cubes; the embedded ledger has no other writer, so they are remembered."""
        heads = self._heads
        if not all(name in heads for name in names):
            with self.ledger.read() as connection:
                found = cube_rows.heads(connection, names)
            if not self.ledger.is_sqlite:
                return found
            # Into the object taken before reading: what was forgotten meanwhile stays forgotten.
            heads.update(found)
        return heads


# What `MemOS` lends to its parts, so that their calls are checked, and change things, as its own do; no behaviour.


class Scoping(Protocol):
    """Checks actor and cubes of a call and its right to them; one that `embeds` needs the cubes' own embedder."""

    def __call__(self, cubes: Sequence[str], actor: str, *, embeds: bool = True, right: Right = Right.READ) -> Scope:
        """Return the scope of a call. Raises: InvalidInput, NotFound, Conflict, PermissionDenied."""
        ...


class ScopingItem(Protocol):
    """Checks actor and item of a call; without a cube it is about the one that the item is in."""

    def __call__(
        self, item: str, cube: str | None, actor: str, *, embeds: bool = True, right: Right = Right.READ
    ) -> Scope:
        """Return the scope of a call. Raises: InvalidInput, NotFound, Conflict, PermissionDenied."""
        ...


class Known(Protocol):
    """Checks an actor and cubes of a call that is about what is in no scope: tasks, events, counts."""

    def __call__(self, cubes: Sequence[str] | None, actor: str, right: Right) -> tuple[str, ...] | None:
        """Return the cubes, without any those the actor has a role on; None is all. Raises: as `Scoping`."""
        ...


@dataclass(frozen=True, slots=True)
class Handles:
    """The ledger and the ways to it of one open installation.

    `check_open` is for what reads before it has a scope; `settle` lets the indexes follow as long as a caller waits,
    `purge` finishes erasures, `readable` says which cubes an actor has a role on, None for all, and `masking` makes
    what masks the texts of one call.
    """

    ledger: Ledger
    clock: Clock
    limits: LimitSettings
    check_open: Callable[[], None]
    scoping: Scoping
    scoping_item: ScopingItem
    changing: Changing
    settle: Callable[[], bool]
    purge: Callable[[], None]
    readable: Callable[[str], frozenset[str] | None]
    masking: Callable[[Scope], Masking]


# Repeats calls that only read when the ledger's connection broke under them; knows no call.

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def repeated(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Make a method that only reads try once more when the ledger's connection broke under it."""

    @wraps(method)
    def twice(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        try:
            return method(*given, **named)
        except ConnectionLost:
            return method(*given, **named)

    return twice
