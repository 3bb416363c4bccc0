"""`MemOS.recall`: one question asked of each kind of memory apart, so that none pushes out another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from memos.core.types import Hit, ItemType, Json, SearchResult
from memos.errors import InvalidInput


class Kind(StrEnum):
    """A kind of memory as those who ask see it."""

    MEMORY = "memory"
    PREFERENCE = "preference"
    TOOL = "tool"
    SKILL = "skill"


_APART = {
    Kind.PREFERENCE: (ItemType.PREFERENCE, ItemType.INSTRUCTION),
    Kind.TOOL: (ItemType.TOOL_SCHEMA, ItemType.TOOL_TRAJECTORY),
    Kind.SKILL: (ItemType.SKILL,),
}
TYPES: Mapping[Kind, tuple[ItemType, ...]] = {
    Kind.MEMORY: tuple(type_ for type_ in ItemType if not any(type_ in types for types in _APART.values())),
    **_APART,
}
"""Which items are of each kind; every type is of exactly one."""

Searching = Callable[[int, Mapping[str, Json]], SearchResult]


def kind_of(type_: ItemType) -> Kind:
    """Return the kind that items of a type are of."""
    return next(kind for kind, types in TYPES.items() if type_ in types)


def only(kind: Kind, filter_: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Return a filter for items of one kind that pass another filter too."""
    mine: dict[str, Json] = {"type": {"in": [str(type_) for type_ in TYPES[kind]]}}
    return mine if not filter_ else {"and": [mine, dict(filter_)]}


def recall(
    searching: Searching, limits: Mapping[Kind, int], filter_: Mapping[str, Json] | None, least: float
) -> dict[Kind, tuple[Hit, ...]]:
    """Return the best hits of each kind with a limit above 0; those below the least relevance are left out.

    Raises: InvalidInput.
    """
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise InvalidInput("relevance", "must be a number from 0 to 1")
    found: dict[Kind, tuple[Hit, ...]] = {}
    for kind, most in limits.items():
        hits = searching(most, only(kind, filter_)).hits if most else ()
        found[kind] = tuple(hit for hit in hits if hit.relevance >= least)
    return found
