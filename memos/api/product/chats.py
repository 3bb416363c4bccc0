"""Routes of `/product/chat`: answers from memory, complete or streamed."""

from __future__ import annotations

from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from memos.api.dialects import chat_options, chat_response, typed_event
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.product.shapes import Body, done, identity_and_cubes
from memos.api.streaming import CurrentRunner
from memos.api.wording import message_of
from memos.core.identities import Caller
from memos.core.types import Mode
from memos.kernel.chat.results import ChatOptions, ChatResult
from memos.kernel.memos import MemOS

router = APIRouter(prefix="/chat")


class ChatBody(Body):
    """What to answer, from which memory."""

    user_id: str
    query: str
    readable_cube_ids: list[str] | None = None
    writable_cube_ids: list[str] | None = None
    history: list[dict[str, Any]] | None = None
    mode: str | None = None
    system_prompt: str | None = None
    top_k: int = Field(10, ge=1)
    session_id: str | None = None
    include_preference: bool = True
    pref_top_k: int = Field(6, ge=0)
    model_name_or_path: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    add_message_on_answer: bool = True
    relativity: float = 0.0
    filter: dict[str, Any] | None = None


@router.post("/complete")
async def complete(
    body: ChatBody, request: Request, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner
) -> dict[str, Any]:
    """Answer a question with what is remembered, and remember the exchange."""
    options = await to_thread.run_sync(partial(_options, memos, caller, body))
    result = await runner.complete(request, lambda: memos.chat.steps(body.query, **options))
    return done({"response": result.text, "reasoning": ""})


@router.post("/stream")
async def stream(body: ChatBody, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner) -> Response:
    """Answer as it comes in: events `{type, data}` of type text, reference, end or error."""
    options = await to_thread.run_sync(partial(_options, memos, caller, body))
    pieces = await runner.start(lambda: memos.chat.stream(body.query, **options))
    return chat_response(
        pieces,
        text=partial(typed_event, "text"),
        end=_ended,
        error=lambda error: typed_event("error", message_of(error)),
    )


def _options(memos: MemOS, caller: Caller, body: ChatBody) -> ChatOptions:
    acting, cubes = identity_and_cubes(memos, caller, body.user_id, body.readable_cube_ids)
    return chat_options(
        body,
        cubes=cubes,
        actor=acting.actor,
        conversation=body.session_id,
        history=body.history or [],
        relevance=body.relativity,
        working=body.include_preference,
        store=body.add_message_on_answer,
        store_in=body.writable_cube_ids[0] if body.writable_cube_ids else acting.home,
        mode=Mode.ROUGH,
    )


def _ended(result: ChatResult) -> str:
    cited = [{"memory_id": each.item, "memory": each.memory} for each in result.cited]
    return typed_event("reference", cited) + typed_event("end", result.text)
