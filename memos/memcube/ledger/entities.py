"""People and things: the names in items, names that were merged by hand, and the edges between them.

`mentions` has a row for each name in the current version of each item; `follow` keeps it so. Ids of items are ordered
by time, so that the newest mentions of a name come from the primary key alone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from memos.core.clock import new_id
from memos.core.graph import Alias, Entity
from memos.core.types import RELATION, ItemType, Json, Role, Status
from memos.memcube.ledger.expiry import ended, expired_among
from memos.memcube.ledger.prepared import PreparedSelect
from memos.memcube.ledger.schema import entity_aliases, items, mentions, versions

NAME_CHARS = 128
_MOST_CHARS = 60  # of a value or a name in a text; what is longer is a sentence
_MOST_IN_ITEM = 12  # names of one item that are related with each other
_READ = 1_000  # newest memories of an entity from which its edges are read
_WINDOW = 4_000  # newest memories of a cube from which the edges of its overview are read
_BATCH = 500

MOST_ALIASES = 10_000
"""Number of merged names in a cube."""


class Part(StrEnum):
    """Role of a name in an item: subject, end of a relation, speaker, or mention.

    OPENING is a word that stands at the beginning of a sentence only, where every word has a capital.
    """

    SUBJECT = "subject"
    SOURCE = "source"
    TARGET = "target"
    SPEAKER = "speaker"
    NAMED = "named"
    OPENING = "opening"


PERSON = (Part.SUBJECT, Part.SPEAKER)
"""Parts that people have."""

_SKIPPED = frozenset({ItemType.TOOL_SCHEMA, ItemType.TOOL_TRAJECTORY, ItemType.WORKING, ItemType.SKILL})
_ROLES = frozenset(role.value for role in Role)


def fold(name: str) -> str:
    """Return the form of a name by which it is found."""
    return " ".join(name.casefold().split())[:NAME_CHARS]


class _Said(NamedTuple):
    """Fields from which an item's names are read; `Item` and rows of `versions` have them."""

    memory: str
    type: str
    status: str
    speaker: str
    role: str
    key: str | None
    value: str | None
    info: Mapping[str, Json]
    entities: Sequence[str]


_COLUMNS = tuple(versions.c[name] for name in _Said._fields)


def names_of(state: Any) -> dict[str, tuple[Part, str, str | None]]:
    """Return the names in an item: folded name -> its part, its spelling and the relation that leads to it."""
    found: dict[str, tuple[Part, str, str | None]] = {}

    def add(part: Part, spelling: Any, relation: str | None = None) -> None:
        spelling = " ".join(str(spelling).split())[:NAME_CHARS]
        name = fold(spelling)
        if name and (name not in found) and any(sign.isalpha() for sign in name):
            found[name] = (part, spelling, relation)

    if state.status == Status.DELETED or state.type in _SKIPPED:
        return {}
    whose, _, attribute = (state.key or "").partition("|")
    if attribute:
        add(Part.SUBJECT, state.speaker if fold(state.speaker) == fold(whose) else whose)
        # A trait repeats what a fact says.
        if state.type != ItemType.PROFILE and state.value and len(state.value) <= _MOST_CHARS:
            add(Part.TARGET, state.value, attribute)
    match (state.info or {}).get(RELATION):
        case [str(one), str(relation), str(other)]:
            add(Part.SOURCE, one)
            add(Part.TARGET, other, relation)
    if state.role in (Role.USER, Role.ASSISTANT) and state.speaker.casefold() not in _ROLES:
        add(Part.SPEAKER, state.speaker)
    for name in state.entities:
        if len(name) <= _MOST_CHARS and name.casefold() not in _ROLES:
            add(Part.OPENING if _opens(name, state.memory) else Part.NAMED, name)
    return found


_ENDS = frozenset(".!?…:;\n。！？")
_SCANNED = 8_000


def _opens(name: str, text: str) -> bool:
    """Return True if a word with a capital stands in a text at the beginning of sentences only."""
    if " " in name or not name[0].isupper() or not name[1:].islower():
        return False
    text, place, found = text[:_SCANNED], -1, False
    while (place := text.find(name, place + 1)) >= 0:
        before = text[:place].rstrip(" \t\"'“”‘’«»()-–—*")
        if before and before[-1] not in _ENDS:
            return False
        found = True
    return found


