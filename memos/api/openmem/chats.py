"""`/chat`: answers questions from memory, at once or as server-sent events, and stores the exchange."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final

from anyio import CancelScope, to_thread
from fastapi import APIRouter, Request
from pydantic import Field

from memos.api.dialects import chat_options, chat_response, typed_event
from memos.api.families import CurrentCaller, CurrentMemos, status_of
from memos.api.openmem import shapes
from memos.api.openmem.messages import same
from memos.api.openmem.shapes import Subject, bounded, check_tokens, number_of, ok, required
from memos.api.streaming import CurrentRunner, poll, poll_for
from memos.api.wording import message_of
from memos.core.identities import Caller
from memos.core.types import Mode
from memos.errors import BackendTimeout, InvalidInput, NotFound
from memos.kernel.chat.results import ChatOptions
from memos.kernel.memos import MemOS
from memos.kernel.submissions import Submission

router = APIRouter(tags=["chat"])

_QUERY_TOKENS: Final = 4_000
_MOST: Final = 25
_WAIT_S: Final = 25


class ChatBody(Subject):
    """What to answer, from which memory."""

    conversation_id: str | None = Field(None, description="Conversation; its end is shown to the model; required")
    query: str | None = Field(None, description="The question; required")
    system_prompt: str | None = Field(None, description="Instructions for the model instead of the usual ones")
    model_name: str | None = Field(None, description="Taken and without effect: the configured model answers")
    knowledgebase_ids: list[str] | None = Field(None, description='Knowledge bases to use too; `["all"]` is all')
    filter: dict[str, Any] | None = Field(None, description="Filter, as of a search")
    add_message_on_answer: bool | None = Field(None, description="Remember question and answer; default true")
    app_id: str | None = Field(None, description="Kept in `info`")
    source: str | None = Field(None, description="Kept in `info`")
    tags: list[str] | None = Field(None, description="Tags of what is remembered")
    info: dict[str, Any] | None = Field(None, description="Own fields of what is remembered")
    max_tokens: int | None = Field(None, description="Longest answer")
    temperature: float | None = Field(None, description="Sampling temperature from 0 to 2")
    top_p: float | None = Field(None, description="Nucleus sampling, above 0 to 1")
    include_preference: bool | None = Field(None, description="Begin with preferences and instructions; default true")
    preference_limit_number: int | None = Field(None, description="At most 25, and without effect")
    memory_limit_number: int | None = Field(None, description="Most memories a search gives; default 6, at most 25")
    relativity: float | None = Field(None, description="Least relevance, 0 to 1")
    stream: bool | None = Field(None, description="Answer with events `{type: text, end or error, data}`")


@router.post(
    "/chat",
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string", "description": "With `stream`"}}}}},
)
async def chat(
    body: ChatBody, request: Request, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner
) -> Any:
    """Answer a question with what is remembered; the same request sent again meanwhile gets the same answer."""
    query = required("query", body.query)
    check_tokens("query", query, _QUERY_TOKENS)
    required("user_id", body.user_id)
    required("conversation_id", body.conversation_id)
    if body.stream:
        options = await to_thread.run_sync(_options, memos, caller, body)
        pieces = await runner.start(lambda: memos.chat.stream(query, **options))
        return chat_response(
            pieces,
            text=partial(typed_event, "text"),
            end=lambda _: typed_event("end", None),
            error=lambda error: typed_event(
                "error", {"code": number_of(error, status_of(error)), "message": message_of(error)}
            ),
        )
    taken = await to_thread.run_sync(_take, memos, caller, body)
    if taken is not None and not taken.fresh:
        return ok({"response": await _meanwhile(request, memos, caller, taken)})
    try:
        options = await to_thread.run_sync(_options, memos, caller, body)
        # What is stored is finished also for who went away: asking again then gives this answer.
        chat = partial(memos.chat.steps, query, **options)
        result = await (runner.complete(request, chat) if taken is None else runner.finish(chat))
    except BaseException:
        if taken is not None:
            with CancelScope(shield=True):
                await to_thread.run_sync(memos.submissions.withdraw, taken)
        raise
    if taken is not None:
        items = [] if result.receipt is None else list(result.receipt.item_ids)
        await to_thread.run_sync(lambda: memos.submissions.answered(taken, {"items": items}, known=False))
    return ok({"response": result.text})


def _take(memos: MemOS, caller: Caller, body: ChatBody) -> Submission | None:
    """Register a request whose exchange will be stored; one that stores nothing may be sent twice."""
    if body.add_message_on_answer is False:
        return None
    acting = shapes.subject(memos, caller, _user(body), new=True)
    return memos.submissions.take(caller.identity.id, same("chat", body), [acting.home])


async def _meanwhile(request: Request, memos: MemOS, caller: Caller, taken: Submission) -> str:
    """Return the answer of the same request, sent a moment earlier. Raises: BackendTimeout."""
    me = caller.identity.id
    with suppress(NotFound):  # it failed, or its answer is erased
        async for found in poll_for(request, lambda: memos.submissions.get(taken.id, me), _WAIT_S):
            if found.answer is not None and (items := found.answer.get("items")):
                item = await poll(request, lambda: memos.get(str(items[-1]), actor=me))
                return item.memory
            if found.answer is not None:
                break
    raise BackendTimeout("The same question was sent a moment earlier and has no answer yet: ask again.")


def _options(memos: MemOS, caller: Caller, body: ChatBody) -> ChatOptions:
    most = bounded("memory_limit_number", body.memory_limit_number, 6, _MOST)
    bounded("preference_limit_number", body.preference_limit_number, 6, _MOST)
    if not most:
        raise InvalidInput("memory_limit_number", "must be at least 1")
    acting = shapes.subject(memos, caller, _user(body), new=True)
    bases = shapes.knowledge(memos, caller, body.knowledgebase_ids)
    # Knowledge bases belong to the key's owner, who may look into them.
    actor = caller.identity.id if bases and caller.identity.admin else acting.actor
    cubes = {"user": [acting.home], "public": shapes.readable_public(memos, actor), "knowledgebase": bases}
    names = {"user_id": body.user_id, "agent_id": body.agent_id, "app_id": body.app_id, "source": body.source}
    return chat_options(
        body,
        cubes=list(dict.fromkeys(name for group in cubes.values() for name in group)),
        actor=actor,
        conversation=body.conversation_id,
        top_k=most,
        filter=shapes.scoped_filter(body.filter, cubes),
        relevance=body.relativity,
        working=body.include_preference is not False,
        store=body.add_message_on_answer is not False,
        store_in=acting.home,
        tags=body.tags or (),
        info={**(body.info or {}), **{name: value for name, value in names.items() if value is not None}},
        mode=Mode.FINE,
    )


def _user(body: ChatBody) -> Subject:
    """Return the subject of the memory: an agent only speaks for the user."""
    return Subject(user_id=body.user_id, agent_id=None)
