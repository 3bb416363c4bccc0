"""Memories: a table to filter, sort and page through."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from memos.api.console.pages import memories_bulk, memory
from memos.api.console.pages.memories_bulk import ACTIONS
from memos.api.console.pages.memory_filters import FACETS, SORTS, Wanted
from memos.api.console.rest import with_standings
from memos.api.console.view import Page, View

_PAGE = 50


async def table(view: View) -> Response:
    wanted = Wanted.of(view.request.query_params)
    after = view.query("after")
    items = await view.rest.get(
        "/memories", cube=view.cube, filter=wanted.filter(), sort=wanted.sort, limit=_PAGE + 1, after=after
    )
    more = view.url("/memories", **wanted.address, after=items[_PAGE - 1]["id"]) if len(items) > _PAGE else ""
    items = await with_standings(view.rest, view.cube, items[:_PAGE])
    block = None if not view.partial else "rows" if after else "results"
    response = view.render(
        "memories.html",
        block=block,
        wanted=wanted,
        items=items,
        more=more,
        chips=wanted.chips(view),
        sorts=SORTS,
        actions=_actions(view),
        after=after,
    )
    if block == "results":
        response.headers["HX-Push-Url"] = view.url("/memories", **wanted.address)
    return response


def _actions(view: View) -> dict[str, str]:
    return ACTIONS if "write" in view.rights else {"export": ACTIONS["export"]}


async def facets(view: View) -> Response:
    """Return the filters with their counts: of each property the counts that it would have without its own filter."""
    wanted = Wanted.of(view.request.query_params)
    together = [name for name in FACETS if name not in wanted.chosen]

    async def counted(without: str, names: list[str]) -> dict[str, Any]:
        text = wanted.filter(without=without)
        found = await view.rest.get("/memories/facets", cube=view.cube, filter=text, by=names, limit=12)
        return dict(found)

    whole, *others = await asyncio.gather(counted("", together), *(counted(name, [name]) for name in wanted.chosen))
    found = {facet["name"]: facet for told in (whole, *others) for facet in told["facets"]}
    for name, values in wanted.chosen.items():  # what is chosen is shown even if it is not among the most frequent
        known = {each["value"] for each in found[name]["values"]}
        found[name]["values"] += [{"value": value, "count": None} for value in values if value not in known]
    shown = [(name, FACETS[name], found[name]) for name in FACETS]
    block = "filters" if view.partial else None
    return view.render("memories_facets.html", block=block, wanted=wanted, facets=shown, whole=whole)


PAGES = (
    Page("/memories", table),
    Page("/memories/facets", facets),
    *memories_bulk.PAGES,
    *memory.PAGES,
)
