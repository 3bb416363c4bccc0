"""How these routes show errors, and which every route may answer with."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from memos.api.views import error_view
from memos.errors import MemosError


class Problem(BaseModel):
    """What went wrong."""

    code: str = Field(description="Kind of error, such as `invalid_input` or `not_found`")
    message: str = Field(description="One sentence with the remedy")
    field: str | None = Field(None, description="Which part of the request is wrong, for `invalid_input`")


class ProblemBody(BaseModel):
    """The body of every answer that is an error."""

    error: Problem = Field(description="What went wrong")


_WHEN = {
    400: "Something in the request is wrong; `field` names it",
    401: "No key, or one that opens nothing",
    403: "The key may not do this",
    404: "There is no such thing where this key may look",
    409: "It is no longer as the request expects, or the name is taken",
    413: "The body is too large",
    429: "Too much at once; `Retry-After` says when to come back",
    500: "Stored data is damaged, or the server made a mistake; its log says which",
    502: "The language model gave no usable answer",
    503: "A store cannot be used now",
    504: "It took longer than allowed",
}

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemBody, "description": when} for status, when in _WHEN.items()
}
"""For `responses=` of every router."""


def show(error: MemosError, status: int) -> Response:
    """Return an error as these routes show it."""
    return JSONResponse(error_view(error), status)
