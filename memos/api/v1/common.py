"""Shared parts of the routes: parameters, identity and cube, errors, and answers that no client method returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any, TypedDict, get_type_hints
from urllib.parse import parse_qsl, urlencode

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import ResponseValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import JSONResponse, Response

from memos.api.dialects import RequestIdentity, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos, fields_at
from memos.api.values import Value, wire_type
from memos.api.wording import message_of
from memos.core import types
from memos.core.aliases import ALIASES, resolve_aliases, unknown_name
from memos.core.identities import Caller
from memos.core.types import Json
from memos.errors import InvalidInput, MemosError
from memos.kernel import tools
from memos.kernel.idempotency import Creation
from memos.kernel.memos import MemOS

_USER = "User or agent to act for; default: the owner of the key"
_CUBE = "Cube; default: the user's own cube"

IdempotencyKey = Annotated[
    str | None,
    Header(
        description=(
            "Repeats of the request with this key within 24 hours have no second effect; another request with it gets "
            "409"
        )
    ),
]
UserName = Annotated[str | None, Query(description=_USER)]
CubeName = Annotated[str | None, Query(description=_CUBE)]
ItemCube = Annotated[str | None, Query(description="Cube that must contain it; default: any cube")]
Limit = Annotated[int, Query(description="Maximum number of entries, at most 10,000")]
FilterText = Annotated[str | None, Query(description="Filter as JSON text (docs/reference/filters.md)")]
ItemId = Annotated[str, Path(description="Id of a memory")]
CubeId = Annotated[str, Path(description="Id of a cube")]
IdentityId = Annotated[str, Path(description="Id of a user, agent or group")]
FileId = Annotated[str, Path(description="Id of a file")]
AdapterId = Annotated[str, Path(description="Id of an adapter")]
TaskId = Annotated[str, Path(description="Id of a task")]
Timeout = Annotated[float, Query(description="Maximum time to wait, in seconds", ge=0, le=3600, allow_inf_nan=False)]
Moment = str | int | float | None
"""A time in a body: ISO 8601, or milliseconds since 1970."""


MinRelevance = Annotated[float, Field(strict=True)]
"""A relevance in a body: a number from 0 to 1."""


class Body(BaseModel):
    """A request's body: no field that is not known, and for whom it is."""

    model_config = ConfigDict(extra="forbid")

    user: str | None = Field(None, description=_USER)

    @model_validator(mode="before")
    @classmethod
    def _resolve_aliases(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        resolved = resolve_aliases(given, cls.model_fields)
        if "cubes" in cls.model_fields and isinstance(resolved.get("cubes"), str):
            resolved["cubes"] = [resolved["cubes"]]
        return resolved

    def given(self, *besides: str) -> dict[str, Any]:
        """Return the fields that a call takes under their names: all but for whom and where, and `besides`."""
        apart = {"user", "cube", "cubes", *besides}
        return {name: getattr(self, name) for name in type(self).model_fields if name not in apart}


class CubeBody(Body):
    """A request's body about a cube."""

    cube: str | None = Field(None, description=_CUBE)


class ItemBody(Body):
    """A request's body about one memory."""

    cube: str | None = Field(None, description="Cube that must contain it; default: any cube")


class RequestTarget(TypedDict):
    """Actor and cube of a request, as most calls take them: `**target`."""

    actor: str
    cube: str


async def current_identity(memos: CurrentMemos, caller: CurrentCaller, user: UserName = None) -> RequestIdentity:
    if user is None or user == caller.identity.id:  # needs no look into the ledger, and so no thread
        return resolve_identity(memos, caller)
    return await to_thread.run_sync(partial(resolve_identity, memos, caller, user, new=False))


CurrentIdentity = Annotated[RequestIdentity, Depends(current_identity)]


async def current_target(current_identity: CurrentIdentity, cube: CubeName = None) -> RequestTarget:
    return RequestTarget(actor=current_identity.actor, cube=current_identity.home if cube is None else cube)


CurrentTarget = Annotated[RequestTarget, Depends(current_target)]


class ItemTarget(TypedDict):
    """Actor of a request about one memory or file, and the cube it must be in, if any: `**where`."""

    actor: str
    cube: str | None


async def current_item(current_identity: CurrentIdentity, cube: ItemCube = None) -> ItemTarget:
    return ItemTarget(actor=current_identity.actor, cube=cube)


CurrentItem = Annotated[ItemTarget, Depends(current_item)]


def target_of(memos: MemOS, caller: Caller, body: CubeBody, *, new: bool = False) -> RequestTarget:
    found = resolve_identity(memos, caller, body.user, new=new)
    return RequestTarget(actor=found.actor, cube=found.home if body.cube is None else body.cube)


def item_of(memos: MemOS, caller: Caller, body: ItemBody) -> ItemTarget:
    return ItemTarget(actor=resolve_identity(memos, caller, body.user, new=False).actor, cube=body.cube)


def creation(key: str | None, call: str, target: RequestTarget, given: Json) -> Creation | None:
    """Return the record that makes a repeated creation recognisable, None without an idempotency key."""
    told = given.model_dump(mode="json") if isinstance(given, BaseModel) else given
    return None if key is None else Creation(key, call, [target["actor"], target["cube"], told], **target)


def read_filter(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("filter", "must be valid JSON; see docs/reference/filters.md for the syntax") from error
    if not isinstance(read, dict):
        raise InvalidInput("filter", "must be a JSON object")
    return read


def moment(text: str | None) -> Moment:
    """Return a time given as text; digits are milliseconds since 1970."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else text


class Problem(BaseModel):
    """An error."""

    code: str = Field(description="Kind of error, such as `invalid_input` or `not_found`")
    message: str = Field(description="What failed and what to do")
    field: str | None = Field(None, description="Invalid part of the request, for `invalid_input`")


class ProblemBody(BaseModel):
    """The body of every answer that is an error."""

    error: Problem = Field(description="What went wrong")


_WHEN = {
    400: "The request is invalid; `field` names the invalid part",
    401: "The API key is missing or invalid",
    403: "The key does not allow this",
    404: "Not found, or not visible to this key",
    409: "The resource has changed since, or the name is taken",
    413: "The request body is too large",
    429: "Too many requests; retry after `Retry-After` seconds",
    500: "Internal server error or damaged data; see the server's log",
    502: "The language model failed or gave an invalid answer",
    503: "A backend is unavailable",
    504: "A timeout was exceeded",
}

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemBody, "description": when} for status, when in _WHEN.items()
}
"""For `responses=` of every router."""


_REMEDIES = {
    "cube": "Create it with POST /api/v1/cubes, or list those there are with GET.",
    "conversation": "List memories with GET /api/v1/memories.",
    "file": "List them with GET /api/v1/documents.",
    "item": "List them with GET /api/v1/memories; POST …/rollback brings back a deleted one.",
    "record": "List them with GET /api/v1/records.",
    "knowledge base": "Create it with POST /api/v1/knowledge-bases.",
    "task": "List them with GET /api/v1/tasks.",
    "version": "List them with GET /api/v1/memories/{id}/history.",
}


def problem(error: MemosError) -> dict[str, Any]:
    told: dict[str, Any] = {"code": error.code, "message": message_of(error, _REMEDIES)}
    if isinstance(error, InvalidInput):
        told["field"] = error.field
    return {"error": told}


def error_response(error: MemosError, status: int) -> Response:
    return JSONResponse(problem(error), status)


BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""For `responses=` of a route that gives bytes back."""


STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events until the time is over or the client disconnects; on failure, an event "
        "`error`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
"""For `responses=` of a route that streams."""


class ValueRoute(APIRoute):
    """A route that returns values; their models are its response model."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if isinstance(options.get("response_model"), DefaultPlaceholder):
            returned = get_type_hints(endpoint)["return"]
            model = wire_type(returned)
            if model != returned:
                options["response_model"] = model
        if not iscoroutinefunction(endpoint) and isinstance(options.get("response_class"), DefaultPlaceholder):
            endpoint = self._serialized(endpoint)
        super().__init__(path, endpoint, **options)

    def _serialized(self, endpoint: Callable[..., Any]) -> Callable[..., Any]:
        """Return the endpoint with its answer as JSON: FastAPI would use a second thread, and the event loop's."""

        @wraps(endpoint)
        def answer(**given: Any) -> Any:
            value = endpoint(**given)
            field = self.response_field
            if field is None or isinstance(value, Response):
                return value
            told, problems = field.validate(value, {}, loc=("response",))
            if problems:
                raise ResponseValidationError(problems, body=value)
            content = field.serialize_json(told, by_alias=self.response_model_by_alias)
            return Response(content, self.status_code or 200, media_type="application/json")

        return answer

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that resolves aliases in the query and refuses parameters that the route does not have."""
        handle = super().get_route_handler()
        known = dict.fromkeys(_query_names(self.dependant))

        async def resolved(request: Request) -> Response:
            query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
            given = dict(query)
            if unknown := given.keys() - known.keys():
                found = resolve_aliases(given, known)
                repeated = {name for name in unknown if sum(name == word for word, _ in query) > 1}
                if left := sorted(unknown & found.keys() | repeated):
                    raise self._unknown(left[0], known)
                words = found.items() - given.items()
                text = urlencode([*query, *sorted(words)]).encode("ascii")
                request = Request({**request.scope, "query_string": text}, request.receive)
            return await handle(request)

        return resolved

    def _unknown(self, name: str, known: Collection[str]) -> InvalidInput:
        body = fields_at(self, [])
        if any(word in body for word in (name, *ALIASES.get(name, ()))):
            return InvalidInput(name, "unknown field of the query; give it in the body")
        return InvalidInput(name[:80], unknown_name("field", name[:80], known))


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for below in dependant.dependencies:
        yield from _query_names(below)


def value_router(*tags: str, prefix: str = "") -> APIRouter:
    return APIRouter(
        route_class=ValueRoute,
        prefix=prefix,
        tags=list(tags) or None,
        responses=ERRORS,
        generate_unique_id_function=_operation_id,
    )


def _operation_id(route: APIRoute) -> str:
    """Return a route's operation id: its resource and what it does, such as `memories_add`."""
    return f"{route.tags[0] if route.tags else 'v1'}_{route.name}".rstrip("_").replace("-", "_")


class Text(Value):
    """A text."""

    text: str = Field(description="The text")


class Dimension(Value):
    """A property that a profile may record about somebody."""

    id: str = Field(description="Id: the group's id, a dot and a name")
    name: str = Field(description="Its name")
    about: str = Field(description="What it is about")
    kind: str = Field(description="`text`, `level`, `choice` or `interest`")
    values: list[str] = Field(description="Values of a choice")
    attributes: list[str] = Field(description="Attributes in statements that set it")
    words: list[str] = Field(description="Words that indicate the interest")


class DimensionGroup(Value):
    """Dimensions that belong together."""

    id: str = Field(description="Its id")
    name: str = Field(description="Its name")
    dimensions: list[Dimension] = Field(description="Its dimensions")


class Template(Value):
    """The dimensions of a profile."""

    name: str = Field(description="Its name")
    groups: list[DimensionGroup] = Field(description="Its groups")


class ToolUse(tools.ToolUse, Value):  # type: ignore[misc] # `schema` is a former method of models
    """Knowledge about one tool."""

    schema_: str | None = Field(
        description="Id of the memory that holds its definition",
        validation_alias="schema",
        serialization_alias="schema",
    )


class VerifyReport(types.VerifyReport, Value):
    """Report of a verification: checks and findings."""

    clean: bool = Field(description="True if no differences remain")
