"""Review: decide what awaits a person, memory by memory and correction by correction, and take the last one back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View, nothing

_AT_ONCE = 20
_QUERY_CHARS = 1_000
_SIMILAR = 3
# What the page says after a decision, by its name in the address.
_TOLD = {
    "approved": "Approved: searches find it now.",
    "edited": "Approved in your words.",
    "rejected": "Rejected: the memory is deleted.",
    "merged": "Merged: one memory stays, the other is replaced by it.",
    "replaces": "Decided: the newer statement replaces the older one.",
    "both": "Decided: both statements hold.",
    "undone": "Taken back: it awaits review again.",
}
_KINDS = ("all", "memories", "corrections")
_NOTHING = {"pending": 0, "relations": 0, "most": 0}
_NO_STEPS: dict[str, Any] = {"rollback": [], "reopen": [], "why": ""}


async def review(view: View) -> Response:
    show = view.query("show") if view.query("show") in _KINDS else "all"
    if view.cube not in {each["id"] for each in view.cubes}:
        return _page(view, show, [], _NOTHING)
    undone = view.query("told") == "undone"
    counts, cases = await asyncio.gather(
        view.rest.get("/review/counts", cube=view.cube),
        _cases(view, show, view.query("first"), view.query("why") if undone else ""),
    )
    return _page(view, show, cases, counts)


def _page(view: View, show: str, cases: Sequence[dict[str, Any]], counts: dict[str, Any]) -> Response:
    told, query = view.query("told"), view.request.query_params
    steps = {"rollback": query.getlist("rollback"), "reopen": query.getlist("reopen"), "why": view.query("why")}
    shown: dict[str, Any] = {
        "show": show,
        "cases": cases,
        "counts": counts,
        "told": _TOLD.get(told, ""),
        "steps": steps,
    }
    return view.render("review.html", **shown, similar=None)


async def _cases(view: View, show: str, first: str = "", why: str = "") -> list[dict[str, Any]]:
    """Return what waits, corrections first, oldest first; the memory `first` before all."""
    relations, pending = await asyncio.gather(
        _doubtful(view) if show != "memories" else nothing(), _pending(view) if show != "corrections" else nothing()
    )
    found = relations + pending
    if first and first not in {each.get("id") for each in found} and (case := await _waiting(view, first, why)):
        found.append(case)
    return sorted(found, key=lambda case: case.get("id") != first)


async def _pending(view: View) -> list[dict[str, Any]]:
    waiting = await view.rest.get("/review", cube=view.cube, limit=_AT_ONCE)
    return [{"kind": "memory", "id": each["item"]["id"], **each} for each in waiting]


async def _waiting(view: View, item: str, why: str = "") -> dict[str, Any] | None:
    """Return a single memory that awaits review, None if it does not."""
    found = await _memory(view, item)
    if found is None or found["status"] != "pending":
        return None
    return {"kind": "memory", "id": item, "item": found, "why": why or "It was put back for review."}


async def _doubtful(view: View) -> list[dict[str, Any]]:
    waiting = await view.rest.get("/review/relations", cube=view.cube, limit=_AT_ONCE)
    return list(await asyncio.gather(*(_correction(view, relation) for relation in waiting)))


async def _correction(view: View, relation: dict[str, Any]) -> dict[str, Any]:
    newer, older = await asyncio.gather(_memory(view, relation["newer"]), _memory(view, relation["older"]))
    return {"kind": "correction", "relation": relation, "newer": newer, "older": older}


async def _memory(view: View, item: str) -> Any:
    """Return a memory with its sources, None if it was deleted or erased."""
    try:
        return await view.rest.get(f"/memories/{part(item)}")
    except RestError as error:
        if error.status == 404:
            return None
        raise


async def similar(view: View) -> Response:
    """Show memories that may say the same as one that waits."""
    item = await view.rest.get(f"/memories/{part(view.query('item'))}")
    asked = {"query": item["memory"][:_QUERY_CHARS], "cubes": [view.cube], "top_k": _SIMILAR + 1}
    found = await view.rest.post("/search", asked)
    hits = [hit for hit in found["hits"] if hit["item"]["id"] != item["id"]][:_SIMILAR]
    if view.partial:
        return view.render("review.html", block="similar_to", item=item, similar=hits)
    counts = await view.rest.get("/review/counts", cube=view.cube)
    case = {"kind": "memory", "id": item["id"], "item": item, "why": "You look for one that says the same."}
    steps: dict[str, Any] = {"rollback": [], "reopen": [], "why": ""}
    return view.render("review.html", show="memories", cases=[case], counts=counts, told="", steps=steps, similar=hits)


async def approve(view: View) -> Response:
    item, version = await _named(view)
    try:
        done = await view.rest.post(f"/review/{part(item)}/approve", {"expected_version": version})
    except RestError as error:
        return await _meanwhile(view, error, item)
    return await _decided(view, "approved", rollback=[done])


async def edit(view: View) -> Response:
    item, version = await _named(view)
    body = {"text": await view.field("text"), "expected_version": version}
    try:
        done = await view.rest.post(f"/review/{part(item)}/edit", body)
    except RestError as error:
        return await _meanwhile(view, error, item)
    return await _decided(view, "edited", rollback=[done])


async def reject(view: View) -> Response:
    item, _ = await _named(view)
    try:
        done = await view.rest.post(f"/review/{part(item)}/reject")
    except RestError as error:
        return await _meanwhile(view, error, item)
    return await _decided(view, "rejected", rollback=[done])


async def merge(view: View) -> Response:
    """Merge one memory into another; of a correction the older statement stays."""
    item, version = await _named(view)
    into, in_doubt = await view.field("into"), bool(await view.field("correction"))
    if in_doubt and (told := await _decided_by_another(view, item, into)):
        return await _gone(view, told)
    try:
        before = await view.rest.get(f"/memories/{part(into)}")
        body = {"into": into, "expected_version": version}
        stays = await view.rest.post(f"/review/{part(item)}/merge", body)
    except RestError as error:
        return await _meanwhile(view, error, item)
    changed = [{"id": item, "version": version + 1}]
    if stays["version"] != before["version"]:
        changed.append(stays)
    reopen = [(item, into)] if in_doubt else []
    return await _decided(view, "merged", rollback=changed, reopen=reopen)


async def decide(view: View) -> Response:
    newer, older, holds = await view.field("newer"), await view.field("older"), await view.field("holds") == "yes"
    if told := await _decided_by_another(view, newer, older):
        return await _gone(view, told)
    await view.rest.post("/review/relations/decide", {"newer": newer, "older": older, "holds": holds})
    return await _decided(view, "replaces" if holds else "both", reopen=[(newer, older)])


async def undo(view: View) -> Response:
    """Take the last decision back: every step of it is a rollback or a decision to take back."""
    form = await view.form()
    reopened: dict[str, Any] | None = None
    restored: list[str] = []
    try:
        for step in map(str, form.getlist("rollback")):
            item, _, version = step.rpartition(":")
            body = {"expected_version": int(version) if version.isdecimal() else None}
            await view.rest.post(f"/memories/{part(item)}/rollback", body)
            restored.append(item)
        for step in map(str, form.getlist("reopen")):
            newer, _, older = step.partition(":")
            found = await view.rest.post("/review/relations/reopen", {"newer": newer, "older": older})
            pair = [each for each in found if (each["newer"], each["older"]) == (newer, older)]
            reopened = await _correction(view, pair[0]) if pair else None
    except RestError as error:
        if error.status not in (404, 409):
            raise
        return await _gone(view, "It was changed again since that decision, so it stays as it is.")
    if not view.partial:
        first = restored[0] if restored else None
        return view.redirect("/review", told="undone", first=first, why=await view.field("why"))
    waiting = [await _waiting(view, item, await view.field("why")) for item in restored]
    cases = [reopened] if reopened else [case for case in waiting if case]
    counts = await view.rest.get("/review/counts", cube=view.cube)
    shown: dict[str, Any] = {
        "counts": counts,
        "told": _TOLD["undone"],
        "steps": _NO_STEPS,
        "cases": cases,
        "similar": None,
    }
    return view.render("review.html", block="undone", **shown)


async def _meanwhile(view: View, error: RestError, item: str) -> Response:
    """Answer a decision that could not be made because somebody changed or decided the memory before."""
    if error.status not in (404, 409):
        raise error
    case = await _waiting(view, item, await view.field("why"))
    if case is None:
        return await _gone(view, await _what_became(view, item, error))
    told = "It was changed meanwhile, so nothing was decided: this is what it says now."
    if not view.partial:
        return view.redirect("/review", told, show=view.query("show"), first=item)
    counts = await view.rest.get("/review/counts", cube=view.cube)
    shown: dict[str, Any] = {"counts": counts, "told": "", "steps": _NO_STEPS, "cases": [case], "similar": None}
    return view.announce(told, view.render("review.html", block="undone", **shown))


async def _what_became(view: View, item: str, refusal: RestError) -> str:
    """Show who decided on a memory that no longer waits. Raises: RestError (the key may not read it)."""
    try:
        last = (await view.rest.get(f"/memories/{part(item)}/history"))[-1]
    except RestError as error:
        if "was erased" not in error.message:
            raise refusal from error
        return "It was erased meanwhile, so there is nothing to decide."
    states = {"deleted": "rejected it", "superseded": "merged it into another", "active": "approved it"}
    return f"{last['actor']} {states.get(last['after']['status'], 'changed it')} meanwhile; nothing was changed now."


async def _decided_by_another(view: View, newer: str, older: str) -> str:
    """Return a message if somebody else decided on a correction meanwhile, else an empty text."""
    try:
        found = await view.rest.get(f"/memories/{part(newer)}/relations")
    except RestError as error:
        if error.status != 404:
            raise
        return "One of these memories was deleted meanwhile, so there is nothing to decide."
    pair = [each for each in found if (each["newer"], each["older"]) == (newer, older)]
    if not pair:
        return "Somebody has decided on this already; nothing was changed."
    if pair[0]["decided_by"] == "feedback":
        return ""
    what = "both hold" if not pair[0]["confidence"] else "they say the same" if pair[0]["kind"] == "SAME" else ""
    return (
        f"{pair[0]['decided_by']} decided meanwhile: {what or 'the newer replaces the older'}. Nothing was changed now."
    )


async def _gone(view: View, told: str) -> Response:
    """Take a case away that somebody else decided, and say so."""
    if not view.partial:
        return view.redirect("/review", told, show=view.query("show"))
    counts = await view.rest.get("/review/counts", cube=view.cube)
    response = view.render("review.html", block="decided", counts=counts, told=told, steps=_NO_STEPS, late=True)
    return view.announce(told, response)


async def _named(view: View) -> tuple[str, int]:
    version = await view.field("version")
    return await view.field("item"), int(version) if version.isdecimal() else 0


async def _decided(
    view: View, told: str, *, rollback: Sequence[Any] = (), reopen: Sequence[tuple[str, str]] = ()
) -> Response:
    """Answer a decision: the card goes, and the bar above says what was done and how to undo it."""
    steps = {
        "rollback": [f"{each['id']}:{each['version']}" for each in rollback],
        "reopen": [f"{newer}:{older}" for newer, older in reopen],
        "why": await view.field("why"),
    }
    if not view.partial:
        return view.redirect("/review", "", show=view.query("show"), told=told, **steps)
    counts = await view.rest.get("/review/counts", cube=view.cube)
    return view.render("review.html", block="decided", counts=counts, told=_TOLD[told], steps=steps)


PAGES = (
    Page("/review", review),
    Page("/review/similar", similar),
    Page("/review/approve", approve, "POST"),
    Page("/review/edit", edit, "POST"),
    Page("/review/reject", reject, "POST"),
    Page("/review/merge", merge, "POST"),
    Page("/review/decide", decide, "POST"),
    Page("/review/undo", undo, "POST"),
)
