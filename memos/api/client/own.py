"""How requests of `/api/v1` are described: paths, queries, bodies, and for whom they are. Knows no single route."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from memos.api.client.calls import Call, Model, Reply, Stream, as_model, encoded, repeatable_with
from memos.api.client.failures import failure, strange
from memos.api.client.openmem import segment
from memos.core.types import Json

T = TypeVar("T")

ROOT = "/api/v1"
# A stream is kept alive with a line now and then: a client must wait for longer than that.
STREAM_S = 45.0

Query = Mapping[str, Json]


def path_of(*parts: str | tuple[str, str]) -> str:
    """Return a path of words, and of ids as pairs of their parameter's name and value. Raises: InvalidInput."""
    return "/".join([ROOT, *(part if isinstance(part, str) else segment(*part) for part in parts)])


def getting(path: str, read: Callable[[Reply], T], query: Query | None = None) -> Call[T]:
    """Return a call that looks at something."""
    return Call("GET", path, read, query=queried(query), repeatable=True)


def changing(
    method: str, path: str, read: Callable[[Reply], T], *, query: Query | None = None, body: Query | None = None
) -> Call[T]:
    """Return a call that changes something and is not sent again."""
    return Call(method, path, read, query=queried(query), body=None if body is None else encoded(given(body)))


def making(path: str, read: Callable[[Reply], T], body: Query, key: str | None) -> Call[T]:
    """Return a call that makes something once, however often it is sent with its idempotency key."""
    return Call("POST", path, read, headers=repeatable_with(key), body=encoded(given(body)), repeatable=True)


def asking(path: str, read: Callable[[Reply], T], body: Query) -> Call[T]:
    """Return a call that looks at something and says what in its body."""
    return Call("POST", path, read, body=encoded(given(body)), repeatable=True)


def following(path: str, model: type[Model], query: Query, *, named: str | None = None) -> Stream[Model]:
    """Return a stream of values; with `named` only events of that name are."""
    call = Call("GET", path, nothing, query=queried(query), repeatable=True, least_s=STREAM_S)
    read = as_model(model)

    def each(event: str, data: str) -> Model | None:
        content = data.encode("utf-8", "replace")
        if event == "error":
            raise failure(200, {}, content)
        return read(Reply(200, {}, content)) if named in (None, event) else None

    return Stream(call, each)


def as_list(model: type[Model]) -> Callable[[Reply], list[Model]]:
    """Return what reads an answer as a list of models."""
    adapter = TypeAdapter(list[model])  # type: ignore[valid-type]  # a type that is known at run time

    def read(reply: Reply) -> list[Model]:
        try:
            found: list[Model] = adapter.validate_json(reply.body)
        except ValidationError:
            raise strange(reply.status, reply.headers, f"no list of {model.__name__}") from None
        return found

    return read


def nothing(_: Reply) -> None:
    """Read an answer that says nothing."""


def given(fields: Query) -> dict[str, Json]:
    """Return what was given of parameters: those that are None were not."""
    return {name: value for name, value in fields.items() if value is not None}


def listed(names: Sequence[str]) -> list[str] | None:
    """Return names for a query; none at all is as if they were not given. One text is one name."""
    return ([names] if isinstance(names, str) else list(names)) or None


def queried(query: Query | None) -> dict[str, str | list[str]]:
    """Return what was given of a query, as text."""
    return {name: _text(value) for name, value in (query or {}).items() if value is not None}


def _text(value: Json) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    return [str(each) for each in value] if isinstance(value, list) else str(value)
