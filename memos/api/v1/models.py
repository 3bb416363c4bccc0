"""Routes of `/adapters` and `/activation`: what models in the server learn and keep of a cube."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

from memos.api.families import Asked, Opened
from memos.api.streaming import Talking
from memos.api.v1.common import ERRORS, Acting, AdapterId, CubeBody, InCube, place_of
from memos.api.v1.shapes_cubes import (
    AdapterDiffShape,
    AdapterShape,
    ComposingShape,
    ConsentShape,
    CubePrefixShape,
    DamagedShape,
    DroppedShape,
    KvStatsShape,
    LearnableShape,
    LearnAgainShape,
    LearningShape,
    UnlearnedShape,
    WarmedShape,
)
from memos.kernel.adapters.service import open_export
from memos.kernel.kv import Warmed

router = APIRouter(prefix="/adapters", tags=["adapters"], responses=ERRORS)
activation_router = APIRouter(prefix="/activation", tags=["activation"], responses=ERRORS)

_BLOCK = 1 << 20
_ZIP = "application/zip"


class MemoriesBody(CubeBody):
    """Which memories of a cube."""

    item_ids: list[str] = Field(description="Ids of the memories")


@router.get("", name="list_")
def list_adapters(memos: Opened, place: InCube) -> list[AdapterShape]:
    """Return a cube's adapters, the newest first."""
    return [AdapterShape.model_validate(each) for each in memos.adapters.list(place.cube, actor=place.actor)]


@router.get("/preview", name="preview")
def preview_learning(memos: Opened, place: InCube) -> LearnableShape:
    """Return what a cube's next adapter would know, and why other memories are left out."""
    return LearnableShape.model_validate(memos.adapters.preview(place.cube, actor=place.actor))


@router.post("/allow", name="allow")
def allow_learning(body: CubeBody, memos: Opened, caller: Asked) -> ConsentShape:
    """Allow that memories of a cube are learned, which they are not otherwise; its owner does."""
    place = place_of(memos, caller, body, new=False)
    memos.adapters.allow(place.cube, actor=place.actor)
    return ConsentShape(cube=place.cube, allowed=True, removed=0)


@router.post("/disallow", name="disallow")
def disallow_learning(body: CubeBody, memos: Opened, caller: Asked) -> ConsentShape:
    """Take that back, and remove what was learned."""
    place = place_of(memos, caller, body, new=False)
    return ConsentShape(cube=place.cube, allowed=False, removed=memos.adapters.disallow(place.cube, actor=place.actor))


@router.post("/train", status_code=202, name="train")
def train_adapter(body: CubeBody, memos: Opened, caller: Asked) -> LearningShape:
    """Have an adapter trained and examined in the background; it answers if it passes."""
    place = place_of(memos, caller, body, new=False)
    return LearningShape(task=memos.adapters.submit(place.cube, actor=place.actor), adapter=None)


@router.post(
    "/retrain",
    status_code=202,
    responses={200: {"model": LearningShape, "description": "No training is due: this adapter answers"}},
    name="retrain",
)
def retrain_adapter(body: CubeBody, memos: Opened, caller: Asked, response: Response) -> LearningShape:
    """Have one trained again where a memory is gone, changed or to be added; else say which one answers."""
    place = place_of(memos, caller, body, new=False)
    if (answering := memos.adapters.up_to_date(place.cube, actor=place.actor)) is not None:
        response.status_code = 200
        return LearningShape(task=None, adapter=AdapterShape.model_validate(answering))
    return LearningShape(task=memos.adapters.submit(place.cube, actor=place.actor), adapter=None)


@router.post("/rollback", name="rollback")
def rollback_adapter(body: CubeBody, memos: Opened, caller: Asked) -> AdapterShape:
    """Let the adapter answer that did before."""
    place = place_of(memos, caller, body, new=False)
    return AdapterShape.model_validate(memos.adapters.rollback(place.cube, actor=place.actor))


@router.post("/forget", name="forget")
def forget_learned(body: MemoriesBody, memos: Opened, caller: Asked) -> UnlearnedShape:
    """Remove what was learned of memories, for good; they themselves stay and are looked up."""
    place = place_of(memos, caller, body, new=False)
    return UnlearnedShape.model_validate(memos.adapters.forget(body.item_ids, place.cube, actor=place.actor))


