"""Bulk actions on memories: preview, run, and undo."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from memos.api.console.pages.memory_filters import Wanted
from memos.api.console.rest import memories_of, part
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

_ANY = {"in": [str(status) for status in Status]}


async def _chosen(view: View) -> tuple[list[dict[str, Any]], bool]:
    """Return the memories that a form is about: those selected, or all that its filter finds; and if there are more."""
    form = await view.form()
    if form.get("all"):
        wanted = Wanted.of(form)
        query = {"filter": wanted.filter(), "sort": wanted.sort}
    else:
        ids = [str(each) for each in form.getlist("item")] + str(form.get("ids", "")).split()
        if not ids:
            return [], False
        query = {"filter": json.dumps({"id": {"in": ids[: _MOST + 1]}, "status": _ANY})}
    items = await view.rest.get("/memories", cube=view.cube, limit=_MOST + 1, **query)
    return items[:_MOST], len(items) > _MOST


async def preview(view: View) -> Response:
    """Show what an action would do to the selected memories; an export is given at once."""
    form = await view.form()
    action = str(form.get("what", ""))
    items, more = await _chosen(view)
    if action == "export" and items:
        return _export(view.cube, items)
    tags = [tag.strip() for tag in str(form.get("tags", "")).split(",") if tag.strip()]
    problem = ""
    if action not in ACTIONS:
        problem = "Choose what to do with the memories."
    elif not items:
        problem = "Select memories first, or choose all that match."
    elif action in ("tag", "untag") and not tags:
        problem = "Write the tags beside the action, with commas between them."
    derived: list[dict[str, Any]] = []
    taken: dict[str, Any] = {"derived": [], "adapters": []}
    if action == "erase" and items:
        body = {"item_ids": [item["id"] for item in items], "cube": view.cube}
        taken = await view.rest.post("/memories/erase/preview", body)
        derived = await memories_of(view.rest, view.cube, taken["derived"][:_SHOWN], deleted=True)
    return view.render(
        "memories_bulk.html",
        action=action,
        name=ACTIONS.get(action, ""),
        items=items,
        shown=_SHOWN,
        more=more,
        most=_MOST,
        tags=tags,
        taken=taken,
        derived=derived,
        problem=problem,
        done="",
        address=Wanted.of(form).address,
        back=_back(view, form),
    )


def _back(view: View, form: Any) -> str:
    return view.url("/memories", **Wanted.of(form).address)


def _export(cube: str, items: Sequence[Mapping[str, Any]]) -> Response:
    text = json.dumps({"cube": cube, "memories": list(items)}, ensure_ascii=False, indent=2)
    headers = {"Content-Disposition": 'attachment; filename="memories.json"'}
    return Response(text, media_type="application/json", headers=headers)


_UNDO = {"forget": "restore", "tag": "restore", "untag": "restore", "pin": "unpin", "unpin": "pin"}


async def apply(view: View) -> Response:
    """Do what was previewed to the memories of a form, and say how to undo it."""
    form = await view.form()
    action, ids = str(form.get("what", "")), str(form.get("ids", "")).split()[:_MOST]
    tags = [tag for tag in str(form.get("tags", "")).split(",") if tag]
    body = {"item_ids": ids, "cube": view.cube}
    done = ids
    match action:
        case "erase":
            receipt = await view.rest.post("/memories/erase", {**body, "wait": False})
            return view.redirect(f"/erasures/{part(receipt['id'])}")
        case "forget":
            done = (await view.rest.post("/memories/delete", {**body, "reason": "forgotten in the console"}))[
                "item_ids"
            ]
        case "tag" | "untag":
            change = {"add" if action == "tag" else "remove": tags}
            done = (await view.rest.post("/memories/tag", {**body, **change}))["item_ids"]
        case "pin":
            for id_ in ids:
                await view.rest.put(f"/memories/{part(id_)}/pin", cube=view.cube)
        case "unpin":
            for id_ in ids:
                await view.rest.delete(f"/memories/{part(id_)}/pin", cube=view.cube)
        case "restore":
            for id_ in ids:
                await view.rest.post(f"/memories/{part(id_)}/rollback", {"cube": view.cube})
    return view.render(
        "memories_bulk.html",
        action=action,
        name="Done",
        items=[],
        done=_DONE.get(action, "Nothing was changed:"),
        count=len(done),
        ids=" ".join(done),
        undo=_UNDO.get(action, "") if done else "",
        problem="",
        back=_back(view, form),
    )


_DONE = {
    "forget": "Forgotten:",
    "tag": "Tagged:",
    "untag": "Tags removed:",
    "pin": "Pinned:",
    "unpin": "Unpinned:",
    "restore": "Restored:",
}

PAGES = (Page("/memories/bulk", preview, "POST"), Page("/memories/apply", apply, "POST"))
