"""Ask: a question, the hits with their sources and the reasons of their scores, why not, and the prompt text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from starlette.responses import Response

from memos.api.console.pages import ask_changes
from memos.api.console.pages.asking import ALL_OF_IT, FIELDS, OPERATORS, Asked, Row, as_curl, as_python
from memos.api.console.rest import RestError, memories_of, part
from memos.api.console.view import Page, View, nothing
from memos.core.types import RELEVANT

ARMS = {
    "turn": "Its meaning is near",
    "window": "Near with what was said around it",
    "turn_bm25": "It shares words",
    "window_bm25": "Words in it or around it",
    "unindexed": "Its meaning is near (just added)",
    "unindexed_terms": "It shares words (just added)",
    "dated": "It is of the time that is asked about",
    "graph": "It is linked to a good candidate",
    "named": "Near without the names",
    "standing": "A lasting like, dislike or instruction",
    "of_self": "Told about oneself",
    "rerank": "The reranker's vote",
}
BOOSTS = {
    "session": "Others of its session were found",
    "next": "The message after it was found",
    "previous": "The message before it was found",
    "answers": "It follows a question",
    "speaker": "The question names who said it",
    "timed": "It has a known time",
    "phrase": "It has a quoted phrase",
    "called": "A tool call with its result",
    "preference": "A preference, and advice is asked",
    "newest": "The latest is asked for",
    "oldest": "The first is asked for",
    "successor": "It replaced another candidate",
    "succession": "It goes before what it replaced, or after what replaced it",
    "asking": "It is a question itself",
    "assistant": "The assistant said it",
    "tells_nothing": "It says little",
    "outdated": "It was replaced",
    "cold": "Its topic was archived",
    "spread": "Better ones of its session exist",
}
STAGES = {
    "cube": "It is in another cube",
    "ledger": "It is deleted",
    "filter": "The filter leaves it out",
    "index": "It is not in the index yet",
    "recall": "No way of searching found it",
    "duplicate": "Another memory says the same",
    "rank": "It ranks too low",
    "relevance": "It is not relevant enough",
    "budget": "It does not fit into the token budget",
    "found": "It is found",
}
_CANDIDATES = 3  # memories that words may mean, when one asks why they were not found
_AROUND = 3


class Part(NamedTuple):
    """A part of a score: `share` is its length beside the largest part of the search."""

    label: str
    name: str
    gave: float
    share: float
    note: str


def parts_of(scored: Mapping[str, Any], largest: float) -> list[Part]:
    """Return the parts of a score by arm and boost, the largest first."""
    told = [
        Part(ARMS.get(arm["arm"], arm["arm"]), arm["arm"], arm["gave"], 0, f"place {arm['rank']} there")
        for arm in scored["arms"]
    ]
    told += [
        Part(BOOSTS.get(boost["name"], boost["name"]), boost["name"], boost["gave"], 0, "")
        for boost in scored["boosts"]
    ]
    told.sort(key=lambda each: -abs(each.gave))
    return [each._replace(share=abs(each.gave) / largest if largest else 0) for each in told]


def _largest(scored: Iterable[Mapping[str, Any]]) -> float:
    return max((abs(each["gave"]) for hit in scored for each in (*hit["arms"], *hit["boosts"])), default=0)


async def ask(view: View) -> Response:
    asked = Asked.of(view)
    wanted = view.query("part")
    values: dict[str, Any] = {"asked": asked, "fields": FIELDS, "operators": OPERATORS}
    if wanted == "condition" and view.partial:
        return view.render("ask.html", block="filter", rows=[*asked.rows, Row(), Row()], **values)
    comparing = bool(view.query("compare"))
    other = Asked.of(view, "b_")
    extra = {"compare": "1", **other.given} if comparing else {}
    address = {"q": asked.question, **asked.given, **extra}
    why = view.query("why").strip()
    values |= {
        "rows": [*asked.rows, Row()],
        "other": other,
        "comparing": comparing,
        "address": address,
        "why": why,
        "outcome": None,
        "answers": None,
        "compared": None,
        "problem": "",
    }
    if asked.question:
        # The reason why not takes a while: scripts ask for it after the page is there.
        values |= await _answer(
            view,
            asked,
            other if comparing else None,
            why if wanted == "why" else "",
            only_why=wanted == "why" and view.partial,
        )
    if not view.partial:
        return view.render("ask.html", **values)
    template, block = ("_ask_more.html", "why") if wanted == "why" else ("ask.html", "results")
    response = view.render(template, block=block, **values)
    target = view.url("/ask", **address, why=why if wanted == "why" else "")
    if not view.request.headers.get("hx-current-url", "").endswith(target):
        response.headers["HX-Push-Url"] = target
    return response


async def _answer(view: View, asked: Asked, other: Asked | None, why: str, *, only_why: bool) -> dict[str, Any]:
    """Return what the page says to a question; what cannot be searched is told in its place."""
    try:
        for each in (asked, other):
            if each is not None and each.problem:
                return {"problem": each.problem}
        body = asked.body(view.cube)
        if only_why:
            return {"answers": await _why_not(view, body, why) if why else None}
        if other is not None:
            one, two = await asyncio.gather(_search(view, body), _search(view, other.body(view.cube)))
            return {"compared": _compared(one, two)}
        found, answers = await asyncio.gather(_search(view, body), _why_not(view, body, why) if why else nothing())
    except ValueError as error:
        return {"problem": f"That is not a number: {error}."}
    except RestError as error:
        if error.status != 400:
            raise
        return {"problem": error.message}
    return {"outcome": await _outcome(view, found, body), "answers": answers if why else None}


async def _search(view: View, body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = await view.rest.post("/search", {"token_budget": ALL_OF_IT, **body, "explain": True})
    return found


async def _outcome(view: View, found: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    hits = found["hits"]
    largest = _largest(hits)
    known = {hit["item"]["id"]: hit["item"] for hit in hits}
    missing = {hit["replaced_by"] for hit in hits if hit["replaced_by"]} - known.keys()
    known |= {item["id"]: item for item in await memories_of(view.rest, view.cube, missing)}
    for hit in hits:
        hit["parts"] = parts_of(hit, largest)
        hit["successor"] = known.get(hit["replaced_by"])
    url = str(view.request.base_url).removesuffix("/").removesuffix(view.root)
    return {
        "hits": hits,
        "context": found["context"],
        "tokens": found["context_tokens"],
        "missing": found["missing_arms"],
        "ms": sum(found["timings_ms"].values()),
        "doubtful": bool(hits) and max(hit["relevance"] for hit in hits) < RELEVANT,
        "curl": as_curl(url, body),
        "python": as_python(url, body),
    }


def _compared(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    """Return two results side by side, with the place that each hit has in the other."""
    places = [{hit["item"]["id"]: place for place, hit in enumerate(each["hits"], 1)} for each in (one, two)]
    for each, others in ((one, places[1]), (two, places[0])):
        for hit in each["hits"]:
            hit["elsewhere"] = others.get(hit["item"]["id"])
    return {
        "pairs": list(zip_longest(one["hits"], two["hits"])),
        "results": [one, two],
        "same": len(places[0].keys() & places[1].keys()),
        "ms": [sum(each["timings_ms"].values()) for each in (one, two)],
    }


async def _why_not(view: View, body: Mapping[str, Any], text: str) -> list[dict[str, Any]]:
    """Return what became of the memory with an id or of the one that words mean, and others that they may mean."""
    if " " not in text:
        with_id = await _why_not_one(view, body, text)
        if with_id is not None:
            return [with_id]
    everything = {"status": {"in": ["active", "superseded", "archived"]}}
    given = {name: body[name] for name in ("cubes", "as_of") if name in body}
    meant = await view.rest.post("/search", {"query": text, "top_k": _CANDIDATES, "filter": everything, **given})
    items = [hit["item"] for hit in meant["hits"]]
    first = await _why_not_one(view, body, items[0]["id"]) if items else None
    return [] if first is None else [first, *({"item": item, "stage": ""} for item in items[1:])]


async def _why_not_one(view: View, body: Mapping[str, Any], item: str) -> dict[str, Any] | None:
    try:
        told = await view.rest.post("/search/why-not", {**body, "item": item})
    except RestError as error:
        if error.status == 404 or error.field == "item":
            return None
        raise
    memory = await memories_of(view.rest, view.cube, [item])
    told["reason"] = told["reason"].removeprefix("it is found, ")
    return {
        **told,
        "item": memory[0] if memory else None,
        "stage_told": STAGES.get(told["stage"], told["stage"]),
        "parts": parts_of(told, _largest([told])),
    }


async def around(view: View) -> Response:
    """Show what was said around the sources of a memory, with the passages marked."""
    item = view.query("item")
    passages = await view.rest.get(f"/memories/{part(item)}/passages", around=_AROUND)
    return view.render("ask_around.html", block="said" if view.partial else None, passages=passages)


PAGES = (Page("/ask", ask), Page("/ask/around", around), *ask_changes.PAGES)
