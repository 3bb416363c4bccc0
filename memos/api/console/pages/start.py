"""The first page: how much is remembered, and what to do first."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from memos.api.console.view import Page, View


async def start(view: View) -> Response:
    if not view.cube or view.cube not in {each["id"] for each in view.cubes}:
        return view.render("start.html", overview=None, newest=[])
    overview, newest = await asyncio.gather(
        view.rest.get("/overview", cube=view.cube), view.rest.get("/memories", cube=view.cube, limit=8)
    )
    return view.render("start.html", overview=overview, newest=newest)


PAGES = (Page("/", start),)