def follow(connection: sa.Connection, states: Sequence[Any]) -> None:
    """Write the names of items whose version was just written."""
    forget(connection, [state.id for state in states if state.version > 1])
    _insert(connection, ((state.cube, state.id, state) for state in states))


def forget(connection: sa.Connection, ids: Collection[str]) -> None:
    for batch in _batches(ids):
        connection.execute(sa.delete(mentions).where(mentions.c.item_id.in_(batch)))


def rebuild(connection: sa.Connection, cube: str | None = None) -> None:
    """Read all names again, of one cube or of all."""
    gone = sa.delete(mentions)
    connection.execute(gone if cube is None else gone.where(mentions.c.cube_id == cube))
    for rows in _stated(connection, cube):
        _insert(connection, ((row.cube_id, row.item_id, row) for row in rows))


def _stated(connection: sa.Connection, cube: str | None) -> Iterator[Sequence[Any]]:
    """Yield the current versions in batches, by item."""
    query = sa.select(versions.c.item_id, versions.c.cube_id, *_COLUMNS).where(versions.c.recorded_to.is_(None))
    if cube is not None:
        query = query.where(versions.c.cube_id == cube)
    after = ""
    while rows := connection.execute(
        query.where(versions.c.item_id > after).order_by(versions.c.item_id).limit(2_000)
    ).all():
        yield rows
        after = rows[-1].item_id


def _insert(connection: sa.Connection, states: Iterable[tuple[str, str, Any]]) -> None:
    rows = [
        {"cube_id": cube, "name": name, "part": part, "item_id": id_, "spelling": spelling, "relation": relation}
        for cube, id_, state in states
        for name, (part, spelling, relation) in names_of(state).items()
    ]
    if rows:
        connection.execute(sa.insert(mentions), rows)


def differing(connection: sa.Connection, cube: str, limit: int) -> list[str]:
    """Return items whose names are not those in `mentions`, and items that are not there any more."""
    stored: dict[str, set[tuple[str, str]]] = defaultdict(set)
    of_cube = sa.select(mentions.c.item_id, mentions.c.name, mentions.c.part).where(mentions.c.cube_id == cube)
    for row in connection.execute(of_cube.execution_options(yield_per=2_000)):
        stored[row.item_id].add((row.name, row.part))
    found = []
    for rows in _stated(connection, cube):
        for row in rows:
            expected = {(name, str(part)) for name, (part, *_) in names_of(row).items()}
            if stored.pop(row.item_id, set()) != expected:
                found.append(row.item_id)
    return [*found, *stored][:limit]


# Aliases


def aliases(connection: sa.Connection, cube: str, name: str | None = None) -> list[Alias]:
    """Return the merged names of a cube, or those shown under one name, by name."""
    query = sa.select(entity_aliases).where(entity_aliases.c.cube_id == cube).order_by(entity_aliases.c.name)
    if name is not None:
        query = query.where(entity_aliases.c.root == name)
    return [
        Alias(row.id, row.name, row.entity, row.root, row.actor, row.created_at) for row in connection.execute(query)
    ]


def root_of(connection: sa.Connection, cube: str, name: str) -> str:
    """Return the name under which a name is shown: its own unless it was merged."""
    mine = (entity_aliases.c.cube_id == cube, entity_aliases.c.name == fold(name))
    return connection.scalar(sa.select(entity_aliases.c.root).where(*mine)) or fold(name)


def has_aliases(connection: sa.Connection, cubes: Sequence[str]) -> bool:
    """Return True if names were merged in any of these cubes."""
    return bool(_ANY_ALIAS.rows(connection, cubes=cubes))


_ANY_ALIAS = PreparedSelect(
    sa.select(entity_aliases.c.cube_id)
    .where(entity_aliases.c.cube_id.in_(sa.bindparam("cubes", expanding=True)))
    .limit(1)
)


