"""Routes of `/graph` and `/timeline`: people and things, names that are the same, and what held when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import CubeBody, CurrentTarget, Limit, moment, target_of, value_router
from memos.core.graph import Alias, Entity, EntityPage, GraphView, Neighbours
from memos.core.timeline import Day, Life, TimeDiff, TimeSpan

router = value_router("graph", prefix="/graph")
timeline_router = value_router("timeline", prefix="/timeline")

Name = Annotated[str, Query(description="Name of a person or thing, in any capitals")]
Kind = Annotated[str, Query(description="`person` or `thing`; default: both")]
Least = Annotated[int, Query(description="Memories that a name needs which is only mentioned")]
After = Annotated[str | None, Query(description="The `after` of the page before")]
AliasId = Annotated[str, Path(description="Id of a merge")]
Chosen = Annotated[
    str, Query(description="`statements` (what people said, and facts), `values` (with a value) or `all`")
]
About = Annotated[str | None, Query(description="Only memories that name this person or thing")]
_MOMENT = "a day, which counts to its end, or a time: ISO 8601, or milliseconds since 1970"


class MergeBody(CubeBody):
    """Two names that are the same."""

    name: str = Field(description="Name to show under the other, with the names merged into it")
    into: str = Field(description="Name to show it under")


@router.get("")
def view(
    memos: CurrentMemos, target: CurrentTarget, kind: Kind = "", least: Least = 1, limit: Limit = 200
) -> GraphView:
    """Return the people and things with the most memories, at most 2,000, and the relations between them."""
    return memos.graph.view(**target, kind=kind, least=least, limit=limit)


@router.get("/entities")
def entities(
    memos: CurrentMemos,
    target: CurrentTarget,
    text: Annotated[str, Query(description="Part of the name")] = "",
    kind: Kind = "",
    least: Least = 1,
    limit: Limit = 100,
    after: After = None,
) -> EntityPage:
    """Return people and things, those with the most memories first, at most 2,000 a page."""
    return memos.graph.entities(**target, text=text, kind=kind, least=least, limit=limit, after=after)


@router.get("/entity")
def entity(memos: CurrentMemos, target: CurrentTarget, name: Name) -> Entity:
    """Return one person or thing, also by a name merged into it."""
    return memos.graph.entity(name, **target)


@router.get("/neighbours")
def neighbours(memos: CurrentMemos, target: CurrentTarget, name: Name, limit: Limit = 50) -> Neighbours:
    """Return the relations of a person or thing, at most 500, each with the newest memory it is from."""
    return memos.graph.neighbours(name, **target, limit=limit)


@router.get("/aliases")
def aliases(memos: CurrentMemos, target: CurrentTarget) -> Sequence[Alias]:
    """Return the names that were merged."""
    return memos.graph.aliases(**target)


@router.post("/aliases")
def merge(body: MergeBody, memos: CurrentMemos, caller: CurrentCaller) -> Alias:
    """Show a name under another. Memories and searches stay as they are; the answer's id splits them again."""
    return memos.graph.merge(body.name, body.into, **target_of(memos, caller, body))


@router.delete("/aliases/{alias}")
def split(alias: AliasId, memos: CurrentMemos, target: CurrentTarget) -> Alias:
    """Take a merge back."""
    return memos.graph.split(alias, **target)


@timeline_router.get("/span")
def span(memos: CurrentMemos, target: CurrentTarget) -> TimeSpan:
    """Return when the first and the last memory was told, and how much in each part of that time."""
    return memos.timeline.span(**target)


@timeline_router.get("/day")
def day(
    memos: CurrentMemos,
    target: CurrentTarget,
    at: Annotated[str | None, Query(description=f"{_MOMENT}; default: now")] = None,
    stored: Annotated[bool, Query(description="What was stored then, as it was then, whatever is known now")] = False,
    kind: Chosen = "statements",
    about: About = None,
    limit: Limit = 50,
    after: After = None,
) -> Day:
    """Return what held on a day, told last first, at most 1,000 memories a page."""
    return memos.timeline.day(moment(at), **target, stored=stored, kind=kind, about=about, limit=limit, after=after)


@timeline_router.get("/difference")
def difference(
    memos: CurrentMemos,
    target: CurrentTarget,
    since: Annotated[str, Query(description=f"First time: {_MOMENT}")],
    until: Annotated[str | None, Query(description="Second time; default: now")] = None,
    kind: Chosen = "statements",
    about: About = None,
    limit: Limit = 100,
) -> TimeDiff:
    """Return what was added, replaced and ended between two times, at most 1,000 of each."""
    return memos.timeline.difference(moment(since), moment(until), **target, kind=kind, about=about, limit=limit)


@timeline_router.get("/life")
def life(memos: CurrentMemos, target: CurrentTarget, name: Name, limit: Limit = 100) -> Life:
    """Return a person, a thing or a property such as `residence` over time: values, and memories that name it."""
    return memos.timeline.life(name, **target, limit=limit)
