"""Makes profiles out of trait items, compares two of them, and writes one for a prompt. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from memos.core.text.rendering import NOTICE, wrap_untrusted
from memos.core.tokens import estimate_tokens
from memos.core.types import Item, Status, Trust, Version
from memos.memcube.profiles.template import Template
from memos.memcube.profiles.traits import STATIC, Sentiment, dimension_of, event_time, is_static, sureness

# The nouns of a profile as frozen values: traits with their evidence, what they were, what changed. No behaviour.


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage a trait rests on; `item` is the memory of the message it stands in."""

    item: Annotated[str | None, "Memory of the message it stands in"]
    passage: Annotated[str, "The passage"]
    speaker: Annotated[str, "Who said it"]
    at: Annotated[datetime, "When"]
    trust: Annotated[Trust, "`trusted` or `untrusted`"] = Trust.TRUSTED


@dataclass(frozen=True, slots=True)
class Trait:
    """What a profile says in one dimension, since when; `static` when the operator gave it. `item` holds it."""

    dimension: Annotated[str, "Id of the dimension"]
    name: Annotated[str, "Its name"]
    value: Annotated[str, "What is known"]
    confidence: Annotated[float, "0 to 1"]
    since: Annotated[datetime, "Since when"]
    item: Annotated[str, "Memory that holds it"]
    static: Annotated[bool, "Whether it was given by hand"]
    evidence: Annotated[tuple[Evidence, ...], "Passages it rests on"]


@dataclass(frozen=True, slots=True)
class TraitGroup:
    """The traits of one group of the template that somebody has."""

    id: Annotated[str, "Id of the group"]
    name: Annotated[str, "Its name"]
    traits: Annotated[tuple[Trait, ...], "Its traits"]


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one subject, by group; `subject` is empty when the cube knows nobody."""

    cube: Annotated[str, "The cube"]
    subject: Annotated[str, "Whom it is about; empty when nobody is known"]
    template: Annotated[str, "Name of the template"]
    groups: Annotated[tuple[TraitGroup, ...], "Traits by group"]

    @property
    def traits(self) -> tuple[Trait, ...]:
        """Every trait, group after group."""
        return tuple(trait for group in self.groups for trait in group.traits)


@dataclass(frozen=True, slots=True)
class TraitEntry:
    """One entry of a dimension's history: what was written when, by whom and why. `number` names it for a rollback."""

    number: Annotated[int, "Names it for a rollback"]
    value: Annotated[str | None, "What was written"]
    confidence: Annotated[float, "0 to 1"]
    status: Annotated[Status, "Status of the memory then"]
    since: Annotated[datetime, "Since when it held"]
    until: Annotated[datetime | None, "Until when it held"]
    static: Annotated[bool, "Whether it was given by hand"]
    recorded_at: Annotated[datetime, "When it was written"]
    actor: Annotated[str, "Who wrote it"]
    reason: Annotated[str, "Why"]
    item: Annotated[str, "Memory that holds it"]
    version: Annotated[int, "Version of that memory"]


@dataclass(frozen=True, slots=True)
class TraitChange:
    """A trait whose value is another one."""

    before: Annotated[Trait, "What it was"]
    after: Annotated[Trait, "What it is"]


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """What became known, became another and ended between two moments of recording."""

    cube: Annotated[str, "The cube"]
    subject: Annotated[str, "Whom it is about"]
    since: Annotated[datetime, "First moment"]
    until: Annotated[datetime, "Last moment"]
    added: Annotated[tuple[Trait, ...], "What became known"]
    changed: Annotated[tuple[TraitChange, ...], "What became another"]
    ended: Annotated[tuple[Trait, ...], "What ended"]


def trait_of(item: Item, template: Template, evidence: tuple[Evidence, ...]) -> Trait:
    """Return what a profile shows of a trait item; an interest is the surer the more messages show it."""
    name = dimension_of(item.key) or ""
    dimension = template.by_id.get(name)
    confidence = item.confidence
    if item.value == Sentiment.MENTIONS:
        confidence = max(confidence, sureness(len({each.item or each.passage for each in evidence})))
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
    """Return traits in the order of a template; those of dimensions it does not have come last."""
    by_group: dict[str, list[Trait]] = defaultdict(list)
    for trait in traits:
        by_group[trait.dimension.rpartition(".")[0]].append(trait)
    order = {name: place for place, name in enumerate(template.by_id)}
    names = {group.id: group.name for group in template.groups}
    groups = tuple(
        TraitGroup(name, names.get(name, name), tuple(_in_order(by_group[name], order)))
        for name in [*names, *sorted(set(by_group) - set(names))]
        if name in by_group
    )
    return Profile(cube, subject, template.name, groups)


def _in_order(traits: Iterable[Trait], order: Mapping[str, int]) -> list[Trait]:
    return sorted(traits, key=lambda trait: (order.get(trait.dimension, len(order)), trait.dimension))


def entries_of(versions: Iterable[Version]) -> tuple[TraitEntry, ...]:
    """Return a dimension's history, the first entry number 1."""
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
    """Return what became known, another and no longer so from one state of a profile to a later one."""
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
