"""The shape of every answer of these routes, and the protocol's number of each error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from memos.api.auth import NoKey
from memos.core.types import Json
from memos.errors import BackendUnavailable, InvalidInput, MemosError, ModelError, NotFound, PermissionDenied

_BY_STATUS: Final = {401: 40132, 413: 40305, 429: 40309, 503: 50000, 504: 50000, 502: 50000, 500: 50000}
_NO_SUCH: Final = {"task": 50131, "cube": 50120, "knowledge base": 50120, "file": 50120, "content of file": 50120}


class Empty(InvalidInput):
    """A field that is required is missing or empty."""

    number = 40002


class TooLong(InvalidInput):
    """A text has more tokens than are taken."""

    number = 40305
    status = 413


class MayNotDelete(PermissionDenied):
    """The key may not delete what it names."""

    number = 40306


class AddFailed(BackendUnavailable):
    """What was sent could not be stored now."""

    number = 50143


def number_of(error: MemosError, status: int) -> int:
    """Return the protocol's number of an error."""
    own = getattr(error, "number", None)
    if isinstance(own, int):
        return own
    if isinstance(error, NoKey):
        return 40130
    if isinstance(error, NotFound):
        return _NO_SUCH.get(error.what, 40307)
    if isinstance(error, PermissionDenied):
        return 40132
    if isinstance(error, InvalidInput) and error.reason == "Field required":
        return Empty.number
    return _BY_STATUS.get(status, 40000)


def ok(data: Json) -> dict[str, Any]:
    """Return data as these routes answer it."""
    return {"code": 0, "message": "ok", "data": data}


def show(error: MemosError, status: int) -> Response:
    """Return an error as these routes show it."""
    told = {"code": number_of(error, status), "message": str(error), "data": None}
    return JSONResponse(told, TooLong.status if isinstance(error, TooLong) else status)


@contextmanager
def storing() -> Iterator[None]:
    """Say of what a store or model could not do now that an add failed."""
    try:
        yield
    except BackendUnavailable as error:
        raise AddFailed(str(error), permanent=error.permanent, retry_after_s=error.retry_after_s) from error
    except ModelError as error:
        raise AddFailed(str(error), permanent=error.permanent) from error


@contextmanager
def deleting() -> Iterator[None]:
    """Say of what the key may not do that it may not delete."""
    try:
        yield
    except PermissionDenied as error:
        raise MayNotDelete(str(error)) from error
