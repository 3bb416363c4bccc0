"""Store traits, build profiles from them, compare two profiles, and render one for a prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

import sqlalchemy as sa

from memos.core.text.rendering import NOTICE, wrap_untrusted
from memos.core.tokens import estimate_tokens
from memos.core.types import Fact, Item, ItemType, LinkKind, Span, Status, Trust, Version
from memos.errors import Conflict, InvalidInput, NotFound
from memos.memcube import changes, facts
from memos.memcube.changes import Change
from memos.memcube.ledger import cubes, items
from memos.memcube.ledger import schema as t
from memos.memcube.profiles.template import Template, standard, stored_template
from memos.memcube.profiles.traits import (
    STATIC,
    Sentiment,
    dimension_of,
    event_time,
    interest_confidence,
    is_static,
    trait_key,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    item: Annotated[str | None, "Memory of the message it stands in"]
    passage: Annotated[str, "The passage"]
    speaker: Annotated[str, "Who said it"]
    at: Annotated[datetime, "When"]
    trust: Annotated[Trust, "`trusted` or `untrusted`"] = Trust.TRUSTED


@dataclass(frozen=True, slots=True)
class Trait:
    """A value of a dimension of a profile; `static` if the operator set it. `item` holds it."""

    dimension: Annotated[str, "Id of the dimension"]
    name: Annotated[str, "Its name"]
    value: Annotated[str, "What is known"]
    confidence: Annotated[float, "0 to 1"]
    since: Annotated[datetime, "Since when"]
    item: Annotated[str, "Memory that holds it"]
    static: Annotated[bool, "Whether it was set by hand"]
    evidence: Annotated[tuple[Evidence, ...], "Passages it is based on"]


@dataclass(frozen=True, slots=True)
class TraitGroup:
    id: Annotated[str, "Id of the group"]
    name: Annotated[str, "Its name"]
    traits: Annotated[tuple[Trait, ...], "Its traits"]


@dataclass(frozen=True, slots=True)
class Profile:
    cube: Annotated[str, "The cube"]
    subject: Annotated[str, "Person the profile describes; empty if none is known"]
    template: Annotated[str, "Name of the template"]
    groups: Annotated[tuple[TraitGroup, ...], "Traits by group"]

    @property
    def traits(self) -> tuple[Trait, ...]:
        return tuple(trait for group in self.groups for trait in group.traits)


@dataclass(frozen=True, slots=True)
class TraitEntry:
    """An entry of a dimension's history: what was written when, by whom and why. `number` names it for a rollback."""

    number: Annotated[int, "Number of the entry, used for a rollback"]
    value: Annotated[str | None, "What was written"]
    confidence: Annotated[float, "0 to 1"]
    status: Annotated[Status, "Status of the memory then"]
    since: Annotated[datetime, "Since when it held"]
    until: Annotated[datetime | None, "Until when it held"]
    static: Annotated[bool, "Whether it was set by hand"]
    recorded_at: Annotated[datetime, "When it was written"]
    actor: Annotated[str, "Who wrote it"]
    reason: Annotated[str, "Why"]
    item: Annotated[str, "Memory that holds it"]
    version: Annotated[int, "Version of that memory"]


@dataclass(frozen=True, slots=True)
class TraitChange:
    before: Annotated[Trait, "What it was"]
    after: Annotated[Trait, "What it is"]


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    cube: Annotated[str, "The cube"]
    subject: Annotated[str, "Whom it is about"]
    since: Annotated[datetime, "First moment"]
    until: Annotated[datetime, "Last moment"]
    added: Annotated[tuple[Trait, ...], "What became known"]
    changed: Annotated[tuple[TraitChange, ...], "What became another"]
    ended: Annotated[tuple[Trait, ...], "What ended"]


def trait_of(item: Item, template: Template, evidence: tuple[Evidence, ...]) -> Trait:
    name = dimension_of(item.key) or ""
    dimension = template.by_id.get(name)
    confidence = item.confidence
    if item.value == Sentiment.MENTIONS:
        confidence = max(confidence, interest_confidence(len({each.item or each.passage for each in evidence})))
    return Trait(
        dimension=name,
        name=name if dimension is None else dimension.name,
        value=item.value or "",
        confidence=confidence,
        since=event_time(item),
        item=item.id,
        static=is_static(item),
        evidence=evidence,
    )


