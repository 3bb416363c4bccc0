"""Requests of `/api/v1` about records: memories with an id of the caller's, as in `MemOS.records`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memos.api.client import values
from memos.api.client.calls import Call, as_field, as_model
from memos.api.client.v1_requests import as_list, asking, changing, getting, path_of
from memos.core.types import Json


def put(
    id: str,
    memory: str,
    *,
    cube: str | None = None,
    user: str | None = None,
    info: Mapping[str, Json] | None = None,
    tags: Sequence[str] = (),
    ttl_s: float | None = None,
    index: bool = True,
    trust: str = "trusted",
    expected_version: int | None = None,
) -> Call[values.Item]:
    """Store a record, or write the next version of the one with this id; what changes nothing writes nothing.

    `expected_version` is the version to replace, 0 if there must be none. Raises: InvalidInput, NotFound, Conflict.
    """
    body = {"memory": memory, "cube": cube, "user": user, "info": info, "tags": tags, "ttl_s": ttl_s}
    body |= {"index": index, "trust": trust, "expected_version": expected_version}
    call = changing("PUT", path_of("record"), as_model(values.Item), query={"id": id}, body=body)
    return replace(call, repeatable=expected_version is None)


def put_many(
    records: Sequence[Mapping[str, Json]], *, cube: str | None = None, user: str | None = None
) -> Call[list[values.Item]]:
    """Store records, all or none: mappings of `id`, `memory`, and what else `put` takes. Raises: as `put`."""
    call = changing("POST", path_of("records", "put"), as_list(values.Item), body=locals())
    return replace(call, repeatable=not any(record.get("expected_version") is not None for record in records))


def get(id: str, *, cube: str | None = None, user: str | None = None, refresh_ttl: bool = False) -> Call[values.Item]:
    """Return a record; with `refresh_ttl` its time to live begins anew. Raises: NotFound (also when it expired)."""
    return getting(path_of("record"), as_model(values.Item), locals())


def get_many(
    ids: Sequence[str], *, cube: str | None = None, user: str | None = None, refresh_ttl: bool = False
) -> Call[list[values.Item]]:
    """Return those of these records that are there, in the order of `ids`. Raises: NotFound (cube), InvalidInput."""
    return asking(path_of("records", "get"), as_list(values.Item), locals())


def delete(id: str, *, cube: str | None = None, user: str | None = None, reason: str = "deleted") -> Call[str]:
    """Delete a record; return the id of its memory, by which `rollback` brings it back. Raises: NotFound."""
    query = {"id": id, "cube": cube, "user": user, "reason": reason}
    return changing("DELETE", path_of("record"), as_field(values.ItemIds, lambda told: told.item_ids[0]), query=query)


def delete_many(
    ids: Sequence[str], *, cube: str | None = None, user: str | None = None, reason: str = "deleted"
) -> Call[tuple[str, ...]]:
    """Delete those of these records that are there; return the ids of their memories. Raises: NotFound (cube)."""
    body = {"ids": ids, "cube": cube, "user": user, "reason": reason}
    return changing(
        "POST", path_of("records", "delete"), as_field(values.ItemIds, lambda told: told.item_ids), body=body
    )


def list_(
    prefix: str = "",
    *,
    cube: str | None = None,
    user: str | None = None,
    filter: Mapping[str, Json] | None = None,
    limit: int = 100,
    offset: int = 0,
    after: str | None = None,
    refresh_ttl: bool = False,
) -> Call[list[values.Item]]:
    """Return records in the order of their ids; `after` continues behind that id. Raises: InvalidInput, NotFound."""
    query: dict[str, Json] = {"prefix": prefix, "cube": cube, "user": user}
    query |= {"filter": None if filter is None else json.dumps(filter)}
    query |= {"limit": limit, "offset": offset, "after": after, "refresh_ttl": refresh_ttl}
    return getting(path_of("records"), as_list(values.Item), query)


def search(
    query: str,
    prefix: str = "",
    *,
    cube: str | None = None,
    user: str | None = None,
    filter: Mapping[str, Json] | None = None,
    top_k: int = 10,
    min_relevance: float = 0,
    rerank: bool | None = None,
    refresh_ttl: bool = False,
) -> Call[values.SearchResult]:
    """Return the best records for a question, with ids that begin with `prefix`. Raises: InvalidInput, NotFound."""
    return asking(path_of("records", "search"), as_model(values.SearchResult), locals())


def prefixes(
    prefix: str = "",
    *,
    cube: str | None = None,
    user: str | None = None,
    depth: int | None = None,
    limit: int = 1_000,
    after: str | None = None,
) -> Call[list[values.RecordPrefix]]:
    """Return what ids begin with, up to a `/`, with the number of records, cut to `depth` parts after `prefix`.

    Raises: InvalidInput, NotFound (cube).
    """
    return getting(path_of("records", "prefixes"), as_list(values.RecordPrefix), locals())


def history(id: str, *, cube: str | None = None, user: str | None = None) -> Call[list[values.Version]]:
    """Return every version of a record, also of a deleted one. Raises: NotFound."""
    return getting(path_of("record", "history"), as_list(values.Version), locals())
