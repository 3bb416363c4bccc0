"""People and things: who and what memories name, what is known of them, and the graph of their relations."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from memos.api.console.pages.timeline import lines_of, once
from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View, environment

_ROWS = 60
_SIZES = (50, 200, 500, 1000, 2000)
_TABLE = 200
_PAGES = ("graph", "trait", "names", "merge", "split", "rollback")


async def people(view: View) -> Response:
    """List people and things, those with the most memories first."""
    chosen = {"text": view.query("q").strip(), "kind": _kind(view), "least": 1 if view.query("all") else 2}
    page = await view.rest.get("/graph/entities", cube=view.cube, limit=_ROWS, after=view.query("after"), **chosen)
    shown = {"q": chosen["text"], "kind": chosen["kind"], "all": view.query("all")}
    more = view.url("/people", after=page["after"], **shown) if page["after"] else None
    told = {"entities": page["entities"], "more": more, "shown": shown, "first": not view.query("after")}
    return view.render("people.html", block="names" if view.partial else None, **told)


async def person(view: View) -> Response:
    """Show what is known of one person or thing."""
    name = view.request.path_params["entity"]
    rest, cube = view.rest, view.cube
    found, life, aliases = await asyncio.gather(
        rest.get("/graph/neighbours", cube=cube, name=name, limit=100),
        rest.get("/timeline/life", cube=cube, name=name, limit=20),
        rest.get("/graph/aliases", cube=cube),
    )
    entity = found["entity"]
    profile = await rest.get("/profile", cube=cube, subject=entity["name"])
    return view.render(
        "person.html",
        entity=entity,
        edges=[_named(edge, found) for edge in found["edges"]],
        complete=found["complete"],
        life=life | {"lines": lines_of(life), "memories": once(life["memories"])},
        merged=[alias for alias in aliases if alias["root"] == entity["id"]],
        others=(),
        groups=profile["groups"],
    )


async def names(view: View) -> Response:
    """Show the most frequent names as suggestions for the one that is the same."""
    if not view.partial:
        return view.redirect("/people")
    found = await view.rest.get("/graph/entities", cube=view.cube, least=2, limit=100)
    others = [each["name"] for each in found["entities"] if each["id"] != view.query("but")]
    return view.render("person.html", block="names", others=others)


async def graph(view: View) -> Response:
    """Show relations as a graph to walk, and as a table."""
    name, kind = view.query("name").strip(), _kind(view)
    limit = int(view.query("limit")) if view.query("limit") in map(str, _SIZES) else 200
    problem = ""
    # Of a large cube it takes a while: scripts ask for it once the page is there, and make the table of it too.
    found: Any = None
    if name:
        try:
            around = await view.rest.get("/graph/neighbours", cube=view.cube, name=name, limit=min(limit, 500))
            found = {**around, "entities": [around["entity"], *around["neighbours"]]}
        except RestError as error:
            if error.status != 404:
                raise
            problem, found = error.message, {"entities": [], "edges": [], "complete": True}
    elif view.query("table"):
        found = await view.rest.get("/graph", cube=view.cube, kind=kind, least=2, limit=limit)
    told: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "limit": limit,
        "sizes": _SIZES,
        "problem": problem,
        "asked": found is None,
        "table": _TABLE,
    }
    found = found or {"entities": [], "edges": [], "complete": True}
    told |= {
        "number": len(found["entities"]),
        "edges": [_named(edge, found) for edge in found["edges"][:_TABLE]],
        "total": len(found["edges"]),
        "complete": found["complete"],
    }
    return view.render("people_graph.html", **told)


async def merge(view: View) -> Response:
    """Show a name under another."""
    name, into = await view.field("name"), await view.field("into")
    if await view.field("keep") == "other":
        name, into = into, name
    made = await view.rest.post("/graph/aliases", {"name": name, "into": into, "cube": view.cube})
    return view.redirect(entity_path(made["root"]), "Both names are shown as one, and searched together.")


async def split(view: View) -> Response:
    """Take a merge back."""
    gone = await view.rest.delete(f"/graph/aliases/{part(await view.field('alias'))}", cube=view.cube)
    return view.redirect(entity_path(await view.field("back") or gone["root"]), "They are two again.")


async def trait(view: View) -> Response:
    """Show everything that was written in one dimension of a profile."""
    subject, dimension = view.query("subject"), view.query("dimension")
    entries = await view.rest.get("/profile/history", cube=view.cube, subject=subject, dimension=dimension)
    told = {"subject": subject, "dimension": dimension, "entries": entries}
    return view.render("person_trait.html", block="entries" if view.partial else None, **told)


async def rollback(view: View) -> Response:
    """Bring an entry of a profile back."""
    subject, dimension = await view.field("subject"), await view.field("dimension")
    number = await view.field("version")
    body = {
        "cube": view.cube,
        "subject": subject,
        "dimension": dimension,
        "version": int(number) if number.isdecimal() and len(number) < 9 else 0,
    }
    await view.rest.post("/profile/rollback", body)
    return view.redirect(entity_path(subject), "That entry of the profile holds again.")


def entity_path(name: str) -> str:
    """Return the path of a person or thing; names are found in any capitals, and some are pages."""
    return f"/people/{quote(name.upper() if name in _PAGES else name, safe='')}"


def _kind(view: View) -> str:
    kind = view.query("kind")
    return kind if kind in ("person", "thing") else ""


def _named(edge: Any, found: Any) -> Any:
    """Return an edge with the names of its ends as they are written."""
    known = [
        *found.get("neighbours", ()),
        *found.get("entities", ()),
        *([found["entity"]] if "entity" in found else ()),
    ]
    names = found.setdefault("names", {each["id"]: each["name"] for each in known})
    ends = {end: names.get(edge[end], edge[end]) for end in ("source", "target")}
    return edge | {f"{end}_name": name for end, name in ends.items()}


environment().filters["entity_path"] = entity_path

PAGES = (
    Page("/people", people),
    Page("/people/graph", graph),
    Page("/people/trait", trait),
    Page("/people/names", names),
    Page("/people/merge", merge, "POST"),
    Page("/people/split", split, "POST"),
    Page("/people/rollback", rollback, "POST"),
    Page("/people/{entity:path}", person),
)
