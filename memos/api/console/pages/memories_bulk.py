"""Bulk actions on memories: a preview with an address, the change, and a page that says what was done and undoes it."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from starlette.responses import Response

from memos.api.console.pages.memory_filters import Wanted
from memos.api.console.rest import RestError, memories_of, part, with_standings
from memos.api.console.view import Page, View
from memos.core.types import Status

_MOST = 500
_SHOWN = 20

ACTIONS = {
    "forget": "Forget",
    "tag": "Add tags",
    "untag": "Remove tags",
    "pin": "Pin",
    "unpin": "Unpin",
    "erase": "Erase for good",
    "export": "Export as JSON",
}
# What undoes an action: an earlier version, or the opposite.
_UNDO = {"forget": "restore", "tag": "restore", "untag": "restore", "pin": "unpin", "unpin": "pin"}
_DONE = {
    "forget": "Forgotten:",
    "tag": "Tagged:",
    "untag": "Tags removed:",
    "pin": "Pinned:",
    "unpin": "Unpinned:",
    "restore": "Restored:",
}
_ANY = {"in": [str(status) for status in Status]}


class Changed(NamedTuple):
    """A memory and the version that a change made of it, 0 if it made none."""

    id: str
    version: int = 0


_ENTRY = struct.Struct(">16sH")
_MOST_VERSION = 65_535


def packed(changed: Iterable[Changed]) -> str:
    """Return memories and versions as a short text for an address."""
    rows = (_ENTRY.pack(UUID(each.id).bytes, min(each.version, _MOST_VERSION)) for each in changed)
    return base64.urlsafe_b64encode(b"".join(rows)).decode().rstrip("=")


def unpacked(text: str) -> list[Changed]:
    """Return the memories of an address; none if it is not one that `packed` made."""
    try:
        rows = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return [Changed(str(UUID(bytes=id_)), version) for id_, version in _ENTRY.iter_unpack(rows)][:_MOST]
    except (ValueError, struct.error):
        return []


async def bulk(view: View) -> Response:
    """Show what an action would do to the memories of an address, or what one did; an export is given at once."""
    if view.query("done"):
        return await _done(view)
    given = view.request.query_params
    action, wanted = view.query("what"), Wanted.of(given)
    items, more = await _chosen(view, wanted)
    if action == "export" and items:
        return _export(view.cube, items)
    tags = _tags(view.query("tags"))
    problem = _problem(view, action, items, tags)
    derived: list[dict[str, Any]] = []
    taken: dict[str, Any] = {"derived": [], "adapters": []}
    if action == "erase" and items and not problem:
        body = {"item_ids": [item["id"] for item in items], "cube": view.cube}
        taken = await view.rest.post("/memories/erase/preview", body)
        derived = await memories_of(view.rest, view.cube, taken["derived"][:_SHOWN], deleted=True)
    return view.render(
        "memories_bulk.html",
        action=action,
        name=ACTIONS.get(action, ""),
        items=items,
        listed=await with_standings(view.rest, view.cube, items[:_SHOWN]),
        more=more,
        most=_MOST,
        tags=tags,
        taken=taken,
        derived=derived,
        problem=problem,
        done="",
        address=wanted.address,
        back=view.url("/memories", **wanted.address),
    )


async def _chosen(view: View, wanted: Wanted) -> tuple[list[dict[str, Any]], bool]:
    """Return the memories that an address selects: by id, or all that its filter finds; and if there are more."""
    given = view.request.query_params
    if given.get("all"):
        query = {"filter": wanted.filter(), "sort": wanted.sort}
    else:
        ids = [id_ for id_ in given.getlist("item") if id_]
        if not ids:
            return [], False
        query = {"filter": json.dumps({"id": {"in": ids[: _MOST + 1]}, "status": _ANY})}
    items = await view.rest.get("/memories", cube=view.cube, limit=_MOST + 1, **query)
    return items[:_MOST], len(items) > _MOST


def _problem(view: View, action: str, items: Sequence[Any], tags: Sequence[str]) -> str:
    if action not in ACTIONS:
        return "Choose what to do with the memories."
    if not items:
        return "Select memories first, or choose all that match."
    if action in ("tag", "untag") and not tags:
        return "Write the tags beside the action, with commas between them."
    return "" if action == "export" or view.may("write") else "Your key may only read this cube."


def _tags(text: str) -> list[str]:
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def _export(cube: str, items: Sequence[Mapping[str, Any]]) -> Response:
    text = json.dumps({"cube": cube, "memories": list(items)}, ensure_ascii=False, indent=2)
    headers = {"Content-Disposition": 'attachment; filename="memories.json"'}
    return Response(text, media_type="application/json", headers=headers)


async def _done(view: View) -> Response:
    """Return the message on what an action changed, with a link that undoes it."""
    action, changed = view.query("done"), unpacked(view.query("ids"))
    items = await memories_of(view.rest, view.cube, [each.id for each in changed[:_SHOWN]], deleted=True)
    return view.render(
        "memories_bulk.html",
        action=action,
        name="Done",
        items=items,
        listed=items,
        done=_DONE.get(action, "Changed:"),
        count=len(changed),
        left=_left(view.query("left")),
        ids=view.query("ids"),
        undo=_UNDO.get(action, "") if changed and view.may("write") else "",
        problem="",
        address=Wanted.of(view.request.query_params).address,
        back=view.url("/memories", **Wanted.of(view.request.query_params).address),
    )


def _left(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


async def apply(view: View) -> Response:
    """Do what was previewed to the memories of a form, and send the browser on to what was done."""
    form = await view.form()
    action, ids = str(form.get("what", "")), str(form.get("ids", "")).split()[:_MOST]
    body = {"item_ids": ids, "cube": view.cube}
    left = 0
    match action:
        case "erase":
            receipt = await view.rest.post("/memories/erase", {**body, "wait": False})
            return view.redirect(f"/erasures/{part(receipt['id'])}")
        case "forget":
            told = {**body, "reason": "forgotten in the console"}
            changed = await _versions(view, (await view.rest.post("/memories/delete", told))["item_ids"])
        case "tag" | "untag":
            change = {"add" if action == "tag" else "remove": _tags(str(form.get("tags", "")))}
            changed = await _versions(view, (await view.rest.post("/memories/tag", {**body, **change}))["item_ids"])
        case "pin" | "unpin":
            ids = ids or [each.id for each in unpacked(str(form.get("changed", "")))]
            send = view.rest.put if action == "pin" else view.rest.delete
            for id_ in ids:
                await send(f"/memories/{part(id_)}/pin", cube=view.cube)
            changed = [Changed(id_) for id_ in ids]
        case "restore":
            changed, left = await _restore(view, unpacked(str(form.get("changed", ""))))
        case _:
            raise RestError(400, "invalid_input", "Choose what to do with the memories.", "what")
    address = Wanted.of(form).address
    return view.redirect("/memories/bulk", done=action, ids=packed(changed), left=left or "", **address)


async def _restore(view: View, changed: Sequence[Changed]) -> tuple[list[Changed], int]:
    """Bring memories back to the version before a change; return those, and how many were changed again meanwhile."""
    restored = []
    for each in changed:
        body = {"to_version": each.version - 1, "expected_version": each.version}
        try:
            await view.rest.post(f"/memories/{part(each.id)}/rollback", {**body, "cube": view.cube})
            restored.append(Changed(each.id))
        except RestError as error:
            if error.status not in (404, 409):
                raise
    return restored, len(changed) - len(restored)


async def _versions(view: View, ids: Sequence[str]) -> list[Changed]:
    """Return memories that were just changed with the versions they have now."""
    if not ids:
        return []
    condition = json.dumps({"id": {"in": list(ids)}, "status": _ANY})
    found = await view.rest.get("/memories", cube=view.cube, filter=condition, limit=_MOST)
    return [Changed(item["id"], item["version"]) for item in found]


PAGES = (Page("/memories/bulk", bulk), Page("/memories/apply", apply, "POST"))
