"""What `MemOS` lends to its parts, so that their calls are checked, and change things, as its own do; no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from memos.core.clock import Clock
from memos.core.identities import Right
from memos.core.settings import LimitSettings
from memos.core.types import Scope
from memos.memcube.changes import Changing
from memos.memcube.ledger.engine import Ledger
from memos.reader.masking import Masking


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
