"""What `MemOS` lends to its parts, so that their calls are checked, and change things, as its own do; no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from memos.clock import Clock
from memos.memcube.changes import Changing
from memos.memcube.ledger.engine import Ledger
from memos.model import Scope
from memos.reader.masking import Masking
from memos.settings import LimitSettings


class Scoping(Protocol):
    """Checks actor and cubes of a call; one that `embeds` needs the cubes' own embedder."""

    def __call__(self, cubes: Sequence[str], actor: str, *, embeds: bool = True) -> Scope:
        """Return the scope of a call. Raises: InvalidInput, NotFound, Conflict."""
        ...


class ScopingItem(Protocol):
    """Checks actor and item of a call; without a cube it is about the one that the item is in."""

    def __call__(self, item: str, cube: str | None, actor: str, *, embeds: bool = True) -> Scope:
        """Return the scope of a call. Raises: InvalidInput, NotFound, Conflict."""
        ...


@dataclass(frozen=True, slots=True)
class Handles:
    """The ledger and the ways to it of one open installation.

    `check_open` is for what reads before it has a scope; `settle` lets the indexes follow as long as a caller waits,
    `purge` finishes erasures, `masking` makes what masks the texts of one call.
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
    masking: Callable[[Scope], Masking]
