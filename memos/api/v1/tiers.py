"""Routes of `/segments` and background extraction: the tiers by heat, moving and pinning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import ERRORS, CubeBody, CurrentTarget, Limit, target_of
from memos.api.v1.shapes import ValueRoute
from memos.api.values import Value
from memos.core.types import Segment

router = APIRouter(route_class=ValueRoute, tags=["tiers"], responses=ERRORS)

SegmentId = Annotated[str, Path(description="Id of a segment")]


class MoveBody(CubeBody):
    """Where a segment goes."""

    tier: str = Field(description="`long` has its pages read now, `archive` ranks it lower, `mid` brings it back")


class AnalyseBody(CubeBody):
    """What to read into long-term memory."""

    everything: bool = Field(False, description="All pages there are; default: those of hot segments")


class ReadFinelyBody(CubeBody):
    """What to read into facts."""

    conversation: str | None = Field(None, description="Conversation; default: all of the cube")


class TaskIds(Value):
    """Tasks that were begun."""

    tasks: list[str] = Field(description="Ids of the first task of each conversation")


@router.get("/segments")
def segments(memos: CurrentMemos, target: CurrentTarget, limit: Limit = 100) -> Sequence[Segment]:
    """Return the topics of a cube's older pages, the hottest first."""
    return memos.tiers.segments(cube=target.cube, actor=target.actor, limit=limit)


@router.post("/segments/{segment}/move", status_code=204)
def move(segment: SegmentId, body: MoveBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Send a segment to another tier by hand."""
    target = target_of(memos, caller, body, new=False)
    memos.tiers.move(segment, body.tier, cube=target.cube, actor=target.actor)


@router.put("/segments/{segment}/pin", status_code=204)
def pin_segment(segment: SegmentId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Keep a segment out of the archive."""
    memos.tiers.pin(segment, cube=target.cube, actor=target.actor)


@router.delete("/segments/{segment}/pin", status_code=204)
def unpin_segment(segment: SegmentId, memos: CurrentMemos, target: CurrentTarget) -> None:
    """Let a segment go into the archive again."""
    memos.tiers.pin(segment, cube=target.cube, actor=target.actor, pinned=False)


@router.post("/analyse", status_code=202)
def analyse(body: AnalyseBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Have pages read into long-term memory in the background."""
    target = target_of(memos, caller, body, new=False)
    memos.tiers.analyse(cube=target.cube, actor=target.actor, everything=body.everything)


@router.post("/consolidate", status_code=202)
def consolidate(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Have a cube's facts put in order in the background; it happens once a day by itself."""
    target = target_of(memos, caller, body, new=False)
    memos.tiers.consolidate(cube=target.cube, actor=target.actor)


@router.post("/reflect", status_code=202)
def reflect(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Have the chat model conclude in the background what several facts show together."""
    target = target_of(memos, caller, body, new=False)
    memos.tiers.reflect(cube=target.cube, actor=target.actor)


@router.post("/read-finely", status_code=202)
def read_finely(body: ReadFinelyBody, memos: CurrentMemos, caller: CurrentCaller) -> TaskIds:
    """Have messages that were added roughly read into facts in the background."""
    target = target_of(memos, caller, body, new=False)
    return TaskIds(tasks=list(memos.memories.read_finely(body.conversation, cube=target.cube, actor=target.actor)))
