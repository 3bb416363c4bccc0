"""Who may do what: users, agents and groups, API keys, and sessions of the console."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from memos.api.console.pages.sharing import PAGES as SHARING
from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View

_PEOPLE = 50
_COUNTED = 50  # keys whose use is looked up for a page
_EVERYBODY = "*"
_LOCAL_OWNER = "owner"  # needs no key, and can have none
_KINDS = ("user", "agent", "group")
_LIFETIMES = {"": "Never", "7": "7 days", "30": "30 days", "90": "90 days", "365": "A year"}
LIMITS = {
    "requests_per_minute": "Requests a minute",
    "items_per_day": "Memories a day",
    "bytes_per_day": "Bytes a day",
    "tokens_per_day": "Model tokens a day",
}


def decides(view: View) -> bool:
    """Return True if who is signed in decides about everybody."""
    return view.administers


async def people(view: View, problem: str = "") -> Response:
    kind = view.query("kind")
    found: list[dict[str, Any]] = []
    if decides(view):
        found = await view.rest.get("/users", kind=kind, limit=_PEOPLE + 1, after=view.query("after"))
    else:
        found = [view.me["identity"]]
    more = view.url("/access", kind=kind, after=found[_PEOPLE - 1]["id"]) if len(found) > _PEOPLE else ""
    return view.render(
        "access.html",
        block="people" if view.partial else None,
        people=found[:_PEOPLE],
        kind=kind,
        kinds=_KINDS,
        more=more,
        problem=problem,
        status=view.wrong(problem),
        decides=decides(view),
    )


async def create(view: View) -> Response:
    form = await view.form()
    told = {name: str(form.get(name, "")).strip() for name in ("id", "kind", "name", "acts_for")}
    body = {name: value for name, value in told.items() if value} | {"admin": bool(form.get("admin"))}
    try:
        made = await view.rest.post("/users", body)
    except RestError as error:
        return await people(view, problem=error.message)
    return await view.after(f"{made['id']} was created.", "/access", people)


async def enable(view: View) -> Response:
    id_, enabled = await view.field("id"), await view.field("enabled") == "true"
    await view.rest.patch(f"/users/{part(id_)}", {"enabled": enabled})
    told = f"{id_} is {'enabled' if enabled else 'disabled'}."
    return await view.after(told, "/access", people, kind=view.query("kind"))


async def offboard(view: View) -> Response:
    form = await view.form()
    id_, to = str(form.get("id", "")), str(form.get("transfer_to", "")).strip()
    try:
        done = await view.rest.post(f"/users/{part(id_)}/offboard", {"transfer_to": to or None})
    except RestError as error:
        return await people(view, problem=error.message)
    cubes = f"{len(done['transferred'])} cubes belong to {to}" if to else f"{len(done['kept'])} cubes are kept"
    told = (
        f"{id_} has left: {done['keys']} keys, {done['sessions']} sessions and {done['shares']} shares ended; {cubes}."
    )
    return await view.after(told, "/access", people, kind=view.query("kind"))


async def group(view: View, problem: str = "") -> Response:
    id_ = view.query("id")
    found = await view.rest.get(f"/groups/{part(id_)}/members")
    return view.render(
        "access_group.html",
        block="members" if view.partial else None,
        group=id_,
        problem=problem,
        status=view.wrong(problem),
        members=found["members"],
    )


async def join(view: View) -> Response:
    id_, member = view.query("id"), (await view.field("member")).strip()
    try:
        await view.rest.put(f"/groups/{part(id_)}/members/{part(member)}")
    except RestError as error:
        return await group(view, problem=error.message)
    return await view.after(f"{member} is in {id_}.", "/access/group", group, id=id_)


async def leave(view: View) -> Response:
    id_, member = view.query("id"), await view.field("member")
    await view.rest.delete(f"/groups/{part(id_)}/members/{part(member)}")
    return await view.after(f"{member} is no longer in {id_}.", "/access/group", group, id=id_)


async def keys(view: View, problem: str = "", made: dict[str, Any] | None = None) -> Response:
    mine: str = view.me["identity"]["id"]
    whose = view.query("identity") or (_EVERYBODY if mine == _LOCAL_OWNER else mine)
    everyone = decides(view) and whose == _EVERYBODY
    wanted: dict[str, Any] = {"everyone": True} if everyone else {"identity": whose}
    found = list(reversed(await view.rest.get("/keys", **wanted)))
    now = datetime.now(UTC)
    for key in found:
        key |= {"state": _state(key, now), "usage": ()}
    live = [key for key in found if key["state"] == "active"][:_COUNTED]
    usages = await asyncio.gather(*(view.rest.get(f"/keys/{key['id']}/usage") for key in live))
    for key, usage in zip(live, usages, strict=True):
        key["usage"] = _used(usage)
    return view.render(
        "access_keys.html",
        block="key_list" if view.partial else None,
        keys=found,
        whose=whose,
        owner="" if everyone else whose,
        made=made,
        problem=problem,
        status=view.wrong(problem),
        decides=decides(view),
        lifetimes=_LIFETIMES,
        limits=LIMITS,
        may=view.me["rights"],
    )


def _state(key: dict[str, Any], now: datetime) -> str:
    if key["revoked_at"]:
        return "revoked"
    expires = key["expires_at"] and datetime.fromisoformat(key["expires_at"])
    return "expired" if expires and expires <= now else "active"


def _used(usage: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return what a key used today of what is limited: a word, the number and the limit."""
    words = (("items", "memories"), ("bytes", "bytes"), ("tokens", "tokens"))
    found = [(word, usage[name], usage["limits"][f"{name}_per_day"]) for name, word in words]
    return [(word, used, most) for word, used, most in found if most is not None]