def profile_of(cube: str, subject: str, template: Template, traits: Iterable[Trait]) -> Profile:
    by_group: dict[str, list[Trait]] = defaultdict(list)
    for trait in traits:
        by_group[trait.dimension.rpartition(".")[0]].append(trait)
    order = {name: number for number, name in enumerate(template.by_id)}
    names = {group.id: group.name for group in template.groups}

    def place(trait: Trait) -> tuple[int, str]:
        return order.get(trait.dimension, len(order)), trait.dimension

    groups = tuple(
        TraitGroup(name, names.get(name, name), tuple(sorted(by_group[name], key=place)))
        for name in [*names, *sorted(set(by_group) - set(names))]
        if name in by_group
    )
    return Profile(cube, subject, template.name, groups)


def entries_of(versions: Iterable[Version]) -> tuple[TraitEntry, ...]:
    return tuple(
        TraitEntry(
            number=number,
            value=entry.after.value,
            confidence=entry.after.confidence,
            status=entry.after.status,
            since=event_time(entry.after),
            until=entry.after.valid_to,
            static=STATIC in entry.after.tags,
            recorded_at=entry.recorded_at,
            actor=entry.actor,
            reason=entry.reason,
            item=entry.item,
            version=entry.version,
        )
        for number, entry in enumerate(versions, start=1)
    )


def difference(before: Profile, after: Profile, since: datetime, until: datetime) -> ProfileDiff:
    old = {trait.dimension: trait for trait in before.traits}
    new = {trait.dimension: trait for trait in after.traits}
    return ProfileDiff(
        cube=after.cube,
        subject=after.subject,
        since=since,
        until=until,
        added=tuple(trait for name, trait in new.items() if name not in old),
        changed=tuple(
            TraitChange(old[name], trait)
            for name, trait in new.items()
            if name in old and old[name].value != trait.value
        ),
        ended=tuple(trait for name, trait in old.items() if name not in new),
    )


def rendered(profile: Profile, max_tokens: int) -> str:
    """Return a profile as lines for a prompt, group by group; what the operator gave and what is surest goes in first.

    Each trait is one line, so nothing in a value can look like another part of the prompt.
    """
    chosen: set[str] = set()
    headed: set[str] = set()
    left = max_tokens
    noticed = False
    every = [(group, trait) for group in profile.groups for trait in group.traits]
    for group, trait in sorted(every, key=lambda pair: (not pair[1].static, -pair[1].confidence)):
        heading = 0 if group.id in headed else estimate_tokens(_heading(group) + "\n")
        notice = not noticed and _is_untrusted(trait)
        heading += estimate_tokens(NOTICE + "\n") if notice else 0
        cost = estimate_tokens(_line(trait) + "\n") + heading
        if cost <= left:
            left -= cost
            noticed = noticed or notice
            chosen.add(trait.dimension)
            headed.add(group.id)
    lines = [NOTICE] if noticed else []
    for group in profile.groups:
        if group.id in headed:
            lines += [_heading(group), *(_line(each) for each in group.traits if each.dimension in chosen)]
    return "\n".join(lines)


def _heading(group: TraitGroup) -> str:
    return f"{group.name}:"


def _line(trait: Trait) -> str:
    value = " ".join(trait.value.split())
    return f"- {trait.name}: {wrap_untrusted(value, _source(trait)) if _is_untrusted(trait) else value}"


def _is_untrusted(trait: Trait) -> bool:
    return any(each.trust is Trust.UNTRUSTED for each in trait.evidence)


def _source(trait: Trait) -> str:
    return next(each.speaker for each in trait.evidence if each.trust is Trust.UNTRUSTED)


def template_of(connection: sa.Connection, cube: str) -> Template:
    own = cubes.get_template(connection, cube)
    return standard() if own is None else stored_template(own)


