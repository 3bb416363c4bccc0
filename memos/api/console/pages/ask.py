"""Ask memory a question, and see why each hit is there."""

from __future__ import annotations

from starlette.responses import Response

from memos.api.console.view import Page, View


async def ask(view: View) -> Response:
    question = view.query("q").strip()
    result = None
    if question:
        result = await view.rest.post("/search", {"query": question, "cubes": [view.cube], "explain": True})
    return view.render("ask.html", block="results" if view.partial else None, question=question, result=result)


PAGES = (Page("/ask", ask),)
