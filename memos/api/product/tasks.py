"""Routes of `/product` about cubes and background tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from memos.api.dialects import RequestIdentity, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.product.memories import task_key
from memos.api.product.shapes import Body, done
from memos.api.streaming import ServerEvent, event_stream, poll, poll_for
from memos.core.clock import new_id
from memos.core.types import Task, TaskState
from memos.errors import NotFound
from memos.kernel.idempotency import Progress
from memos.kernel.memos import MemOS
from memos.version import __version__

cubes_router = APIRouter()
router = APIRouter(prefix="/scheduler")

_SUGGESTED = 5
_LOOKED_AT = 50


class CubeBody(Body):
    """A cube to make, or one that is there."""

    cube_name: str | None = None
    owner_id: str | None = None
    user_id: str | None = None
    cube_path: str | None = None
    cube_id: str | None = None
    mem_cube_id: str | None = None


@cubes_router.post("/create_cube")
def create_cube(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Make an empty cube. `cube_path` means nothing: an installation keeps its cubes itself."""
    acting = resolve_identity(memos, caller, body.owner_id or body.user_id)
    cube = body.cube_id or body.mem_cube_id or new_id()
    made = memos.cubes.create(cube, actor=acting.actor, description=body.cube_name or "")
    return done({"cube_id": made.id, "cube_name": made.description, "owner_id": made.owner}, "Cube created")


@cubes_router.post("/register_cube")
def register_cube(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return a cube that a client wants to use, made when there is none of this id."""
    acting = resolve_identity(memos, caller, body.owner_id or body.user_id)
    cube = body.cube_id or body.mem_cube_id or body.cube_name or acting.home
    try:
        found = memos.cubes.get(cube, actor=acting.actor)
    except NotFound:
        found = memos.cubes.create(cube, actor=acting.actor, description=body.cube_name or "")
    return done({"cube_id": found.id, "cube_name": found.description, "owner_id": found.owner}, "Cube registered")


class SuggestionsBody(Body):
    """For whom to suggest questions."""

    user_id: str
    mem_cube_id: str | None = None
    language: str | None = None


@cubes_router.post("/suggestions")
def suggestions(body: SuggestionsBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Suggest questions that memory can answer: about what is newest in it."""
    acting = resolve_identity(memos, caller, body.user_id, new=False)
    cube = body.mem_cube_id or acting.home
    stats = memos.cubes.get(cube, actor=acting.actor)
    newest = memos.memories.list(
        cube=cube, actor=acting.actor, limit=_LOOKED_AT, offset=max(0, stats.items - _LOOKED_AT)
    )
    names: dict[str, None] = {}
    for item in reversed(newest):
        names.update(dict.fromkeys(item.entities))
    query = "关于{name}都说了什么？" if body.language == "zh" else "What was said about {name}?"
    return done({"query": [query.format(name=name) for name in list(names)[:_SUGGESTED]]})


@cubes_router.get("/health")
async def health() -> dict[str, str]:
    """Say that the server answers."""
    return {"status": "healthy", "service": "hippocube", "version": __version__}


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


@router.get("/status", name="status")
def task_status(
    memos: CurrentMemos, caller: CurrentCaller, user_id: User, task_id: str | None = None
) -> dict[str, Any]:
    """Return a user's tasks, or the one that a client named itself or was told of."""
    acting = resolve_identity(memos, caller, user_id, new=False)
    if task_id is None:
        tasks = memos.tasks.list(cubes=[acting.home], actor=acting.actor, limit=_SHOWN)
        return done([_shown(task) for task in tasks])
    return done([{"task_id": task_id, "status": _status_of(memos, acting, task_id)}])


@router.get("/allstatus")
def every_status(memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return how many tasks are in each state, of the cubes that the key may read."""
    return done({"scheduler_summary": _counts(memos, caller.identity.id, None)})


@router.get("/task_queue_status")
def queue_status(memos: CurrentMemos, caller: CurrentCaller, user_id: User) -> dict[str, Any]:
    """Return how many tasks of a user wait, run and have ended."""
    acting = resolve_identity(memos, caller, user_id, new=False)
    counts = _counts(memos, acting.actor, [acting.home])
    left = counts["waiting"] + counts["in_progress"]
    return done({"user_name": user_id, "remaining_tasks_count": left, **counts})


@router.post("/wait", name="wait")
async def wait_for_tasks(
    request: Request, memos: CurrentMemos, caller: CurrentCaller, user_name: User, timeout_seconds: Seconds = 120.0
) -> dict[str, Any]:
    """Answer when none of a user's tasks waits or runs, or after the time given."""
    acting = await poll(request, partial(resolve_identity, memos, caller, user_name, new=False))
    left = 0
    async for counts in poll_for(request, partial(_counts, memos, acting.actor, [acting.home]), timeout_seconds):
        left = counts["waiting"] + counts["in_progress"]
        if not left:
            break
    return done({"status": "timeout" if left else "idle", "timed_out": bool(left), "running_tasks": left})


@router.get("/wait/stream", name="wait_stream")
async def stream_tasks(
    request: Request, memos: CurrentMemos, caller: CurrentCaller, user_name: User, timeout_seconds: Seconds = 120.0
) -> StreamingResponse:
    """Tell how many of a user's tasks are left, as it changes, until there are none or the time is over."""
    acting = await poll(request, partial(resolve_identity, memos, caller, user_name, new=False))

    async def told() -> AsyncIterator[ServerEvent | None]:
        seen: int | None = None
        async for counts in poll_for(request, partial(_counts, memos, acting.actor, [acting.home]), timeout_seconds):
            left = counts["waiting"] + counts["in_progress"]
            if left == seen:
                yield None
                continue
            seen = left
            yield ServerEvent("status", {"running_tasks": left, "status": "running" if left else "idle"})
            if not left:
                return
        yield ServerEvent("status", {"running_tasks": seen, "status": "timeout"})

    return event_stream(told())


def _counts(memos: MemOS, actor: str, cubes: list[str] | None) -> dict[str, int]:
    counts = dict.fromkeys(_STATUS.values(), 0)
    for state, count in memos.tasks.counts(cubes=cubes, actor=actor).items():
        counts[_STATUS[state]] += count
    return counts


def _shown(task: Task) -> dict[str, str]:
    return {"task_id": task.id, "status": _STATUS[task.state]}


def _status_of(memos: MemOS, acting: RequestIdentity, task_id: str) -> str:
    """Return the status of one of our tasks, or of an add under the client's own id. Raises: NotFound."""
    try:
        return _STATUS[memos.tasks.get(task_id, actor=acting.actor).state]
    except NotFound:
        receipt = memos.memories.receipt(task_key(task_id), cube=acting.home, actor=acting.actor)
    return _PROGRESS[memos.submissions.read_so_far(receipt.item_ids)]
