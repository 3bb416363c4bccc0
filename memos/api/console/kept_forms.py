"""Forms that came without a valid session: what was typed is kept until somebody signed in again and sends it."""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from memos.errors import InvalidInput

MOST_BYTES = 64 * 1024
"""Longest form that is kept."""

_MOST_FIELDS = 2_000
_TYPE = "application/x-www-form-urlencoded"


class KeptForm(NamedTuple):
    """A form: the address below the console that it goes to, and its fields without the token."""

    path: str
    fields: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """Return it as a field of the form to sign in."""
        return json.dumps([self.path, self.fields], ensure_ascii=False)

    @property
    def typed(self) -> list[tuple[str, str]]:
        """Return what a person recognises it by: its fields with words, the longest first."""
        return sorted((field for field in self.fields if " " in field[1].strip()), key=lambda field: -len(field[1]))


async def kept_form(request: Request) -> KeptForm | None:
    """Return the form of a request of the console's own page, None for others, for files and for very long ones."""
    length, kind = (request.headers.get(name, "") for name in ("content-length", "content-type"))
    if request.method != "POST" or not _is_own(request) or not kind.startswith(_TYPE):
        return None
    if not length.isdecimal() or int(length) > 3 * MOST_BYTES:  # signs outside of ASCII take three times their place
        return None
    form = await request.form()
    fields = tuple((name, value) for name, value in form.multi_items() if name != "csrf" and isinstance(value, str))
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    kept = KeptForm(path + (f"?{request.url.query}" if request.url.query else ""), fields)
    return kept if len(kept.text.encode()) <= MOST_BYTES else None


def _is_own(request: Request) -> bool:
    """Return True if the browser says that a page of this server sent the request."""
    if "sec-fetch-site" in request.headers:
        return request.headers["sec-fetch-site"] == "same-origin"
    return urlsplit(request.headers.get("origin", "")).netloc == request.headers.get("host", "")


def read_kept(text: str) -> KeptForm | None:
    """Read the field of a form to sign in again. Raises: InvalidInput (something else wrote it)."""
    if not text:
        return None
    try:
        path, fields = json.loads(text)
        kept = KeptForm(str(path), tuple((str(name), str(value)) for name, value in fields))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput("kept", "is not a form that was kept; repeat what you did on its page") from error
    inside = kept.path.startswith("/") and not kept.path.startswith("//") and "\\" not in kept.path
    if not inside or len(kept.fields) > _MOST_FIELDS:
        raise InvalidInput("kept", "is not a form that was kept; repeat what you did on its page")
    return kept
