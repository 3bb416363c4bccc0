"""Sharing as a matrix of cubes and identities, the audit, and how programs connect."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View

_CUBES = 20
_COLUMNS = 30
_EVERYONE = "*"
_ROLES = ("reader", "editor", "owner")

AREAS = {
    "access": (
        "Sign-ins, keys and sharing",
        [
            *("sign-in", "sign-out", "session-end", "key-create", "key-limit", "key-revoke", "user-create"),
            *("key-rotate", "user-enable", "user-disable", "user-offboard", "group-join", "group-leave"),
            *("share", "unshare", "transfer", "allow_learning", "disallow_learning", "record-reads"),
        ],
    ),
    "read": ("What was read", ["read"]),
    "erase": ("Erasures, deletions and dumps", ["erase", "delete", "expire", "erasure", "forget", "dump"]),
    "change": (
        "Corrections and settings",
        ["update", "supersede", "end", "rollback", "change", "rule", "ttl", "template"],
    ),
    "add": ("What was added", ["add", "derive", "load", "create"]),
}
_WORDS = {
    "sign-in": "signed in", "sign-out": "signed out", "session-end": "ended a session", "key-create": "created a key",
    "key-limit": "changed a key's limits", "key-revoke": "revoked a key", "user-create": "created",
    "key-rotate": "rotated a key", "user-offboard": "ended all access of", "transfer": "gave the cube a new owner",
    "read": "read", "record-reads": "changed whether reads are recorded",
    "user-enable": "enabled", "user-disable": "disabled", "group-join": "added to a group",
    "group-leave": "removed from a group", "share": "shared the cube", "unshare": "stopped sharing the cube",
    "add": "added memories", "update": "changed a memory", "delete": "deleted memories", "erase": "erased memories",
    "rollback": "restored a version", "create": "created the cube", "change": "changed the cube",
    "supersede": "replaced a memory", "end": "ended a memory", "derive": "read facts", "move": "moved memories",
    "pin": "pinned a memory", "unpin": "unpinned a memory", "heat": "noted uses", "template": "changed the template",
    "rule": "changed a retention rule", "load": "loaded a file", "ttl": "changed a time to live",
    "expire": "erased memories at the end of their time", "erasure": "got a receipt", "dump": "dumped the cube",
    "forget": "forgot a person",
}  # fmt: skip
_PAGE = 50


async def sharing(view: View, problem: str = "") -> Response:
    me: str = view.me["identity"]["id"]
    wanted = view.query("find").strip().casefold()
    listed = [cube for cube in view.cubes if wanted in cube["id"].casefold()]
    # One's own first; of others' one may still be an owner, which only the API knows.
    mine = listed if view.admin else sorted(listed, key=lambda cube: (cube["owner"] != me, cube["id"]))
    # The list is not in the order of ids, so that it goes on behind the place of the last one.
    begin = next((place for place, cube in enumerate(mine, 1) if cube["id"] == view.query("after")), 0)
    mine = mine[begin:]
    shown = mine[:_CUBES]
    rows = [row for row in await asyncio.gather(*(_row(view, cube) for cube in shown)) if row is not None]
    added = view.query("with").strip()
    columns = sorted({name for row in rows for name in row["roles"]} - {_EVERYONE})
    if added and added not in (_EVERYONE, *columns):
        columns.insert(0, added)
    shown_with = {"find": view.query("find"), "with": added}
    return view.render(
        "access_sharing.html",
        block="matrix" if view.partial else None,
        rows=rows,
        columns=[_EVERYONE, *columns[:_COLUMNS]],
        hidden=max(0, len(columns) - _COLUMNS),
        roles=_ROLES,
        find=view.query("find"),
        added=added,
        problem=problem,
        status=view.wrong(problem),
        more=view.url("/access/sharing", **shown_with, after=shown[-1]["id"]) if len(mine) > _CUBES else "",
    )


async def _row(view: View, cube: dict[str, Any]) -> dict[str, Any] | None:
    try:
        grants = await view.rest.get(f"/cubes/{part(cube['id'])}/grants")
    except RestError as error:
        if error.status in (403, 404):
            return None
        raise
    return {**cube, "roles": {grant["identity"]: grant["role"] for grant in grants}}


async def change_role(view: View) -> Response:
    cube, identity, role = await view.field("shared"), await view.field("identity"), await view.field("role")
    path = f"/cubes/{part(cube)}/grants/{part(identity)}"
    who = "everyone" if identity == _EVERYONE else identity
    told = f"{who} is now {role} of {cube}." if role else f"{cube} is no longer shared with {who}."
    try:
        await (view.rest.put(path, {"role": role}) if role else view.rest.delete(path))
    except RestError as error:
        return await sharing(view, problem=error.message)
    kept = {name: view.query(name) for name in ("find", "with", "after")}
    return await view.after(told, "/access/sharing", sharing, **kept)


async def audit(view: View) -> Response:
    area, by, before = view.query("area"), view.query("by").strip(), view.query("before")
    here = view.query("here") == "true"
    kinds = AREAS[area][1] if area in AREAS else []
    found = await view.rest.get(
        "/audit", cube=[view.cube] if here else [], by=by, kind=kinds, before=before, limit=_PAGE + 1
    )
    entries = found[:_PAGE]
    more = ""
    if len(found) > _PAGE:
        told = {"area": area, "by": by, "here": "true" if here else "", "before": entries[-1]["id"]}
        more = view.url("/access/audit", **told)
    return view.render(
        "access_audit.html",
        block="rows" if view.partial and before else "entries" if view.partial else None,
        entries=entries,
        more=more,
        area=area,
        areas=AREAS,
        by=by,
        here=here,
        words=_WORDS,
    )


async def verify(view: View) -> Response:
    report = await view.rest.get("/audit/verify", cube=view.cube)
    return (
        view.render("access_audit.html", block="chain", report=report)
        if view.partial
        else view.redirect("/access/audit")
    )


async def connect(view: View) -> Response:
    url = view.request.url
    return view.render("access_connect.html", address=f"{url.scheme}://{url.netloc}", name=view.me["identity"]["id"])


PAGES = (
    Page("/access/sharing", sharing),
    Page("/access/sharing/change", change_role, "POST"),
    Page("/access/audit", audit),
    Page("/access/audit/verify", verify),
    Page("/access/connect", connect),
)
