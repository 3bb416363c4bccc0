"""`/tools`: which tools there are, what was called before with what result, and how often it worked."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field

from memos.api.families import Asked, Opened
from memos.api.v1.common import ERRORS, CubeBody, IdempotencyKey, InCube, Limit, creation, place_of
from memos.api.v1.shapes import ItemIdsShape, ItemShape, ToolUseShape

router = APIRouter(prefix="/tools", tags=["tools"], responses=ERRORS)

ToolName = Annotated[str, Path(description="Name of a tool")]


class DefineBody(CubeBody):
    """Definitions of tools."""

    tools: Any = Field(description="Definitions in OpenAI's shape")


class CalledBody(CubeBody):
    """A call of a tool."""

    arguments: Any = Field(None, description="An object or JSON text; the order of keys does not matter")


@router.get("")
def list_(memos: Opened, place: InCube) -> list[ToolUseShape]:
    """Return the tools of a cube, by name."""
    return [ToolUseShape.model_validate(use) for use in memos.tools.list(cube=place.cube, actor=place.actor)]


@router.post("", status_code=201)
def define(body: DefineBody, memos: Opened, caller: Asked, idempotency_key: IdempotencyKey = None) -> ItemIdsShape:
    """Store definitions of tools."""
    place = place_of(memos, caller, body)

    def again(made: tuple[str, ...]) -> tuple[str, ...]:
        memos.cubes.get(place.cube, actor=place.actor)
        return made

    made = memos.idempotency.once(
        creation(idempotency_key, "tools.define", place, body),
        lambda: memos.tools.define(body.tools, cube=place.cube, actor=place.actor),
        ids=lambda ids: ids,
        again=again,
    )
    return ItemIdsShape(item_ids=list(made))


@router.get("/{name:path}/calls")
def calls(name: ToolName, memos: Opened, place: InCube, limit: Limit = 100) -> list[ItemShape]:
    """Return the distinct calls of a tool, the one that changed last first."""
    found = memos.tools.calls(name, cube=place.cube, actor=place.actor, limit=limit)
    return [ItemShape.model_validate(item) for item in found]


@router.post("/{name:path}/called")
def called(name: ToolName, body: CalledBody, memos: Opened, caller: Asked) -> ItemShape | None:
    """Return what is known of one call; null when it was not made, or its outcome is not known."""
    place = place_of(memos, caller, body, new=False)
    found = memos.tools.called(name, body.arguments, cube=place.cube, actor=place.actor)
    return None if found is None else ItemShape.model_validate(found)
