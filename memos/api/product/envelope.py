"""The envelope these routes answer in: `{code, message, data}`; an error has its HTTP status as code too."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from memos.api.auth import Who, who
from memos.core.identities import Caller
from memos.errors import InvalidInput, MemosError
from memos.kernel.memos import MemOS


class Body(BaseModel):
    """A request's body; clients send fields of other versions too, which mean nothing here."""

    model_config = ConfigDict(extra="ignore")


def done(data: Any, message: str = "ok") -> dict[str, Any]:
    """Return a good answer."""
    return {"code": 200, "message": message, "data": data}


def show(error: MemosError, status: int) -> Response:
    """Return an error as these routes show it."""
    told: dict[str, Any] = {"code": status, "message": str(error), "data": None, "error": error.code}
    if isinstance(error, InvalidInput):
        told["field"] = error.field
    return JSONResponse(told, status)


def acting(memos: MemOS, caller: Caller, user_id: str | None, cubes: list[str] | None) -> tuple[Who, list[str]]:
    """Return for whom a request acts and the cubes it names, the user's own when it names none."""
    whom = who(memos, caller, user_id)
    return whom, list(dict.fromkeys(cubes)) if cubes else [whom.home]
