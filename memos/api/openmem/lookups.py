"""What stores nothing: facts found in messages, and texts put in order for a question."""

from __future__ import annotations

from typing import Any, Final
from zoneinfo import ZoneInfo

from fastapi import APIRouter
from pydantic import Field

from memos.api.families import Asked, Opened
from memos.api.openmem import details
from memos.api.openmem.files import File, without_files
from memos.api.openmem.shapes import Body, check_tokens, ok, required, said
from memos.core.clock import new_id
from memos.core.types import Json
from memos.errors import InvalidInput, shown
from memos.reader.preview import Given, Reading, preview

router = APIRouter(tags=["look-ups"])

_EXTRACT_TOKENS: Final = 8_000
_QUERY_TOKENS: Final = 4_000
_TEXTS_TOKENS: Final = 200_000
_KINDS: Final = (details.MEMORY, details.PREFERENCE)


class ExtractBody(Body):
    """Messages to read."""

    messages: Any = Field(None, description="List of messages of at most 8,000 tokens; required")
    extraction_types: list[str] | None = Field(None, description="`memory`, `preference`; default: both")
    model: str | None = Field(None, description="Taken and without effect: the configured model reads, or patterns")


class RerankBody(Body):
    """Texts to put in order."""

    query: str | None = Field(None, description="The question; required")
    documents: list[str] | None = Field(None, description="At most 500 texts; required")
    model: str | None = Field(
        None, description="Taken and without effect: the installation's reranker orders, or embedder"
    )
    top_n: int | None = Field(None, description="Most results; default: all")


@router.post("/extract/memory")
def extract(body: ExtractBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return what would be remembered of messages; nothing is stored."""
    settings, messages = memos.settings, required("messages", body.messages)
    kinds = _KINDS if body.extraction_types is None else tuple(body.extraction_types)
    for kind in kinds:
        if kind not in _KINDS:
            raise InvalidInput("extraction_types", f"{shown(kind)} is unknown; use {' and '.join(_KINDS)}")
    messages, _ = without_files(messages, settings.limits.file_bytes, _not_fetched)
    check_tokens("messages", said(messages), _EXTRACT_TOKENS)
    reading = Reading(
        ZoneInfo(settings.time_zone), memos.clock.now(), settings.limits, settings.mask_secrets,
        asker=lambda: memos.reader,
    )  # fmt: skip
    given = messages if isinstance(messages, list) else [messages]
    found = preview(Given(tuple(given), (None,) * len(given)), reading)
    lists: dict[str, list[Json]] = {"memory_detail_list": [], "preference_detail_list": []}
    for fact in found.facts:
        kind = details.PREFERENCE if fact.type in details.KINDS[details.PREFERENCE] else details.MEMORY
        if kind in kinds:
            lists[f"{kind}_detail_list"].append(details.extracted(fact))
    return ok({"success": True, **lists})


def _not_fetched(where: str, url: str) -> File:
    """Leave a file aside: only what messages say is read."""
    return "file", b""


@router.post("/rerank")
def rerank(body: RerankBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return texts in the order in which they answer a question."""
    query, documents = required("query", body.query), required("documents", body.documents)
    check_tokens("query", query, _QUERY_TOKENS)
    check_tokens("documents", "\n".join(documents), _TEXTS_TOKENS)
    ranked = memos.rerank(query, documents, top_n=body.top_n)
    results = [
        {"index": one.index, "document": {"text": documents[one.index]}, "relevance_score": one.score}
        for one in ranked.results
    ]
    usage = {"prompt_tokens": ranked.tokens, "total_tokens": ranked.tokens}
    return ok({"id": new_id(), "model": ranked.model, "usage": usage, "results": results})
