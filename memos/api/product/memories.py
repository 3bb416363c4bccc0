"""`/product/add`, `/product/delete_memory` and `/product/feedback`: what changes memories."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import Field

from memos.api.families import Asked, Opened
from memos.api.product.shapes import Body, acting, done, memory_type
from memos.api.waiting import looks
from memos.core.types import AddReceipt, Item, Json, Mode
from memos.errors import InvalidInput, NotFound
from memos.kernel.memos import MemOS

router = APIRouter()

_AT_ONCE = 1_000
_ADDED = "Memory added"
# A model that takes longer goes on in the background; what it finds is searchable then.
_LONGEST_S = 600


class AddBody(Body):
    """What to remember."""

    user_id: str
    messages: Any
    session_id: str | None = None
    task_id: str | None = None
    writable_cube_ids: list[str] | None = None
    async_mode: str = "async"
    mode: str | None = None
    custom_tags: list[str] | None = None
    info: dict[str, Any] | None = None
    chat_history: Any = None
    is_feedback: bool = False


@router.post("/add")
async def add(body: AddBody, request: Request, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Store messages; with `sync` and `fine` this answers when they are read into facts too."""
    if body.async_mode not in {"async", "sync"}:
        raise InvalidInput("async_mode", "must be async or sync")
    if body.mode not in {None, "fast", "fine"}:
        raise InvalidInput("mode", "must be fast or fine")
    if body.is_feedback:
        return done(await to_thread.run_sync(partial(_corrected, memos, caller, body)), "Feedback processed")
    whom, cubes = await to_thread.run_sync(partial(acting, memos, caller, body.user_id, body.writable_cube_ids))
    finely = body.async_mode == "async" or body.mode == "fine"
    receipts = []
    for cube in cubes:
        storing = partial(
            memos.add, body.messages, cube=cube, actor=whom.actor, conversation=body.session_id,
            tags=body.custom_tags or [], info=body.info, mode=Mode.FINE if finely else Mode.ROUGH,
            idempotency_key=None if body.task_id is None else task_key(body.task_id),
        )  # fmt: skip
        receipts.append(await to_thread.run_sync(storing))
    if body.async_mode == "sync":
        for receipt in receipts:
            if receipt.task is not None:
                await _ended(request, memos, receipt.task, whom.actor)
    return done(await to_thread.run_sync(partial(_stored, memos, whom.actor, receipts)), _ADDED)


async def _ended(request: Request, memos: MemOS, task: str, actor: str) -> None:
    async for found in looks(request, partial(memos.tasks.get, task, actor=actor), _LONGEST_S):
        if found.ended:
            return


def task_key(task_id: str) -> str:
    """Return the idempotency key of what a client adds under a task's id."""
    return f"task:{task_id}"


def _stored(memos: MemOS, actor: str, receipts: Sequence[AddReceipt]) -> list[dict[str, Any]]:
    """Return what was stored, and what has been read out of it by now."""
    found: list[Item] = []
    for receipt in receipts:
        for item in receipt.item_ids:
            found.append(memos.get(item, cube=receipt.cube, actor=actor))
            found.extend(memos.derived(item, cube=receipt.cube, actor=actor))
    unique = {item.id: item for item in found}
    return [
        {"memory": item.memory, "memory_id": item.id, "memory_type": memory_type(item), "cube_id": item.cube}
        for item in unique.values()
    ]


class DeleteBody(Body):
    """What to take out of sight: exactly one of ids, files, or what a filter, user or session says."""

    writable_cube_ids: list[str] | None = None
    memory_ids: list[str] | None = None
    file_ids: list[str] | None = None
    filter: dict[str, Any] | None = None
    user_id: str | None = None
    session_id: str | None = None


