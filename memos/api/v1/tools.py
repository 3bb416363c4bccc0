"""Routes of `/tools`: known tools, earlier calls with their results, and success rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import ERRORS, CubeBody, CurrentTarget, IdempotencyKey, Limit, creation, target_of
from memos.api.v1.shapes import ValueRoute
from memos.api.values import ItemIds
from memos.core.types import Item
from memos.kernel.tools import ToolUse

router = APIRouter(route_class=ValueRoute, prefix="/tools", tags=["tools"], responses=ERRORS)

ToolName = Annotated[str, Path(description="Name of a tool")]


class DefineBody(CubeBody):
    """Definitions of tools."""

    tools: Any = Field(description="Definitions in OpenAI's shape")


class CalledBody(CubeBody):
    """A call of a tool."""

    arguments: Any = Field(None, description="An object or JSON text; the order of keys does not matter")


@router.get("")
def list_(memos: CurrentMemos, target: CurrentTarget) -> Sequence[ToolUse]:
    """Return the tools of a cube, by name."""
    return memos.tools.list(cube=target.cube, actor=target.actor)


@router.post("", status_code=201)
def define(
    body: DefineBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> ItemIds:
    """Store definitions of tools."""
    target = target_of(memos, caller, body)

    def again(made: tuple[str, ...]) -> tuple[str, ...]:
        memos.cubes.get(target.cube, actor=target.actor)
        return made

    made = memos.idempotency.once(
        creation(idempotency_key, "tools.define", target, body),
        lambda: memos.tools.define(body.tools, cube=target.cube, actor=target.actor),
        ids=lambda ids: ids,
        again=again,
    )
    return ItemIds(item_ids=made)


@router.get("/{name:path}/calls")
def calls(name: ToolName, memos: CurrentMemos, target: CurrentTarget, limit: Limit = 100) -> Sequence[Item]:
    """Return the distinct calls of a tool, the one that changed last first."""
    return memos.tools.calls(name, cube=target.cube, actor=target.actor, limit=limit)


@router.post("/{name:path}/called")
def called(name: ToolName, body: CalledBody, memos: CurrentMemos, caller: CurrentCaller) -> Item | None:
    """Return what is known of one call; null when it was not made, or its outcome is not known."""
    target = target_of(memos, caller, body, new=False)
    return memos.tools.called(name, body.arguments, cube=target.cube, actor=target.actor)
