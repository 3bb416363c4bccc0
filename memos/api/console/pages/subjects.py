"""Pages of subject requests: preview, export and forget what is held about a person, and check receipts."""

from __future__ import annotations

import base64
import json
import unicodedata
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import UploadFile
from starlette.responses import Response

from memos.api.console.rest import RestError, part
from memos.api.console.view import COOKIE, Page, View
from memos.core.erasures import receipts_in

_SUGGESTED = 200
_CHECKED = 200  # receipts at once
_RELATIONS = {
    ("owned", False): "Their own: the whole cube goes",
    ("owned", True): "Your own: the whole cube goes",
    ("shared", False): "Of others: what they added goes",
    ("shared", True): "Of others: what you added goes",
    ("searched", False): "What they said, and what is stated of them",
}
"""Label of a cube, by its relation to the subject and whether the subject is the person signed in."""

_ACCOUNT = {
    "identities": ("user or agent of it", "the user and its agents"),
    "memberships": ("membership of a group", "memberships of groups"),
    "grants": ("role in a cube", "roles in cubes"),
    "api_keys": ("API key", "API keys"),
    "console_sessions": ("session of the console", "sessions of the console"),
    "repeats": ("record of a request that may be repeated", "records of requests that may be repeated"),
    "submissions": ("request in the background", "requests in the background"),
    "access_log": ("entry of the audit log, which is blanked", "entries of the audit log, which are blanked"),
}
"""Singular and plural names of the rows of a user account, by table."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The subject of a request, and the cube to which it is limited."""

    kind: str
    name: str
    only: str
    mentions: bool

    @classmethod
    def of(cls, view: View) -> _Asked:
        """Read the parameters of a page. Without a user id, people who are not admins ask about themselves."""
        kind = "person" if view.query("kind") == "person" else "user"
        name = view.query("who").strip()
        if kind == "user" and not view.administers:
            name = name or view.me["identity"]["id"]
        only = view.query("only") if kind == "person" else ""
        return cls(kind, name, only, bool(view.query("mentions")))

    @property
    def body(self) -> dict[str, Any]:
        cubes = [self.only] if self.only else None
        return {"subject": self.name, "kind": self.kind, "cubes": cubes}

    @property
    def address(self) -> dict[str, Any]:
        """Return the query parameters of the same request."""
        return {"kind": self.kind, "who": self.name, "only": self.only, "mentions": "1" if self.mentions else ""}


async def subject(view: View, problem: str = "") -> Response:
    """Show what is held about somebody, and what forgetting them would remove."""
    asked = _Asked.of(view)
    preview = None
    if view.query("who") or view.query("look"):
        preview, problem = await _previewed(view, asked, problem)
    return view.render(
        "data_subject.html",
        block="preview" if view.partial else None,
        asked=asked,
        preview=preview,
        problem=problem,
        status=view.wrong(problem),
        suggested=() if view.partial else await _suggested(view, asked.kind),
        relations=_RELATIONS,
        account=_ACCOUNT,
        forgets=preview is not None and _forgets(preview),
        may="own" in view.me["rights"],
        me=view.me["identity"]["id"],
        readable={each["id"] for each in view.cubes},
    )


async def _previewed(view: View, asked: _Asked, problem: str) -> tuple[dict[str, Any] | None, str]:
    if not asked.name:
        return None, problem or ("Give the id of a user." if asked.kind == "user" else "Give the name of a person.")
    try:
        return await view.rest.post("/subjects/preview", asked.body | {"mentions": asked.mentions}), problem
    except RestError as error:
        if error.status in (401, 403, 404):
            raise
        return None, problem or error.message


async def _suggested(view: View, kind: str) -> list[str]:
    """Return names to choose from: an admin's users, or people of the cube in question."""
    if kind == "user":
        users = await view.rest.get("/users", limit=_SUGGESTED) if view.administers else []
        return [user["id"] for user in users if user["kind"] != "group"]
    if not any(each["id"] == view.cube for each in view.cubes):
        return []
    people: list[str] = await view.rest.get("/profile/subjects", cube=view.cube)
    return people[:_SUGGESTED]


def _forgets(preview: dict[str, Any]) -> bool:
    """Return True if forgetting would remove anything."""
    allowed = [each for each in preview["cubes"] if each["allowed"]]
    return bool(preview["goes"] or preview["account"]) or any(
        each["files"] or each["relation"] == "owned" for each in allowed
    )


