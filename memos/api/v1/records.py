"""Routes of `/records`: memories with an id of the caller's.

An id may be any text, so it is in the query or the body and never in the path, where slashes and dots have a meaning.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import (
    CubeBody,
    CurrentTarget,
    FilterText,
    Limit,
    MinRelevance,
    read_filter,
    target_of,
    value_router,
)
from memos.api.values import ItemIds
from memos.core.types import Item, RecordPrefix, SearchResult, Version

router = value_router("records")

_ID = "The caller's id of the record: any text, at most 512 characters"
_PREFIX = "What the ids begin with"
_REFRESH = "Let those with a time to live live as long again from now on; takes the right to write"
RecordId = Annotated[str, Query(description=_ID)]
Prefix = Annotated[str, Query(description=_PREFIX)]
RefreshTtl = Annotated[bool, Query(description=_REFRESH)]


class RecordFields(BaseModel):
    """What a record holds."""

    memory: str = Field(description="Its text, found by searches")
    info: dict[str, Any] | None = Field(None, description="Further data: any JSON, at most 64 KiB")
    tags: list[str] = Field(default=[], description="Tags")
    ttl_s: float | None = Field(None, description="Seconds to live from now on; default: for ever")
    index: bool = Field(True, description="False to leave it out of all searches")
    trust: str = Field("trusted", description="`untrusted` if it is from a source that may not give instructions")
    expected_version: int | None = Field(
        None, description="Fail with 409 if the record is at another version; 0: if there is one"
    )


class PutRecordBody(RecordFields, CubeBody):
    """A record to store or to replace."""


class NewRecord(RecordFields):
    """A record to store or to replace, with its id."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description=_ID)


class PutRecordsBody(CubeBody):
    """Records to store or to replace, all or none."""

    records: list[NewRecord] = Field(description="The records, at most 1,000, each with another id")


class RecordIdsBody(CubeBody):
    """Ids of records."""

    ids: list[str] = Field(description="The callers' ids of the records, at most 1,000")


class GetRecordsBody(RecordIdsBody):
    """Ids of records to return."""

    refresh_ttl: bool = Field(False, description=_REFRESH)


class DeleteRecordsBody(RecordIdsBody):
    """Ids of records to delete."""

    reason: str = Field("deleted", description="Reason, kept in the history")


class SearchRecordsBody(CubeBody):
    """A question, and the records to look among."""

    query: str = Field(description="The question")
    prefix: str = Field("", description=_PREFIX)
    filter: dict[str, Any] | None = Field(None, description="Filter (docs/reference/filters.md)")
    top_k: int = Field(10, description="Most hits")
    min_relevance: MinRelevance = Field(0, description="Leave out hits of less relevance, 0 to 1")
    rerank: bool | None = Field(None, description="Use the reranker; default: if one is configured")
    refresh_ttl: bool = Field(False, description=_REFRESH)


@router.put("/record", name="put")
def put_record(id: RecordId, body: PutRecordBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Store a record, or write the next version of the one with this id; what changes nothing writes nothing."""
    return memos.records.put(id, **target_of(memos, caller, body, new=True), **body.given())


@router.get("/record", name="get")
def get_record(id: RecordId, memos: CurrentMemos, target: CurrentTarget, refresh_ttl: RefreshTtl = False) -> Item:
    """Return one record with its source."""
    return memos.records.get(id, **target, refresh_ttl=refresh_ttl)


@router.delete("/record", name="delete")
def delete_record(
    id: RecordId,
    memos: CurrentMemos,
    target: CurrentTarget,
    reason: Annotated[str, Query(description="Reason, kept in the history")] = "deleted",
) -> ItemIds:
    """Take a record out of sight; a put, or a rollback of its memory, brings it back."""
    return ItemIds(item_ids=(memos.records.delete(id, **target, reason=reason),))


@router.get("/record/history", name="history")
def record_history(id: RecordId, memos: CurrentMemos, target: CurrentTarget) -> list[Version]:
    """Return every version of a record, also of a deleted one: who, when, why, before and after."""
    return memos.records.history(id, **target)


@router.get("/records", name="list_")
def list_records(
    memos: CurrentMemos,
    target: CurrentTarget,
    prefix: Prefix = "",
    filter: FilterText = None,
    limit: Limit = 100,
    offset: Annotated[int, Query(description="Number of records to skip")] = 0,
    after: Annotated[str | None, Query(description="Continue after this id, the last of the page before")] = None,
    refresh_ttl: RefreshTtl = False,
) -> list[Item]:
    """Return records in the order of their ids; deleted ones only when the filter names a status."""
    wanted = read_filter(filter)
    return memos.records.list(
        prefix, **target, filter=wanted, limit=limit, offset=offset, after=after, refresh_ttl=refresh_ttl
    )


@router.get("/records/prefixes", name="prefixes")
def record_prefixes(
    memos: CurrentMemos,
    target: CurrentTarget,
    prefix: Prefix = "",
    depth: Annotated[
        int | None,
        Query(description="Parts after `prefix` to keep; default: all before the last `/` of each id"),
    ] = None,
    limit: Limit = 1_000,
    after: Annotated[str | None, Query(description="Continue after this one, the last of the page before")] = None,
) -> list[RecordPrefix]:
    """Return what ids begin with, up to a `/`, with the number of records, in order."""
    return memos.records.prefixes(prefix, **target, depth=depth, limit=limit, after=after)


@router.post("/records/put", name="put_many")
def put_records(body: PutRecordsBody, memos: CurrentMemos, caller: CurrentCaller) -> list[Item]:
    """Store or replace several records in one step, all or none; returned in order."""
    given = [record.model_dump(exclude_unset=True) for record in body.records]
    return [*memos.records.put_many(given, **target_of(memos, caller, body, new=True))]


@router.post("/records/get", name="get_many")
def get_records(body: GetRecordsBody, memos: CurrentMemos, caller: CurrentCaller) -> list[Item]:
    """Return those of several records that are there, in the order of their ids in the request."""
    found = memos.records.get_many(body.ids, **target_of(memos, caller, body), refresh_ttl=body.refresh_ttl)
    return [*found]


@router.post("/records/delete", name="delete_many")
def delete_records(body: DeleteRecordsBody, memos: CurrentMemos, caller: CurrentCaller) -> ItemIds:
    """Take those of several records that are there out of sight, in one step; returns the ids of their memories."""
    target = target_of(memos, caller, body)
    return ItemIds(item_ids=memos.records.delete_many(body.ids, **target, reason=body.reason))


@router.post("/records/search", name="search")
def search_records(body: SearchRecordsBody, memos: CurrentMemos, caller: CurrentCaller) -> SearchResult:
    """Return the best records for a question."""
    return memos.records.search(body.query, **target_of(memos, caller, body), **body.given("query"))
