"""People and things that memories name, and their relations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from memos.core.types import Standing


@dataclass(frozen=True, slots=True)
class Alias:
    """A name that somebody merged into another."""

    id: Annotated[str, "Id of the merge, to split the names again"]
    name: Annotated[str, "The merged name, folded"]
    entity: Annotated[str, "The name it is the same as, folded"]
    root: Annotated[str, "The name that everything is shown under, folded"]
    actor: Annotated[str, "Who merged them"]
    created_at: Annotated[datetime, "When"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A person or a thing that memories name."""

    id: Annotated[str, "Its name, folded"]
    name: Annotated[str, "Its name as written"]
    kind: Annotated[str, "`person`: somebody who speaks or of whom statements are known; `thing`: anything else"]
    memories: Annotated[int, "Number of memories that name it"]
    first_at: Annotated[datetime | None, "When it was first named, as stored"] = None
    last_at: Annotated[datetime | None, "When it was last named, as stored"] = None
    aliases: Annotated[tuple[str, ...], "Other names merged into it"] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation between two entities, with the newest memory that it is from."""

    source: Annotated[str, "Id of the entity it starts at"]
    target: Annotated[str, "Id of the entity it leads to"]
    relation: Annotated[str, "What the relation is, such as `residence`; `mentions` and `named with` are from names"]
    stated: Annotated[bool, "True if a memory states it, False if names only occur in the same memory"]
    count: Annotated[int, "Number of memories it is from"]
    item: Annotated[str, "Id of the newest of them"]
    memory: Annotated[str, "Text of the newest of them"]
    at: Annotated[datetime, "When it was said"]
    standing: Annotated[Standing, "Whether that memory still holds"] = Standing.CURRENT
    replaced_by: Annotated[str | None, "Id of the memory that replaced it"] = None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """An entity, its edges, and the entities at their other ends."""

    entity: Annotated[Entity, "The entity"]
    edges: Annotated[tuple[Edge, ...], "Its edges, stated relations first"]
    neighbours: Annotated[tuple[Entity, ...], "The entities at the other ends"]
    complete: Annotated[bool, "False if only its newest memories were read, or there are more edges than asked for"]


@dataclass(frozen=True, slots=True)
class GraphView:
    """The entities with the most memories, and the edges between them."""

    entities: Annotated[tuple[Entity, ...], "The entities, those with the most memories first"]
    edges: Annotated[tuple[Edge, ...], "Edges between them, stated relations first"]
    complete: Annotated[bool, "False if there are more entities or edges, or only the newest memories were read"]


@dataclass(frozen=True, slots=True)
class EntityPage:
    """A page of entities."""

    entities: Annotated[tuple[Entity, ...], "The entities, those with the most memories first"]
    after: Annotated[str | None, "Give it as `after` for the next page; null at the end"] = None
