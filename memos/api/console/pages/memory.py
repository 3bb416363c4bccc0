"""The page of a memory: sources, versions, relations and use."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from starlette.responses import Response

from memos.api.console.comparing import Piece, word_diff
from memos.api.console.rest import RestError, memories_of, part, with_standings
from memos.api.console.view import Page, View, word

_REPLACED = re.compile(r"superseded by ([0-9a-f-]{36})")
_ERASED = re.compile(r"It was erased \(receipt ([0-9a-f-]{36})\)")
_MOST_LINKED = 100
_MOST_VERSIONS = 50

_LINKS = {
    # kind: (what the memory does to the other one, what the other one does to it)
    "UPDATES": ("Replaces", "Replaced by"),
    "SUPERSEDES": ("Replaces", "Replaced by"),
    "ENDS": ("Ends", "Ended by"),
    "SAME": ("Says the same as", "Said again by"),
    "EXTENDS": ("Adds to", "Added to by"),
    "RELATES": ("Is about", "Commented on by"),
    "DERIVED_FROM": ("Made from", "Made into"),
}
_FIELDS = {
    "type": "type",
    "status": "status",
    "tags": "tags",
    "key": "key",
    "value": "value",
    "confidence": "confidence",
    "tier": "tier",
    "valid_from": "valid from",
    "valid_to": "valid until",
    "info": "metadata",
}


class Step(NamedTuple):
    """A version as the history shows it: how its text differs from the one before, and which fields do.

    `successor` is the memory that its reason names.
    """

    version: Mapping[str, Any]
    diff: list[Piece]
    changed: list[tuple[str, str, str]]
    successor: str


class Linked(NamedTuple):
    """A link to another memory, in words."""

    label: str
    link: Mapping[str, Any]
    item: Mapping[str, Any]


def _steps(history: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return the versions, newest first."""
    found = []
    for version in history:
        before, after = version["before"], version["after"]
        changed = [] if before is None else _changed(before, after)
        texts = () if before is None else (before["memory"], after["memory"])
        diff = word_diff(*texts) if texts and texts[0] != texts[1] else []
        named = _REPLACED.fullmatch(version["reason"])
        found.append(Step(version, diff, changed, named[1] if named else ""))
    return found[::-1]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (label, _told(name, before[name]), _told(name, after[name]))
        for name, label in _FIELDS.items()
        if before[name] != after[name]
    ]


def _told(name: str, value: Any) -> str:
    if value in (None, [], {}, ""):
        return "none"
    if name in ("valid_from", "valid_to"):
        return f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M}"
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return word(value) if name in ("type", "status") else value
    return f"{value:g}"


def _path(view: View) -> tuple[str, str]:
    id_ = view.request.path_params["item"]
    return id_, f"/memories/{part(id_)}"


async def show(view: View) -> Response:
    """Show a memory; of one that was erased, the receipt."""
    try:
        return await _page(view)
    except RestError as error:
        if erased := _ERASED.search(error.message):
            return view.redirect(f"/erasures/{part(erased[1])}")
        raise


async def _page(view: View, *, conflict: Mapping[str, Any] | None = None, problem: str = "") -> Response:
    """Return the page of a memory; with the text that could not be saved, if somebody else changed it meanwhile."""
    id_, path = _path(view)
    history, passages, links, events, places = await asyncio.gather(
        view.rest.get(f"{path}/history"),
        view.rest.get(f"{path}/passages"),
        view.rest.get(f"{path}/links", limit=_MOST_LINKED),
        view.rest.get(f"{path}/events", limit=50),
        view.rest.get(f"{path}/places"),
    )
    view.cube = history[-1]["after"]["cube"]
    [item] = await with_standings(view.rest, view.cube, [history[-1]["after"]])
    others = [link["to_id"] if link["from_id"] == id_ else link["from_id"] for link in links]
    successor = [item["replaced_by"]] if item["replaced_by"] else []
    found = {each["id"]: each for each in await memories_of(view.rest, view.cube, [*others, *successor], deleted=True)}
    linked = [
        Linked(_LINKS[link["kind"]][0 if link["from_id"] == id_ else 1], link, found[other])
        for link, other in zip(links, others, strict=True)
        if other in found and link["confidence"] != 0
    ]
    values = {
        "item": item,
        "steps": _steps(history[-_MOST_VERSIONS:]),
        "older": max(0, len(history) - _MOST_VERSIONS),
        "passages": passages,
        "linked": _grouped(linked),
        "successor": found.get(item["replaced_by"] or ""),
        "events": events,
        "places": places,
        "conflict": conflict,
        "problem": problem,
        "done": _DONE.get(view.query("done"), ""),
        "writes": "write" in view.rights,
        "curve": [(f"{point['at'][:10]}", round(point["heat"], 3)) for point in places["curve"]],
    }
    if conflict is not None:
        values["difference"] = word_diff(item["memory"], conflict["memory"])
    return view.render("memory.html", status=409 if conflict else 400 if problem else 200, **values)