@router.post("/delete_memory")
def delete(body: DeleteBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Delete memories, or files with what was read of them; `memos rollback` brings memories back for a time."""
    chosen = body.filter is not None or body.user_id is not None or body.session_id is not None
    if [bool(body.memory_ids), bool(body.file_ids), chosen].count(True) != 1:
        raise InvalidInput(
            "memory_ids", "exactly one of memory_ids, file_ids, or filter, user_id and session_id is taken"
        )
    whom, cubes = acting(memos, caller, body.user_id, body.writable_cube_ids)
    actor = whom.actor if body.user_id else caller.identity.id
    if body.memory_ids:
        if body.writable_cube_ids and {memos.get(id_, actor=actor).cube for id_ in body.memory_ids} - set(cubes):
            raise NotFound("memory", "in these cubes", "Name the cubes it is in, or none.")
        memos.delete(body.memory_ids, actor=actor)
    elif body.file_ids:
        for file in body.file_ids:
            memos.documents.delete(file, actor=actor)
    else:
        session: list[Json] = [] if body.session_id is None else [{"conversation": body.session_id}]
        wanted = {"and": [*session, *([body.filter] if body.filter else [])]} if session or body.filter else None
        for cube in cubes:
            while found := memos.list(cube=cube, actor=actor, filter=wanted, limit=_AT_ONCE):
                memos.delete([item.id for item in found], cube=cube, actor=actor)
    return done({"status": "success"})


class FeedbackBody(Body):
    """A correction."""

    user_id: str
    feedback_content: str
    history: Any = None
    session_id: str | None = None
    retrieved_memory_ids: list[str] | None = None
    feedback_time: Any = None
    writable_cube_ids: list[str] | None = None
    async_mode: str = "async"
    corrected_answer: bool = False
    info: dict[str, Any] | None = Field(None)


@router.post("/feedback")
def feedback(body: FeedbackBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Take a correction in plain words; what it replaces is superseded and stays in history."""
    whom, cubes = acting(memos, caller, body.user_id, body.writable_cube_ids)
    return done(
        [_correct(memos, whom.actor, cube, body) for cube in cubes],
        "Feedback processed",
    )


def _correct(memos: MemOS, actor: str, cube: str, body: FeedbackBody) -> dict[str, Any]:
    mine = [id_ for id_ in body.retrieved_memory_ids or [] if memos.get(id_, actor=actor).cube == cube]
    receipt = memos.feedback(
        body.feedback_content, cube=cube, actor=actor, conversation=body.session_id, item_ids=mine,
        chat_time=body.feedback_time,
    )  # fmt: skip
    new = memos.get(receipt.item_id, cube=cube, actor=actor)
    record: dict[str, Any] = {"add": [{"id": new.id, "text": new.memory, "source_doc_id": None}], "update": []}
    for old in receipt.superseded:
        origin = memos.get(old, cube=cube, actor=actor).memory
        told = {"id": new.id, "text": new.memory, "source_doc_id": None, "archived_id": old, "origin_memory": origin}
        record["update"].append(told)
    answer = f"Noted: {len(receipt.superseded)} replaced." if receipt.superseded else "Noted."
    return {"answer": answer if body.corrected_answer else "", "record": record}


def _corrected(memos: MemOS, caller: Asked, body: AddBody) -> list[dict[str, Any]]:
    """Take the newest words of a user that were sent as an add for a correction."""
    said = [body.messages] if isinstance(body.messages, str | dict) else body.messages
    words = [each if isinstance(each, str) else each.get("content") for each in said if isinstance(each, str | dict)]
    if not words or not isinstance(words[-1], str):
        raise InvalidInput("messages", "with is_feedback must end with the correction as text")
    correction = FeedbackBody(
        user_id=body.user_id, feedback_content=words[-1], session_id=body.session_id,
        writable_cube_ids=body.writable_cube_ids,
    )  # fmt: skip
    whom, cubes = acting(memos, caller, body.user_id, body.writable_cube_ids)
    made = [_correct(memos, whom.actor, cube, correction) for cube in cubes]
    ids = [(cube, record["record"]["add"][0]["id"]) for cube, record in zip(cubes, made, strict=True)]
    items = [memos.get(id_, cube=cube, actor=whom.actor) for cube, id_ in ids]
    return [
        {"memory": item.memory, "memory_id": item.id, "memory_type": memory_type(item), "cube_id": item.cube}
        for item in items
    ]
