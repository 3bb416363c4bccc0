"""Memories: a table to filter, sort and page through, and what is done to many of them at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple, Self

from starlette.responses import Response

from memos.api.console.pages import memory
from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View
from memos.core.types import Status

_PAGE = 50
_MOST = 500
_SHOWN = 20

SORTS = {
    "-created_at": "Added last",
    "created_at": "Added first",
    "-said_at": "Said last",
    "said_at": "Said first",
    "-updated_at": "Changed last",
    "-heat": "Used most",
    "-confidence": "Most certain",
    "confidence": "Least certain",
}
FACETS = {
    "status": "Status",
    "type": "Type",
    "speaker": "Speaker",
    "tag": "Tag",
    "month": "Month",
    "conversation": "Conversation",
    "tier": "Tier",
}
_FIELDS = {"tag": "tags"}
ACTIONS = {
    "forget": "Forget",
    "tag": "Add tags",
    "untag": "Remove tags",
    "pin": "Pin",
    "unpin": "Unpin",
    "erase": "Erase for good",
    "export": "Export as JSON",
}


class Chip(NamedTuple):
    """A filter in force, and the address without it."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page's address asks for."""

    q: str = ""
    since: str = ""
    until: str = ""
    sort: str = "-created_at"
    chosen: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Any) -> Self:
        """Read the query of an address, or a form that has its fields."""
        chosen = {name: [value for value in given.getlist(name) if value] for name in FACETS}
        sort = str(given.get("sort", ""))
        return cls(
            str(given.get("q", "")).strip(),
            _day(given.get("since")),
            _day(given.get("until")),
            sort if sort in SORTS else "-created_at",
            {name: values for name, values in chosen.items() if values},
        )

    @property
    def address(self) -> dict[str, Any]:
        """Return the parameters of the address, without those at their defaults."""
        plain = {"q": self.q, "since": self.since, "until": self.until}
        sort = {} if self.sort == "-created_at" else {"sort": self.sort}
        return {**{name: value for name, value in plain.items() if value}, **self.chosen, **sort}

    def filter(self, *, without: str = "") -> str:
        """Return the filter as JSON text, without one facet."""
        parts: list[dict[str, Any]] = []
        if self.q:
            parts.append({"memory": {"like": self.q}})
        if self.since:
            parts.append({"said_at": {"gte": self.since}})
        if self.until:
            parts.append({"said_at": {"lt": (date.fromisoformat(self.until) + timedelta(days=1)).isoformat()}})
        for name, values in self.chosen.items():
            if name == without:
                continue
            if name == "month":
                parts.append({"or": [{"said_at": _of_month(value)} for value in values]})
            else:
                parts.append({_FIELDS.get(name, name): {"in": values}})
        return json.dumps({"and": parts}) if parts else ""

    def chips(self, view: View) -> list[Chip]:
        """Return the filters in force, each with the address that takes it away."""
        address = self.address
        found = []
        for name, label in (("q", "Contains"), ("since", "Since"), ("until", "Until")):
            if name in address:
                rest = {key: value for key, value in address.items() if key != name}
                found.append(Chip(f"{label} {address[name]}", view.url("/memories", **rest)))
        for name, values in self.chosen.items():
            for value in values:
                rest = {**address, name: [each for each in values if each != value]}
                found.append(Chip(f"{FACETS[name]}: {memory.word(value)}", view.url("/memories", **rest)))
        return found


def _day(given: Any) -> str:
    try:
        return date.fromisoformat(str(given or "")).isoformat()
    except ValueError:
        return ""


def _of_month(text: str) -> dict[str, str]:
    try:
        first = date.fromisoformat(f"{text}-01")
        following = (first + timedelta(days=32)).replace(day=1)
    except (ValueError, OverflowError):
        return {"gte": "9999-01-01"}  # no such month: nothing was said in it
    return {"gte": first.isoformat(), "lt": following.isoformat()}


async def table(view: View) -> Response:
    wanted = Wanted.of(view.request.query_params)
    after = view.query("after")
    items = await view.rest.get(
        "/memories", cube=view.cube, filter=wanted.filter(), sort=wanted.sort, limit=_PAGE + 1, after=after
    )
    more = view.url("/memories", **wanted.address, after=items[_PAGE - 1]["id"]) if len(items) > _PAGE else ""
    block = None if not view.partial else "rows" if after else "results"
    response = view.render(
        "memories.html",
        block=block,
        wanted=wanted,
        items=items[:_PAGE],
        more=more,
        chips=wanted.chips(view),
        sorts=SORTS,
        actions=_actions(view),
        after=after,
    )
    if block == "results":
        response.headers["HX-Push-Url"] = view.url("/memories", **wanted.address)
    return response


def _actions(view: View) -> dict[str, str]:
    return ACTIONS if "write" in view.rights else {"export": ACTIONS["export"]}


async def facets(view: View) -> Response:
    """Return the filters with their counts: of each property the counts that it would have without its own filter."""
    wanted = Wanted.of(view.request.query_params)
    together = [name for name in FACETS if name not in wanted.chosen]

    async def counted(without: str, names: list[str]) -> dict[str, Any]:
        text = wanted.filter(without=without)
        found = await view.rest.get("/memories/facets", cube=view.cube, filter=text, by=names, limit=12)
        return dict(found)

    whole, *others = await asyncio.gather(counted("", together), *(counted(name, [name]) for name in wanted.chosen))
    found = {facet["name"]: facet for told in (whole, *others) for facet in told["facets"]}
    for name, values in wanted.chosen.items():  # what is chosen is shown even if it is not among the most frequent
        known = {each["value"] for each in found[name]["values"]}
        found[name]["values"] += [{"value": value, "count": None} for value in values if value not in known]
    return view.render(
        "_facets.html", wanted=wanted, facets=[(name, FACETS[name], found[name]) for name in FACETS], whole=whole
    )


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
            raise RestError(400, "invalid_input", "Select memories first, or choose all that match.")
        query = {"filter": json.dumps({"id": {"in": ids[: _MOST + 1]}, "status": _ANY})}
    items = await view.rest.get("/memories", cube=view.cube, limit=_MOST + 1, **query)
    return items[:_MOST], len(items) > _MOST


async def preview(view: View) -> Response:
    """Show what an action would do to the selected memories; an export is given at once."""
    form = await view.form()
    action = str(form.get("what", ""))
    items, more = await _chosen(view)
    if action == "export":
        return _export(view.cube, items)
    tags = [tag.strip() for tag in str(form.get("tags", "")).split(",") if tag.strip()]
    problem = ""
    if action not in ACTIONS:
        problem = "Choose what to do with the memories."
    elif not items:
        problem = "No memory matches any more."
    elif action in ("tag", "untag") and not tags:
        problem = "Write the tags beside the action, with commas between them."
    derived: list[dict[str, Any]] = []
    taken: dict[str, Any] = {"derived": [], "adapters": []}
    if action == "erase" and items:
        body = {"item_ids": [item["id"] for item in items], "cube": view.cube}
        taken = await view.rest.post("/memories/erase/preview", body)
        derived = await memory.items_of(view, view.cube, taken["derived"][:_SHOWN])
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

PAGES = (
    Page("/memories", table),
    Page("/memories/facets", facets),
    Page("/memories/bulk", preview, "POST"),
    Page("/memories/apply", apply, "POST"),
    *memory.PAGES,
)
