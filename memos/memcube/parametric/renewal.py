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
    FORGOTTEN = "forgotten"
    """What answered was removed with a memory that it saw."""


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
    """What adapters saw, what of it still stands as it was, and what of it is answered with now."""

    seen: frozenset[Memory] = frozenset()
    standing: frozenset[Memory] = frozenset()
    served: frozenset[Memory] = frozenset()


def renewal(chosen: Set[Memory], active: Learned, tried: Set[Memory], least: int) -> Renewal | None:
    """Return why what is `chosen` now should be learned, None when it need not be.

    `active` is what those saw that are in service or would be but for what changed, `tried` what of the rest failed its
    examination of late: the same, or nearly, would fail again.
    """
    new, gone, unserved = chosen - active.seen, active.seen - active.standing, chosen - active.served
    if not gone and len(new - tried) < least:
        return None
    if unserved & tried and len(unserved - tried) < least:
        return None
    cold = active.standing - chosen
    return Renewal(
        Why.STALE if gone else Why.NEW, *(tuple(sorted(id_ for id_, _ in part)) for part in (new, gone, cold))
    )
