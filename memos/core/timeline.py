"""A cube over time: what held when, what changed between two times, and the history of a person or a topic."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from memos.core.types import Item, Standing


@dataclass(frozen=True, slots=True)
class TimeStep:
    """A part of a cube's time, and how much was told in it."""

    at: Annotated[datetime, "When it begins"]
    memories: Annotated[int, "Number of memories told in it"]


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The time between the first and the last thing told in a cube."""

    first: Annotated[datetime | None, "When the first memory was told; null in an empty cube"]
    last: Annotated[datetime | None, "When the last one was told"]
    steps: Annotated[tuple[TimeStep, ...], "Equal parts of that time"] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """A memory that held, and how it stands at that time."""

    item: Annotated[Item, "The memory"]
    at: Annotated[datetime, "When it was told"]
    standing: Annotated[Standing, "Whether it holds"]
    replaced_by: Annotated[str | None, "Id of the memory that replaced it, or probably did"] = None
    since: Annotated[datetime | None, "Since when it stands so"] = None


@dataclass(frozen=True, slots=True)
class Day:
    """Memories that held at a time."""

    at: Annotated[datetime, "The time"]
    memories: Annotated[tuple[Held, ...], "What held then, told last first"]
    after: Annotated[str | None, "Give it as `after` for the next page; null at the end"] = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """A memory that stopped holding."""

    item: Annotated[Item, "The memory"]
    at: Annotated[datetime, "When it stopped holding"]
    by: Annotated[Item | None, "The memory that replaced it; null if it just ended"] = None
    sure: Annotated[bool, "False if it was only probably replaced"] = True


@dataclass(frozen=True, slots=True)
class TimeDiff:
    """Changes between two times."""

    since: Annotated[datetime, "The first time"]
    until: Annotated[datetime, "The second time"]
    added: Annotated[tuple[Held, ...], "Told between them, and held at the second"]
    replaced: Annotated[tuple[Replaced, ...], "Held at the first, and was replaced by something told between them"]
    ended: Annotated[tuple[Replaced, ...], "Held at the first, and ended between them"]
    complete: Annotated[bool, "False if there are more changes than asked for"]


@dataclass(frozen=True, slots=True)
class LifeEntry:
    """A value over a time."""

    value: Annotated[str, "The value"]
    since: Annotated[datetime, "Since when"]
    until: Annotated[datetime | None, "Until when; null if it still holds"]
    standing: Annotated[Standing, "Whether it holds now"]
    item: Annotated[str, "Id of the memory that says so"]
    memory: Annotated[str, "Its text"]
    speaker: Annotated[str, "Who said it"]
    memories: Annotated[int, "Number of memories that say so, one after the other"] = 1


@dataclass(frozen=True, slots=True)
class LifeLine:
    """A property of a person or thing over time, such as a residence."""

    subject: Annotated[str, "Whom or what it is about"]
    property: Annotated[str, "The property, such as `residence`"]
    entries: Annotated[tuple[LifeEntry, ...], "Its values, the first one first"]


@dataclass(frozen=True, slots=True)
class Life:
    """A person or a topic over time."""

    name: Annotated[str, "The person or topic"]
    lines: Annotated[tuple[LifeLine, ...], "Properties with values"]
    memories: Annotated[tuple[Held, ...], "Memories that name it, told first first"]
    complete: Annotated[bool, "False if only the newest memories were read"]