def _grouped(linked: Sequence[Linked]) -> list[tuple[str, list[Linked]]]:
    """Return links by what they say; of several to one memory that say the same, the first."""
    groups: dict[str, dict[str, Linked]] = {}
    for each in linked:
        groups.setdefault(each.label, {}).setdefault(each.item["id"], each)
    order = [label for pair in _LINKS.values() for label in pair]
    return [(label, list(groups[label].values())) for label in sorted(groups, key=order.index)]


_DONE = {
    "saved": "Saved as a new version. To undo it, restore the version before in the history below.",
    "restored": "Restored as a new version.",
    "forgotten": "Forgotten: searches do not find it any more. “Restore” undoes it.",
    "pinned": "Pinned: prompts begin with it.",
    "unpinned": "Unpinned.",
    "confirmed": "Noted that it is right; it is now as hot as after five searches.",
}


async def edit(view: View) -> Response:
    """Save a new version of a memory, unless somebody changed it since the form was shown."""
    form = await view.form()
    id_, path = _path(view)
    text = str(form.get("memory", "")).replace("\r\n", "\n")
    tags = [tag.strip() for tag in str(form.get("tags", "")).split(",") if tag.strip()]
    expected = str(form.get("expected_version", ""))
    before = (await view.rest.get(f"{path}/history"))[-1]["after"]
    body: dict[str, Any] = {"expected_version": int(expected) if expected.isdecimal() else before["version"]}
    if text != before["memory"].replace("\r\n", "\n"):
        body["memory"] = text
    if tags != before["tags"]:
        body["tags"] = tags
    if reason := str(form.get("reason", "")).strip():
        body["reason"] = reason
    if not body.keys() & {"memory", "tags"} and body["expected_version"] == before["version"]:
        return await _page(view, problem="Nothing was changed: the text and the tags are as they were.")
    try:
        if body["expected_version"] != before["version"]:
            raise RestError(409, "conflict", f"It is at version {before['version']} now.")
        await view.rest.patch(path, body)
    except RestError as error:
        if error.status == 409:
            kept = {"memory": text, "tags": ", ".join(tags), "reason": reason, "version": body["expected_version"]}
            return await _page(view, conflict=kept)
        if error.status == 400:
            return await _page(view, problem=error.message)
        raise
    return view.redirect(f"/memories/{part(id_)}", done="saved")


async def restore(view: View) -> Response:
    """Write a new version equal to an old one; without one, to the version before."""
    form = await view.form()
    id_, path = _path(view)
    body = {
        name: int(str(form[name])) for name in ("to_version", "expected_version") if str(form.get(name)).isdecimal()
    }
    await view.rest.post(f"{path}/rollback", body)
    return view.redirect(f"/memories/{part(id_)}", done="restored")


async def forget(view: View) -> Response:
    id_, path = _path(view)
    await view.rest.delete(path, reason=await view.field("reason") or "forgotten in the console")
    return view.redirect(f"/memories/{part(id_)}", done="forgotten")


async def pin(view: View) -> Response:
    id_, path = _path(view)
    pinned = await view.field("pinned") == "1"
    send = view.rest.put if pinned else view.rest.delete
    await send(f"{path}/pin", cube=view.cube)
    return view.redirect(f"/memories/{part(id_)}", done="pinned" if pinned else "unpinned")


async def confirm(view: View) -> Response:
    id_, _ = _path(view)
    await view.rest.post("/memories/used", {"item_ids": [id_], "cube": view.cube, "confirmed": True})
    return view.redirect(f"/memories/{part(id_)}", done="confirmed")


PAGES = (
    Page("/memories/{item}", show),
    Page("/memories/{item}/edit", edit, "POST"),
    Page("/memories/{item}/restore", restore, "POST"),
    Page("/memories/{item}/forget", forget, "POST"),
    Page("/memories/{item}/pin", pin, "POST"),
    Page("/memories/{item}/confirm", confirm, "POST"),
)
