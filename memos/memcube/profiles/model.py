"""The nouns of a profile as frozen values: traits with their evidence, what they were, what changed. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memos.core.types import Status, Trust


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage a trait rests on; `item` is the memory of the message it stands in."""

    item: str | None
    passage: str
    speaker: str
    at: datetime
    trust: Trust = Trust.TRUSTED


@dataclass(frozen=True, slots=True)
class Trait:
    """What a profile says in one dimension, since when; `static` when the operator gave it. `item` holds it."""

    dimension: str
    name: str
    value: str
    confidence: float
    since: datetime
    item: str
    static: bool
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class TraitGroup:
    """The traits of one group of the template that somebody has."""

    id: str
    name: str
    traits: tuple[Trait, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one subject, by group; `subject` is empty when the cube knows nobody."""

    cube: str
    subject: str
    template: str
    groups: tuple[TraitGroup, ...]

    @property
    def traits(self) -> tuple[Trait, ...]:
        """Every trait, group after group."""
        return tuple(trait for group in self.groups for trait in group.traits)


@dataclass(frozen=True, slots=True)
class TraitEntry:
    """One entry of a dimension's history: what was written when, by whom and why. `number` names it for a rollback."""

    number: int
    value: str | None
    confidence: float
    status: Status
    since: datetime
    until: datetime | None
    static: bool
    recorded_at: datetime
    actor: str
    reason: str
    item: str
    version: int


@dataclass(frozen=True, slots=True)
class TraitChange:
    """A trait whose value is another one."""

    before: Trait
    after: Trait


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """What became known, became another and ended between two moments of recording."""

    cube: str
    subject: str
    since: datetime
    until: datetime
    added: tuple[Trait, ...]
    changed: tuple[TraitChange, ...]
    ended: tuple[Trait, ...]
