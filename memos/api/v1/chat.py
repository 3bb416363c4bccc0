"""`/chat`: answers questions from memory, at once or as server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from memos.api.dialects import chat_options, chat_response, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.serialization import error_view
from memos.api.streaming import CurrentRunner, encode_event
from memos.api.v1.common import ERRORS, Body, Moment
from memos.api.values import Value
from memos.errors import MemosError
from memos.kernel.chat.results import ChatOptions, ChatResult

router = APIRouter(prefix="/chat", tags=["chat"], responses=ERRORS)


class ChatBody(Body):
    """What to answer, from which memory."""

    query: str = Field(description="The question")
    cubes: list[str] | None = Field(None, description="Cubes to recall from; default: the user's own")
    conversation: str | None = Field(None, description="Conversation it belongs to; without history its end is shown")
    history: list[dict[str, Any]] = Field(default=[], description="What was said before, as messages `{role, content}`")
    system_prompt: str | None = Field(None, description="Instructions for the model instead of the usual ones")
    top_k: int | None = Field(None, description="Most memories a search gives; default: 12")
    filter: dict[str, Any] | None = Field(None, description="Filter of that search (docs/filters.md)")
    relevance: float | None = Field(None, description="Relevance from 0 to 1 they need; default: 0")
    reference_time: Moment = Field(None, description="When the question is asked; default: now")
    token_budget: int | None = Field(None, description="Most tokens of memory; default: MEMOS_RECALL__TOKENS")
    working: bool = Field(True, description="Begin with working memory: instructions, preferences, the topic")
    max_tokens: int | None = Field(None, description="Longest answer; one that is cut off is an error")
    temperature: float | None = Field(
        None, description="Sampling temperature from 0 to 2; default: the model's setting"
    )
    top_p: float | None = Field(None, description="Nucleus sampling, above 0 to 1")
    store: bool = Field(True, description="Remember question and answer")
    store_in: str | None = Field(None, description="Cube to remember them in; default: the first of `cubes`")
    tags: list[str] = Field(default=[], description="Tags of what is remembered")
    info: dict[str, Any] = Field(default={}, description="Own fields of what is remembered")
    mode: str = Field("rough", description="`rough`, or `fine`: also read into facts, in the background")
    marks: bool = Field(False, description="Leave marks such as `[m1]` in the text")
    stream: bool = Field(False, description="Answer with events: `text` pieces, then `end` with the result, or `error`")


class Chat(ChatResult, Value):
    """An answer made with memory."""


_EVENTS = {"content": {"text/event-stream": {"schema": {"type": "string", "description": "With `stream`"}}}}


@router.post("", response_model=Chat, responses={200: _EVENTS})
async def chat(
    body: ChatBody, request: Request, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner
) -> Any:
    """Answer a question with what is remembered, and remember the exchange when the answer is complete."""

    def options() -> ChatOptions:
        acting = resolve_identity(memos, caller, body.user)
        return chat_options(body, actor=acting.actor, cubes=acting.cubes(body.cubes))

    if not body.stream:
        result = await runner.complete(request, lambda: memos.chat.steps(body.query, **options()))
        return Chat.model_validate(result)
    pieces = await runner.start(lambda: memos.chat.stream(body.query, **options()))
    return chat_response(pieces, _events)


def _events(piece: str | ChatResult | MemosError) -> Iterator[str]:
    match piece:
        case ChatResult():
            yield encode_event(Chat.model_validate(piece).model_dump(mode="json"), event="end")
        case MemosError():
            yield encode_event(error_view(piece), event="error")
        case text:
            yield encode_event({"text": text}, event="text")
