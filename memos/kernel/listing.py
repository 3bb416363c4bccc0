"""A cube's memories one after the other, or page by page with how many there are; knows no search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from memos.core.filters import And, Condition, Node, Op, fields_of, parse
from memos.core.types import Item, Json, Scope, Status
from memos.memcube.ledger import items
from memos.memcube.ledger.engine import Ledger
from memos.reader.arguments import within

LISTED = (Status.ACTIVE, Status.PENDING, Status.SUPERSEDED, Status.ARCHIVED)
"""Statuses of items that are listed when a filter names none."""


@dataclass(frozen=True, slots=True)
class Page:
    """Items of one page, the newest first, and how many pass the filter in all."""

    items: tuple[Item, ...]
    total: int


def listed(ledger: Ledger, scope: Scope, filter: Json, limit: int, offset: int) -> list[Item]:
    """Return the items that pass a filter, the oldest first. Raises: InvalidInput."""
    wanted = _Wanted.of(filter, limit, offset)
    with ledger.read() as connection:
        return items.matching(connection, scope.cubes, wanted.node, limit=wanted.limit, offset=wanted.offset)


def page(ledger: Ledger, scope: Scope, filter: Json, limit: int, offset: int) -> Page:
    """Return the items that pass a filter with their sources, the newest first. Raises: InvalidInput."""
    wanted = _Wanted.of(filter, limit, offset)
    with ledger.read() as connection:
        found = items.matching(
            connection, scope.cubes, wanted.node, limit=wanted.limit, offset=wanted.offset, newest=True
        )
        sources = items.sources_of(connection, [item.id for item in found])
        total = items.count(connection, scope.cubes, wanted.node)
    return Page(tuple(replace(item, sources=sources.get(item.id, ())) for item in found), total)


class _Wanted(NamedTuple):
    """Which items, and which of them; deleted ones only when the filter names status."""

    node: Node | None
    limit: int
    offset: int

    @classmethod
    def of(cls, filter: Json, limit: int, offset: int) -> Self:
        node = parse(filter)
        limit, offset = within("limit", limit, 1, 10_000), within("offset", offset, 0, 10**9)
        if "status" not in fields_of(node):
            listed = Condition("status", Op.IN, tuple(str(status) for status in LISTED))
            node = listed if node is None else And((listed, node))
        return cls(node, limit, offset)
