"""Actions on a hit of the page Ask: correct, confirm, pin, forget, and undo."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import memories_of, part
from memos.api.console.view import Page, View

_OUTCOMES = {
    "edited": ("Corrected", "The memory has a new version with that detail changed; the old version is kept."),
    "superseded": ("Replaced", "Your statement holds now; the old one is kept as replaced."),
    "ended": ("Ended", "The old statement is kept, but no longer holds."),
    "forgotten": ("Forgotten", "No search finds it any more. To remove it in every form, erase it on its page."),
    "added": ("Added", "Your statement is a new memory; no other one was changed by it."),
    "needs_review": ("Not sure what is meant", "Nothing was changed: both statements stay, the newer one first."),
}
_VERSIONS = re.compile(r"(?P<item>[^:]+):(?P<to>\d{1,9}):(?P<expected>\d{1,9})")


async def correct(view: View) -> Response:
    """Apply a correction in plain words to a memory, or to what a search finds."""
    text, item, instead = await view.field("text"), await view.field("item"), await view.field("instead")
    if not text.strip():
        return _told(view, "Nothing to correct", "Write what is right, such as “no, I moved to Lyon in May”.", bad=True)
    body: dict[str, Any] = {"text": text, "item_ids": [item] if item else []}
    if view.cube:
        body["cube"] = view.cube
    if speaker := (await view.field("speaker")).strip():
        body["speaker"] = speaker
    receipt = await _corrected(view, body, instead)
    changed = [*receipt["edited"], *receipt["superseded"], *receipt["forgotten"]]
    title, said = _OUTCOMES.get(receipt["outcome"], (receipt["outcome"], ""))
    if receipt["outcome"] == "needs_review" and not receipt["runners_up"]:
        said = "Nothing was found that it fits; nothing was changed."
    undo, runners_up, now, made = await asyncio.gather(
        _undo_of(view, changed),
        memories_of(view.rest, view.cube, receipt["runners_up"]),
        memories_of(view.rest, view.cube, receipt["edited"]),
        memories_of(view.rest, view.cube, [receipt["item_id"]]),  # a request to forget something is deleted with it
    )
    added = [item["id"] for item in made]
    return _told(
        view,
        title,
        said,
        changed=changed,
        added=added,
        now=now,
        runners_up=runners_up,
        text=text,
        undo=undo,
        delete=added,
        instead=added[0] if added else "",
    )


async def _corrected(view: View, body: dict[str, Any], instead: str) -> dict[str, Any]:
    """Apply a correction, in place of an earlier one if there is any: that stays if this one fails."""
    if instead:
        await view.rest.delete(f"/memories/{part(instead)}", reason="corrected otherwise")
    try:
        receipt: dict[str, Any] = await view.rest.post("/feedback", body)
    except BaseException:
        if instead:
            await view.rest.post(f"/memories/{part(instead)}/rollback", {})
        raise
    return receipt


async def confirm(view: View) -> Response:
    item = await view.field("item")
    await view.rest.post("/memories/used", {"item_ids": [item], "confirmed": True, **_cube(view)})
    response = _told(view, "Confirmed", "It was marked as right, which keeps it in reach for longer.")
    return view.announce("Confirmed.", response)


async def decide(view: View) -> Response:
    """Decide whether a newer statement replaces an older one."""
    newer, older, holds = await view.field("newer"), await view.field("older"), await view.field("holds") == "yes"
    await view.rest.post("/review/relations/decide", {"newer": newer, "older": older, "holds": holds})
    if holds:
        return _told(
            view, "No longer true", "The newer statement replaces it from now on.", decided=(newer, older, "no")
        )
    return _told(view, "Still true", "The newer statement no longer counts against it.", decided=(newer, older, "yes"))


async def pin(view: View) -> Response:
    item = await view.field("item")
    await view.rest.put(f"/memories/{part(item)}/pin", **_cube(view))
    return _told(view, "Pinned", "It stays in working memory, which every prompt begins with.", pinned=item)


async def unpin(view: View) -> Response:
    await view.rest.delete(f"/memories/{part(await view.field('item'))}/pin", **_cube(view))
    return _told(view, "Unpinned", "It is in working memory only while it is of use.")


async def forget(view: View) -> Response:
    item = await view.field("item")
    await view.rest.delete(f"/memories/{part(item)}", reason="forgotten in the console")
    title, said = _OUTCOMES["forgotten"]
    return _told(view, title, said, changed=[item], undo=await _undo_of(view, [item]))


async def undo(view: View) -> Response:
    """Take changes back: `rollback` has ids with the version to restore and the one expected, `delete` has ids."""
    form = await view.form()
    for told in map(str, form.getlist("rollback")):
        if found := _VERSIONS.fullmatch(told):
            body = {"to_version": int(found["to"]), "expected_version": int(found["expected"])}
            await view.rest.post(f"/memories/{part(found['item'])}/rollback", body)
    for item in map(str, form.getlist("delete")):
        await view.rest.delete(f"/memories/{part(item)}", reason="undone")
    return view.announce("Undone.", _told(view, "Undone", "Everything is as it was before."))


def _cube(view: View) -> dict[str, str]:
    return {"cube": view.cube} if view.cube else {}


async def _undo_of(view: View, changed: Iterable[str]) -> list[str]:
    """Return what `undo` takes to bring memories back to the version before their last."""

    async def one(id_: str) -> str:
        last = (await view.rest.get(f"/memories/{part(id_)}/history"))[-1]["version"]
        return f"{id_}:{last - 1}:{last}"

    return list(await asyncio.gather(*map(one, changed)))


def _told(view: View, title: str, said: str, **values: Any) -> Response:
    nothing: dict[str, Any] = {
        "bad": False,
        "changed": (),
        "added": (),
        "now": (),
        "runners_up": (),
        "undo": (),
        "delete": (),
        "text": "",
        "pinned": "",
        "decided": None,
        "instead": "",
    }
    block = "outcome" if view.partial else None
    return view.render("ask_outcome.html", block=block, title=title, said=said, **(nothing | values))


PAGES = (
    Page("/ask/correct", correct, "POST"),
    Page("/ask/confirm", confirm, "POST"),
    Page("/ask/decide", decide, "POST"),
    Page("/ask/pin", pin, "POST"),
    Page("/ask/unpin", unpin, "POST"),
    Page("/ask/forget", forget, "POST"),
    Page("/ask/undo", undo, "POST"),
)