async def create_key(view: View) -> Response:
    form = await view.form()
    days = str(form.get("days", ""))
    body: dict[str, Any] = {
        "identity": str(form.get("owner", "")).strip() or None,
        "name": str(form.get("name", "")).strip(),
        "rights": [str(right) for right in form.getlist("rights")],
    }
    if cubes := [name.strip() for name in str(form.get("cubes", "")).splitlines() if name.strip()]:
        body["cubes"] = cubes
    if days and days in _LIFETIMES:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=int(days))).isoformat()
    limits = {name: int(str(form[name])) for name in LIMITS if str(form.get(name, "")).isdecimal()}
    if limits:
        body["limits"] = limits
    try:
        made = await view.rest.post("/keys", body)
    except RestError as error:
        return await keys(view, problem=error.message)
    return await keys(view, made=made)


async def rotate_key(view: View) -> Response:
    try:
        made = await view.rest.post(f"/keys/{part(await view.field('key'))}/rotate", {})
    except RestError as error:
        return await keys(view, problem=error.message)
    return await keys(view, made=made)


async def revoke_key(view: View) -> Response:
    revoked = await view.rest.delete(f"/keys/{part(await view.field('key'))}")
    told = f"The key {revoked['name']} is revoked."
    return await view.after(told, "/access/keys", keys, identity=view.query("identity"))


async def sessions(view: View) -> Response:
    found = await view.rest.get("/sessions")
    return view.render(
        "access_sessions.html", block="sessions" if view.partial else None, sessions=found, decides=decides(view)
    )


async def end_session(view: View) -> Response:
    await view.rest.delete(f"/sessions/{part(await view.field('session'))}")
    return await view.after("The session has ended.", "/access/sessions", sessions)


PAGES = (
    Page("/access", people),
    Page("/access/create", create, "POST"),
    Page("/access/enable", enable, "POST"),
    Page("/access/offboard", offboard, "POST"),
    Page("/access/group", group),
    Page("/access/group/join", join, "POST"),
    Page("/access/group/leave", leave, "POST"),
    Page("/access/keys", keys),
    Page("/access/keys/create", create_key, "POST"),
    Page("/access/keys/rotate", rotate_key, "POST"),
    Page("/access/keys/revoke", revoke_key, "POST"),
    Page("/access/sessions", sessions),
    Page("/access/sessions/end", end_session, "POST"),
    *SHARING,
)
