"""`MemOS.graph`: people and things, their relations, and names that are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from memos.core.graph import Alias, Edge, Entity, EntityPage, GraphView, Neighbours
from memos.core.identities import Right
from memos.core.text.validation import check_name, check_text
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import Conflict, InvalidInput, NotFound, shown
from memos.kernel.context import Context, retry_write
from memos.memcube import changes
from memos.memcube.ledger import entities
from memos.memcube.ledger.entities import NAME_CHARS, Found, Link, Listing, fold
from memos.memcube.ledger.timeline import by_ids, quotes_of
from memos.memcube.standing import standings
from memos.reader.arguments import within

KINDS = ("", "person", "thing")
_EDGES_PER_NODE = 3
_QUOTE_CHARS = 500


class Graph:
    """People and things of a cube. A name is found however it is capitalised, and by the names merged into it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def entities(
        self,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        text: str = "",
        kind: str = "",
        least: int = 1,
        limit: int = 100,
        after: str | None = None,
    ) -> EntityPage:
        """Return entities whose name contains `text`, those with the most memories first.

        `kind` is `person`, `thing` or empty for both. With `least` names that are only mentioned need so many memories.
        Raises: InvalidInput, NotFound.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        if kind not in KINDS:
            raise InvalidInput("kind", f"{shown(kind)} is unknown; use person, thing, or leave it out")
        limit = within("limit", limit, 1, 2_000)
        wanted = Listing(check_text("text", text, 512), kind, within("least", least, 1, 10**6), limit, _place(after))
        with self._context.ledger.read() as connection:
            found = entities.entities(connection, scope.cubes[0], wanted, self._context.clock.now())
        last = found[-1] if len(found) == limit else None
        return EntityPage(tuple(found), None if last is None else f"{last.memories}:{last.id}")

    def entity(self, name: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> Entity:
        """Return one entity. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return _entity(connection, scope.cubes[0], name, self._context.clock.now())

    def neighbours(
        self, name: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 50
    ) -> Neighbours:
        """Return the edges of an entity, read from its newest memories. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        limit, now = within("limit", limit, 1, 500), self._context.clock.now()
        with self._context.ledger.read() as connection:
            entity = _entity(connection, scope.cubes[0], name, now)
            found = entities.links_of(connection, scope.cubes[0], entity.id, limit, now)
            edges = self._edges(connection, scope.cubes[0], found)
            others = {end for edge in edges for end in (edge.source, edge.target)} - {entity.id}
            around = _named(connection, scope.cubes[0], sorted(others), now)
        return Neighbours(entity, edges, around, found.complete)

    def view(
        self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, kind: str = "", least: int = 1, limit: int = 200
    ) -> GraphView:
        """Return the entities with the most memories, and the edges between them. Raises: InvalidInput, NotFound."""
        page = self.entities(cube=cube, actor=actor, kind=kind, least=least, limit=limit)
        with self._context.ledger.read() as connection:
            ids = [entity.id for entity in page.entities]
            found = entities.overview(connection, cube, ids, _EDGES_PER_NODE * limit, self._context.clock.now())
            edges = self._edges(connection, cube, found)
        return GraphView(page.entities, edges, found.complete and page.after is None)

    def aliases(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> tuple[Alias, ...]:
        """Return the names that were merged. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return tuple(entities.aliases(connection, scope.cubes[0]))

    @retry_write
    def merge(self, name: str, into: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> Alias:
        """Show a name, with the names merged into it, under another; `split` takes it back.

        Memories stay as they are; a search for one of the names finds what names the other. Raises: InvalidInput,
        NotFound, Conflict (they are the same already).
        """
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            one, other = (_entity(change.connection, change.cube, each, change.now) for each in (name, into))
            if one.id == other.id:
                raise Conflict(f"{one.name!r} and {into!r} are the same entity already.")
            if len(entities.aliases(change.connection, change.cube)) >= entities.MOST_ALIASES:
                raise Conflict(f"A cube can have {entities.MOST_ALIASES:,} merged names; split some first.")
            made = entities.merge(change.connection, change.cube, one.id, other.id, scope.actor, change.now)
            changes.record(change, "merge", {"alias": made.id})
        return made

    @retry_write
    def split(self, alias: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> Alias:
        """Take a merge back, by its id; names that were merged into the name before stay with it.

        Raises: InvalidInput, NotFound.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.WRITE)
        check_name("alias", alias, 64)
        with self._context.change(scope) as change:
            for found in entities.aliases(change.connection, change.cube):
                if found.id == alias:
                    entities.split(change.connection, change.cube, found)
                    changes.record(change, "split", {"alias": found.id})
                    return found
        raise NotFound("merged name", alias, "List merged names again; it may have been split already.")

    def _edges(self, connection: sa.Connection, cube: str, found: Found) -> tuple[Edge, ...]:
        """Return edges with the memory each is from; of names in one memory the standing does not matter."""
        now = self._context.clock.now()
        quotes = quotes_of(connection, cube, sorted({link.item for link in found.links}), _QUOTE_CHARS, now)
        stated = by_ids(connection, cube, sorted({link.item for link in found.links if link.stated}), now)
        stands = standings(connection, stated, now)
        made = []
        for link in found.links:
            if (quote := quotes.get(link.item)) is None:
                continue
            edge = Edge(*_fields(link), memory=quote.memory, at=quote.at)
            if link.stated and (stand := stands.get(link.item)) is not None:
                edge = replace(edge, standing=stand.standing, replaced_by=stand.replaced_by)
            made.append(edge)
        return tuple(made)


def _fields(link: Link) -> tuple[str, str, str, bool, int, str]:
    return link.source, link.target, link.relation, link.stated, link.count, link.item


def _named(connection: sa.Connection, cube: str, ids: Sequence[str], now: datetime) -> tuple[Entity, ...]:
    if not ids:
        return ()
    return tuple(entities.entities(connection, cube, Listing(limit=len(ids), named=tuple(ids)), now))


def _entity(connection: sa.Connection, cube: str, name: str, now: datetime) -> Entity:
    root = entities.root_of(connection, cube, check_name("name", name, 4 * NAME_CHARS))
    found = _named(connection, cube, [root], now)
    if not found:
        raise NotFound("person or thing", fold(name)[:80], "No memory names it; list entities to see those there are.")
    return found[0]


def _place(after: str | None) -> tuple[int, str] | None:
    if after is None:
        return None
    count, colon, name = after.partition(":")
    if not (colon and count.isascii() and count.isdigit() and len(count) < 16):
        raise InvalidInput("after", "must be the `after` of the page before")
    return int(count), name
