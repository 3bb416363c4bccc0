"""The first page: how much is remembered and what goes on, and on the first run what to do first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import RestError, memories_of, part
from memos.api.console.view import Page, View

_CHANGES = 10
_MINUTES, _STEP = 60, 2
# Kinds of events about where memories are kept rather than what they say.
_UPKEEP = {"access", "analyse", "move"}


async def start(view: View) -> Response:
    if (named := view.query("cube")) and named not in {each["id"] for each in view.cubes} | {_home(view)}:
        raise RestError(404, "not_found", f"There is no cube {named!r} that you may read.")
    overview = activity = None
    changes: list[dict[str, Any]] = []
    waiting, most = 0, 0
    if view.cube in {each["id"] for each in view.cubes}:
        overview, counts, activity = await asyncio.gather(
            view.rest.get("/overview", cube=view.cube), view.rest.get("/review/counts", cube=view.cube), _activity(view)
        )
        waiting = counts["pending"] + counts["relations"]
        most = counts["most"]
        changes = await _changes(view, overview["cubes"][0]["events"])
    figures = overview["cubes"][0] if overview else None
    return view.render(
        "start.html",
        figures=figures,
        overview=overview,
        activity=activity,
        waiting=waiting,
        most=most,
        changes=changes,
    )


async def add(view: View) -> Response:
    """Store what was typed, and show it on the page of latest changes."""
    text = (await view.field("text")).strip()
    if not text:
        return view.redirect("/")
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    if view.cube:
        body["cube"] = view.cube
    receipt = await view.rest.post("/memories", body)
    first = await view.rest.get(f"/memories/{part(receipt['item_ids'][0])}")
    return view.redirect("/", cube=first["cube"], added=len(receipt["item_ids"]))


def _home(view: View) -> str:
    return view.me["identity"]["home"] or ""


async def _activity(view: View) -> dict[str, Any] | None:
    """Return the calls of the last hour by operation, None for those who may not know."""
    try:
        points = await view.rest.get("/activity", minutes=_MINUTES, step=_STEP)
    except RestError:
        return None
    told = {}
    for operation in ("add", "search"):
        mine = [each for each in points if each["operation"] == operation]
        told[operation] = {
            "calls": sum(each["calls"] for each in mine),
            "failed": sum(each["failed"] for each in mine),
            "points": [(f"{each['at'][11:16]} UTC", each["calls"]) for each in mine],
            "p50": _typical(mine, "p50_ms"),
            "p95": max((each["p95_ms"] for each in mine if each["p95_ms"] is not None), default=None),
        }
    return told


def _typical(points: Sequence[dict[str, Any]], name: str) -> float | None:
    known = [(each[name], each["calls"]) for each in points if each[name] is not None]
    calls = sum(count for _, count in known)
    return sum(value * count for value, count in known) / calls if calls else None


async def _changes(view: View, newest: int) -> list[dict[str, Any]]:
    """Return the latest events about memories, newest first, each with its memory if that is still there."""
    after = max(0, newest - 8 * _CHANGES)
    events = await view.rest.get("/events", cube=view.cube, after=after, limit=8 * _CHANGES)
    told: list[dict[str, Any]] = []
    for event in reversed(events):
        named = event["body"].get("items") if isinstance(event["body"], dict) else None
        ids = [event["item"]] if event["item"] else named if isinstance(named, list) else []
        if event["kind"] not in _UPKEEP:
            told += [{**event, "item": id_} for id_ in ids]
    told = told[:_CHANGES]
    there = await memories_of(view.rest, view.cube, [each["item"] for each in told], deleted=True)
    found = {item["id"]: item for item in there}
    return [{**event, "memory": found.get(event["item"])} for event in told]


PAGES = (Page("/", start), Page("/add", add, "POST"))
