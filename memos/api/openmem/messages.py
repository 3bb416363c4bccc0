"""Messages and feedback: stored once however often they are sent, listed, and followed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import Field

from memos.api.dialects import RequestIdentity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.openmem import details, shapes
from memos.api.openmem.files import without_files
from memos.api.openmem.shapes import Body, Names, Subject, bounded, check_tokens, ok, required, said, storing
from memos.api.streaming import poll, poll_for
from memos.core.identities import Caller
from memos.core.types import Json, TaskState
from memos.errors import BackendTimeout, Conflict, NotFound
from memos.kernel.idempotency import Progress, Submission
from memos.kernel.memos import MemOS

router = APIRouter(tags=["messages"])

ADD_TOKENS: Final = 20_000
_MOST_MESSAGES: Final = 50
_WAIT_S: Final = 20
_LOOKED_AT: Final = 1_000
_TASK_STATES: Final = {TaskState.DONE: "completed", TaskState.WAITING: "running", TaskState.RUNNING: "running"}


class AddBody(Body):
    """What was said, and by whom."""

    user_id: Names = Field(None, description="User, or several that get the same each")
    agent_id: Names = Field(None, description="Agent; required without a user")
    conversation_id: str | None = Field(None, description="Conversation it belongs to")
    messages: Any = Field(None, description="List of messages `{role, content, …}`; required")
    tags: list[str] | None = Field(None, description="Tags")
    info: dict[str, Any] | None = Field(None, description="Own fields, to filter by later")
    app_id: str | None = Field(None, description="Kept in `info`")
    source: str | None = Field(None, description="Kept in `info`")
    allow_public: bool | None = Field(None, description="Also store it in the cube `public`")
    allow_knowledgebase_ids: list[str] | None = Field(None, description="Knowledge bases to store it in besides")
    allow_memory_view: list[str] | None = Field(None, description="Taken and without effect: every kind is read")
    async_mode: bool | None = Field(None, description="False waits for the fine reading, 20 s at the most")


class FeedbackBody(Body):
    """A correction in plain words."""

    user_id: str | None = Field(None, description="User; required")
    conversation_id: str | None = Field(None, description="Conversation it is about")
    feedback_content: str | None = Field(None, description="The correction; required")
    agent_id: str | None = Field(None, description="Agent that passes it on")
    app_id: str | None = Field(None, description="Taken and not kept")
    feedback_time: str | int | float | None = Field(None, description="When it was said; default: now")
    allow_public: bool | None = Field(None, description="Also correct the cube `public`")
    allow_knowledgebase_ids: list[str] | None = Field(None, description="Knowledge bases to correct besides")


class MessagesBody(Subject):
    """Which messages."""

    conversation_id: str | None = Field(None, description="Conversation; default: the latest ones")
    conversation_limit_number: int | None = Field(None, description="Most conversations, without one named")
    message_limit_number: int | None = Field(None, description="Most messages, the latest; default 6, at most 50")
    source: str | None = Field(None, description="Only messages added with this `source`")


class StatusBody(Body):
    """Which task."""

    task_id: str | None = Field(None, description="Task that an add named; required")


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
            raise BackendTimeout("The same feedback is still being stored: send it again in a minute.")
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
    return ok([_followed(memos, submission)])


def _store(memos: MemOS, caller: Caller, body: AddBody) -> Submission:
    """Store a request's messages unless they are stored; resume a request that broke off."""
    messages = _without_nulls(required("messages", body.messages))
    messages, files = without_files(messages, memos.settings.limits.file_bytes, memos.documents.fetch)
    check_tokens("messages", said(messages), ADD_TOKENS)
    targets = _targets(memos, caller, body)
    items: list[str] = []
    with storing():
        submission = memos.submissions.take(caller.identity.id, same("add/message", body), [t[2] for t in targets])
        if submission.answer is not None:
            return submission
        for names, actor, cube in targets:
            receipt = _added(memos, body, messages, names, actor, cube, submission.key)
            items += receipt
            for file in files:
                memos.documents.add(file, cube=cube, actor=actor)
        return memos.submissions.answered(submission, {"items": items})


def _added(
    memos: MemOS, body: AddBody, messages: Json, names: Mapping[str, str], actor: str, cube: str, key: str
) -> list[str]:
    given = {"app_id": body.app_id, "source": body.source, **names}
    info = {**(body.info or {}), **{name: value for name, value in given.items() if value is not None}}
    receipt = memos.add(
        messages,
        cube=cube,
        actor=actor,
        conversation=body.conversation_id,
        tags=body.tags or (),
        info=info,
        idempotency_key=key,
        mode="fine",
    )
    return list(receipt.item_ids)


def _targets(memos: MemOS, caller: Caller, body: AddBody) -> list[tuple[dict[str, str], str, str]]:
    """Return names, actor and cube of each place to store messages."""
    people = shapes.everybody(memos, caller, body.user_id, body.agent_id)
    targets = [(names, acting.actor, acting.home) for names, acting in people]
    first = people[0][0]
    return [*targets, *((first, actor, cube) for actor, cube in _besides(memos, caller, people[0][1], body))]


def _besides(
    memos: MemOS, caller: Caller, acting: RequestIdentity, body: AddBody | FeedbackBody
) -> list[tuple[str, str]]:
    """Return further places a request allows: the public cube and knowledge bases."""
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


def _followed(memos: MemOS, submission: Submission) -> dict[str, Any]:
    items = [] if submission.answer is None else list(submission.answer.get("items", ()))
    status = str(memos.submissions.progress(submission))
    return {"task_id": submission.id, "status": status, "memory_views": {"memory": {"added": items}}}


def same(path: str, body: Body) -> str:
    """Return the text by which equal requests are recognised."""
    try:
        return json.dumps([path, body.model_dump(mode="python")], sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise Conflict("The body contains a value that JSON cannot represent.") from error


def _without_nulls(messages: Json) -> Json:
    """Return messages without null fields, which OpenAI's clients send."""
    if not isinstance(messages, list):
        return messages
    return [
        {key: value for key, value in message.items() if value is not None} if isinstance(message, dict) else message
        for message in messages
    ]
