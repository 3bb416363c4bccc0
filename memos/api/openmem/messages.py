"""Messages, feedback and chats: stored once however often they are sent, listed, and followed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from anyio import CancelScope, to_thread
from fastapi import APIRouter, Request
from pydantic import Field

from memos.api.dialects import RequestIdentity, chat_options, chat_response, min_relevance_of, typed_event
from memos.api.families import CurrentCaller, CurrentMemos, status_of
from memos.api.openmem import details, shapes
from memos.api.openmem.files import without_files
from memos.api.openmem.shapes import Body, Names, Subject, bounded, check_tokens, number_of, ok, required, said, storing
from memos.api.streaming import CurrentRunner, poll, poll_for
from memos.api.wording import message_of
from memos.core.identities import Caller
from memos.core.types import Json, Mode, TaskState
from memos.errors import BackendTimeout, Conflict, InvalidInput, NotFound
from memos.kernel.chat.results import ChatOptions
from memos.kernel.idempotency import Progress, Submission
from memos.kernel.memos import MemOS

router = APIRouter(tags=["messages"])

ADD_TOKENS: Final = 20_000
_MOST_MESSAGES: Final = 50
_WAIT_S: Final = 20
_LOOKED_AT: Final = 1_000
_TASK_STATES: Final = {TaskState.DONE: "completed", TaskState.WAITING: "running", TaskState.RUNNING: "running"}


class AddBody(Body):
    """Messages to add, with their speaker."""

    user_id: Names = Field(None, description="User, or several users, each of whom gets the messages")
    agent_id: Names = Field(None, description="Agent; required without a user")
    conversation_id: str | None = Field(None, description="Conversation it belongs to")
    messages: Any = Field(None, description="List of messages `{role, content, …}` or of other known shapes; required")
    tags: list[str] | None = Field(None, description="Tags")
    info: dict[str, Any] | None = Field(None, description="Metadata to filter by")
    app_id: str | None = Field(None, description="Kept in `info`")
    source: str | None = Field(None, description="Kept in `info`")
    allow_public: bool | None = Field(None, description="Also store it in the cube `public`")
    allow_knowledgebase_ids: list[str] | None = Field(None, description="Knowledge bases to store it in as well")
    allow_memory_view: list[str] | None = Field(
        None, description="Accepted, but has no effect: every kind is extracted"
    )
    async_mode: bool | None = Field(None, description="`false` waits for the extraction of facts, at most 20 s")


class FeedbackBody(Body):
    """A correction in plain words."""

    user_id: str | None = Field(None, description="User; required")
    conversation_id: str | None = Field(None, description="Conversation the feedback is about")
    feedback_content: str | None = Field(None, description="The correction; required")
    agent_id: str | None = Field(None, description="Agent that forwards the feedback")
    app_id: str | None = Field(None, description="Accepted, but not stored")
    feedback_time: str | int | float | None = Field(None, description="When the feedback was given; default: now")
    allow_public: bool | None = Field(None, description="Also correct the cube `public`")
    allow_knowledgebase_ids: list[str] | None = Field(None, description="Knowledge bases to correct as well")


class MessagesBody(Subject):
    """A selection of messages."""

    conversation_id: str | None = Field(None, description="Conversation; default: the most recent ones")
    conversation_limit_number: int | None = Field(None, description="Maximum number of conversations, if none is given")
    message_limit_number: int | None = Field(
        None, description="Maximum number of messages, most recent first; default 6, at most 50"
    )
    source: str | None = Field(None, description="Only messages added with this `source`")


class StatusBody(Body):
    """A task to look up."""

    task_id: str | None = Field(None, description="Task id from an add; required")


@router.post("/add/message")
async def add_message(body: AddBody, request: Request, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Store messages; they are durable and can be found when this answers, and are read finely afterwards."""
    submission = await to_thread.run_sync(_store, memos, caller, body)
    receipt = await poll(request, lambda: _receipt(memos, submission))
    if body.async_mode is False:
        async for receipt in poll_for(request, lambda: _receipt(memos, submission), _WAIT_S):
            if receipt["status"] != Progress.RUNNING:
                break
    return ok(receipt)


@router.post("/add/feedback")
async def add_feedback(
    body: FeedbackBody, request: Request, memos: CurrentMemos, caller: CurrentCaller
) -> dict[str, Any]:
    """Store a correction as the newest statement; what it contradicts is superseded."""
    submission = await to_thread.run_sync(_correct, memos, caller, body)
    if submission is None:
        async for submission in poll_for(request, lambda: _correct(memos, caller, body), _WAIT_S):
            if submission is not None:
                break
        else:
            raise BackendTimeout("The same feedback is still being stored; send it again in a minute.")
    stored = submission
    return ok(await poll(request, lambda: _receipt(memos, stored)))


