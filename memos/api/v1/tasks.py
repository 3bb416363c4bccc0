"""Routes of `/tasks` and `/events`: background work and the log of a cube. Waiting takes no thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse

from memos.api.families import Opened
from memos.api.streaming import Told, look, looks, streamed
from memos.api.v1.common import ERRORS, STREAM, Acting, InCube, Limit, TaskId, Timeout
from memos.api.v1.shapes_cubes import EventShape, TaskShape
from memos.core.types import Task
from memos.errors import InvalidInput

router = APIRouter(prefix="/tasks", tags=["tasks"], responses=ERRORS)
events_router = APIRouter(prefix="/events", tags=["events"], responses=ERRORS)

Cubes = Annotated[list[str], Query(description="Only of these cubes; default: all one may read")]


@router.get("", name="list_")
def list_tasks(
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


@router.get("/counts", name="counts")
def count_tasks(memos: Opened, acting: Acting, cube: Cubes = []) -> dict[str, int]:  # noqa: B006
    """Return how many tasks are in each state; states without one are left out."""
    found = memos.tasks.counts(cubes=cube or None, actor=acting.actor)
    return {str(state): count for state, count in found.items()}


@router.get("/{task}", name="get")
def get_task(task: TaskId, memos: Opened, acting: Acting) -> TaskShape:
    """Return a task as it stands."""
    return TaskShape.model_validate(memos.tasks.get(task, actor=acting.actor))


@router.post("/{task}/retry", name="retry")
def retry_task(task: TaskId, memos: Opened, acting: Acting) -> TaskShape:
    """Let a failed, dead or cancelled task wait again."""
    return TaskShape.model_validate(memos.tasks.retry(task, actor=acting.actor))


@router.post("/{task}/cancel", name="cancel")
def cancel_task(task: TaskId, memos: Opened, acting: Acting) -> TaskShape:
    """End a task before it is done."""
    return TaskShape.model_validate(memos.tasks.cancel(task, actor=acting.actor))


@router.get("/{task}/wait", name="wait")
async def wait_for_task(
    task: TaskId, request: Request, memos: Opened, acting: Acting, timeout_s: Timeout = 30.0
) -> TaskShape:
    """Return a task when it has ended, or as it stands when the time is over."""
    found: Task | None = None
    async for found in looks(request, lambda: memos.tasks.get(task, actor=acting.actor), timeout_s):
        if found.ended:
            break
    return TaskShape.model_validate(found)


@router.get("/{task}/stream", responses=STREAM, response_class=StreamingResponse, name="stream")
async def stream_task(
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


_AT_ONCE = 500
_MOST_DIGITS = 18

Kinds = Annotated[list[str], Query(description="Only of these kinds, such as `add`")]
LastEventId = Annotated[str | None, Header(description="Number of the last event seen, sent by clients that come back")]


@events_router.get("", name="list_")
def list_events(
    memos: Opened,
    place: InCube,
    after: Annotated[int, Query(description="Events behind this number")] = 0,
    kind: Kinds = [],  # noqa: B006
    limit: Limit = 100,
) -> list[EventShape]:
    """Return a cube's events, oldest first."""
    found = memos.events.list(place.cube, actor=place.actor, after=after, kinds=kind, limit=limit)
    return [EventShape.model_validate(event) for event in found]


@events_router.get("/stream", responses=STREAM, response_class=StreamingResponse, name="stream")
async def stream_events(
    request: Request,
    memos: Opened,
    place: InCube,
    after: Annotated[int | None, Query(description="Begin behind this number; default: with what comes now")] = None,
    kind: Kinds = [],  # noqa: B006
    timeout_s: Timeout = 300.0,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Follow a cube: an event of the stream for each that is committed, named as its kind."""
    start = after if last_event_id is None else _number(last_event_id)
    if start is None:
        start = await look(request, lambda: memos.events.head(place.cube, actor=place.actor))
    seen = start

    def newer() -> list[EventShape]:
        found = memos.events.list(place.cube, actor=place.actor, after=seen, kinds=kind, limit=_AT_ONCE)
        return [EventShape.model_validate(event) for event in found]

    first = await look(request, newer)  # what may not be seen is refused before anything is sent

    async def told() -> AsyncIterator[Told | None]:
        nonlocal seen
        for event in first:
            yield _told(event)
            seen = event.seq
        async for events in looks(request, newer, timeout_s):
            for event in events:
                yield _told(event)
                seen = event.seq
            yield None

    return streamed(told())


def _told(event: EventShape) -> Told:
    return Told(event.kind, event.model_dump(mode="json"), str(event.seq))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidInput("last-event-id", "must be the number of an event")
    return int(text)
