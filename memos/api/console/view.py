"""`View`: what a page is made with, and `Page`, its address. Templates are rendered here."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import jinja2
from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from memos.api.console.rest import Rest, RestError
from memos.version import __version__

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
COOKIE = "memos_session"
CUBE_COOKIE = "memos_cube"
NOTICE_COOKIE = "memos_notice"
_NOTICE_S = 60
_NOTICE_CHARS = 600


Handler = Callable[["View"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path below `/console`, and the handler of a method."""

    path: str
    handler: Handler
    method: str = "GET"


@dataclass(slots=True)
class View:
    """A request for a page by somebody who is signed in: the API, the cube in question, and the answer to give.

    `cube` is the one that the query names, or the one used last; `cubes` are all that may be read. `rights`
    are those in `cube`; the key may have others elsewhere.
    """

    request: Request
    rest: Rest
    secret: str
    me: Mapping[str, Any] = field(default_factory=dict)
    cubes: list[dict[str, Any]] = field(default_factory=list)
    cube: str = ""
    rights: list[str] = field(default_factory=list)

    async def load(self) -> None:
        """Ask who is signed in, which cubes there are, and what they may do with the one in question."""
        self.me = await self.rest.get("/me")
        self.cubes = await self.rest.get("/cubes")
        self.cube = self.query("cube") or await self._usual_cube()
        self.rights = self.me["rights"]
        if any(each["id"] == self.cube for each in self.cubes):
            self.rights = (await self.rest.get("/me", cube=self.cube))["rights"]

    async def _usual_cube(self) -> str:
        known = {each["id"] for each in self.cubes}
        home: str = self.me["identity"]["home"] or ""
        for cube in (self.last_cube, home):
            if cube in known:
                return cube
        busiest = (await self.rest.get("/overview"))["cubes"] if known else []
        return str(max(busiest, key=lambda each: each["events"])["cube"]) if busiest else home

    @property
    def last_cube(self) -> str:
        """The cube of the page before, as the browser keeps it."""
        return unquote(self.request.cookies.get(CUBE_COOKIE, ""))

    @property
    def root(self) -> str:
        """The path of the console, behind which its pages are."""
        return root_of(self.request)

    @property
    def admin(self) -> bool:
        return bool(self.me.get("identity", {}).get("admin"))

    @property
    def administers(self) -> bool:
        """Return True if the key may do what only admins may."""
        return self.admin and "own" in self.me["rights"]

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        value: str = self.request.query_params.get(name, default)
        return value

    async def form(self) -> FormData:
        return await self.request.form()

    async def field(self, name: str, default: str = "") -> str:
        """Return a field of the submitted form as text."""
        value = (await self.form()).get(name, default)
        return value if isinstance(value, str) else default

    @property
    def partial(self) -> bool:
        """Return True if htmx asks for a part of the page."""
        return "hx-request" in self.request.headers and "hx-history-restore-request" not in self.request.headers

    def url(self, path: str, **params: Any) -> str:
        """Return the address of a page; the cube in question goes with it."""
        kept = {"cube": self.cube} | params
        given = [(name, value) for name, value in kept.items() if value not in (None, "")]
        return self.root + path + (f"?{urlencode(given, doseq=True)}" if given else "")

    def may(self, right: str) -> bool:
        """Return True if the key may do so in the cube in question."""
        return right in self.rights

    @property
    def notice(self) -> str:
        """The message of the last change, shown once on the next page."""
        signature, _, text = unquote(self.request.cookies.get(NOTICE_COOKIE, "")).partition(":")
        return text if hmac.compare_digest(signature.encode(), _signature(self.secret, text).encode()) else ""

    def render(self, template: str, *, block: str | None = None, status: int = 200, **values: Any) -> Response:
        """Return a page, or only one block of its template."""
        found = environment().get_template(template)
        told = {"view": self, "url": self.url, "csrf": csrf_token(self.secret), **values}
        if block is None:
            return HTMLResponse(found.render(told), status)
        return HTMLResponse("".join(found.blocks[block](found.new_context(told))), status)

    def redirect(self, path: str, notice: str = "", **params: Any) -> Response:
        """Send the browser on to a page after a change; with a `notice`, that page says so once."""
        target = self.url(path, **params)
        response: Response
        if self.partial:
            response = Response(status_code=204, headers={"HX-Redirect": target})
        else:
            response = RedirectResponse(target, 303)
        if notice:
            text = notice[:_NOTICE_CHARS]
            value = quote(f"{_signature(self.secret, text)}:{text}", safe="")
            path = self.root or "/"
            response.set_cookie(NOTICE_COOKIE, value, max_age=_NOTICE_S, path=path, httponly=True, samesite="lax")
        return response

    async def after(self, notice: str, path: str, page: Handler, **params: Any) -> Response:
        """Answer a change: scripts get the page's part as it is now, other browsers are sent on to the page."""
        if not self.partial:
            return self.redirect(path, notice, **params)
        return self.announce(notice, await page(self))

    def wrong(self, problem: str) -> int:
        """Return the status of a page that says what is wrong with a form; parts of pages take errors elsewhere."""
        return 400 if problem and not self.partial else 200

    def announce(self, text: str, response: Response) -> Response:
        """Return the answer with a text that the browser announces."""
        # After the swap: who acts on the announcement acts on what is there now.
        event = "HX-Trigger" if response.status_code == 204 else "HX-Trigger-After-Settle"
        response.headers[event] = json.dumps({"notice": text})
        return response


