"""Read the candidates of a search from the ledger, which decides what may be found, in one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from memos.core.filters import Node
from memos.core.types import UNUSED, Item, ItemType, Status
from memos.memcube.changes import WINDOW
from memos.memcube.ledger import items
from memos.search.question import Rules, SearchRequest
from memos.search.rank import Fused, Recalled


@dataclass(slots=True)
class CandidateReader:
    """Reads the candidates of one search from the ledger, now or at the requested moment, in one snapshot."""

    connection: sa.Connection
    _cubes: tuple[str, ...]
    _filter: Node | None
    _at: datetime | None
    _hold: Callable[[items.Brief], bool]
    _former: bool = False
    _briefs: dict[str, items.Brief | None] = field(default_factory=dict)
    _replaced: set[str] = field(default_factory=set)
    _whole: dict[str, Item] = field(default_factory=dict)

    def briefs(self, ids: Iterable[str]) -> list[items.Brief]:
        wanted = dict.fromkeys(ids)
        missing = [id_ for id_ in wanted if id_ not in self._briefs]
        if missing:
            self._briefs.update(dict.fromkeys(missing))
            self._briefs.update((brief.id, brief) for brief in self._read(missing))
        return [brief for brief in map(self._briefs.__getitem__, wanted) if brief is not None]

    def _read(self, ids: Collection[str]) -> list[items.Brief]:
        at = self._at
        found = items.briefs(self.connection, self._cubes, ids, at)
        self._replaced.update(brief.id for brief in found if brief.status == Status.SUPERSEDED)
        briefs = [brief for brief in found if self._hold(brief) or (self._former and self._held_before(brief))]
        if at is not None:
            briefs = [brief._replace(outdated=False) for brief in briefs]
        if self._filter is not None:
            held = [brief.id for brief in briefs]
            passing = items.passing(self.connection, self._cubes, self._filter, held, at=at)
            briefs = [brief for brief in briefs if brief.id in passing]
        return briefs

    def _held_before(self, brief: items.Brief) -> bool:
        """Return True for a superseded message that a question about before may return."""
        replaced = brief.status == Status.SUPERSEDED and brief.type == ItemType.MESSAGE
        return replaced and self._hold(brief._replace(status=Status.ACTIVE))

    def successors(self, ids: Iterable[str]) -> dict[str, items.Brief]:
        """Return the items that superseded these, by the ids of the superseded ones."""
        replaced = [id_ for id_ in ids if id_ in self._replaced and self._briefs[id_] is None]
        if not replaced or self._at is not None:
            return {}
        latest = items.replaced_by(self.connection, replaced)
        found = {brief.id: brief for brief in self.briefs(latest.values())}
        return {id_: found[new] for id_, new in latest.items() if new in found}

    def whole(self, ids: Collection[str]) -> dict[str, Item]:
        missing = [id_ for id_ in ids if id_ not in self._whole]
        if missing:
            self._whole.update(items.with_sources(self.connection, self._cubes, missing, self._at))
        return {id_: self._whole[id_] for id_ in ids if id_ in self._whole}

    def said_before(self, briefs: Sequence[items.Brief]) -> dict[str, list[items.Brief]]:
        """Return, by id, the messages before each item that its window begins with, oldest first."""
        ids = {brief.id: items.before_in_conversation(self.connection, brief, WINDOW - 1) for brief in briefs}
        wanted = {other for others in ids.values() for other in others}
        known = {other.id: other for other in items.briefs(self.connection, self._cubes, wanted, self._at)}
        return {
            id_: [known[other] for other in reversed(others) if other in known and known[other].status not in UNUSED]
            for id_, others in ids.items()
        }


def candidates_of(
    connection: sa.Connection, request: SearchRequest, rules: Rules, *, former: bool = False
) -> CandidateReader:
    """Return the reader of a search; with `former` it also reads superseded messages."""
    former = former and rules.live
    return CandidateReader(connection, request.scope.cubes, request.filter, request.as_of, rules.hold, former)


def item_of(fused: Fused) -> str:
    return fused.version_key.rsplit(":", 1)[0]


def read_candidates(
    reader: CandidateReader, enough: int, fused: Sequence[Fused], near: Sequence[str]
) -> list[Recalled]:
    """Read candidates from the ledger, a page at a time, until `enough` distinct ones passed every check.

    A superseded message is represented by the message that superseded it, at the better place of the two. Items in
    `near` join the first page, with score 0 if no arm recalled them.
    """
    early = set(near)
    items_of = list(map(item_of, fused))
    later = list(zip(fused[enough:], items_of[enough:], strict=True))
    first = [*fused[:enough], *(entry for entry, item in later if item in early)]
    rest = [entry for entry, item in later if item not in early]
    unrecalled = early.difference(items_of)
    pages = [first, *(rest[start : start + enough] for start in range(0, len(rest), enough))]
    pool: list[Recalled] = []
    distinct: set[tuple[str, str, str]] = set()
    known: set[str] = set()
    for page in pages:
        found = reader.briefs({*map(item_of, page), *unrecalled})
        by_version = {f"{brief.id}:{brief.version}": brief for brief in found}
        replaced = reader.successors(map(item_of, page))
        for entry in page:
            brief = by_version.get(entry.version_key) or replaced.get(item_of(entry))
            if brief is not None and brief.id not in known:
                known.add(brief.id)
                pool.append(Recalled(brief, entry))
                distinct.add((brief.cube, brief.speaker, brief.memory))
        pool += [Recalled(brief, Fused(brief.id, 0.0, ())) for brief in found if brief.id in unrecalled - known]
        unrecalled = set()
        if len(distinct) >= enough:
            break
    return pool


def with_successors(reader: CandidateReader, pool: list[Recalled]) -> Mapping[str, str]:
    """Add the replacements of outdated candidates to the pool; return their ids by the ids of those replaced."""
    outdated = [entry.item.id for entry in pool if entry.item.outdated]
    if not outdated:
        return {}
    newer = items.successors(reader.connection, outdated)
    missing = set(newer.values()) - {entry.item.id for entry in pool}
    pool += [Recalled(brief, Fused(brief.id, 0.0, ())) for brief in reader.briefs(missing)]
    return newer