async def archive(view: View) -> Response:
    """Send what is held about somebody as a ZIP file."""
    asked = _Asked.of(view)
    if not view.query("who"):
        return view.redirect("/data/subject")

    def refused(error: RestError) -> Response:
        return view.render("error.html", status=error.status, message=error.message, code=error.status)

    return view.rest.download("/subjects/export", asked.body, refused)


async def forget(view: View) -> Response:
    asked = _Asked.of(view)
    if _typed(await view.field("confirmed")) != _typed(asked.name):
        return await subject(view, "What you typed is not the name above; nothing was forgotten.")
    expected = await view.field("expected")
    if not expected.isdecimal() or len(expected) > 12:
        return await subject(view, "Look at what goes first; nothing was forgotten.")
    # The background purges files and logs: should that take long or fail, the receipt is there nevertheless.
    body = asked.body | {"mentions": asked.mentions, "expected": int(expected), "wait": False}
    try:
        done = await view.rest.post("/subjects/forget", body)
    except RestError as error:
        if error.status == 401:
            raise
        return await subject(view, error.message)
    return await _receipt(view, asked, done)


def _typed(name: str) -> str:
    """Return a name in the form in which it is typed: composed accents, single spaces, no direction marks."""
    seen = "".join(sign for sign in unicodedata.normalize("NFC", name) if unicodedata.category(sign) != "Cf")
    return " ".join(seen.split()) or name


async def _receipt(view: View, asked: _Asked, done: dict[str, Any]) -> Response:
    """Show the receipt at once: it cannot be fetched later, and people who forgot themselves are signed out."""
    try:
        view.cubes = await view.rest.get("/cubes")
        signed_in = True
    except RestError:
        view.cubes, signed_in = [], False
    known = [each["id"] for each in view.cubes]
    if view.cube not in known:
        view.cube = known[0] if known else ""
    response = view.render(
        "subject_receipt.html",
        root=view.root,
        asked=asked,
        done=done,
        signed_in=signed_in,
        readable=set(known),
        account=_ACCOUNT,
        saved=_saved,
    )
    if not signed_in:
        response.delete_cookie(COOKIE, path=view.root or "/")
    return response


async def state(view: View) -> Response:
    """Show how far an erasure is; until it is finished, the page looks again."""
    id_ = view.request.path_params["receipt"]
    if not view.partial:
        return view.redirect(f"/erasures/{part(id_)}")
    return view.render("_erasure_state.html", each=await view.rest.get(f"/erasures/{part(id_)}"), signed_in=True)


def _saved(value: Any) -> str:
    """Return a data URL with a value as JSON, which is saved without scripts."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return f"data:application/json;base64,{base64.b64encode(text.encode()).decode()}"


async def check(view: View, problem: str = "", checks: list[dict[str, Any]] | None = None) -> Response:
    """Show how receipts are verified, and what a check of some found."""
    form = await view.form() if view.request.method == "POST" else None
    return view.render(
        "data_erase_check.html",
        given=view.query("receipt") if form is None else await view.field("receipt"),
        texts="" if form is None else await view.field("texts"),
        scan=form is not None and bool(form.get("scan")),
        checks=checks or [],
        problem=problem,
        status=view.wrong(problem),
        scans=view.administers,
    )


async def run_check(view: View) -> Response:
    file = (await view.form()).get("file")
    try:
        upload = (await file.read()).decode() if isinstance(file, UploadFile) else ""
    except UnicodeDecodeError:
        return await check(view, "The file is not a receipt: it is not text.")
    receipts = receipts_in(upload.strip() or await view.field("receipt"))
    if not receipts:
        return await check(view, "Choose the file of a receipt, paste one, or give the id of one.")
    if len(receipts) > _CHECKED:
        return await check(view, f"These are {len(receipts):,} receipts; check at most {_CHECKED} at once.")
    texts = [line.strip() for line in (await view.field("texts")).splitlines() if line.strip()]
    body: dict[str, Any] = {"scan": False}
    if view.administers:
        body = {"scan": bool(texts) or bool(await view.field("scan")), "texts": texts}
    try:
        checks = [await view.rest.post("/erasures/verify", body | {"receipt": receipt}) for receipt in receipts]
    except RestError as error:
        return await check(view, error.message)
    return await check(view, checks=checks)


PAGES = (
    Page("/data/subject", subject),
    Page("/data/subject/archive", archive),
    Page("/data/subject/forget", forget, "POST"),
    Page("/erasures/{receipt}/state", state),
    Page("/data/erase/check", check),
    Page("/data/erase/check", run_check, "POST"),
)