@router.post("/get/message")
def get_message(body: MessagesBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return the latest messages of a conversation, in order."""
    most = bounded("message_limit_number", body.message_limit_number, 6, _MOST_MESSAGES)
    conversations = bounded("conversation_limit_number", body.conversation_limit_number, 1, _MOST_MESSAGES)
    acting = shapes.known(memos, caller, body)
    found: list[details.Detail] = []
    if acting is not None and most:
        wanted: dict[str, Json] = {"type": "message"}
        if body.conversation_id is not None:
            wanted["conversation"] = body.conversation_id
        if body.source is not None:
            wanted["source"] = body.source
        limit = most if body.conversation_id is not None else _LOOKED_AT
        page = memos.memories.page(cube=acting.home, actor=acting.actor, filter=wanted, limit=limit)
        latest = list(dict.fromkeys(item.conversation for item in page.items))[:conversations]
        shown = [item for item in page.items if item.conversation in latest][:most]
        found = [details.message(item) for item in reversed(shown)]
    return ok({"message_detail_list": found})


@router.post("/get/status")
def get_status(body: StatusBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return how far the reading is of what was added: in a list of one, as all clients understand it."""
    task = required("task_id", body.task_id)
    me = caller.identity
    try:
        submission = memos.submissions.get(task, None if me.admin else me.id)
    except NotFound:
        state = memos.tasks.get(task, actor=me.id).state
        return ok([{"task_id": task, "status": _TASK_STATES.get(state, "failed"), "memory_views": None}])
    items = [] if submission.answer is None else list(submission.answer.get("items", ()))
    status = str(memos.submissions.progress(submission))
    return ok([{"task_id": submission.id, "status": status, "memory_views": {"memory": {"added": items}}}])


def _store(memos: MemOS, caller: Caller, body: AddBody) -> Submission:
    """Store a request's messages unless they are stored; resume a request that broke off."""
    messages = required("messages", body.messages)
    messages, files = without_files(messages, memos.settings.limits.file_bytes, memos.documents.fetch)
    check_tokens("messages", said(messages), ADD_TOKENS)
    people = shapes.everybody(memos, caller, body.user_id, body.agent_id)
    targets = [(names, acting.actor, acting.home) for names, acting in people]
    targets += [(people[0][0], actor, cube) for actor, cube in _besides(memos, caller, people[0][1], body)]
    items: list[str] = []
    with storing():
        submission = memos.submissions.take(caller.identity.id, same("add/message", body), [t[2] for t in targets])
        if submission.answer is not None:
            return submission
        for names, actor, cube in targets:
            about: dict[str, Any] = {"conversation": body.conversation_id, "tags": body.tags or (), "mode": "fine"}
            about |= {"info": _info(body, names), "idempotency_key": submission.key}
            items += memos.add(messages, cube=cube, actor=actor, **about).item_ids
            for file in files:
                memos.documents.add(file, cube=cube, actor=actor)
        return memos.submissions.answered(submission, {"items": items})


def _info(body: AddBody | ChatBody, names: Mapping[str, str | None]) -> dict[str, Any]:
    given = {"app_id": body.app_id, "source": body.source, **names}
    return {**(body.info or {}), **{name: value for name, value in given.items() if value is not None}}


def _besides(
    memos: MemOS, caller: Caller, acting: RequestIdentity, body: AddBody | FeedbackBody
) -> list[tuple[str, str]]:
    me = caller.identity.id
    bases = shapes.knowledge(memos, caller, body.allow_knowledgebase_ids)
    cubes = [*([shapes.public_cube(memos, caller)] if body.allow_public else []), *bases]
    return [(me, cube) for cube in cubes if cube != acting.home]


def _correct(memos: MemOS, caller: Caller, body: FeedbackBody) -> Submission | None:
    """Store a correction; return None while an equal request does."""
    text = required("feedback_content", body.feedback_content)
    check_tokens("feedback_content", text, ADD_TOKENS)
    [(_, acting)] = shapes.everybody(memos, caller, required("user_id", body.user_id), body.agent_id)
    targets = [(acting.actor, acting.home), *_besides(memos, caller, acting, body)]
    with storing():
        submission = memos.submissions.take(caller.identity.id, same("add/feedback", body), [c for _, c in targets])
    if not submission.fresh:
        return submission if submission.answer is not None else None
    items: list[str] = []
    try:
        with storing():
            for actor, cube in targets:
                receipt = memos.feedback(
                    text, cube=cube, actor=actor, conversation=body.conversation_id, chat_time=body.feedback_time
                )
                items.append(receipt.item_id)
    finally:
        if not items:  # it is not stored: the next try must not wait for this one
            memos.submissions.withdraw(submission)
    return memos.submissions.answered(submission, {"items": items})


def _receipt(memos: MemOS, submission: Submission) -> dict[str, Any]:
    status = memos.submissions.progress(submission)
    return {"success": status is not Progress.FAILED, "task_id": submission.id, "status": str(status)}


def same(path: str, body: Body) -> str:
    try:
        return json.dumps([path, body.model_dump(mode="python")], sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise Conflict("The body contains a value that JSON cannot represent.") from error


chat_router = APIRouter(tags=["chat"])

_QUERY_TOKENS: Final = 4_000
_MOST_RECALLED: Final = 25
_ANSWER_S: Final = 25


class ChatBody(Subject):
    """A question to answer, and the memory to answer from."""

    conversation_id: str | None = Field(
        None, description="Conversation; the model sees its most recent messages; required"
    )
    query: str | None = Field(None, description="The question; required")
    system_prompt: str | None = Field(None, description="Instructions for the model, in place of the default ones")
    model_name: str | None = Field(None, description="Accepted, but has no effect: the configured model answers")
    knowledgebase_ids: list[str] | None = Field(
        None, description='Knowledge bases to search as well; `["all"]` for all'
    )
    filter: dict[str, Any] | None = Field(None, description="Filter, as in a search")
    add_message_on_answer: bool | None = Field(None, description="Store the question and the answer; default true")
    app_id: str | None = Field(None, description="Kept in `info`")
    source: str | None = Field(None, description="Kept in `info`")
    tags: list[str] | None = Field(None, description="Tags of the stored memories")
    info: dict[str, Any] | None = Field(None, description="Metadata of the stored memories")
    max_tokens: int | None = Field(None, description="Longest answer")
    temperature: float | None = Field(None, description="Sampling temperature from 0 to 2")
    top_p: float | None = Field(None, description="Nucleus sampling, above 0 to 1")
    include_preference: bool | None = Field(None, description="Put preferences and instructions first; default true")
    preference_limit_number: int | None = Field(None, description="At most 25; accepted, but has no effect")
    memory_limit_number: int | None = Field(
        None, description="Maximum number of memories from search; default 6, at most 25"
    )
    relativity: float | None = Field(None, description="Minimum relevance, 0 to 1")
    stream: bool | None = Field(None, description="Stream events `{type: text, end or error, data}`")


@chat_router.post(
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
        options = await to_thread.run_sync(_chat_options, memos, caller, body)
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
        options = await to_thread.run_sync(_chat_options, memos, caller, body)
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
    """Register a request if its exchange will be stored; one that stores nothing may be sent twice."""
    if body.add_message_on_answer is False:
        return None
    acting = shapes.subject(memos, caller, _user(body), new=True)
    return memos.submissions.take(caller.identity.id, same("chat", body), [acting.home])


async def _meanwhile(request: Request, memos: MemOS, caller: Caller, taken: Submission) -> str:
    """Return the answer of the same request, sent a moment earlier. Raises: BackendTimeout."""
    me = caller.identity.id
    with suppress(NotFound):  # it failed, or its answer is erased
        async for found in poll_for(request, lambda: memos.submissions.get(taken.id, me), _ANSWER_S):
            if found.answer is not None and (items := found.answer.get("items")):
                item = await poll(request, lambda: memos.get(str(items[-1]), actor=me))
                return item.memory
            if found.answer is not None:
                break
    raise BackendTimeout("The same question is still being answered; ask again in a moment.")


def _chat_options(memos: MemOS, caller: Caller, body: ChatBody) -> ChatOptions:
    most = bounded("memory_limit_number", body.memory_limit_number, 6, _MOST_RECALLED)
    bounded("preference_limit_number", body.preference_limit_number, 6, _MOST_RECALLED)
    if not most:
        raise InvalidInput("memory_limit_number", "must be at least 1")
    acting = shapes.subject(memos, caller, _user(body), new=True)
    bases = shapes.knowledge(memos, caller, body.knowledgebase_ids)
    # Knowledge bases belong to the key's owner, who may look into them.
    actor = caller.identity.id if bases and caller.identity.admin else acting.actor
    cubes = {"user": [acting.home], "public": shapes.readable_public(memos, actor), "knowledgebase": bases}
    return chat_options(
        body,
        cubes=list(dict.fromkeys(name for group in cubes.values() for name in group)),
        actor=actor,
        conversation=body.conversation_id,
        top_k=most,
        filter=shapes.scoped_filter(body.filter, cubes),
        min_relevance=min_relevance_of(body.relativity),
        working=body.include_preference is not False,
        store=body.add_message_on_answer is not False,
        store_in=acting.home,
        tags=body.tags or (),
        info=_info(body, {"user_id": body.user_id, "agent_id": body.agent_id}),
        mode=Mode.FINE,
    )


def _user(body: ChatBody) -> Subject:
    """Return the subject of the memory: an agent only speaks for the user."""
    return Subject(user_id=body.user_id, agent_id=None)
