"""Work: background tasks and events as they happen; retry, cancel, and follow one thing through them."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import RestError, part
from memos.api.console.view import EVENTS, Page, View, nothing

_TASKS = 20
_EVENTS = 30
# The states of each tab; "problems" are those in need of a person.
_TABS = {
    "all": (),
    "running": ("running",),
    "waiting": ("waiting",),
    "problems": ("failed", "dead"),
    "done": ("done",),
    "cancelled": ("cancelled",),
}
_KINDS = {
    "analyse": "Read a topic into facts",
    "backup": "Back up",
    "compose": "Compose what prompts begin with",
    "consolidate": "Consolidate facts",
    "consolidation": "Consolidate all cubes",
    "describe": "Describe an image",
    "file": "Read a document",
    "heat": "Plan moves by heat",
    "judge": "Judge what replaces what",
    "learn": "Train an adapter",
    "learning": "Plan trainings",
    "overflow": "Sort older talk into topics",
    "read": "Read messages into facts",
    "reflect": "Draw conclusions",
    "remake": "Renew a topic",
    "retention": "Apply rules of retention",
    "settle": "Look for what was left undone",
    "summarise": "Summarise a topic",
    "sweep": "Move topics by heat",
    "tools": "Learn from calls of tools",
    "warm": "Prepare what prompts begin with",
}


async def work(view: View) -> Response:
    return await _show(view, "live" if view.partial else None)


async def retry(view: View) -> Response:
    task = await view.rest.post(f"/tasks/{part(await view.field('task'))}/retry")
    return await _changed(view, f"{_KINDS.get(task['kind'], task['kind'])}: it waits for its turn again.")


async def cancel(view: View) -> Response:
    task = await view.rest.post(f"/tasks/{part(await view.field('task'))}/cancel")
    return await _changed(view, f"{_KINDS.get(task['kind'], task['kind'])}: cancelled.")


async def _changed(view: View, told: str) -> Response:
    if not view.partial:
        return view.redirect("/work", told, **_asked(view))
    return view.announce(told, await _show(view, "live"))


def _asked(view: View) -> dict[str, str]:
    """Return what the address asks for, to make others that keep it."""
    return {name: view.query(name) for name in ("state", "kind", "scope", "item")}


async def _show(view: View, block: str | None) -> Response:
    asked, after = _asked(view), view.query("after")
    tab = asked["state"] if asked["state"] in _TABS else "all"
    item, everywhere = asked["item"].strip(), asked["scope"] == "all"
    cubes = {each["id"] for each in view.cubes}
    cube = None if everywhere or view.cube not in cubes else view.cube
    subject = await _subject(view, item) if item else None
    if subject and subject["cube"]:
        cube = subject["cube"]
    wanted = {"cube": cube, "about": item, "kind": asked["kind"], "limit": _TASKS + 1, "after": after}
    events: dict[str, Any] = {"cube": cube, "newest": "true", "item": item, "limit": _EVENTS}
    events["before"] = view.query("before") if view.query("before").isdigit() else None
    tasks, counts, happened = await asyncio.gather(
        view.rest.get("/tasks", state=_TABS[tab], **wanted),
        view.rest.get("/tasks/counts", cube=cube),
        view.rest.get("/events", **events) if cube else nothing(),
    )
    tabs = [(name, sum(counts.get(each, 0) for each in states or counts)) for name, states in _TABS.items()]
    here = view.url("/work", **asked)
    more = view.url("/work", **asked, after=tasks[_TASKS - 1]["id"]) if len(tasks) > _TASKS else ""
    older = view.url("/work", **asked, before=happened[-1]["seq"]) if len(happened) == _EVENTS else ""
    return view.render(
        "work.html",
        block=block,
        tasks=tasks[:_TASKS],
        tabs=tabs,
        tab=tab,
        asked=asked,
        events=happened,
        subject=subject,
        item=item,
        everywhere=everywhere,
        event_cube=cube,
        here=here,
        more=more,
        older=older,
        paged=bool(after or view.query("before")),
        busy=bool(counts.get("running") or counts.get("waiting")),
        kinds=_KINDS,
        event_kinds=EVENTS,
    )


async def _subject(view: View, item: str) -> dict[str, Any]:
    """Return what is followed: a memory, also a deleted one, or a document."""
    for path, kind in ((f"/memories/{part(item)}", "memory"), (f"/documents/{part(item)}", "document")):
        try:
            found = await view.rest.get(path)
        except RestError as error:
            if error.status != 404:
                raise
            continue
        return {"kind": kind, "id": item, "cube": found["cube"], "text": found.get("memory") or found.get("name")}
    try:
        history = await view.rest.get(f"/memories/{part(item)}/history")
    except RestError as error:
        if error.status != 404:
            raise
        return {"kind": "", "id": item, "cube": "", "text": ""}
    last = history[-1]["after"]
    return {"kind": "deleted memory", "id": item, "cube": last["cube"], "text": last["memory"]}


PAGES = (
    Page("/work", work),
    Page("/work/retry", retry, "POST"),
    Page("/work/cancel", cancel, "POST"),
)
