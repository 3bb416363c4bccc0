"""`/product/scheduler/…`: how far background work is, and waiting for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from memos.api.auth import Who, who
from memos.api.families import Asked, Opened
from memos.api.product.memories import task_key
from memos.api.product.shapes import done
from memos.api.waiting import Told, look, looks, streamed
from memos.core.types import Task, TaskState
from memos.errors import NotFound
from memos.kernel.memos import MemOS
from memos.kernel.submissions import Progress

router = APIRouter(prefix="/scheduler")

_STATUS = {
    TaskState.WAITING: "waiting",
    TaskState.RUNNING: "in_progress",
    TaskState.DONE: "completed",
    TaskState.FAILED: "failed",
    TaskState.DEAD: "failed",
    TaskState.CANCELLED: "cancelled",
}
_PROGRESS = {Progress.RUNNING: "in_progress", Progress.COMPLETED: "completed", Progress.FAILED: "failed"}
_SHOWN = 1_000

User = Annotated[str, Query()]
Seconds = Annotated[float, Query(gt=0, le=3600, alias="timeout_seconds")]


@router.get("/status")
def status(memos: Opened, caller: Asked, user_id: User, task_id: str | None = None) -> dict[str, Any]:
    """Return a user's tasks, or the one that a client named itself or was told of."""
    whom = who(memos, caller, user_id, new=False)
    if task_id is None:
        tasks = memos.tasks.list(cubes=[whom.home], actor=whom.actor, limit=_SHOWN)
        return done([_shown(task) for task in tasks])
    return done([{"task_id": task_id, "status": _status_of(memos, whom, task_id)}])


@router.get("/allstatus")
def every_status(memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return how many tasks are in each state, of the cubes that the key may read."""
    return done({"scheduler_summary": _counts(memos, caller.identity.id, None)})


@router.get("/task_queue_status")
def queue_status(memos: Opened, caller: Asked, user_id: User) -> dict[str, Any]:
    """Return how many tasks of a user wait, run and have ended."""
    whom = who(memos, caller, user_id, new=False)
    counts = _counts(memos, whom.actor, [whom.home])
    left = counts["waiting"] + counts["in_progress"]
    return done({"user_name": user_id, "remaining_tasks_count": left, **counts})


@router.post("/wait")
async def wait(
    request: Request, memos: Opened, caller: Asked, user_name: User, timeout_seconds: Seconds = 120.0
) -> dict[str, Any]:
    """Answer when none of a user's tasks waits or runs, or after the time given."""
    whom = await look(request, partial(who, memos, caller, user_name, new=False))
    left = 0
    async for counts in looks(request, partial(_counts, memos, whom.actor, [whom.home]), timeout_seconds):
        left = counts["waiting"] + counts["in_progress"]
        if not left:
            break
    return done({"status": "timeout" if left else "idle", "timed_out": bool(left), "running_tasks": left})


@router.get("/wait/stream")
async def wait_stream(
    request: Request, memos: Opened, caller: Asked, user_name: User, timeout_seconds: Seconds = 120.0
) -> StreamingResponse:
    """Tell how many of a user's tasks are left, as it changes, until there are none or the time is over."""
    whom = await look(request, partial(who, memos, caller, user_name, new=False))

    async def told() -> AsyncIterator[Told | None]:
        seen: int | None = None
        async for counts in looks(request, partial(_counts, memos, whom.actor, [whom.home]), timeout_seconds):
            left = counts["waiting"] + counts["in_progress"]
            if left == seen:
                yield None
                continue
            seen = left
            yield Told("status", {"running_tasks": left, "status": "running" if left else "idle"})
            if not left:
                return
        yield Told("status", {"running_tasks": seen, "status": "timeout"})

    return streamed(told())


def _counts(memos: MemOS, actor: str, cubes: list[str] | None) -> dict[str, int]:
    counts = dict.fromkeys(_STATUS.values(), 0)
    for state, count in memos.tasks.counts(cubes=cubes, actor=actor).items():
        counts[_STATUS[state]] += count
    return counts


def _shown(task: Task) -> dict[str, str]:
    return {"task_id": task.id, "status": _STATUS[task.state]}


def _status_of(memos: MemOS, whom: Who, task_id: str) -> str:
    """Return how far a task is: one of ours, or what a client added under an id of its own. Raises: NotFound."""
    try:
        return _STATUS[memos.tasks.get(task_id, actor=whom.actor).state]
    except NotFound:
        receipt = memos.receipt(task_key(task_id), cube=whom.home, actor=whom.actor)
    return _PROGRESS[memos.submissions.read_so_far(receipt.item_ids)]