def same_as(connection: sa.Connection, cubes: Sequence[str], names: Set[str]) -> dict[str, tuple[str, ...]]:
    """Return the other names, as they are written, of those of these folded names that were merged in any cube."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for cube in cubes:
        together: dict[str, list[str]] = defaultdict(list)
        for alias in aliases(connection, cube):
            together[alias.root].append(alias.name)
        groups = [[root, *others] for root, others in together.items() if not names.isdisjoint([root, *others])]
        written = spellings(connection, cube, sorted({name for group in groups for name in group}))
        for group in groups:
            for name in names & set(group):
                found[name].update(dict.fromkeys(written.get(other, other) for other in group if other != name))
    return {name: tuple(others) for name, others in found.items()}


def merge(connection: sa.Connection, cube: str, name: str, entity: str, actor: str, now: datetime) -> Alias:
    """Show a name under another; both are roots."""
    made = Alias(new_id(), name, entity, entity, actor, now)
    row = {"cube_id": cube, "name": name, "id": made.id, "entity": entity, "root": entity}
    connection.execute(sa.insert(entity_aliases).values(**row, actor=actor, created_at=now))
    below = (entity_aliases.c.cube_id == cube, entity_aliases.c.root == name)
    connection.execute(sa.update(entity_aliases).where(*below).values(root=entity))
    return made


def split(connection: sa.Connection, cube: str, alias: Alias) -> None:
    """Take a merge back; names merged into the split name stay with it."""
    connection.execute(sa.delete(entity_aliases).where(entity_aliases.c.id == alias.id))
    _settle_roots(connection, cube)


def _settle_roots(connection: sa.Connection, cube: str) -> None:
    every = aliases(connection, cube)
    ends = {alias.name: alias.entity for alias in every}
    for alias in every:
        root, steps = alias.entity, 0
        while root in ends and steps <= len(ends):
            root, steps = ends[root], steps + 1
        if root != alias.root:
            connection.execute(sa.update(entity_aliases).where(entity_aliases.c.id == alias.id).values(root=root))


def add_aliases(connection: sa.Connection, cube: str, found: Iterable[Alias]) -> None:
    """Add merges of a dump; names that are merged already stay as they are, and no circle is made."""
    known = {alias.name: alias.entity for alias in aliases(connection, cube)}
    for alias in found:
        end = alias.entity
        while end in known:
            end = known[end]
        if alias.name in known or end == alias.name:
            continue
        known[alias.name] = alias.entity
        row = {"cube_id": cube, "name": alias.name, "id": new_id(), "entity": alias.entity, "root": alias.entity}
        connection.execute(sa.insert(entity_aliases).values(**row, actor=alias.actor, created_at=alias.created_at))
    _settle_roots(connection, cube)


def names_in_versions(connection: sa.Connection, cube: str, ids: Collection[str]) -> set[str]:
    """Return the names in all versions of items; nothing if the cube has no merged names, which alone need them."""
    merged = sa.select(sa.literal(1)).where(entity_aliases.c.cube_id == cube).limit(1)
    if connection.scalar(merged) is None:
        return set()
    found: set[str] = set()
    for batch in _batches(ids):
        for row in connection.execute(sa.select(*_COLUMNS).where(versions.c.item_id.in_(batch))):
            found.update(names_of(_Said(*row)._replace(status=Status.ACTIVE)))
    return found


def forget_unused(connection: sa.Connection, cube: str, names: Collection[str]) -> int:
    """Remove merges of names that no item has any more; return how many."""
    used = sa.select(mentions.c.name).where(mentions.c.cube_id == cube).distinct()
    left = {name for batch in _batches(names) for name in connection.scalars(used.where(mentions.c.name.in_(batch)))}
    count = 0
    for batch in _batches(set(names) - left):
        either = sa.or_(entity_aliases.c.name.in_(batch), entity_aliases.c.entity.in_(batch))
        count += connection.execute(sa.delete(entity_aliases).where(entity_aliases.c.cube_id == cube, either)).rowcount
    if count:
        _settle_roots(connection, cube)
    return count


# Entities and edges


class Listing(NamedTuple):
    """Which entities to list: names that contain `text`, of a `kind`, with at least so many memories.

    Names that are more than just named are listed however few memories they have. `after` is the entity before.
    """

    text: str = ""
    kind: str = ""
    least: int = 1
    limit: int = 100
    after: tuple[int, str] | None = None
    named: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sum:
    """An entity with all its names."""

    memories: int = 0
    person: bool = False
    named: bool = False
    stated: bool = False
    names: set[str] = field(default_factory=set)

    @property
    def kind(self) -> str:
        return "person" if self.person else "thing"

    def passes(self, wanted: Listing) -> bool:
        often = wanted.least <= 1 or self.stated or (self.memories >= wanted.least and self.named)
        return often and wanted.kind in ("", self.kind)


def entities(connection: sa.Connection, cube: str, wanted: Listing, now: datetime) -> list[Entity]:
    """Return entities, those with the most memories first; what has expired by `now` does not count."""
    roots = {alias.name: alias.root for alias in aliases(connection, cube)}
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for name, count, person, named, stated in _counted(connection, cube, wanted, roots, now):
        each = sums[roots.get(name, name)]
        each.memories += int(count)
        each.person |= bool(person)
        each.named |= bool(named)
        each.stated |= bool(stated)
        each.names.add(name)
    several = {root: each.names for root, each in sums.items() if len(each.names) > 1}
    for root, count in _distinct(connection, cube, several, now).items():
        sums[root].memories = count
    text = fold(wanted.text)
    found = [
        (-each.memories, name)
        for name, each in sums.items()
        if each.passes(wanted) and (not text or any(text in one for one in (name, *each.names)))
    ]
    found.sort()
    if wanted.after is not None:
        least, id_ = wanted.after
        found = [one for one in found if one > (-least, id_)]
    return _described(connection, cube, {name: sums[name] for _, name in found[: wanted.limit]}, now)


def _of_live(cube: str, now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    return mentions.c.cube_id == cube, mentions.c.item_id.not_in(ended(cube, now))


def _distinct(
    connection: sa.Connection, cube: str, several: Mapping[str, Collection[str]], now: datetime
) -> dict[str, int]:
    """Return how many items have any of the names of each entity: one with two of them is one."""
    m, a = mentions.c, entity_aliases.c
    merged = sa.and_(a.cube_id == m.cube_id, a.name == m.name)
    root = sa.func.coalesce(a.root, m.name)
    query = sa.select(root, sa.func.count(m.item_id.distinct()))
    query = query.select_from(mentions.outerjoin(entity_aliases, merged)).where(*_of_live(cube, now)).group_by(root)
    found: dict[str, int] = {}
    for batch in _batches(list(several)):  # all names of an entity in one query
        names = [name for each in batch for name in several[each]]
        found.update((name, int(count)) for name, count in connection.execute(query.where(m.name.in_(names))))
    return found


def _counted(
    connection: sa.Connection, cube: str, wanted: Listing, roots: Mapping[str, str], now: datetime
) -> list[Any]:
    """Return names with their counts, and whether they are persons, named and stated, along the primary key.

    Names that are too seldom are left out, unless they are merged.
    """
    m = mentions.c
    parts = sa.select(m.name, m.part, sa.func.count().label("memories")).where(*_of_live(cube, now))
    if wanted.named:
        chosen = set(wanted.named)
        names = chosen | {name for name, root in roots.items() if root in chosen}
        queries = [_by_name(parts.where(m.name.in_(batch))) for batch in _batches(names)]
    else:
        queries = [_by_name(parts, wanted.least, sorted({*roots, *roots.values()}))]
    return [row for query in queries for row in connection.execute(query)]


def _by_name(parts: sa.Select[Any], least: int = 1, always: Sequence[str] = ()) -> sa.Select[Any]:
    each = parts.group_by(mentions.c.name, mentions.c.part).subquery().c
    flags = (each.part.in_(PERSON), each.part == Part.NAMED, each.part.not_in([Part.NAMED, Part.OPENING]))
    person, named, stated = (sa.func.max(sa.case((flag, 1), else_=0)) for flag in flags)
    count = sa.func.sum(each.memories)
    query = sa.select(each.name, count, person, named, stated).group_by(each.name)
    if least <= 1:
        return query
    return query.having(sa.or_(stated == 1, sa.and_(count >= least, named == 1), each.name.in_(always)))


def _described(connection: sa.Connection, cube: str, sums: Mapping[str, _Sum], now: datetime) -> list[Entity]:
    """Return entities with their spelling, their other names and times."""
    every = {name for root, each in sums.items() for name in (root, *each.names)}
    spelled = spellings(connection, cube, sorted(every))
    m = mentions.c
    ends = sa.select(m.name, sa.func.min(m.item_id), sa.func.max(m.item_id)).where(*_of_live(cube, now))
    ends = ends.group_by(m.name)
    items_of: dict[str, tuple[str, str]] = {}
    for batch in _batches(every):
        items_of.update((name, (low, high)) for name, low, high in connection.execute(ends.where(m.name.in_(batch))))
    first = {root: min(items_of[name][0] for name in each.names) for root, each in sums.items()}
    last = {root: max(items_of[name][1] for name in each.names) for root, each in sums.items()}
    stored: dict[str, datetime] = {}
    for batch in _batches({*first.values(), *last.values()}):
        times = sa.select(items.c.id, items.c.created_at).where(items.c.id.in_(batch))
        stored.update((row.id, row.created_at) for row in connection.execute(times))
    return [
        Entity(
            name,
            spelled.get(name, name),
            each.kind,
            each.memories,
            stored.get(first[name]),
            stored.get(last[name]),
            tuple(sorted(spelled.get(other, other) for other in each.names - {name})),
        )
        for name, each in sums.items()
    ]


def spellings(connection: sa.Connection, cube: str, names: Collection[str]) -> dict[str, str]:
    """Return how names are written, by folded name: one query, with a lookup in the primary key for each."""
    if not names:
        return {}
    m = mentions.c
    listed = _listed(connection)
    written = (
        sa.select(m.spelling)
        .where(m.cube_id == cube, m.name == listed.c.value)
        .order_by(m.part.desc(), m.item_id.desc())
        .limit(1)
        .correlate(listed)
        .scalar_subquery()
    )
    rows = connection.execute(sa.select(listed.c.value, written), {"names": json.dumps(list(names))})
    return {name: spelling for name, spelling in rows if spelling is not None}


def _listed(connection: sa.Connection) -> sa.TableValuedAlias:
    """Return the texts of the JSON list in the parameter `names` as rows."""
    given = sa.bindparam("names", type_=sa.Text)
    if connection.dialect.name == "sqlite":
        return sa.func.json_each(given).table_valued("value", name="listed")
    return sa.func.json_array_elements_text(sa.cast(given, postgresql.JSON)).table_valued("value", name="listed")


MENTIONS = "mentions"
"""Relation of somebody to what they named."""

TOGETHER = "named with"
"""Relation of two names of one memory."""


@dataclass(frozen=True, slots=True)
class Link:
    """An edge between two entities, and the newest memory it is from."""

    source: str
    target: str
    relation: str
    stated: bool
    count: int
    item: str


@dataclass(slots=True)
class _Edges:
    """Edges by their ends and relation."""

    roots: Mapping[str, str]
    count: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    newest: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def add(self, item: str, rows: Sequence[Any], of: str | None = None) -> None:
        """Add the edges of an item, with `of` only those of one entity."""
        ends = [(self.roots.get(row.name, row.name), row) for row in rows]
        ends.sort(key=lambda end: (end[0] != of, _ORDER[end[1].part]))
        ends = ends[:_MOST_IN_ITEM]
        first = ends[:1] if of is not None else ends
        for place, (one, here) in enumerate(first):
            for other, there in ends[place + 1 :]:
                if one != other:
                    self._count(item, (one, here), (other, there))

    def _count(self, item: str, one: tuple[str, Any], other: tuple[str, Any]) -> None:
        for (source, here), (target, there) in ((one, other), (other, one)):
            if here.part in _STARTS and there.part == Part.TARGET and there.relation:
                edge = (source, target, there.relation)
                break
            if here.part in (Part.SPEAKER, Part.SUBJECT) and there.part in _THINGS:
                edge = (source, target, MENTIONS)
                break
        else:
            edge = (*sorted((one[0], other[0])), TOGETHER)  # type: ignore[assignment]
        self.count[edge] += 1
        self.newest[edge] = max(item, self.newest.get(edge, ""))

    def best(self, limit: int) -> list[Link]:
        """Return the edges, stated relations first, then those of most memories."""
        found = [
            Link(*edge, edge[2] not in (MENTIONS, TOGETHER), count, self.newest[edge])
            for edge, count in self.count.items()
        ]
        found.sort(key=lambda edge: (not edge.stated, -edge.count, edge.source, edge.target, edge.relation))
        return found[:limit]


_ORDER = {part: place for place, part in enumerate(Part)}
_STARTS = (Part.SUBJECT, Part.SOURCE)
_THINGS = (Part.NAMED, Part.OPENING, Part.SOURCE, Part.TARGET)


class Found(NamedTuple):
    """Edges, and whether older memories were left out."""

    links: list[Link]
    complete: bool


def links_of(connection: sa.Connection, cube: str, name: str, limit: int, now: datetime) -> Found:
    """Return the edges of an entity, read from its newest memories."""
    roots = {alias.name: alias.root for alias in aliases(connection, cube)}
    names = [name, *(alias for alias, root in roots.items() if root == name)]
    ids = mentioning(connection, cube, names, _READ + 1)
    edges = _Edges(roots)
    for item, rows in _by_item(connection, _live(connection, ids[:_READ], now)):
        edges.add(item, rows, name)
    others = {end for edge in edges.count for end in edge[:2]} - {name}
    unsure = others - _proper(connection, cube, others)
    for edge in [edge for edge in edges.count if not unsure.isdisjoint(edge[:2])]:
        del edges.count[edge]
    return Found(edges.best(limit), len(ids) <= _READ and len(edges.count) <= limit)


def _proper(connection: sa.Connection, cube: str, names: Collection[str]) -> set[str]:
    """Return those of these names that are a name somewhere, and not only a word that begins a sentence."""
    m = mentions.c
    query = sa.select(m.name).where(m.cube_id == cube, m.part != Part.OPENING).distinct()
    return {name for batch in _batches(names) for name in connection.scalars(query.where(m.name.in_(batch)))}


def mentioning(
    connection: sa.Connection, cube: str, names: Collection[str], limit: int, parts: Collection[Part] = tuple(Part)
) -> list[str]:
    """Return the items with one of these names, in the order of `parts`, newest first."""
    m = mentions.c
    newest = (
        sa.select(m.item_id)
        .where(m.cube_id == cube, m.name == sa.bindparam("name"), m.part == sa.bindparam("part"))
        .order_by(m.item_id.desc())
        .limit(limit)
    )
    found: dict[str, None] = {}
    for part in parts:
        for name in names:
            found.update(dict.fromkeys(connection.scalars(newest, {"name": name, "part": part})))
        if len(found) >= limit:
            break
    return list(found)[:limit]


def _live(connection: sa.Connection, ids: Sequence[str], now: datetime) -> list[str]:
    gone = expired_among(connection, ids, now)
    return [id_ for id_ in ids if id_ not in gone]


def overview(connection: sa.Connection, cube: str, names: Collection[str], limit: int, now: datetime) -> Found:
    """Return the edges between these entities, read from the cube's newest memories."""
    roots = {alias.name: alias.root for alias in aliases(connection, cube)}
    wanted = set(names)
    newest = sa.select(items.c.id).where(items.c.cube_id == cube)
    newest = newest.order_by(items.c.created_at.desc(), items.c.id.desc()).limit(_WINDOW)
    ids = list(connection.scalars(newest))
    edges = _Edges(roots)
    for item, rows in _by_item(connection, _live(connection, ids, now)):
        known = [row for row in rows if roots.get(row.name, row.name) in wanted]
        if len(known) > 1:
            edges.add(item, known)
    return Found(edges.best(limit), len(ids) < _WINDOW and len(edges.count) <= limit)


def _by_item(connection: sa.Connection, ids: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for batch in _batches(ids):
        for row in _OF_ITEMS.rows(connection, ids=batch):
            found[row.item_id].append(row)
    yield from found.items()


# Without the cube, whose rows SQLite would rather look through than follow the index on items.
_OF_ITEMS = PreparedSelect(
    sa.select(mentions.c.item_id, mentions.c.name, mentions.c.part, mentions.c.relation).where(
        mentions.c.item_id.in_(sa.bindparam("ids", expanding=True))
    )
)


def _batches(values: Collection[str]) -> Iterator[list[str]]:
    pending = list(values)
    for start in range(0, len(pending), _BATCH):
        yield pending[start : start + _BATCH]


def remove_cube(connection: sa.Connection, cube: str) -> None:
    for table in (mentions, entity_aliases):
        connection.execute(sa.delete(table).where(table.c.cube_id == cube))
