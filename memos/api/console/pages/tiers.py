"""Topics by heat, their memories, moves between tiers with reasons, and presets of heat on the cube's own history."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import part, with_standings
from memos.api.console.view import Page, View

_TOPICS = 25
_MOVES = 200
_SHOWN_MOVES = 8
_DAYS = 30
_STATES = ("open", "archived")


def topic_name(segment: dict[str, Any]) -> str:
    """Return a name for a topic: the first line of its summary, or its keywords."""
    line: str = segment["summary"].strip().partition("\n")[0]
    return line or ", ".join(segment["keywords"][:5]) or "A topic without words"


def _topic(segment: dict[str, Any], hottest: float) -> dict[str, Any]:
    rest = segment["summary"].strip().partition("\n")[2]
    return {**segment, "name": topic_name(segment), "rest": rest, "share": segment["heat"] / (hottest or 1)}


def _heat(text: str, default: float) -> float:
    """Return the heat that bars are compared with, as an address or a form has it."""
    try:
        return max(float(text), 0.0)
    except ValueError:
        return default


async def tiers(view: View) -> Response:
    state = view.query("state") if view.query("state") in _STATES else ""
    params: dict[str, Any] = {"cube": view.cube, "limit": _TOPICS, "state": state}
    if view.partial and view.query("after"):
        found = await view.rest.get("/segments", **params, after=view.query("after"))
        return view.render("tiers.html", block="rows", **_rows(view, found, state))
    if view.partial and "list" in view.request.query_params:
        found = await view.rest.get("/segments", **params)
        return view.render("tiers.html", block="topics", **_rows(view, found, state))
    if not view.cube:
        return view.render("tiers.html", stats=None)
    stats, found, moves = await asyncio.gather(
        view.rest.get(f"/cubes/{part(view.cube)}/stats"),
        view.rest.get("/segments", **params),
        view.rest.get("/moves", cube=view.cube, limit=_MOVES),
    )
    return view.render(
        "tiers.html",
        stats=stats["cubes"][0],
        moves=moves[:_SHOWN_MOVES],
        more=len(moves) > _SHOWN_MOVES,
        days=_by_day(moves),
        moved=any(move["direction"] != "aging" for move in moves),
        whole=len(moves) < _MOVES,
        **_rows(view, found, state),
    )


def _rows(view: View, found: list[dict[str, Any]], state: str) -> dict[str, Any]:
    hottest = _heat(view.query("hottest"), max((each["heat"] for each in found), default=0))
    more = ""
    if len(found) == _TOPICS:
        more = view.url("/tiers", state=state, after=found[-1]["id"], hottest=f"{hottest:.4f}")
    return {
        "topics": [_topic(each, hottest) for each in found],
        "hottest": hottest,
        "state": state,
        "more_topics": more,
        "empty_list": not found,
    }


def _by_day(moves: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the promotions and demotions of the last days that have any, oldest first."""
    if not moves:
        return []
    counts: Counter[tuple[str, str]] = Counter()
    for move in moves:
        counts[move["at"][:10], move["direction"]] += max(1, len(move["segments"]))
    last = datetime.fromisoformat(moves[0]["at"]).date()
    first = max(datetime.fromisoformat(moves[-1]["at"]).date(), last - timedelta(days=_DAYS - 1))
    days = [f"{first + timedelta(days=place):%F}" for place in range((last - first).days + 1)]
    most = max((counts[day, way] for day in days for way in ("promotion", "demotion")), default=0) or 1
    return [
        {
            "day": day,
            "promotions": counts[day, "promotion"],
            "demotions": counts[day, "demotion"],
            "up": round(28 * counts[day, "promotion"] / most, 1),
            "down": round(28 * counts[day, "demotion"] / most, 1),
        }
        for day in days
    ]


async def topic(view: View) -> Response:
    path, params = f"/segments/{part(view.query('id'))}", {"cube": view.cube, "limit": 50}
    if view.partial and view.query("after"):
        told = await view.rest.get(path, **params, after=view.query("after"))
        return view.render("tiers_topic.html", block="messages", **await _contents(view, told))
    return view.render("tiers_topic.html", **await _contents(view, await view.rest.get(path, **params)))


async def _contents(view: View, told: dict[str, Any]) -> dict[str, Any]:
    segment = told["segment"]
    messages, facts = await asyncio.gather(
        *(with_standings(view.rest, view.cube, told[part]) for part in ("messages", "facts"))
    )
    more = view.url("/tiers/topic", id=segment["id"], after=told["next"]) if told["next"] else ""
    return {
        "topic": _topic(segment, segment["heat"]),
        "messages": messages,
        "facts": facts,
        "more_messages": more,
    }


async def all_moves(view: View) -> Response:
    before = view.query("before")
    moves = await view.rest.get("/moves", cube=view.cube, limit=50, before=before if before.isdecimal() else None)
    more = view.url("/tiers/moves", before=moves[-1]["seq"]) if len(moves) == 50 else ""
    block = "rows" if view.partial and before else None
    return view.render("tiers_moves.html", block=block, moves=moves, more_moves=more, first=not before)


async def presets(view: View) -> Response:
    told, found = await asyncio.gather(
        view.rest.get("/heat-presets", cube=view.cube), view.rest.get("/segments", cube=view.cube, limit=100)
    )
    names = {each["id"]: topic_name(each) for each in found}
    by_preset = [{topic["segment"]: topic for topic in each["topics"]} for each in told["presets"]]
    rows = [
        {"id": id_, "name": names.get(id_, "A topic"), "cells": [each[id_] for each in by_preset]}
        for id_ in (by_preset[0] if by_preset else ())
    ]
    # What differs says most about presets.
    rows.sort(key=lambda row: len({cell["tier"] for cell in row["cells"]}) == 1)
    block = "comparison" if view.partial else None
    return view.render("tiers_presets.html", block=block, told=told, rows=rows)


async def _changed(view: View, segment: str, text: str) -> Response:
    if await view.field("back") == "topic":
        return view.redirect("/tiers/topic", text, id=segment)
    if not view.partial:
        return view.redirect("/tiers", text)
    told = await view.rest.get(f"/segments/{part(segment)}", cube=view.cube, limit=1)
    hottest = _heat(await view.field("hottest"), told["segment"]["heat"])
    response = view.render("tiers_row.html", topic=_topic(told["segment"], hottest), hottest=hottest)
    return view.announce(text, response)


async def move(view: View) -> Response:
    segment, tier = await view.field("id"), await view.field("tier")
    await view.rest.post(f"/segments/{part(segment)}/move", {"cube": view.cube, "tier": tier})
    told = {
        "long": "Its new exchanges are being read; what is found appears among its memories.",
        "archive": "Archived: it is found as before and ranked a tenth lower. “Bring back” undoes it.",
        "mid": "Brought back into use.",
    }
    return await _changed(view, segment, told.get(tier, "Moved."))


async def pin(view: View) -> Response:
    segment, pinned = await view.field("id"), await view.field("pinned") == "yes"
    path = f"/segments/{part(segment)}/pin"
    await (view.rest.put(path, cube=view.cube) if pinned else view.rest.delete(path, cube=view.cube))
    return await _changed(view, segment, "Pinned: it is never archived." if pinned else "Unpinned.")


PAGES = (
    Page("/tiers", tiers),
    Page("/tiers/topic", topic),
    Page("/tiers/moves", all_moves),
    Page("/tiers/presets", presets),
    Page("/tiers/move", move, "POST"),
    Page("/tiers/pin", pin, "POST"),
)
