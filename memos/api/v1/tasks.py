"""Routes of `/tasks` and `/events`: background work and the log of a cube. Waiting takes no thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request
from starlette.responses import StreamingResponse

from memos.api import values
from memos.api.families import CurrentMemos
from memos.api.streaming import ServerEvent, event_stream, poll, poll_for
from memos.api.v1.common import STREAM, CurrentIdentity, CurrentTarget, Limit, TaskId, Timeout, value_router
from memos.core.types import Event, Task
from memos.errors import InvalidInput

router = value_router("tasks", prefix="/tasks")
events_router = value_router("events", prefix="/events")

Cubes = Annotated[list[str], Query(description="Only of these cubes; default: all readable cubes")]


@router.get("", name="list_")
def list_tasks(
    memos: CurrentMemos,
    acting: CurrentIdentity,
    cube: Cubes = [],  # noqa: B006
    state: Annotated[list[str], Query(description="Only in these states")] = [],  # noqa: B006
    kind: Annotated[list[str], Query(description="Only of these kinds")] = [],  # noqa: B006
    limit: Limit = 100,
    after: Annotated[str | None, Query(description="Continue after this task")] = None,
    about: Annotated[
        str | None,
        Query(description="Only about this memory or file, or its conversation or topic since it was stored"),
    ] = None,
) -> list[Task]:
    """Return tasks, newest first."""
    return memos.tasks.list(
        cubes=cube or None, actor=acting.actor, states=state, kinds=kind, limit=limit, after=after, about=about
    )


@router.get("/counts", name="counts")
def count_tasks(memos: CurrentMemos, acting: CurrentIdentity, cube: Cubes = []) -> dict[str, int]:  # noqa: B006
    """Return how many tasks are in each state; states without one are left out."""
    found = memos.tasks.counts(cubes=cube or None, actor=acting.actor)
    return {str(state): count for state, count in found.items()}


@router.get("/{task}", name="get")
def get_task(task: TaskId, memos: CurrentMemos, acting: CurrentIdentity) -> Task:
    """Return a task as it stands."""
    return memos.tasks.get(task, actor=acting.actor)


@router.post("/{task}/retry", name="retry")
def retry_task(task: TaskId, memos: CurrentMemos, acting: CurrentIdentity) -> Task:
    """Queue a failed, dead or cancelled task again."""
    return memos.tasks.retry(task, actor=acting.actor)


@router.post("/{task}/cancel", name="cancel")
def cancel_task(task: TaskId, memos: CurrentMemos, acting: CurrentIdentity) -> Task:
    """End a task before it is done."""
    return memos.tasks.cancel(task, actor=acting.actor)


@router.get("/{task}/wait", name="wait")
async def wait_for_task(
    task: TaskId, request: Request, memos: CurrentMemos, acting: CurrentIdentity, timeout_s: Timeout = 30.0
) -> Task:
    """Return a task when it has ended, or as it stands when the time is over."""
    found: Task | None = None
    async for found in poll_for(request, lambda: memos.tasks.get(task, actor=acting.actor), timeout_s):
        if found.ended:
            break
    assert found is not None  # the first poll comes at once
    return found


@router.get("/{task}/stream", responses=STREAM, response_class=StreamingResponse, name="stream")
async def stream_task(
    task: TaskId, request: Request, memos: CurrentMemos, acting: CurrentIdentity, timeout_s: Timeout = 300.0
) -> StreamingResponse:
    """Follow a task: an event `task` with the task now and whenever it changes, and `end` when it has ended."""

    def state() -> Task:
        return memos.tasks.get(task, actor=acting.actor)

    await poll(request, state)  # what may not be seen is refused before anything is sent

    async def told() -> AsyncIterator[ServerEvent | None]:
        seen = None
        async for found in poll_for(request, state, timeout_s):
            shown = values.Task.model_validate(found).model_dump(mode="json")
            yield ServerEvent("task", shown) if shown != seen else None
            seen = shown
            if found.ended:
                yield ServerEvent("end", {"state": str(found.state)})
                return

    return event_stream(told())


_AT_ONCE = 500
_MOST_DIGITS = 18

Kinds = Annotated[list[str], Query(description="Only of these kinds, such as `add`")]
LastEventId = Annotated[
    str | None, Header(description="Number of the last event received, sent by clients that reconnect")
]


@events_router.get("", name="list_")
def list_events(
    memos: CurrentMemos,
    target: CurrentTarget,
    after: Annotated[int, Query(description="Events after this number")] = 0,
    kind: Kinds = [],  # noqa: B006
    limit: Limit = 100,
    before: Annotated[int | None, Query(description="Events before this number")] = None,
    newest: Annotated[bool, Query(description="Newest first")] = False,
    item: Annotated[str | None, Query(description="Only those that name this memory or file")] = None,
) -> list[Event]:
    """Return a cube's events, oldest first or, with `newest`, newest first."""
    return memos.events.list(**target, after=after, kinds=kind, limit=limit, before=before, newest=newest, item=item)


@events_router.get("/stream", responses=STREAM, response_class=StreamingResponse, name="stream")
async def stream_events(
    request: Request,
    memos: CurrentMemos,
    target: CurrentTarget,
    after: Annotated[int | None, Query(description="Begin after this number; default: new events only")] = None,
    kind: Kinds = [],  # noqa: B006
    timeout_s: Timeout = 300.0,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Follow a cube: an event of the stream for each that is committed, named as its kind."""
    start = after if last_event_id is None else _number(last_event_id)
    if start is None:
        start = await poll(request, lambda: memos.events.head(**target))
    seen = start

    def newer() -> list[Event]:
        return memos.events.list(**target, after=seen, kinds=kind, limit=_AT_ONCE)

    first = await poll(request, newer)  # what may not be seen is refused before anything is sent

    async def told() -> AsyncIterator[ServerEvent | None]:
        nonlocal seen
        for event in first:
            yield _told(event)
            seen = event.seq
        async for events in poll_for(request, newer, timeout_s):
            for event in events:
                yield _told(event)
                seen = event.seq
            yield None

    return event_stream(told())


def _told(event: Event) -> ServerEvent:
    return ServerEvent(event.kind, values.Event.model_validate(event).model_dump(mode="json"), str(event.seq))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidInput("last-event-id", "must be the number of an event")
    return int(text)
