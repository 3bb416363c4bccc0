"""Timeline: memories that held on a day, changes between two days, and the history of a person or a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from starlette.responses import Response

from memos.api.console.view import Page, View

_KINDS = {"statements": "What people said, and facts", "values": "Only what has a value", "all": "Everything"}
_ROWS = 50


async def day(view: View) -> Response:
    """Show one day; the slider gives it as `offset` in days, the field as a date."""
    chosen = _chosen(view)
    if view.partial and view.query("after"):
        found = await _day(view, view.query("at"), chosen, view.query("after"))
        return view.render(
            "timeline.html", block="rows", found=found, more=_more(view, view.query("at"), found, chosen)
        )
    span = await view.rest.get("/timeline/span", cube=view.cube)
    at = _at(view, span)
    if at is None:
        return view.render("timeline.html", span=span, at=None, chosen=chosen)
    values, found = await asyncio.gather(
        _day(view, at.isoformat(), {**chosen, "kind": "values"}), _day(view, at.isoformat(), chosen)
    )
    first, last = _ends(view, span)
    told = {
        "span": span,
        "at": at,
        "first": first,
        "last": last,
        "offset": (at - first).days,
        "bars": _bars(span),
        "chosen": chosen,
        "kinds": _KINDS,
        "values": _newest_values(values["memories"]),
        "found": found,
        "more": _more(view, at.isoformat(), found, chosen),
        "before": None if at <= first else _url(view, at - timedelta(days=1), chosen),
        "following": None if at >= last else _url(view, at + timedelta(days=1), chosen),
    }
    return view.render("timeline.html", block="day" if view.partial else None, **told)


async def difference(view: View) -> Response:
    """Show what changed between two days."""
    span = await view.rest.get("/timeline/span", cube=view.cube)
    if span["first"] is None:
        return view.render("timeline_difference.html", span=span)
    first, last = _ends(view, span)
    since, until = _date(view.query("since")) or first, _date(view.query("until")) or last
    if since > until:
        since, until = until, since
    chosen = _chosen(view)
    diff = await view.rest.get(
        "/timeline/difference",
        cube=view.cube,
        since=since.isoformat(),
        until=until.isoformat(),
        kind=chosen["kind"],
        about=chosen["about"],
        limit=_ROWS,
    )
    diff |= {"added": once(diff["added"])}
    told = {"span": span, "since": since, "until": until, "chosen": chosen, "kinds": _KINDS, "diff": diff}
    return view.render("timeline_difference.html", block="changes" if view.partial else None, **told)


async def life(view: View) -> Response:
    """Show a person, a thing or a property over time."""
    name = view.query("name").strip()
    people = view.rest.get("/graph/entities", cube=view.cube, kind="person", limit=30)
    if not name:
        return view.render("timeline_life.html", name="", life=None, known=(await people)["entities"])
    found, known = await asyncio.gather(view.rest.get("/timeline/life", cube=view.cube, name=name, limit=_ROWS), people)
    found |= {"lines": lines_of(found), "memories": once(found["memories"])}
    told = {"name": name, "life": found, "known": known["entities"]}
    return view.render("timeline_life.html", block="life" if view.partial else None, **told)


async def _day(view: View, at: str, chosen: dict[str, Any], after: str = "") -> Any:
    found = await view.rest.get("/timeline/day", cube=view.cube, at=at, limit=_ROWS, after=after, **chosen)
    return found | {"memories": once(found["memories"])}


def once(held: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return memories without those that repeat another one word for word: a fact and the message that it is of."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for each in held:
        item = each["item"]
        found.setdefault((each["at"], item["speaker"].casefold(), *item["memory"].casefold().split()), each)
    return list(found.values())


def _newest_values(held: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each value of a property once, as it was told last."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in held:
        if value := each["item"]["value"]:
            found.setdefault((each["item"]["key"].casefold(), value.casefold()), each)
    return list(found.values())


def _chosen(view: View) -> dict[str, Any]:
    kind = view.query("kind", "statements")
    return {
        "kind": kind if kind in _KINDS else "statements",
        "about": view.query("about").strip(),
        "stored": "true" if view.query("stored") == "true" else None,
    }


def _url(view: View, at: date | str, chosen: dict[str, Any], **others: str) -> str:
    kind = None if chosen["kind"] == "statements" else chosen["kind"]
    return view.url("/timeline", at=str(at), **{**chosen, "kind": kind}, **others)


def _more(view: View, at: str, found: Any, chosen: dict[str, Any]) -> str | None:
    return _url(view, at, chosen, after=found["after"]) if found["after"] else None


def _ends(view: View, span: Any) -> tuple[date, date]:
    """Return the first and the last day of a cube in its time zone, in which the API counts days too."""
    zone = ZoneInfo(next((each["time_zone"] for each in view.cubes if each["id"] == view.cube), "UTC"))
    first, last = (_day_of(datetime.fromisoformat(span[end]), zone) for end in ("first", "last"))
    return first, last


# A day more or less, in any time zone, is a date too.
_FIRST, _LAST = date.min + timedelta(days=3), date.max - timedelta(days=3)


def _day_of(at: datetime, zone: ZoneInfo) -> date:
    with suppress(OverflowError):  # in the first or the last year
        at = at.astimezone(zone)
    return min(max(at.date(), _FIRST), _LAST)


def _date(text: str) -> date | None:
    try:
        return min(max(date.fromisoformat(text), _FIRST), _LAST)
    except ValueError:
        return None


def _at(view: View, span: Any) -> date | None:
    """Return the day to show, by default the last one; None if the cube is empty."""
    if span["first"] is None:
        return None
    first, last = _ends(view, span)
    offset = view.query("offset")
    if offset.isascii() and offset.isdigit() and len(offset) < 7:
        return first + timedelta(days=min(int(offset), (last - first).days))
    return _date(view.query("at")) or last


def _bars(span: Any) -> list[tuple[str, float]]:
    """Return the steps of a time as a label and a height from 0 to 1, roots so that quiet times can be seen."""
    most = max((step["memories"] for step in span["steps"]), default=0) or 1
    return [(f"{step['at'][:10]}: {step['memories']:,}", (step["memories"] / most) ** 0.5) for step in span["steps"]]


def lines_of(life: Any) -> list[Any]:
    """Return the life lines of an answer with the parts of the bar of each."""
    return [line | {"bars": _track(line)} for line in life["lines"]]


def _track(line: Any) -> list[tuple[float, float, str]]:
    """Return the parts of a life line as begin and length in percent, with a label."""
    now = datetime.now(UTC)
    begins = [datetime.fromisoformat(entry["since"]) for entry in line["entries"]]
    first = min(begins)
    whole = max((now - first).total_seconds(), 1.0)
    parts = []
    for entry, begin in zip(line["entries"], begins, strict=True):
        end = datetime.fromisoformat(entry["until"]) if entry["until"] else now
        left = 100 * (begin - first).total_seconds() / whole
        length = max(100 * (min(end, now) - begin).total_seconds() / whole, 0.5)
        parts.append((round(left, 2), round(min(length, 100 - left), 2), entry["value"]))
    return parts


PAGES = (
    Page("/timeline", day),
    Page("/timeline/difference", difference),
    Page("/timeline/life", life),
)