def current_static(change: Change, fact: Fact) -> Item | None:
    current = current_of(_of_key(change, fact.key), change.now)
    same = current is not None and is_static(current) and current.value == fact.value
    return current if same else None


def set_static(change: Change, fact: Fact, source: Span) -> Item:
    current = current_of(_of_key(change, fact.key), change.now)
    state = facts.store(change, replace(fact, spans=(source,)))
    if current is not None:
        facts.supersede(change, current, state.id, change.now)
    return state


def remove_static(change: Change, subject: str, dimension: str) -> Item | None:
    """End what the operator gave; return what is current then."""
    known = _of_key(change, trait_key(subject, dimension))
    static = next((state for state in known if is_static(state)), None)
    if static is None:
        raise NotFound("static trait", dimension, "List traits with `memos profile show`.")
    # Deleted, not superseded: what is found later must not line up behind it.
    changes.delete(change, [static.id], "taken back")
    waiting = [state for state in known if state.superseded_by == static.id and state.status is Status.SUPERSEDED]
    if not waiting:
        return None
    back = waiting[-1]  # the newest by event time
    fields = {"status": Status.ACTIVE, "valid_to": _validity(change, back), "superseded_by": None}
    return changes.edit(change, back, fields, "the operator's word was taken back", kind="update")


def remove_traits(change: Change, subject: str, dimension: str | None = None) -> int:
    key = None if dimension is None else trait_key(subject, dimension)
    states = [
        state
        for state in find(change.connection, change.cube, subject=subject)
        if state.status in (Status.ACTIVE, Status.ARCHIVED) and key in (None, state.key)
    ]
    if dimension is not None and not states:
        raise NotFound("trait", dimension, "List traits with `memos profile show`.")
    if states:
        changes.delete(change, [state.id for state in states], "taken out of the profile")
    return len(states)


def _validity(change: Change, item: Item) -> datetime | None:
    entries = items.history(change.connection, [change.cube], item.id)
    return next((entry.after.valid_to for entry in reversed(entries) if entry.after.status is Status.ACTIVE), None)


def restore(change: Change, subject: str, dimension: str, entry: Version) -> Item:
    if entry.after.status is not Status.ACTIVE:
        raise Conflict("That entry never was the current value; choose an entry with status active.")
    current = current_of(_of_key(change, trait_key(subject, dimension)), change.now)
    state = items.require(change.connection, [change.cube], entry.item)
    if state.version != entry.version:
        state = changes.rollback(change, entry.item, entry.version)
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
    v = t.versions.c
    query = sa.select(v.item_id).where(v.cube_id == cube, v.type == ItemType.PROFILE, v.key.is_not(None))
    query = query.where(items.standing(at))
    if subject is not None:
        # Not a range: PostgreSQL orders text by a language's rules, SQLite's LIKE takes large for small.
        first = trait_key(subject, "")
        query = query.where(sa.func.substr(v.key, 1, len(first)) == first)
    found = items.current(connection, [cube], connection.scalars(query), at)
    return [state for state in found.values() if _is_trait_of(subject, state)]


def _is_trait_of(subject: str | None, state: Item) -> bool:
    """Return True if an item is a trait of a subject, or of any: "ana|profile:x" begins like the keys of "ana"."""
    dimension = dimension_of(state.key)
    return dimension is not None and (subject is None or state.key == trait_key(subject, dimension))


def history(connection: sa.Connection, cube: str, subject: str, dimension: str) -> list[Version]:
    states = items.with_keys(connection, cube, [trait_key(subject, dimension)])
    entries = [entry for state in states for entry in items.history(connection, [cube], state.id)]
    return sorted(entries, key=lambda entry: (entry.recorded_at, entry.item, entry.version))


def evidence(connection: sa.Connection, ids: Collection[str]) -> dict[str, tuple[Evidence, ...]]:
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
    if key is None or dimension_of(key) is None:
        raise InvalidInput("key", "is not the key of a trait; create traits with memos.memcube.profiles.traits.trait")
    states = facts.with_keys(change.connection, change.cube, [key]).get(key, [])
    return [state for state in states if state.type is ItemType.PROFILE]