def root_of(request: HTTPConnection) -> str:
    """Return the path of the console, behind which its pages are."""
    path: str = request.scope.get("root_path", "")
    return path


def _signature(secret: str, text: str) -> str:
    """Return what tells a notice of this session from a text that something else put into the cookie."""
    return hmac.new(secret.encode(), f"notice:{text}".encode(), hashlib.sha256).hexdigest()[:32]


async def nothing() -> list[dict[str, Any]]:
    """Return an empty list, in place of a request that is not needed."""
    return []


def csrf_token(secret: str) -> str:
    """Return the token that a form of a session carries."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


@cache
def environment() -> jinja2.Environment:
    """Return the templates: everything put into them is escaped, and a name that does not exist is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"state": state, "word": word, "property": property_of, "happened": happened}
    made.filters |= {"when": when, "day": day, "ago": ago, "number": number, "size": size, "pretty": pretty}
    made.globals |= {"version": __version__, "asset": asset, "RestError": RestError}
    made.globals["ui"] = made.get_template("_parts.html").module  # a block alone would not see what a template imports
    return made


EVENTS = {
    "add": "added",
    "analyse": "read into facts",
    "archive": "archived",
    "change": "cube changed",
    "compose": "prompt beginning composed",
    "create": "cube created",
    "define": "tool defined",
    "delete": "deleted",
    "derive": "read out of a message",
    "end": "ended",
    "erase": "erased",
    "expire": "erased at the end of their time",
    "file": "document",
    "load": "loaded",
    "mask": "masked",
    "merge": "said again",
    "move": "moved between tiers",
    "pin": "pinned",
    "read": "messages read",
    "relation": "decided on two statements",
    "retention": "rule of retention applied",
    "rollback": "rolled back",
    "rule": "rule of retention changed",
    "share": "shared",
    "split": "names split",
    "supersede": "replaced",
    "template": "profile template changed",
    "ttl": "time to live changed",
    "unpin": "unpinned",
    "update": "changed",
}
"""The words for an event, by its kind."""


def happened(kind: str) -> str:
    """Return what is said of an event."""
    return EVENTS.get(kind, kind.replace("_", " "))


_WORDS = {
    "superseded": "replaced",
    "pending": "waits for review",
    "deleted": "forgotten",
    "user": "about a person",
    "assistant": "about the assistant",
    "long_term": "conclusion",
}


def word(value: str) -> str:
    """Return what people call a type, a status or a standing."""
    return _WORDS.get(value, value.replace("_", " "))


def property_of(key: str | None) -> str:
    """Return what a key is about, such as `residence` of `maya|residence` and of `maya|profile:life.residence`."""
    return (key or "").rpartition("|")[2].rpartition(".")[2].replace("_", " ")


def state(memory: Mapping[str, Any]) -> str:
    """Return how a memory, a hit or what held on a day stands: its status if no search finds it, else its standing."""
    status = str(memory.get("item", memory)["status"])
    return status if status in ("pending", "deleted") else str(memory["standing"])


@cache
def asset(name: str) -> str:
    """Return the path of a static file below the console, with a digest so that browsers may keep it."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def _moment(value: str | datetime) -> datetime:
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at.astimezone(UTC)


def when(value: str | datetime | None) -> Markup | str:
    """Return a time to the minute, in UTC, as an element that knows it exactly."""
    if not value:
        return "–"
    at = _moment(value)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC", f"{at:%Y-%m-%d %H:%M}"
    )


def day(value: str | datetime | None) -> str:
    return f"{_moment(value):%Y-%m-%d}" if value else "–"


def ago(value: str | datetime | None) -> Markup | str:
    """Return how long ago a time was, in its largest unit."""
    if not value:
        return "never"
    at = _moment(value)
    seconds = (datetime.now(UTC) - at).total_seconds()
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            told = f"{seconds / length:.0f} {unit} ago"
            break
    else:
        told = "just now"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC", told
    )


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Return a number of bytes in its largest unit."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return ""


def pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
