"""Import chat exports, export and load cubes, and start backups."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from memos.api.console.pages.erasing import PAGES as ERASING
from memos.api.console.pages.subjects import PAGES as SUBJECTS
from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View

_CUBES = 50
_TASKS = 10


async def importing(view: View) -> Response:
    return view.render("data.html", formats=("ChatGPT", "Claude", "LangChain", "LoCoMo", "LongMemEval"))


async def cubes(view: View, problem: str = "") -> Response:
    after, me = view.query("after"), view.me["identity"]["id"]
    listed = [cube for cube in view.cubes if cube["id"] > after]
    return view.render(
        "data_cubes.html",
        block="cubes" if view.partial else None,
        shown=listed[:_CUBES],
        more=view.url("/data/cubes", after=listed[_CUBES - 1]["id"]) if len(listed) > _CUBES else "",
        problem=problem,
        status=view.wrong(problem),
        owns={cube["id"] for cube in listed if view.admin or cube["owner"] == me},
        dump=lambda cube: f"{view.root}/api/cubes/{part(cube)}/dump",
    )


async def create_cube(view: View) -> Response:
    form = await view.form()
    body: dict[str, Any] = {name: str(form.get(name, "")).strip() for name in ("id", "description")}
    body |= {"redact_pii": bool(form.get("redact_pii"))}
    if zone := str(form.get("time_zone", "")).strip():
        body["time_zone"] = zone
    try:
        made = await view.rest.post("/cubes", body)
    except RestError as error:
        return await cubes(view, problem=error.message)
    view.cubes = await view.rest.get("/cubes")
    return await view.after(f"The cube {made['id']} was created.", "/data/cubes", cubes)


async def backups(view: View, problem: str = "") -> Response:
    plan: dict[str, Any] = {}
    tasks: list[dict[str, Any]] = []
    if view.administers:
        plan, tasks = await asyncio.gather(
            view.rest.get("/backups"), view.rest.get("/tasks", kind=["backup"], limit=_TASKS)
        )
        plan["backups"].reverse()
    running = [task for task in tasks if not task["ended"]]
    return view.render(
        "data_backups.html",
        block="backups" if view.partial else None,
        plan=plan,
        running=running,
        failed=next((task for task in tasks if task["state"] in ("failed", "dead")), None) if not running else None,
        problem=problem,
        status=view.wrong(problem),
        embedder=next((cube["fingerprint"]["name"] for cube in view.cubes if cube["id"] == view.cube), None),
    )


async def back_up(view: View) -> Response:
    try:
        await view.rest.post("/backups", {})
    except RestError as error:
        return await backups(view, problem=error.message)
    return await view.after("The backup has begun.", "/data/backups", backups)


PAGES = (
    Page("/data", importing),
    Page("/data/cubes", cubes),
    Page("/data/cubes/create", create_cube, "POST"),
    Page("/data/backups", backups),
    Page("/data/backups/create", back_up, "POST"),
    *ERASING,
    *SUBJECTS,
)
