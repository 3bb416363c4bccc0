"""Health: the doctor, `verify`, the settings in effect with their origin, and the slowest calls."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View, nothing

_MOST_CUBES = 100
_SHOWN_DIFFERENCES = 100
_ORDER = {"bad": 0, "doubtful": 1, "good": 2, "missing": 3}
STATES = {
    "good": ("fine", "good"),
    "missing": ("not needed", ""),
    "doubtful": ("look at it", "warn"),
    "bad": ("wrong", "bad"),
}
ORIGINS = {"environment": "environment", "file": "file", "argument": "argument or program", "default": "default"}


def _may_look(view: View) -> bool:
    return view.administers


async def health(view: View) -> Response:
    return view.render("health.html", **await _page(view), reports=[], chosen=view.cube)


async def _page(view: View) -> dict[str, Any]:
    admin = _may_look(view)
    slow, settings = await asyncio.gather(view.rest.get("/slow-calls"), _settings(view) if admin else nothing())
    return {
        "admin": admin,
        "slow": slow,
        "slowest": max((call["seconds"] for call in slow), default=0),
        "given": [each for each in settings if each["origin"] != "default"],
        "defaults": [each for each in settings if each["origin"] == "default"],
        "origins": ORIGINS,
    }


async def _settings(view: View) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await view.rest.get("/settings")
    return found


async def doctor(view: View) -> Response:
    found = await view.rest.get("/doctor")
    wrong = sum(finding["state"] in ("bad", "doubtful") for finding in found)
    block = "findings" if view.partial else None
    return view.render("health_doctor.html", block=block, found=_grouped(found), wrong=wrong, states=STATES)


def _grouped(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return findings by urgency; those of one thing in one state are one."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for finding in sorted(found, key=lambda each: _ORDER[each["state"]]):
        grouped.setdefault((finding["state"], finding["what"]), []).append(finding["told"])
    return [{"state": state, "what": what, "told": "; ".join(told)} for (state, what), told in grouped.items()]


async def verify(view: View) -> Response:
    """Verify one cube, or every readable one, without a script; with scripts health.js does it cube by cube."""
    chosen, repair = await view.field("scope"), await view.field("repair") == "yes"
    cubes = [chosen] if chosen else [each["id"] for each in view.cubes][:_MOST_CUBES]
    reports = []
    for cube in cubes:
        try:
            report = await view.rest.post(f"/cubes/{part(cube)}/verify", {"repair": repair})
            shown = report["differences"][:_SHOWN_DIFFERENCES]
            count = len(report["differences"])
            reports.append({"cube": cube, **report, "differences": shown, "count": count, "error": ""})
        except RestError as error:
            reports.append({"cube": cube, "error": error.message})
    return view.render("health.html", **await _page(view), reports=reports, chosen=chosen)


PAGES = (
    Page("/health", health),
    Page("/health/doctor", doctor),
    Page("/health/verify", verify, "POST"),
)
