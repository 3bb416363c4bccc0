"""The requests of `/api/v1` about memories: each function describes one; names and defaults are those of `MemOS`.

`user` is for whom: without it whom the key belongs to. `cube` is theirs when it is not given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from memos.api.client import values
from memos.api.client.calls import Call, as_model
from memos.api.client.own import as_list, asking, changing, getting, making, path_of
from memos.core.types import Json

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
    idempotency_key: str | None = None,
) -> Call[values.AddReceipt]:
    """Store a text, a message or messages; they can be found when this returns. Raises: InvalidInput, NotFound."""
    body = {
        "messages": messages, "cube": cube, "user": user, "conversation": conversation, "tags": list(tags),
        "info": dict(info or {}), "mode": mode, "tools": tools,
    }  # fmt: skip
    return making(path_of("memories"), as_model(values.AddReceipt), body, idempotency_key)


def search(
    query: str,
    *,
    cubes: Sequence[str] | None = None,
    user: str | None = None,
    top_k: int = 10,
    filter: Mapping[str, Json] | None = None,
    as_of: Moment = None,
    reference_time: Moment = None,
    token_budget: int | None = None,
    explain: bool = False,
    rerank: bool | None = None,
) -> Call[values.SearchResult]:
    """Return the best memories for a question. Raises: InvalidInput, NotFound (cube)."""
    body = {
        "query": query, "cubes": None if cubes is None else list(cubes), "user": user, "top_k": top_k,
        "filter": filter, "as_of": _moment(as_of), "reference_time": _moment(reference_time),
        "token_budget": token_budget, "explain": explain, "rerank": rerank,
    }  # fmt: skip
    return asking(path_of("search"), as_model(values.SearchResult), body)


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
) -> Call[values.FeedbackReceipt]:
    """Correct what is remembered, in plain words. Raises: InvalidInput, NotFound."""
    body = {
        "text": text, "cube": cube, "user": user, "speaker": speaker, "conversation": conversation,
        "item_ids": list(item_ids), "chat_time": _moment(chat_time),
    }  # fmt: skip
    return making(path_of("feedback"), as_model(values.FeedbackReceipt), body, idempotency_key)


def get(item: str, *, cube: str | None = None, user: str | None = None) -> Call[values.Item]:
    """Return one memory with its sources. Raises: NotFound."""
    return getting(path_of("memories", ("item", item)), as_model(values.Item), {"cube": cube, "user": user})


def list_(
    *,
    cube: str | None = None,
    user: str | None = None,
    filter: Mapping[str, Json] | None = None,
    limit: int = 100,
    offset: int = 0,
) -> Call[list[values.Item]]:
    """Return a cube's memories, oldest first. Raises: InvalidInput, NotFound (cube)."""
    text = None if filter is None else json.dumps(filter)
    query = {"cube": cube, "user": user, "filter": text, "limit": limit, "offset": offset}
    return getting(path_of("memories"), as_list(values.Item), query)


def update(
    item: str,
    memory: str | None = None,
    *,
    cube: str | None = None,
    user: str | None = None,
    expected_version: int | None = None,
    reason: str = "updated",
    **fields: Any,
) -> Call[values.Item]:
    """Write a memory's next version; `fields` are others of it, such as `tags` or `tier`.

    Raises: InvalidInput, NotFound, Conflict (it is at another version).
    """
    body = {
        **fields, "memory": memory, "cube": cube, "user": user, "expected_version": expected_version,
        "reason": reason,
    }  # fmt: skip
    return changing("PATCH", path_of("memories", ("item", item)), as_model(values.Item), body=body)


def delete(
    item_ids: Sequence[str], *, cube: str | None = None, user: str | None = None, reason: str = "deleted"
) -> Call[values.ItemIds]:
    """Take memories out of sight; a rollback brings each back. Raises: InvalidInput, NotFound."""
    body = {"item_ids": _ids(item_ids), "cube": cube, "user": user, "reason": reason}
    return changing("POST", path_of("memories", "delete"), as_model(values.ItemIds), body=body)


def history(item: str, *, cube: str | None = None, user: str | None = None) -> Call[list[values.Version]]:
    """Return every version of a memory, also of a deleted one. Raises: NotFound."""
    query = {"cube": cube, "user": user}
    return getting(path_of("memories", ("item", item), "history"), as_list(values.Version), query)


def rollback(
    item: str,
    to_version: int,
    *,
    cube: str | None = None,
    user: str | None = None,
    expected_version: int | None = None,
) -> Call[values.Item]:
    """Write a new version equal to an old one. Raises: InvalidInput, NotFound, Conflict."""
    body = {"to_version": to_version, "cube": cube, "user": user, "expected_version": expected_version}
    return changing("POST", path_of("memories", ("item", item), "rollback"), as_model(values.Item), body=body)


def erase(
    item_ids: Sequence[str], *, cube: str | None = None, user: str | None = None, wait: bool = True
) -> Call[values.EraseReceipt]:
    """Remove memories in every form, with what was made of them; not to be undone. Raises: InvalidInput, NotFound."""
    body = {"item_ids": _ids(item_ids), "cube": cube, "user": user, "wait": wait}
    return changing("POST", path_of("memories", "erase"), as_model(values.EraseReceipt), body=body)


def erase_receipt(receipt: str, *, user: str | None = None) -> Call[values.EraseReceipt]:
    """Return an erasure's receipt as it stands. Raises: NotFound."""
    return getting(path_of("erasures", ("receipt", receipt)), as_model(values.EraseReceipt), {"user": user})


def _ids(given: Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _moment(value: Moment) -> str | int | float | None:
    return value.isoformat() if isinstance(value, datetime) else value
