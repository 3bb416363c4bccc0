"""Errors in OpenAI's envelope."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from memos.api.wording import message_of
from memos.core.types import Json
from memos.errors import BackendUnavailable, InvalidInput, MemosError

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
    if isinstance(error, BackendUnavailable) and error.permanent:
        told.headers["x-should-retry"] = "false"
    return told


def problem(error: MemosError, status: int) -> dict[str, Json]:
    """Return the body of an error."""
    return {
        "error": {
            "message": message_of(error),
            "type": _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error"),
            "param": error.field if isinstance(error, InvalidInput) else None,
            "code": error.code,
        }
    }
