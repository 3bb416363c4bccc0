"""Envelope, errors, common checks and subjects of this protocol. Knows no route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from memos.api.auth import Unauthenticated
from memos.api.dialects import RequestIdentity, envelope, error_envelope, resolve_identity
from memos.api.wording import REQUIRED
from memos.core.identities import EVERYONE, Caller
from memos.core.message_shapes import Shaped
from memos.core.tokens import estimate_tokens
from memos.core.types import CubeKind, Json
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError, ModelError, NotFound, PermissionDenied
from memos.kernel.memos import MemOS

_BY_STATUS: Final = {401: 40132, 413: 40305, 429: 40309, 503: 50000, 504: 50000, 502: 50000, 500: 50000}
_NO_SUCH: Final = {"task": 50131, "cube": 50120, "knowledge base": 50120, "file": 50120, "content of file": 50120}


class Empty(InvalidInput):
    number = 40002


class TooLong(InvalidInput):
    number = 40305
    status = 413


class MayNotDelete(PermissionDenied):
    number = 40306


class AddFailed(BackendUnavailable):
    number = 50143


def number_of(error: MemosError, status: int) -> int:
    own = getattr(error, "number", None)
    if isinstance(own, int):
        return own
    if isinstance(error, Unauthenticated):
        return 40130
    if isinstance(error, NotFound):
        return _NO_SUCH.get(error.what, 40307)
    if isinstance(error, PermissionDenied):
        return 40132
    if isinstance(error, InvalidInput) and error.reason == REQUIRED:
        return Empty.number
    return _BY_STATUS.get(status, 40000)


def ok(data: Json) -> dict[str, Any]:
    return envelope(0, "ok", data)


def error_response(error: MemosError, status: int) -> Response:
    return error_envelope(error, number_of(error, status), TooLong.status if isinstance(error, TooLong) else status)


@contextmanager
def storing() -> Iterator[None]:
    try:
        yield
    except BackendUnavailable as error:
        raise AddFailed(str(error), permanent=error.permanent, retry_after_s=error.retry_after_s) from error
    except ModelError as error:
        raise AddFailed(str(error), permanent=error.permanent) from error


@contextmanager
def deleting() -> Iterator[None]:
    try:
        yield
    except PermissionDenied as error:
        raise MayNotDelete(str(error)) from error


Names = str | list[str] | None
_Value = TypeVar("_Value")

MOST_PEOPLE = 100
_MOST_PAGES = 1_000_000


class Body(BaseModel):
    """A request; other clients send more than this one, which is left aside."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Subject(Body):
    """A request about one user or agent."""

    user_id: str | None = Field(None, description="User")
    agent_id: str | None = Field(None, description="Agent; a user or an agent is required")


def required(field: str, value: _Value | None) -> _Value:
    if value is None or (isinstance(value, str) and not value.strip()) or value in ([], {}):
        raise Empty(field, "is required")
    return value


def bounded(field: str, value: int | None, default: int, most: int) -> int:
    if value is None:
        return default
    if not 0 <= value <= most:
        raise InvalidInput(field, f"must be from 0 to {most}")
    return value


def page_of(number: int | None, field: str, size: int | None, most: int) -> tuple[int, int]:
    number, size = 1 if number is None else number, bounded(field, size, 10, most)
    if not 1 <= number <= _MOST_PAGES or size < 1:
        raise InvalidInput("page" if size else field, "must be at least 1")
    return number, size


def only_one(**given: Any) -> str:
    named = [name for name, value in given.items() if value not in (None, "", [])]
    if not named:
        raise Empty(" or ".join(given), "is required")
    if len(named) > 1:
        raise InvalidInput(" and ".join(named), "are mutually exclusive; pass exactly one")
    return named[0]


def check_tokens(field: str, text: str, most: int) -> None:
    if (tokens := estimate_tokens(text)) > most:
        raise TooLong(field, f"has about {tokens:,} tokens, more than the limit of {most:,}; send it in parts")


def said(messages: Json | Shaped) -> str:
    texts: list[str] = []
    messages = messages.messages if isinstance(messages, Shaped) else messages
    for message in messages if isinstance(messages, list) else [messages]:
        content = message.get("content") if isinstance(message, dict) else message
        for part in content if isinstance(content, list) else [content]:
            text = part.get("text") if isinstance(part, dict) else part
            texts += [text] if isinstance(text, str) else []
    return "\n".join(texts)


