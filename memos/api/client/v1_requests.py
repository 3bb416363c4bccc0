"""Requests of `/api/v1` about memories, with the names and defaults of `MemOS`.

`user` is the user to act for, by default the key's own; `cube` defaults to the cube of that user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from memos.api.client import values
from memos.api.client.calls import (
    Call,
    Model,
    Reply,
    Stream,
    Waiting,
    as_model,
    check_seconds,
    encoded,
    failure,
    repeatable_with,
    strange,
)
from memos.api.client.openmem import segment
from memos.core.aliases import (
    AddAliases,
    CubeAliases,
    FeedbackAliases,
    ItemAliases,
    ItemsAliases,
    SearchAliases,
)
from memos.core.types import Json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

ROOT = "/api/v1"
# A stream is kept alive with a line now and then: a client must wait for longer than that.
STREAM_S = 45.0

Query = Mapping[str, Json]


def path_of(*parts: str | tuple[str, str]) -> str:
    """Return a path of words, and of ids given as pairs of parameter and value. Raises: InvalidInput."""
    return "/".join([ROOT, *(part if isinstance(part, str) else segment(*part) for part in parts)])


def getting(path: str, read: Callable[[Reply], T], query: Query | None = None) -> Call[T]:
    """Return a call that reads something."""
    return Call("GET", path, read, query=queried(query), repeatable=True)


def changing(
    method: str, path: str, read: Callable[[Reply], T], *, query: Query | None = None, body: Query | None = None
) -> Call[T]:
    """Return a call that changes something and is not sent again."""
    return Call(method, path, read, query=queried(query), body=None if body is None else encoded(given(body)))


def making(path: str, read: Callable[[Reply], T], body: Query, key: str | None) -> Call[T]:
    """Return a call that creates something once, however often it is sent with its idempotency key."""
    fields = {name: value for name, value in given(body).items() if name != "idempotency_key"}
    return Call("POST", path, read, headers=repeatable_with(key), body=encoded(fields), repeatable=True)


def asking(path: str, read: Callable[[Reply], T], body: Query) -> Call[T]:
    """Return a call that reads something described in its body."""
    return Call("POST", path, read, body=encoded(given(body)), repeatable=True)


def following(path: str, model: type[Model], query: Query, *, named: str | None = None) -> Stream[Model]:
    """Return a stream of values; with `named` only of events with that name."""
    call = Call("GET", path, nothing, query=queried(query), repeatable=True, least_s=STREAM_S)
    read = as_model(model)

    def each(event: str, data: str) -> Model | None:
        content = data.encode("utf-8", "replace")
        if event == "error":
            raise failure(200, {}, content)
        return read(Reply(200, {}, content)) if named in (None, event) else None

    return Stream(call, each)


def as_list(model: type[Model]) -> Callable[[Reply], list[Model]]:
    """Return a reader of answers as a list of models."""

    def read(reply: Reply) -> list[Model]:
        try:
            found: list[Model] = _adapter(model).validate_json(reply.body)
        except ValueError:  # pydantic's ValidationError is one
            raise strange(reply.status, reply.headers, f"not a list of {model.__name__}") from None
        return found

    return read


@cache
def _adapter(model: type[Model]) -> TypeAdapter[list[Model]]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - loaded with the first answer, see `values`

    return TypeAdapter(list[model])  # type: ignore[valid-type]  # a type that is known at run time


def nothing(_: Reply) -> None:
    """Read an empty answer."""


def given(fields: Query) -> dict[str, Json]:
    """Return the parameters that are not None, without the aliases, which are resolved before."""
    return {name: value for name, value in fields.items() if value is not None and name != "_aliases"}


def listed(names: Sequence[str]) -> list[str] | None:
    """Return names for a query, None if there are none; a text is one name."""
    return ([names] if isinstance(names, str) else list(names)) or None


def queried(query: Query | None) -> dict[str, str | list[str]]:
    """Return the parameters of a query that are not None, as text."""
    return {name: _text(value) for name, value in (query or {}).items() if value is not None}


def _text(value: Json) -> str | list[str]:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return "true" if value else "false"
    return [str(each) for each in value] if isinstance(value, list) else str(value)


def list_tasks(
    *,
    cubes: Sequence[str] = (),
    states: Sequence[str] = (),
    kinds: Sequence[str] = (),
    limit: int = 100,
    after: str | None = None,
    about: str | None = None,
    user: str | None = None,
) -> Call[list[values.Task]]:
    """Return tasks, newest first; `after` continues behind the task of that id.

    `about`, the id of a memory or file, narrows them to those that deal with it. Raises: InvalidInput, NotFound.
    """
    chosen = {"cube": listed(cubes), "state": listed(states), "kind": listed(kinds)}
    query = {**chosen, "limit": limit, "after": after, "about": about, "user": user}
    return getting(path_of("tasks"), as_list(values.Task), query)


def get_task(task: str, *, user: str | None = None) -> Call[values.Task]:
    """Return a task. Raises: NotFound."""
    return getting(path_of("tasks", ("task", task)), as_model(values.Task), {"user": user})


def retry_task(task: str, *, user: str | None = None) -> Call[values.Task]:
    """Queue a failed, dead or cancelled task again. Raises: NotFound, Conflict, PermissionDenied."""
    return changing("POST", path_of("tasks", ("task", task), "retry"), as_model(values.Task), query={"user": user})


def cancel_task(task: str, *, user: str | None = None) -> Call[values.Task]:
    """Cancel a task that has not ended. Raises: NotFound, Conflict, PermissionDenied."""
    return changing("POST", path_of("tasks", ("task", task), "cancel"), as_model(values.Task), query={"user": user})


def wait_task(task: str, *, timeout_s: float | None = None, user: str | None = None) -> Waiting[values.Task]:
    """Wait until a task has ended, and return it. Raises: BackendTimeout (not within `timeout_s`), NotFound."""
    path = path_of("tasks", ("task", task), "wait")

    def call(seconds: float) -> Call[values.Task]:
        return getting(path, as_model(values.Task), {"timeout_s": round(seconds, 3), "user": user})

    return Waiting(call, lambda found: found.ended, check_seconds("timeout_s", timeout_s), f"task {task!r}")


def follow_task(task: str, *, timeout_s: float = 300.0, user: str | None = None) -> Stream[values.Task]:
    """Yield a task now and on every change until it has ended, for at most `timeout_s`. Raises: NotFound."""
    query = {"timeout_s": check_seconds("timeout_s", timeout_s), "user": user}
    return following(path_of("tasks", ("task", task), "stream"), values.Task, query, named="task")


def list_events(
    cube: str | None = None,
    *,
    after: int = 0,
    kinds: Sequence[str] = (),
    limit: int = 100,
    before: int | None = None,
    newest: bool = False,
    item: str | None = None,
    user: str | None = None,
) -> Call[list[values.Event]]:
    """Return a cube's events after the number `after` and before `before`, oldest first, or newest first.

    `item` narrows them to those that name a memory or a file. Raises: InvalidInput, NotFound (cube).
    """
    query = {"cube": cube, "after": after, "kind": listed(kinds), "limit": limit, "user": user}
    query |= {"before": before, "newest": newest or None, "item": item}
    return getting(path_of("events"), as_list(values.Event), query)


def follow_events(
    cube: str | None = None,
    *,
    after: int | None = None,
    kinds: Sequence[str] = (),
    timeout_s: float = 300.0,
    user: str | None = None,
) -> Stream[values.Event]:
    """Yield events as they are committed, first those after number `after`. Raises: InvalidInput, NotFound (cube)."""
    seconds = check_seconds("timeout_s", timeout_s)
    query = {"cube": cube, "after": after, "kind": listed(kinds), "timeout_s": seconds, "user": user}
    return following(path_of("events", "stream"), values.Event, query)


Moment = datetime | str | int | float | None


def add(
    messages: Json,
    *,
    cube: str | None = None,
    user: str | None = None,
    conversation: str | None = None,
    tags: Sequence[str] = (),
    info: Mapping[str, Json] | None = None,
    mode: str = "rough",
    tools: Json = None,
    ttl_s: float | None = None,
    idempotency_key: str | None = None,
    **_aliases: Unpack[AddAliases],
) -> Call[values.AddReceipt]:
    """Store a text, a message or messages; they are searchable at once, with `ttl_s` for so many seconds.

    Raises: InvalidInput, NotFound.
    """
    return making(path_of("memories"), as_model(values.AddReceipt), locals(), idempotency_key)


def search(
    query: str,
    *,
    cubes: str | Sequence[str] | None = None,
    user: str | None = None,
    top_k: int = 10,
    filter: Mapping[str, Json] | None = None,
    as_of: Moment = None,
    reference_time: Moment = None,
    token_budget: int | None = None,
    explain: bool = False,
    rerank: bool | None = None,
    min_relevance: float = 0,
    **_aliases: Unpack[SearchAliases],
) -> Call[values.SearchResult]:
    """Return the best memories for a question, of `min_relevance` at least, from `cubes` or one `cube`.

    Raises: InvalidInput, NotFound (cube).
    """
    return asking(path_of("search"), as_model(values.SearchResult), locals())


def feedback(
    text: str,
    *,
    cube: str | None = None,
    user: str | None = None,
    speaker: str | None = None,
    conversation: str | None = None,
    item_ids: Sequence[str] = (),
    chat_time: Moment = None,
    idempotency_key: str | None = None,
    **_aliases: Unpack[FeedbackAliases],
) -> Call[values.FeedbackReceipt]:
    """Correct what is remembered, in plain words. Raises: InvalidInput, NotFound."""
    return making(path_of("feedback"), as_model(values.FeedbackReceipt), locals(), idempotency_key)


def get(
    item: str = "", *, cube: str | None = None, user: str | None = None, **_aliases: Unpack[ItemAliases]
) -> Call[values.Item]:
    """Return one memory with its sources. Raises: NotFound."""
    return getting(path_of("memories", ("item", item)), as_model(values.Item), {"cube": cube, "user": user})


def list_(
    *,
    cube: str | None = None,
    user: str | None = None,
    filter: Mapping[str, Json] | None = None,
    limit: int = 100,
    offset: int = 0,
    sort: str = "created_at",
    after: str | None = None,
    **_aliases: Unpack[CubeAliases],
) -> Call[list[values.Item]]:
    """Return a cube's memories, by default the oldest first; `after` continues behind the memory of that id.

    `sort` is `created_at`, `said_at`, `updated_at`, `confidence` or `heat`, with `-` before it for the highest first.
    Raises: InvalidInput, NotFound (cube).
    """
    text = None if filter is None else json.dumps(filter)
    query = {"cube": cube, "user": user, "filter": text, "limit": limit, "offset": offset, "sort": sort, "after": after}
    return getting(path_of("memories"), as_list(values.Item), query)


def facets(
    *,
    cube: str | None = None,
    user: str | None = None,
    filter: Mapping[str, Json] | None = None,
    by: Sequence[str] = (),
    limit: int = 20,
) -> Call[values.Facets]:
    """Count the memories that pass a filter, at most the newest 10,000, by type, status, speaker and others.

    Raises: InvalidInput, NotFound (cube).
    """
    text = None if filter is None else json.dumps(filter)
    query = {"cube": cube, "user": user, "filter": text, "by": listed(by), "limit": limit}
    return getting(path_of("memories", "facets"), as_model(values.Facets), query)


def update(
    item: str = "",
    memory: str | None = None,
    *,
    cube: str | None = None,
    user: str | None = None,
    expected_version: int | None = None,
    reason: str = "updated",
    **fields: Any,
) -> Call[values.Item]:
    """Write a memory's next version; `fields` are others, such as `tags`, of which None empties `ttl_s` and others.

    Raises: InvalidInput, NotFound, Conflict.
    """
    about = {"memory": memory, "cube": cube, "user": user, "expected_version": expected_version, "reason": reason}
    call = changing("PATCH", path_of("memories", ("item", item)), as_model(values.Item))
    return replace(call, body=encoded(fields | given(about)))


def delete(
    item_ids: Sequence[str] = (),
    *,
    cube: str | None = None,
    user: str | None = None,
    reason: str = "deleted",
    **_aliases: Unpack[ItemsAliases],
) -> Call[values.ItemIds]:
    """Delete memories; a rollback restores each. Raises: InvalidInput, NotFound."""
    body = {"item_ids": _ids(item_ids), "cube": cube, "user": user, "reason": reason}
    return changing("POST", path_of("memories", "delete"), as_model(values.ItemIds), body=body)


def history(
    item: str = "", *, cube: str | None = None, user: str | None = None, **_aliases: Unpack[ItemAliases]
) -> Call[list[values.Version]]:
    """Return every version of a memory, also of a deleted one. Raises: NotFound."""
    query = {"cube": cube, "user": user}
    return getting(path_of("memories", ("item", item), "history"), as_list(values.Version), query)


def relations(
    item: str = "", *, cube: str | None = None, user: str | None = None, **_aliases: Unpack[ItemAliases]
) -> Call[list[values.Relation]]:
    """Return the relations of a memory to older and newer ones, the surest first. Raises: NotFound."""
    query = {"cube": cube, "user": user}
    return getting(path_of("memories", ("item", item), "relations"), as_list(values.Relation), query)


def doubtful_relations(
    *, cube: str | None = None, user: str | None = None, limit: int = 100
) -> Call[list[values.Relation]]:
    """Return what corrections in doubt suppose to be replaced, oldest first, until `decide`.

    Raises: InvalidInput, NotFound (cube).
    """
    query = {"cube": cube, "user": user, "limit": limit}
    return getting(path_of("review", "relations"), as_list(values.Relation), query)


def decide(
    newer: str, older: str, *, holds: bool, cube: str | None = None, user: str | None = None
) -> Call[list[values.Relation]]:
    """Decide whether a newer statement replaces an older one; return the newer one's relations.

    If it does not hold, the relation between them, of any kind, is taken back.

    Raises: InvalidInput (the same memory twice), NotFound, PermissionDenied.
    """
    body = {"newer": newer, "older": older, "holds": holds, "cube": cube, "user": user}
    return changing("POST", path_of("review", "relations", "decide"), as_list(values.Relation), body=body)


def reopen(newer: str, older: str, *, cube: str | None = None, user: str | None = None) -> Call[list[values.Relation]]:
    """Take back a decision on two statements, so that it awaits another; return the newer one's relations.

    Raises: NotFound (also if nobody decided), PermissionDenied.
    """
    body = {"newer": newer, "older": older, "cube": cube, "user": user}
    return changing("POST", path_of("review", "relations", "reopen"), as_list(values.Relation), body=body)


def merge(
    item: str,
    into: str,
    *,
    cube: str | None = None,
    user: str | None = None,
    expected_version: int | None = None,
) -> Call[values.Item]:
    """Replace a memory by another that says the same; return the one that stays.

    Raises: InvalidInput (the same memory twice), NotFound, Conflict, PermissionDenied.
    """
    body = {"into": into, "cube": cube, "user": user, "expected_version": expected_version}
    return changing("POST", path_of("review", ("item", item), "merge"), as_model(values.Item), body=body)


def rollback(
    item: str,
    to_version: int | None = None,
    *,
    cube: str | None = None,
    user: str | None = None,
    expected_version: int | None = None,
) -> Call[values.Item]:
    """Write a new version equal to an old one, by default the one before. Raises: InvalidInput, NotFound, Conflict."""
    body = {"to_version": to_version, "cube": cube, "user": user, "expected_version": expected_version}
    return changing("POST", path_of("memories", ("item", item), "rollback"), as_model(values.Item), body=body)


def erase(
    item_ids: Sequence[str] = (),
    *,
    cube: str | None = None,
    user: str | None = None,
    wait: bool = True,
    **_aliases: Unpack[ItemsAliases],
) -> Call[values.EraseReceipt]:
    """Erase memories with everything derived from them. This cannot be undone. Raises: InvalidInput, NotFound."""
    body = {"item_ids": _ids(item_ids), "cube": cube, "user": user, "wait": wait}
    return changing("POST", path_of("memories", "erase"), as_model(values.EraseReceipt), body=body)


def preview_erasure(
    filter: Mapping[str, Json] | None = None, *, cube: str | None = None, user: str | None = None
) -> Call[values.ErasurePreview]:
    """Return what erasing the memories that pass a filter would remove. Raises: InvalidInput, NotFound."""
    body = {"filter": filter, "cube": cube, "user": user}
    return asking(path_of("erasures", "preview"), as_model(values.ErasurePreview), body)


def erase_matching(
    filter: Mapping[str, Json],
    *,
    expected: int,
    cube: str | None = None,
    wait: bool = True,
    user: str | None = None,
) -> Call[values.EraseReceipt]:
    """Erase the memories that pass a filter, which must be as many as the preview counted. This cannot be undone.

    Raises: InvalidInput, NotFound, Conflict (another number of memories matches now).
    """
    body = {"filter": dict(filter), "expected": expected, "cube": cube, "user": user, "wait": wait}
    return changing("POST", path_of("erasures"), as_model(values.EraseReceipt), body=body)


def erase_receipt(receipt: str, *, user: str | None = None) -> Call[values.EraseReceipt]:
    """Return the current receipt of an erasure. Raises: NotFound."""
    return getting(path_of("erasures", ("receipt", receipt)), as_model(values.EraseReceipt), {"user": user})


def _ids(given: Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
