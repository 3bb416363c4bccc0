"""Requests of `/api/v1` about people and things and about other days, as in `MemOS.graph` and `MemOS.timeline`."""

from __future__ import annotations

from memos.api.client import values
from memos.api.client.calls import Call, as_model
from memos.api.client.v1_requests import Moment, as_list, changing, getting, path_of
from memos.core.types import Json


def view(
    *, cube: str | None = None, user: str | None = None, kind: str = "", least: int = 1, limit: int = 200
) -> Call[values.GraphView]:
    """Return the people and things with the most memories, and their relations. Raises: InvalidInput, NotFound."""
    query: dict[str, Json] = {"cube": cube, "user": user, "kind": kind, "least": least, "limit": limit}
    return getting(path_of("graph"), as_model(values.GraphView), query)


def entities(
    *,
    cube: str | None = None,
    user: str | None = None,
    text: str = "",
    kind: str = "",
    least: int = 1,
    limit: int = 100,
    after: str | None = None,
) -> Call[values.EntityPage]:
    """Return people and things whose name contains `text`, those with the most memories first.

    Raises: InvalidInput, NotFound.
    """
    query: dict[str, Json] = {"cube": cube, "user": user, "text": text, "kind": kind, "least": least}
    return getting(path_of("graph", "entities"), as_model(values.EntityPage), query | {"limit": limit, "after": after})


def entity(name: str, *, cube: str | None = None, user: str | None = None) -> Call[values.Entity]:
    """Return one person or thing, also by a name merged into it. Raises: NotFound."""
    return getting(path_of("graph", "entity"), as_model(values.Entity), {"name": name, "cube": cube, "user": user})


def neighbours(
    name: str, *, cube: str | None = None, user: str | None = None, limit: int = 50
) -> Call[values.Neighbours]:
    """Return the relations of a person or thing, each with the newest memory it is from. Raises: NotFound."""
    query: dict[str, Json] = {"name": name, "cube": cube, "user": user, "limit": limit}
    return getting(path_of("graph", "neighbours"), as_model(values.Neighbours), query)


def aliases(*, cube: str | None = None, user: str | None = None) -> Call[list[values.Alias]]:
    """Return the names that were merged. Raises: NotFound."""
    return getting(path_of("graph", "aliases"), as_list(values.Alias), {"cube": cube, "user": user})


def merge(name: str, into: str, *, cube: str | None = None, user: str | None = None) -> Call[values.Alias]:
    """Show a name under another; the id of the answer splits them again.

    Raises: NotFound, Conflict (they are the same already), PermissionDenied.
    """
    body: dict[str, Json] = {"name": name, "into": into, "cube": cube, "user": user}
    return changing("POST", path_of("graph", "aliases"), as_model(values.Alias), body=body)


def split(alias: str, *, cube: str | None = None, user: str | None = None) -> Call[values.Alias]:
    """Take a merge back, by its id. Raises: NotFound, PermissionDenied."""
    path = path_of("graph", "aliases", ("alias", alias))
    return changing("DELETE", path, as_model(values.Alias), query={"cube": cube, "user": user})


def span(*, cube: str | None = None, user: str | None = None) -> Call[values.TimeSpan]:
    """Return when the first and the last memory was told, and how much in each part of that time. Raises: NotFound."""
    return getting(path_of("timeline", "span"), as_model(values.TimeSpan), {"cube": cube, "user": user})


def day(
    at: Moment = None,
    *,
    cube: str | None = None,
    user: str | None = None,
    stored: bool = False,
    kind: str = "statements",
    about: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Call[values.Day]:
    """Return what held at a time, told last first; with `stored` what the cube contained then, as it was then.

    A day without a time counts to its end.
    Raises: InvalidInput, NotFound.
    """
    query: dict[str, Json] = {"at": at, "cube": cube, "user": user, "stored": stored, "kind": kind}
    query |= {"about": about, "limit": limit, "after": after}
    return getting(path_of("timeline", "day"), as_model(values.Day), query)


def difference(
    since: Moment,
    until: Moment = None,
    *,
    cube: str | None = None,
    user: str | None = None,
    kind: str = "statements",
    about: str | None = None,
    limit: int = 100,
) -> Call[values.TimeDiff]:
    """Return what was added, replaced and ended between two times, the last first; days count to their ends.

    Raises: InvalidInput, NotFound.
    """
    query: dict[str, Json] = {"since": since, "until": until, "cube": cube, "user": user}
    query |= {"kind": kind, "about": about, "limit": limit}
    return getting(path_of("timeline", "difference"), as_model(values.TimeDiff), query)


def life(name: str, *, cube: str | None = None, user: str | None = None, limit: int = 100) -> Call[values.Life]:
    """Return a person, a thing or a property such as `residence` over time. Raises: InvalidInput, NotFound."""
    query: dict[str, Json] = {"name": name, "cube": cube, "user": user, "limit": limit}
    return getting(path_of("timeline", "life"), as_model(values.Life), query)
