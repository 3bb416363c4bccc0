"""Errors in the form of OpenAI's API, which the chat endpoint speaks too."""

from __future__ import annotations

import json

from starlette.responses import JSONResponse, Response

from memos.api.wording import message_of
from memos.core.types import Json
from memos.errors import BackendUnavailable, InvalidInput, MemosError

_MOST_TOLD = 2_000
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def error_response(error: MemosError, status: int) -> Response:
    """Return an error in OpenAI's envelope, marked as not worth a retry if it is permanent."""
    told = JSONResponse(problem(error, status), status)
    mark_permanent(error, told)
    return told


def mark_permanent(error: MemosError, response: Response) -> None:
    """Tell the official clients not to repeat a request that fares the same until somebody changes the server."""
    if isinstance(error, BackendUnavailable) and error.permanent:
        response.headers["x-should-retry"] = "false"


def problem(error: MemosError, status: int) -> dict[str, Json]:
    return {
        "error": {
            "message": message_of(error),
            "type": _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error"),
            "param": error.field if isinstance(error, InvalidInput) else None,
            "code": error.code,
        }
    }


def message_in(raw: bytes) -> str:
    """Return what an endpoint says of a failure, whatever its form."""
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        told = raw.decode("utf-8", "replace")
    for name in ("error", "message"):
        told = told.get(name, told) if isinstance(told, dict) else told
    text = told if isinstance(told, str) else json.dumps(told)
    return text.strip()[:_MOST_TOLD] or "The language model's endpoint refused the request."
