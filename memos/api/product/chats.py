"""`/product/chat/complete` and `/product/chat/stream`: answers made with memory."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.product.shapes import Body, acting, done
from memos.api.streaming import HEADERS, ClosingStreamResponse, CurrentRunner
from memos.core.identities import Caller
from memos.errors import MemosError
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
    return ClosingStreamResponse(_events(pieces), media_type="text/event-stream", headers=HEADERS)


def _options(memos: MemOS, caller: Caller, body: ChatBody) -> ChatOptions:
    whom, cubes = acting(memos, caller, body.user_id, body.readable_cube_ids)
    return ChatOptions(
        cubes=cubes, actor=whom.actor, conversation=body.session_id, history=body.history or [],
        system_prompt=body.system_prompt, top_k=body.top_k, filter=body.filter, relevance=body.relativity,
        max_tokens=body.max_tokens, temperature=body.temperature, top_p=body.top_p,
        working=body.include_preference, store=body.add_message_on_answer,
        store_in=body.writable_cube_ids[0] if body.writable_cube_ids else whom.home,
    )  # fmt: skip


async def _events(pieces: AsyncGenerator[str | ChatResult]) -> AsyncGenerator[str]:
    try:
        async for piece in pieces:
            if isinstance(piece, ChatResult):
                cited = [{"memory_id": each.item, "memory": each.memory} for each in piece.cited]
                yield _event("reference", cited)
                yield _event("end", piece.text)
            else:
                yield _event("text", piece)
    except MemosError as error:
        yield _event("error", str(error))
    finally:
        await pieces.aclose()


def _event(kind: str, data: Any) -> str:
    return f"data: {json.dumps({'type': kind, 'data': data})}\n\n"
