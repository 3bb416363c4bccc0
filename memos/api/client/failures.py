"""Makes of an answer that is an error the one that calls in Python raise, with its status and request id."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from memos.core.types import Json
from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    IntegrityError,
    InvalidInput,
    LimitReached,
    MemosError,
    ModelError,
    NotFound,
    PermissionDenied,
)

_BY_CODE: dict[str, type[MemosError]] = {
    kind.code: kind
    for kind in (
        InvalidInput, NotFound, Conflict, PermissionDenied, BackendUnavailable, BackendTimeout, LimitReached,
        ModelError, IntegrityError,
    )
}  # fmt: skip
_BY_NUMBER: dict[int, type[MemosError]] = {
    40000: InvalidInput, 40002: InvalidInput, 40130: PermissionDenied, 40132: PermissionDenied, 40305: InvalidInput,
    40306: PermissionDenied, 40307: NotFound, 40309: LimitReached, 50120: NotFound, 50131: NotFound,
}  # fmt: skip
_BY_STATUS: dict[int, type[MemosError]] = {
    400: InvalidInput, 401: PermissionDenied, 403: PermissionDenied, 404: NotFound, 408: BackendTimeout, 409: Conflict,
    413: InvalidInput, 422: InvalidInput, 429: LimitReached, 502: BackendUnavailable, 503: BackendUnavailable,
    504: BackendTimeout,
}  # fmt: skip
_PASSING = {408, 425, 500, 502, 503, 504}
_NAMED = re.compile(r"No such (?P<what>[^:]{1,100}): (?P<quote>['\"])(?P<name>.*?)(?P=quote)\.")
_FIELD = re.compile(r"(?P<field>[\w.\[\]-]{1,100}): (?P<reason>.+)", re.DOTALL)
_LONGEST_TOLD = 2_000
# Between us and the server something else may limit requests without saying for how long.
_UNSAID_S = 1.0


def failure(status: int, headers: Mapping[str, str], body: bytes) -> MemosError:
    """Return the error that an answer tells of; `headers` are looked up by their names in small letters."""
    told = _told(body)
    message = str(told.get("message") or "")[:_LONGEST_TOLD] or f"The server answered with status {status}."
    kind, wait_s = _kind(status, told.get("code")), retry_after_s(headers)
    if issubclass(kind, LimitReached):
        return seen(LimitReached(message, retry_after_s=_UNSAID_S if wait_s is None else wait_s), status, headers)
    error = _made(kind, message, str(told.get("field") or ""))
    if isinstance(error, BackendUnavailable):
        error.retry_after_s, error.permanent = wait_s, status not in _PASSING
    return seen(error, status, headers)


def seen(error: MemosError, status: int, headers: Mapping[str, str]) -> MemosError:
    """Return an error with the status and the request id of the answer it is about."""
    error.status, error.request_id = status, headers.get("x-request-id")
    return error


def strange(status: int, headers: Mapping[str, str], what: str) -> MemosError:
    """Return the error for an answer that no server of ours gives."""
    message = f"The server's answer is {what}: check that base_url names a memstrata server, of a version like this."
    return seen(BackendUnavailable(message, permanent=True), status, headers)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the server asks to wait, None when it does not say so."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:  # a date counts from the server's own clock, where it tells that
        until, now = parsedate_to_datetime(asked), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _told(body: bytes) -> dict[str, Json]:
    """Return code, message and field, from whichever of the families' envelopes."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    inner = found.get("error")
    return inner if isinstance(inner, dict) else found


def _kind(status: int, code: Json) -> type[MemosError]:
    if isinstance(code, str) and code in _BY_CODE:
        return _BY_CODE[code]
    if isinstance(code, int) and code in _BY_NUMBER:
        return _BY_NUMBER[code]
    if isinstance(code, int) and status == 502:
        return ModelError
    return _BY_STATUS.get(status, BackendUnavailable if status >= 500 else MemosError)


def _made(kind: type[MemosError], message: str, field: str) -> MemosError:
    if issubclass(kind, InvalidInput):
        split = _FIELD.fullmatch(message)
        named, reason = (split["field"], split["reason"]) if split is not None else (field or "request", message)
        return InvalidInput(named, reason)
    if issubclass(kind, NotFound):
        name = _NAMED.search(message)
        missing = NotFound(*((name["what"], name["name"]) if name is not None else ("thing", "")))
        missing.args = (message,)
        return missing
    return kind(message)
