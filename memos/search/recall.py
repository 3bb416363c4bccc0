"""Recall from the index under a filter it cannot judge alone: the ledger judges, and nothing that passes is lost.

What was said, also word by word, and case folding are in the ledger only. When few items pass, their ids are pushed
down. When many do, such a list costs more than the search itself (docs/log.md): the index is then asked for more than
was wanted, the ledger drops what does not pass, and the long list is pushed only when that leaves too few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from memos.core.clock import from_micros
from memos.core.filters import LEDGER_FIELDS, TOLD_INFO, And, Condition, Node, Not, Op, Or
from memos.core.ports import ScoredPoint, VectorIndex, VectorSearch
from memos.core.types import UNUSED, Item
from memos.memcube.changes import WINDOW
from memos.memcube.ledger import items
from memos.memcube.ledger.engine import Ledger

# What one search reads of its candidates in the ledger, each once; knows no index and no scores.


class Candidates:
    """The ledger's word on the candidates of one search, now or at the moment asked for, in one snapshot."""

    def __init__(
        self,
        connection: sa.Connection,
        cubes: tuple[str, ...],
        passing: Node | None,
        at: datetime | None,
        hold: Callable[[items.Brief], bool],
    ) -> None:
        """Read through a connection what passes the caller's filter and `hold`."""
        self.connection = connection
        self._cubes = cubes
        self._filter = passing
        self._at = at
        self._hold = hold
        self._briefs: dict[str, items.Brief | None] = {}
        self._whole: dict[str, Item] = {}

    def briefs(self, ids: Iterable[str]) -> list[items.Brief]:
        """Return what passes of these items, in their order."""
        wanted = dict.fromkeys(ids)
        missing = [id_ for id_ in wanted if id_ not in self._briefs]
        if missing:
            self._briefs.update(dict.fromkeys(missing))
            self._briefs.update((brief.id, brief) for brief in self._read(missing))
        return [brief for brief in map(self._briefs.__getitem__, wanted) if brief is not None]

    def _read(self, ids: Collection[str]) -> list[items.Brief]:
        at = self._at
        briefs = [brief for brief in items.briefs(self.connection, self._cubes, ids, at) if self._hold(brief)]
        if at is not None:
            briefs = [brief._replace(outdated=False) for brief in briefs]
        if self._filter is not None:
            found = [brief.id for brief in briefs]
            passing = items.passing(self.connection, self._cubes, self._filter, found, at=at)
            briefs = [brief for brief in briefs if brief.id in passing]
        return briefs

    def whole(self, ids: Collection[str]) -> dict[str, Item]:
        """Return those of these items that exist, with their sources, by id."""
        missing = [id_ for id_ in ids if id_ not in self._whole]
        if missing:
            self._whole.update(items.with_sources(self.connection, self._cubes, missing, self._at))
        return {id_: self._whole[id_] for id_ in ids if id_ in self._whole}

    def said_before(self, briefs: Sequence[items.Brief]) -> dict[str, list[items.Brief]]:
        """Return by id what the windows of these items begin with: what was said before them, the oldest first."""
        ids = {brief.id: items.before_in_conversation(self.connection, brief, WINDOW - 1) for brief in briefs}
        wanted = {other for others in ids.values() for other in others}
        known = {other.id: other for other in items.briefs(self.connection, self._cubes, wanted, self._at)}
        return {
            id_: [known[other] for other in reversed(others) if other in known and known[other].status not in UNUSED]
            for id_, others in ids.items()
        }


MOST_PUSHED = 2_000
"""Ids that are pushed down at once; four arms over 50,000 points took 60 ms with them, 870 ms with 50,000."""

_OVERFETCH = 4
# Fetching this many points took 180 to 270 ms, less than pushing 20,000 ids.
_MOST_FETCHED = 5_000


def recall(
    ledger: Ledger, index: VectorIndex, request: VectorSearch, meanwhile: Callable[[], None] | None = None
) -> list[list[ScoredPoint]]:
    """Return what `index.search` would, had it everything that the filter asks about. Raises: as `VectorIndex`.

    `meanwhile` is what it calls while the index works, unless the ledger has to be asked as well.
    """
    parts = list(_conjuncts(request.filter))
    judged = [part for part in parts if not _needs_ledger(part)]
    if len(judged) == len(parts):
        return index.search(request, meanwhile)
    ids = _matching(ledger, request, limit=MOST_PUSHED + 1)
    if len(ids) > MOST_PUSHED:
        found = _overfetched(ledger, index, replace(request, filter=And(tuple(judged))), request.filter)
        if found is not None:
            return found
        ids = _matching(ledger, request, limit=None)
    return index.search(replace(request, filter=Condition("id", Op.IN, tuple(ids))))


def _conjuncts(node: Node | None) -> Iterable[Node]:
    match node:
        case None:
            return
        case And():
            for part in node.parts:
                yield from _conjuncts(part)
        case _:
            yield node


def _needs_ledger(node: Node) -> bool:
    match node:
        case Condition():
            told = node.field in LEDGER_FIELDS or node.field.removeprefix("info.") in TOLD_INFO
            return told or node.op is Op.LIKE
        case Not():
            return _needs_ledger(node.part)
        case And() | Or():
            return any(_needs_ledger(part) for part in node.parts)


def _matching(ledger: Ledger, request: VectorSearch, limit: int | None) -> list[str]:
    at = None if request.as_of is None else from_micros(request.as_of)
    with ledger.read() as connection:
        return items.matching_ids(connection, request.cubes, request.filter, at=at, limit=limit)


def _overfetched(
    ledger: Ledger, index: VectorIndex, wider: VectorSearch, wanted: Node | None
) -> list[list[ScoredPoint]] | None:
    """Return as many points of each arm that pass as it may find, or None when too many would have to be fetched."""
    at = None if wider.as_of is None else from_micros(wider.as_of)
    limits = [arm.limit(wider.limit) for arm in wider.arms]
    wider = replace(wider, arms=tuple(replace(arm, most=None) for arm in wider.arms))
    fetch = wider.limit * _OVERFETCH
    while fetch <= _MOST_FETCHED:
        arms = index.search(replace(wider, limit=fetch))
        with ledger.read() as connection:
            ids = {point.item for arm in arms for point in arm}
            passing = items.passing(connection, wider.cubes, wanted, ids, at=at)
        kept = [[point for point in arm if point.item in passing] for arm in arms]
        if all(_enough(left, arm, limit, fetch) for left, arm, limit in zip(kept, arms, limits, strict=True)):
            return [left[:limit] for left, limit in zip(kept, limits, strict=True)]
        fetch *= _OVERFETCH
    return None


def _enough(kept: Sequence[ScoredPoint], fetched: Sequence[ScoredPoint], limit: int, fetch: int) -> bool:
    """Say that no point further down the arm is missing: there are enough before it, or it has no more."""
    return len(kept) >= limit or len(fetched) < fetch
