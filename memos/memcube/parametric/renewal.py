"""Whether what a cube's adapter knows is worth learning anew, and why. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

Memory = tuple[str, int]
"""An item at one version."""


class Why(StrEnum):
    """What makes a cube be learned again."""

    STALE = "stale"
    """What answered saw a memory that is different now."""
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Renewal:
    """Why a cube should be learned again: what the next adapter would know in addition, and what no more.

    `gone` is different now or removed; `cold` is what it was, and not used enough, or left out for another reason.
    """

    why: Why
    new: tuple[str, ...]
    gone: tuple[str, ...]
    cold: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Learned:
    """What an adapter saw, and what of it still stands as it was."""

    seen: frozenset[Memory] = frozenset()
    standing: frozenset[Memory] = frozenset()


def renewal(chosen: Set[Memory], active: Learned, refused: Set[Memory] | None, least: int) -> Renewal | None:
    """Return why what is `chosen` now should be learned, None when it need not be.

    `active` is what those saw that are in service or would be but for what changed, `refused` what the newest saw if it
    failed its examination: the same, or nearly, would fail again.
    """
    new, gone = chosen - active.seen, active.seen - active.standing
    if not gone and len(new) < least:
        return None
    if chosen and refused is not None and len(chosen ^ refused) < least:
        return None
    cold = active.standing - chosen
    return Renewal(
        Why.STALE if gone else Why.NEW, *(tuple(sorted(id_ for id_, _ in part)) for part in (new, gone, cold))
    )
