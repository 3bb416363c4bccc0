"""Routes of `/search`, `/working-memory` and `/feedback`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from memos.api.dialects import resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import ERRORS, Body, CubeBody, CurrentTarget, IdempotencyKey, Moment, creation, target_of
from memos.api.v1.shapes import ValueRoute
from memos.core.types import FeedbackReceipt, SearchResult, WhyNot
from memos.kernel.tiers import WorkingMemory

router = APIRouter(route_class=ValueRoute, tags=["search"], responses=ERRORS)


class QuestionBody(Body):
    """What to find, and where."""

    query: str = Field(description="The question")
    cubes: list[str] | None = Field(None, description="Cubes to search; default: the user's own")
    top_k: int = Field(10, description="Most hits")
    filter: dict[str, Any] | None = Field(None, description="Filter (docs/filters.md)")
    as_of: Moment = Field(None, description="Search what was stored by this time")
    reference_time: Moment = Field(None, description="When the question is asked; default: now")
    token_budget: int | None = Field(None, description="Also return a text of at most so many tokens")
    rerank: bool | None = Field(
        None, description="Have the reranker read the first candidates; default: if there is one"
    )


class SearchBody(QuestionBody):
    """What to find, where, and how much to tell of it."""

    explain: bool = Field(False, description="Say what each arm gave")


class WhyNotBody(QuestionBody):
    """Which memory a search should have found."""

    item: str = Field(description="Id of the memory")
    cubes: list[str] | None = Field(None, description="Cubes to search; default: the one the memory is in")


class FeedbackBody(CubeBody):
    """A correction in plain words."""

    text: str = Field(description="What is right, such as `no, I moved to Lyon in May`")
    speaker: str | None = Field(None, description="Who says so")
    conversation: str | None = Field(None, description="Conversation it belongs to")
    item_ids: list[str] = Field(default=[], description="Memories it is about; default: what a search finds")
    chat_time: Moment = Field(None, description="When it was said; default: now")


@router.post("/search")
def search(body: SearchBody, memos: CurrentMemos, caller: CurrentCaller) -> SearchResult:
    """Return the best memories for a question."""
    acting = resolve_identity(memos, caller, body.user, new=False)
    return memos.search(
        body.query,
        cubes=acting.cubes(body.cubes),
        actor=acting.actor,
        top_k=body.top_k,
        filter=body.filter,
        as_of=body.as_of,
        reference_time=body.reference_time,
        token_budget=body.token_budget,
        explain=body.explain,
        rerank=body.rerank,
    )


@router.post("/search/why-not")
def why_not(body: WhyNotBody, memos: CurrentMemos, caller: CurrentCaller) -> WhyNot:
    """Say at which stage of such a search a memory falls out, or at which place it is found."""
    acting = resolve_identity(memos, caller, body.user, new=False)
    return memos.search.why_not(
        body.item,
        body.query,
        cubes=body.cubes,
        actor=acting.actor,
        top_k=body.top_k,
        filter=body.filter,
        as_of=body.as_of,
        reference_time=body.reference_time,
        token_budget=body.token_budget,
        rerank=body.rerank,
    )


@router.get("/working-memory")
def working_memory(
    memos: CurrentMemos,
    target: CurrentTarget,
    conversation: Annotated[str | None, Query(description="Conversation it is for")] = None,
    max_tokens: Annotated[int, Query(description="Most tokens of its text")] = 1_000,
) -> WorkingMemory:
    """Return the small set a prompt begins with."""
    return memos.tiers.working_memory(conversation, cube=target.cube, actor=target.actor, max_tokens=max_tokens)


@router.post("/feedback", status_code=201)
def feedback(
    body: FeedbackBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> FeedbackReceipt:
    """Take a correction as the newest statement; what it contradicts is superseded."""
    target = target_of(memos, caller, body)

    def correct() -> FeedbackReceipt:
        return memos.feedback(
            body.text,
            cube=target.cube,
            actor=target.actor,
            speaker=body.speaker,
            conversation=body.conversation,
            item_ids=body.item_ids,
            chat_time=body.chat_time,
        )

    def again(made: tuple[str, ...]) -> FeedbackReceipt:
        memos.cubes.get(target.cube, actor=target.actor)
        item, *others = made
        middle = others.index("")
        return FeedbackReceipt(item, tuple(others[:middle]), tuple(others[middle + 1 :]), indexed=False)

    asked = creation(idempotency_key, "feedback", target, body)
    return memos.idempotency.once(
        asked, correct, ids=lambda made: [made.item_id, *made.related, "", *made.superseded], again=again
    )