@router.post("/learn-again")
def learn_again(body: MemoriesBody, memos: Opened, caller: Asked) -> LearnAgainShape:
    """Let memories be learned again that were forgotten so."""
    place = place_of(memos, caller, body, new=False)
    count = memos.adapters.learn_again(body.item_ids, place.cube, actor=place.actor)
    return LearnAgainShape(cube=place.cube, items=count)


@router.get("/{adapter}", name="get")
def get_adapter(adapter: AdapterId, memos: Opened, acting: Acting) -> AdapterShape:
    """Return one adapter with what its examination found."""
    return AdapterShape.model_validate(memos.adapters.get(adapter, actor=acting.actor))


@router.get("/{adapter}/diff", name="diff")
def diff_adapters(
    adapter: AdapterId,
    memos: Opened,
    acting: Acting,
    other: Annotated[str | None, Query(description="Id of another of the cube; default: the one before it")] = None,
) -> AdapterDiffShape:
    """Return which memories an adapter saw and another one did not, or at another version."""
    return AdapterDiffShape.model_validate(memos.adapters.diff(adapter, other, actor=acting.actor))


@router.get(
    "/{adapter}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {_ZIP: {}}, "description": "The files, as a zip"}},
    name="export",
)
def export_adapter(adapter: AdapterId, memos: Opened, acting: Acting) -> StreamingResponse:
    """Return an adapter's files, as peft, vLLM and others load them; owners of its cube may."""
    out = open_export(memos.adapters, adapter, actor=acting.actor)
    size = out.seek(0, 2)
    out.seek(0)
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": 'attachment; filename="adapter.zip"',
        "Cache-Control": "private, no-store",
    }
    closing = BackgroundTask(out.close)
    return StreamingResponse(_blocks(out), media_type=_ZIP, headers=headers, background=closing)


@router.post("/{adapter}/activate", name="activate")
def activate_adapter(adapter: AdapterId, memos: Opened, acting: Acting) -> AdapterShape:
    """Let an adapter that passed its examination answer, instead of the one that does."""
    return AdapterShape.model_validate(memos.adapters.activate(adapter, actor=acting.actor))


@router.delete("/{adapter}", status_code=204, name="remove")
def remove_adapter(adapter: AdapterId, memos: Opened, acting: Acting) -> None:
    """Remove an adapter and its files."""
    memos.adapters.remove(adapter, actor=acting.actor)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK):
            yield block


@activation_router.get("", name="show")
def show_prefix(memos: Opened, place: InCube) -> CubePrefixShape:
    """Return the memories that prompts of a cube begin with, and how many blocks of it are kept where."""
    return CubePrefixShape.model_validate(memos.kv.show(place.cube, actor=place.actor))


@activation_router.post("/compose", status_code=202, name="compose")
def compose_prefix(body: CubeBody, memos: Opened, caller: Asked) -> ComposingShape:
    """Have what prompts of a cube begin with composed in the background, by what is hot and pinned now."""
    place = place_of(memos, caller, body, new=False)
    return ComposingShape(cube=place.cube, task=memos.kv.compose(place.cube, actor=place.actor))


@activation_router.post("/warm", name="warm")
async def warm_prefix(body: CubeBody, memos: Opened, caller: Asked, talks: Talking) -> WarmedShape:
    """Have the model compute what prompts of a cube begin with, so that the next answer begins sooner."""

    def warmed() -> Warmed:
        place = place_of(memos, caller, body, new=False)
        return memos.kv.warm(place.cube, actor=place.actor)

    return WarmedShape.model_validate(await talks.run(warmed))


@activation_router.post("/drop", name="drop")
def drop_kv(body: CubeBody, memos: Opened, caller: Asked) -> DroppedShape:
    """Remove what is kept of a cube's prompts; it is computed again when it is needed."""
    place = place_of(memos, caller, body, new=False)
    return DroppedShape(cube=place.cube, blocks=memos.kv.drop(place.cube, actor=place.actor))


@activation_router.get("/stats", name="stats")
def kv_stats(memos: Opened, acting: Acting) -> KvStatsShape:
    """Return how full the tiers are with what is kept of all cubes; for admins."""
    return KvStatsShape.model_validate(memos.kv.stats(actor=acting.actor))


@activation_router.post("/verify", name="verify")
def verify_kv(memos: Opened, acting: Acting) -> DamagedShape:
    """Read every block on the disk and remove the damaged ones; for admins."""
    return DamagedShape(damaged=list(memos.kv.verify(actor=acting.actor)))
