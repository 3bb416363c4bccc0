"""Retention rules with their effect, and erasures with a preview and a receipt."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View

_ACTIONS = {
    "archive": "Archive: found as before, marked archived",
    "delete": "Delete: out of sight, can be restored for a while",
    "erase": "Erase: gone in every form, for good",
}
_TYPES = (
    "message", "document", "summary", "user", "assistant", "long_term", "preference", "instruction", "profile",
    "tool_trajectory", "tool_schema", "skill", "record",
)  # fmt: skip
_STATUSES = ("active", "pending", "superseded", "archived")
_TABLES = {
    "versions": "versions of them",
    "messages": "messages as they were written",
    "sources": "references to messages",
    "links": "links to other memories",
    "events": "events whose details were removed",
    "warmth": "records of how much they were used",
    "extractions": "answers of models about them",
    "adapters": "adapters that were trained on them",
    "prefix_entries": "places among what prompts begin with",
    "file_items": "passages of documents",
    "adapter_exclusions": "notes that adapters may not learn them",
    "requests": "records of requests",
    "outbox": "waiting updates of indexes",
}
_STORES = {
    "ledger": "the ledger, where memories are kept",
    "vector": "the index for searches by meaning and words",
    "graph": "the graph index",
    "cache": "caches",
    "activation": "attention state of models",
    "parametric": "adapters of models",
}
_WHAT = {"person": "A person", "conversation": "A conversation", "cube": "The whole cube"}


async def retention(view: View, problem: str = "", confirm: bool = False) -> Response:
    # How many each would touch takes a pass over the cube: the page is shown before that is known.
    if view.partial or view.query("preview"):
        effects = await view.rest.get("/retention/preview", cube=view.cube)
    else:
        effects = [{"rule": rule, "count": None} for rule in await view.rest.get("/retention/rules", cube=view.cube)]
    form = await view.form() if view.request.method == "POST" and problem else None
    return view.render(
        "data_retention.html",
        block="rules" if view.partial else None,
        effects=effects,
        actions=_ACTIONS,
        types=_TYPES,
        statuses=_STATUSES,
        problem=problem,
        status=view.wrong(problem),
        confirm=confirm,
        form=form,
        may="own" in view.rights,
    )


async def add_rule(view: View) -> Response:
    form = await view.form()
    body: dict[str, Any] = {"cube": view.cube, "action": str(form.get("action", ""))}
    body |= {"types": [str(each) for each in form.getlist("types")], "yes": bool(form.get("yes"))}
    body |= {"statuses": [str(each) for each in form.getlist("statuses")]}
    body["tags"] = [tag.strip() for tag in str(form.get("tags", "")).split(",") if tag.strip()]
    try:
        body["age_days"] = float(str(form.get("age_days", "")) or 0)
        await view.rest.post("/retention/rules", body)
    except ValueError:
        return await retention(view, problem="The age must be a number of days.")
    except RestError as error:
        if error.field == "yes":
            told = f"This rule would {body['action']} every memory of {view.cube} that is old enough. If that is meant,"
            return await retention(view, problem=f"{told} confirm it below.", confirm=True)
        return await retention(view, problem=error.message)
    return await view.after("The rule was added; it is applied every hour.", "/data/retention", retention)


async def remove_rule(view: View) -> Response:
    await view.rest.delete(f"/retention/rules/{part(await view.field('rule'))}", cube=view.cube)
    return await view.after("The rule was removed; what it did stays done.", "/data/retention", retention)


async def run_rules(view: View) -> Response:
    done = await view.rest.post("/retention/run", {"cube": view.cube})
    count = sum(effect["count"] for effect in done)
    told = f"Applied: {count:,} {'memory' if count == 1 else 'memories'}."
    return await view.after(told, "/data/retention", retention)


def _matching(what: str, name: str) -> dict[str, Any] | None:
    """Return the filter of what is to be erased, None for a whole cube."""
    if what == "conversation":
        return {"conversation": name}
    if what == "person":
        return {"or": [{"speaker": name}, {"entities": {"contains": name}}]}
    return None


async def erase(view: View, problem: str = "") -> Response:
    what, name = view.query("what") or "person", view.query("name").strip()
    preview = None
    if what in _WHAT and (name or (what == "cube" and view.query("look"))):
        preview, problem = await _previewed(view, what, name, problem)
    people = await view.rest.get("/profile/subjects", cube=view.cube) if not view.partial else []
    return view.render(
        "data_erase.html",
        block="preview" if view.partial else None,
        what=what,
        name=name,
        choices=_WHAT,
        people=people[:200],
        preview=preview,
        problem=problem,
        status=view.wrong(problem),
        confirmed=view.cube if what == "cube" else name,
        may="own" in view.rights if what == "cube" else "write" in view.rights,
    )


async def _previewed(view: View, what: str, name: str, problem: str) -> tuple[dict[str, Any] | None, str]:
    body = {"cube": view.cube, "filter": _matching(what, name)}
    try:
        return await view.rest.post("/erasures/preview", body), problem
    except RestError as error:
        return None, problem or error.message


async def run_erasure(view: View) -> Response:
    what, name = view.query("what"), view.query("name").strip()
    if (await view.field("confirmed")).strip() != (view.cube if what == "cube" else name):
        return await erase(view, "What you typed is not the name above; nothing was erased.")
    try:
        if what == "cube":
            receipt = await view.rest.delete(f"/cubes/{part(view.cube)}")
        else:
            expected = int(await view.field("expected", "0"))
            body = {"cube": view.cube, "filter": _matching(what, name) or {}, "expected": expected}
            receipt = await view.rest.post("/erasures", body)
    except (RestError, ValueError) as error:
        return await erase(view, str(error))
    return view.redirect(f"/erasures/{part(receipt['id'])}", cube="" if what == "cube" else view.cube)


async def receipt(view: View) -> Response:
    """Show an erasure's receipt; while files are still being rewritten, the page looks again."""
    receipt = await view.rest.get(f"/erasures/{part(view.request.path_params['receipt'])}")
    block = "receipt" if view.partial else None
    return view.render("erasure.html", block=block, receipt=receipt, tables=_TABLES, stores=_STORES)


PAGES = (
    Page("/data/retention", retention),
    Page("/data/retention/add", add_rule, "POST"),
    Page("/data/retention/remove", remove_rule, "POST"),
    Page("/data/retention/run", run_rules, "POST"),
    Page("/data/erase", erase),
    Page("/data/erase/run", run_erasure, "POST"),
    Page("/erasures/{receipt}", receipt),
)
