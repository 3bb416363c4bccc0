"""What one search reads of its candidates in the ledger, each once; knows no index and no scores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa

from memos.core.filters import Node
from memos.core.types import UNUSED, Item
from memos.memcube.changes import WINDOW
from memos.memcube.ledger import items


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
