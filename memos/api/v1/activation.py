"""`/activation`: what prompts of a cube begin with, and what of its KV models in the server keep."""

from __future__ import annotations

from fastapi import APIRouter

from memos.api.families import Asked, Opened
from memos.api.streaming import Talking
from memos.api.v1.common import ERRORS, Acting, CubeBody, InCube, place_of
from memos.api.v1.shapes_cubes import (
    ComposingShape,
    CubePrefixShape,
    DamagedShape,
    DroppedShape,
    KvStatsShape,
    WarmedShape,
)
from memos.kernel.kv import Warmed

router = APIRouter(prefix="/activation", tags=["activation"], responses=ERRORS)


@router.get("")
def show(memos: Opened, place: InCube) -> CubePrefixShape:
    """Return the memories that prompts of a cube begin with, and how many blocks of it are kept where."""
    return CubePrefixShape.model_validate(memos.kv.show(place.cube, actor=place.actor))


@router.post("/compose", status_code=202)
def compose(body: CubeBody, memos: Opened, caller: Asked) -> ComposingShape:
    """Have what prompts of a cube begin with composed in the background, by what is hot and pinned now."""
    place = place_of(memos, caller, body, new=False)
    return ComposingShape(cube=place.cube, task=memos.kv.compose(place.cube, actor=place.actor))


@router.post("/warm")
async def warm(body: CubeBody, memos: Opened, caller: Asked, talks: Talking) -> WarmedShape:
    """Have the model compute what prompts of a cube begin with, so that the next answer begins sooner."""

    def warmed() -> Warmed:
        place = place_of(memos, caller, body, new=False)
        return memos.kv.warm(place.cube, actor=place.actor)

    return WarmedShape.model_validate(await talks.run(warmed))


@router.post("/drop")
def drop(body: CubeBody, memos: Opened, caller: Asked) -> DroppedShape:
    """Remove what is kept of a cube's prompts; it is computed again when it is needed."""
    place = place_of(memos, caller, body, new=False)
    return DroppedShape(cube=place.cube, blocks=memos.kv.drop(place.cube, actor=place.actor))


@router.get("/stats")
def stats(memos: Opened, acting: Acting) -> KvStatsShape:
    """Return how full the tiers are with what is kept of all cubes; for admins."""
    return KvStatsShape.model_validate(memos.kv.stats(actor=acting.actor))


@router.post("/verify")
def verify(memos: Opened, acting: Acting) -> DamagedShape:
    """Read every block on the disk and remove the damaged ones; for admins."""
    return DamagedShape(damaged=list(memos.kv.verify(actor=acting.actor)))
