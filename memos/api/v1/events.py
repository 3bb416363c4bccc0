"""`/events`: what was done to a cube, in the order it was committed, once or as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import StreamingResponse

from memos.api.families import Opened
from memos.api.v1.common import ERRORS, STREAM, InCube, Limit, Timeout
from memos.api.v1.shapes_cubes import EventShape
from memos.api.waiting import Told, look, looks, streamed
from memos.errors import InvalidInput

router = APIRouter(prefix="/events", tags=["events"], responses=ERRORS)

_AT_ONCE = 500
_MOST_DIGITS = 18

Kinds = Annotated[list[str], Query(description="Only of these kinds, such as `add`")]
LastEventId = Annotated[str | None, Header(description="Number of the last event seen, sent by clients that come back")]


@router.get("")
def list_(
    memos: Opened,
    place: InCube,
    after: Annotated[int, Query(description="Events behind this number")] = 0,
    kind: Kinds = [],  # noqa: B006
    limit: Limit = 100,
) -> list[EventShape]:
    """Return a cube's events, oldest first."""
    found = memos.events.list(place.cube, actor=place.actor, after=after, kinds=kind, limit=limit)
    return [EventShape.model_validate(event) for event in found]


@router.get("/stream", responses=STREAM, response_class=StreamingResponse)
async def stream(
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
