"""`/tasks`: background work, listed, waited for and followed; waiting takes no thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from memos.api.families import Opened
from memos.api.v1.common import ERRORS, STREAM, Acting, Limit, TaskId, Timeout
from memos.api.v1.shapes_cubes import TaskShape
from memos.api.waiting import Told, look, looks, streamed
from memos.core.types import Task

router = APIRouter(prefix="/tasks", tags=["tasks"], responses=ERRORS)

Cubes = Annotated[list[str], Query(description="Only of these cubes; default: all one may read")]


@router.get("")
def list_(
    memos: Opened,
    acting: Acting,
    cube: Cubes = [],  # noqa: B006
    state: Annotated[list[str], Query(description="Only in these states")] = [],  # noqa: B006
    kind: Annotated[list[str], Query(description="Only of these kinds")] = [],  # noqa: B006
    limit: Limit = 100,
    after: Annotated[str | None, Query(description="Go on behind this task")] = None,
) -> list[TaskShape]:
    """Return tasks, newest first."""
    found = memos.tasks.list(cubes=cube or None, actor=acting.actor, states=state, kinds=kind, limit=limit, after=after)
    return [TaskShape.model_validate(task) for task in found]


@router.get("/counts")
def counts(memos: Opened, acting: Acting, cube: Cubes = []) -> dict[str, int]:  # noqa: B006
    """Return how many tasks are in each state; states without one are left out."""
    found = memos.tasks.counts(cubes=cube or None, actor=acting.actor)
    return {str(state): count for state, count in found.items()}


@router.get("/{task}")
def get(task: TaskId, memos: Opened, acting: Acting) -> TaskShape:
    """Return a task as it stands."""
    return TaskShape.model_validate(memos.tasks.get(task, actor=acting.actor))


@router.post("/{task}/retry")
def retry(task: TaskId, memos: Opened, acting: Acting) -> TaskShape:
    """Let a failed, dead or cancelled task wait again."""
    return TaskShape.model_validate(memos.tasks.retry(task, actor=acting.actor))


@router.post("/{task}/cancel")
def cancel(task: TaskId, memos: Opened, acting: Acting) -> TaskShape:
    """End a task before it is done."""
    return TaskShape.model_validate(memos.tasks.cancel(task, actor=acting.actor))


@router.get("/{task}/wait")
async def wait(task: TaskId, request: Request, memos: Opened, acting: Acting, timeout_s: Timeout = 30.0) -> TaskShape:
    """Return a task when it has ended, or as it stands when the time is over."""
    found: Task | None = None
    async for found in looks(request, lambda: memos.tasks.get(task, actor=acting.actor), timeout_s):
        if found.ended:
            break
    return TaskShape.model_validate(found)


@router.get("/{task}/stream", responses=STREAM, response_class=StreamingResponse)
async def stream(
    task: TaskId, request: Request, memos: Opened, acting: Acting, timeout_s: Timeout = 300.0
) -> StreamingResponse:
    """Follow a task: an event `task` with the task now and whenever it changes, and `end` when it has ended."""

    def state() -> Task:
        return memos.tasks.get(task, actor=acting.actor)

    await look(request, state)  # what may not be seen is refused before anything is sent

    async def told() -> AsyncIterator[Told | None]:
        seen = None
        async for found in looks(request, state, timeout_s):
            shown = TaskShape.model_validate(found).model_dump(mode="json")
            yield Told("task", shown) if shown != seen else None
            seen = shown
            if found.ended:
                yield Told("end", {"state": str(found.state)})
                return

    return streamed(told())