PUBLIC: Final = "public"
"""The cube of what everybody may find."""

ALL: Final = "all"
_SCOPES: Final = frozenset({"user", "public", "knowledgebase"})


def subject(memos: MemOS, caller: Caller, body: Subject, *, new: bool = False) -> RequestIdentity:
    agent = only_one(user_id=body.user_id, agent_id=body.agent_id) == "agent_id"
    return resolve_identity(memos, caller, body.agent_id if agent else body.user_id, agent=agent, new=new)


def known(memos: MemOS, caller: Caller, body: Subject) -> RequestIdentity | None:
    """Return the identity a read acts for, None if an admin names somebody unknown."""
    try:
        return subject(memos, caller, body)
    except NotFound:
        if not caller.identity.admin:
            raise
        return None


def everybody(
    memos: MemOS, caller: Caller, users: Names, agents: Names
) -> list[tuple[dict[str, str], RequestIdentity]]:
    """Return the identities to store for, with their names; an agent also stores for the users in the request."""
    named = {"user_id": _names("user_id", users), "agent_id": _names("agent_id", agents)}
    if not named["user_id"]:
        required("user_id or agent_id", named["agent_id"])
        return [({"agent_id": id_}, resolve_identity(memos, caller, id_, agent=True)) for id_ in named["agent_id"]]
    if len(named["agent_id"]) > 1:
        raise InvalidInput("agent_id", "names several agents; with users give at most one")
    by = {"agent_id": named["agent_id"][0]} if named["agent_id"] else {}
    return [({"user_id": id_, **by}, resolve_identity(memos, caller, id_)) for id_ in named["user_id"]]


def knowledge(memos: MemOS, caller: Caller, ids: Sequence[str] | None) -> list[str]:
    if not ids:
        return []
    actor = caller.identity.id
    if ALL in ids:
        if len(ids) > 1:
            raise InvalidInput("knowledgebase_ids", f"must be ids, or {ALL!r} alone")
        return [base.id for base in memos.knowledge.list(actor=actor)]
    for id_ in ids:
        base_of(memos, caller, id_)
    return list(dict.fromkeys(ids))


def base_of(memos: MemOS, caller: Caller, id_: str) -> str:
    """Return the cube of a knowledge base. Raises: NotFound, also for another kind of cube."""
    try:
        return memos.knowledge.get(id_, actor=caller.identity.id).id
    except NotFound as error:
        raise NotFound("knowledge base", id_) from error


def public_cube(memos: MemOS, caller: Caller) -> str:
    """Return the public cube; an admin's request creates it if users may be created too. Raises: InvalidInput."""
    me = caller.identity
    if PUBLIC not in {cube.id for cube in memos.cubes.list(actor=me.id)}:
        if not (me.admin and memos.settings.server.new_users):
            raise InvalidInput(
                "allow_public", f"needs a cube {PUBLIC!r}, which does not exist; an admin can create and share it"
            )
        with suppress(Conflict):  # somebody else's request made it meanwhile
            memos.cubes.create(PUBLIC, actor=me.id, description="memories that everybody can read")
            memos.sharing.grant(PUBLIC, EVERYONE, "reader", actor=me.id)
    return PUBLIC


def readable_public(memos: MemOS, actor: str) -> list[str]:
    return [cube.id for cube in memos.cubes.list(actor=actor) if cube.id == PUBLIC and cube.kind is CubeKind.MEMORY]


def scoped_filter(given: Json, cubes: dict[str, list[str]]) -> Json:
    """Return one filter for all `cubes` by scope, from a plain filter or from one for each scope."""
    if not isinstance(given, dict) or not given or not set(given) <= _SCOPES:
        return given
    parts = []
    for scope, names in cubes.items():
        if names:
            here: Json = {"cube": {"in": names}}
            parts.append({"and": [here, given[scope]]} if given.get(scope) else here)
    return {"or": parts} if parts else None


def _names(field: str, given: Names) -> list[str]:
    names = [given] if isinstance(given, str) else list(given or [])
    if len(names) > MOST_PEOPLE:
        raise InvalidInput(field, f"has {len(names)} ids, more than the limit of {MOST_PEOPLE}")
    return list(dict.fromkeys(required(field, name) for name in names if name != "" or isinstance(given, list)))
