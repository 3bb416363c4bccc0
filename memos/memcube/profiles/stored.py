"""The traits of a profile as items: found again by subject, given by hand, taken back and rolled back.

Every function runs inside the caller's transaction. What a trait says is not looked at here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from memos.core.types import Fact, Item, ItemType, LinkKind, Span, Status, Version
from memos.errors import Conflict, InvalidInput, NotFound
from memos.memcube import changes, facts
from memos.memcube.changes import Change
from memos.memcube.ledger import cubes as templates
from memos.memcube.ledger import items
from memos.memcube.ledger import schema as t
from memos.memcube.profiles.template import Template, standard, stored_template
from memos.memcube.profiles.traits import dimension_of, event_time, is_static, trait_key
from memos.memcube.profiles.views import Evidence


def template_of(connection: sa.Connection, cube: str) -> Template:
    """Return the template a cube's profiles follow."""
    own = templates.get_template(connection, cube)
    return standard() if own is None else stored_template(own)


def given(change: Change, fact: Fact) -> Item | None:
    """Return the trait that the operator gave already with this value."""
    current = current_of(_of_key(change, fact.key), change.now)
    same = current is not None and is_static(current) and current.value == fact.value
    return current if same else None


def give(change: Change, fact: Fact, source: Span) -> Item:
    """Store a trait that the operator gives, on the strength of a message, in place of what is current."""
    current = current_of(_of_key(change, fact.key), change.now)
    state = facts.store(change, replace(fact, spans=(source,)))
    if current is not None:
        facts.supersede(change, current, state.id, change.now)
    return state


def take_back(change: Change, subject: str, dimension: str) -> Item | None:
    """End what the operator gave; return what is current then. Raises: NotFound when nothing was given."""
    known = _of_key(change, trait_key(subject, dimension))
    static = next((state for state in known if is_static(state)), None)
    if static is None:
        raise NotFound("static trait", dimension, "See what there is with `memos profile show`.")
    # Deleted, not superseded: what is found later must not line up behind it.
    changes.delete(change, [static.id], "taken back")
    waiting = [state for state in known if state.superseded_by == static.id and state.status is Status.SUPERSEDED]
    if not waiting:
        return None
    back = waiting[-1]  # the newest by event time
    fields = {"status": Status.ACTIVE, "valid_to": _validity(change, back), "superseded_by": None}
    return changes.edit(change, back, fields, "the operator's word was taken back", kind="update")


def take_out(change: Change, subject: str, dimension: str | None = None) -> int:
    """Delete what a profile shows of somebody, or in one dimension; return how many. Raises: NotFound (dimension)."""
    key = None if dimension is None else trait_key(subject, dimension)
    states = [
        state
        for state in find(change.connection, change.cube, subject=subject)
        if state.status in (Status.ACTIVE, Status.ARCHIVED) and key in (None, state.key)
    ]
    if dimension is not None and not states:
        raise NotFound("trait", dimension, "See what there is with `memos profile show`.")
    if states:
        changes.delete(change, [state.id for state in states], "taken out of the profile")
    return len(states)


def _validity(change: Change, item: Item) -> datetime | None:
    """Return until when an item was valid before it was superseded."""
    entries = items.history(change.connection, [change.cube], item.id)
    return next((entry.after.valid_to for entry in reversed(entries) if entry.after.status is Status.ACTIVE), None)


def restore(change: Change, subject: str, dimension: str, entry: Version) -> Item:
    """Let a trait be again what it was at an entry of its history. Raises: Conflict when it was not current then."""
    if entry.after.status is not Status.ACTIVE:
        raise Conflict("That entry was not the current value when it was written; choose one whose status is active.")
    current = current_of(_of_key(change, trait_key(subject, dimension)), change.now)
    state = items.require(change.connection, [change.cube], entry.item)
    if state.version != entry.version:
        state = changes.rollback(change, entry.item, entry.version, None, f"rolled back to version {entry.version}")
    if state.valid_to is not None and state.valid_to <= change.now:
        state = changes.edit(change, state, {"valid_to": None}, "so again")
    if current is not None and current.id != state.id:
        # No SUPERSEDES link: the one that is rolled back may have such a link to the other already.
        fields = {"status": Status.SUPERSEDED, "valid_to": change.now, "superseded_by": state.id}
        changes.edit(change, current, fields, f"superseded by {state.id}", kind="supersede")
    return state


def current_of(states: Iterable[Item], at: datetime) -> Item | None:
    """Return which of a key's items a profile shows at a moment: what the operator gave, else the newest."""
    shown = (Status.ACTIVE, Status.ARCHIVED)
    live = [each for each in states if each.status in shown and (each.valid_to is None or each.valid_to > at)]
    return max(live, key=lambda each: (is_static(each), event_time(each), each.id), default=None)


def find(connection: sa.Connection, cube: str, *, subject: str | None = None, at: datetime | None = None) -> list[Item]:
    """Return the trait items of a cube, or of one subject, of any status, as they are or stood at a moment."""
    query = sa.select(t.versions.c.item_id).where(
        t.versions.c.cube_id == cube,
        t.versions.c.type == ItemType.PROFILE,
        t.versions.c.key.is_not(None),
        items.standing(at),
    )
    if subject is not None:
        # Not a range: PostgreSQL orders text by a language's rules, SQLite's LIKE takes large for small.
        first = trait_key(subject, "")
        query = query.where(sa.func.substr(t.versions.c.key, 1, len(first)) == first)
    found = items.current(connection, [cube], connection.scalars(query), at)
    return [state for state in found.values() if _is_trait_of(subject, state)]


def _is_trait_of(subject: str | None, state: Item) -> bool:
    """Say whether an item is a trait of a subject, or of any: "ana|profile:x" begins like the keys of "ana"."""
    dimension = dimension_of(state.key)
    return dimension is not None and (subject is None or state.key == trait_key(subject, dimension))


def history(connection: sa.Connection, cube: str, subject: str, dimension: str) -> list[Version]:
    """Return every version of every item a trait ever was, in the order they were recorded."""
    states = items.with_keys(connection, cube, [trait_key(subject, dimension)])
    entries = [entry for state in states for entry in items.history(connection, [cube], state.id)]
    return sorted(entries, key=lambda entry: (entry.recorded_at, entry.item, entry.version))


def evidence(connection: sa.Connection, ids: Collection[str]) -> dict[str, tuple[Evidence, ...]]:
    """Return each trait's passages, with the memories of the messages they stand in."""
    links = items.links_from(connection, ids)
    origins = {target for pairs in links.values() for kind, target in pairs if kind == LinkKind.DERIVED_FROM}
    held: dict[str, str] = {}
    for origin, sources in items.sources_of(connection, origins).items():
        for source in sources:
            held.setdefault(source.message_id, origin)
    return {
        item: tuple(
            Evidence(held.get(each.message_id), each.passage, each.speaker, each.at, each.trust) for each in sources
        )
        for item, sources in items.sources_of(connection, ids).items()
    }


def _of_key(change: Change, key: str | None) -> list[Item]:
    """Return the items of a trait's key, the earliest by event time first."""
    if key is None or dimension_of(key) is None:
        raise InvalidInput("key", "is no trait's; make traits with memos.memcube.profiles.traits.trait")
    states = facts.with_keys(change.connection, change.cube, [key]).get(key, [])
    return [state for state in states if state.type is ItemType.PROFILE]
