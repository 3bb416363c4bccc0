"""Routes of `/adapters` and `/activation`: what models in the server learn and keep of a cube."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.streaming import CurrentRunner
from memos.api.v1.common import ERRORS, AdapterId, CubeBody, CurrentIdentity, CurrentTarget, target_of
from memos.api.v1.shapes_cubes import (
    AdapterShape,
    ComposingShape,
    ConsentShape,
    DamagedShape,
    DroppedShape,
    LearnableShape,
    LearningShape,
    UnlearnedShape,
    ValueRoute,
)
from memos.errors import NotFound
from memos.kernel.adapters.service import REMOVED, open_export
from memos.kernel.kv import CubePrefix, Warmed
from memos.memcube.activation.store import KvStats

router = APIRouter(route_class=ValueRoute, prefix="/adapters", tags=["adapters"], responses=ERRORS)
activation_router = APIRouter(route_class=ValueRoute, prefix="/activation", tags=["activation"], responses=ERRORS)

_BLOCK = 1 << 20
_ZIP = "application/zip"


class MemoriesBody(CubeBody):
    """Which memories of a cube."""

    item_ids: list[str] = Field(description="Ids of the memories")


class AllowBody(CubeBody):
    """A cube whose memories may be learned."""

    item_ids: list[str] = Field([], description="Ids of memories that were forgotten so, and may be learned again")


@router.get("", name="list_")
def list_adapters(memos: CurrentMemos, target: CurrentTarget) -> list[AdapterShape]:
    """Return a cube's adapters, the newest first."""
    return [AdapterShape.model_validate(each) for each in memos.adapters.list(target.cube, actor=target.actor)]


@router.get("/preview", name="preview")
def preview_learning(memos: CurrentMemos, target: CurrentTarget) -> LearnableShape:
    """Return what a cube's next adapter would know, and why other memories are left out."""
    return LearnableShape.model_validate(memos.adapters.preview(target.cube, actor=target.actor))


@router.post("/allow", name="allow")
def allow_learning(body: AllowBody, memos: CurrentMemos, caller: CurrentCaller) -> ConsentShape:
    """Allow that memories of a cube are learned, which they are not otherwise; its owner does."""
    target = target_of(memos, caller, body, new=False)
    memos.adapters.allow(target.cube, items=body.item_ids, actor=target.actor)
    return ConsentShape(cube=target.cube, allowed=True, removed=0)


@router.post("/disallow", name="disallow")
def disallow_learning(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> ConsentShape:
    """Take that back, and remove what was learned."""
    target = target_of(memos, caller, body, new=False)
    return ConsentShape(
        cube=target.cube, allowed=False, removed=memos.adapters.disallow(target.cube, actor=target.actor)
    )


@router.post("/train", status_code=202, name="train")
def train_adapter(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> LearningShape:
    """Have an adapter trained where that is due, and examined, in the background; it answers if it passes."""
    target = target_of(memos, caller, body, new=False)
    return LearningShape(task=memos.adapters.submit(target.cube, actor=target.actor), adapter=None)


@router.post("/forget", name="forget")
def forget_learned(body: MemoriesBody, memos: CurrentMemos, caller: CurrentCaller) -> UnlearnedShape:
    """Remove what was learned of memories, for good; they themselves stay and are looked up."""
    target = target_of(memos, caller, body, new=False)
    return UnlearnedShape.model_validate(memos.adapters.forget(body.item_ids, target.cube, actor=target.actor))


@router.post("/retrain", include_in_schema=False)
@router.post("/rollback", include_in_schema=False)
@router.post("/learn-again", include_in_schema=False)
@router.get("/{adapter}/diff", include_in_schema=False)
def removed_route(request: Request) -> None:
    """Say what replaces a route of version 0.1. Raises: NotFound."""
    name = request.url.path.rpartition("/")[2]
    raise NotFound("route", name, f"It was removed: {REMOVED[name.replace('-', '_')]}.")


@router.get("/{adapter}", name="get")
def get_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> AdapterShape:
    """Return one adapter with what its examination found."""
    return AdapterShape.model_validate(memos.adapters.get(adapter, actor=acting.actor))


@router.get(
    "/{adapter}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {_ZIP: {}}, "description": "The files, as a zip"}},
    name="export",
)
def export_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> StreamingResponse:
    """Return an adapter's files, as peft and others load them; owners of its cube may."""
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
def activate_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> AdapterShape:
    """Let an adapter that passed its examination answer, instead of the one that does."""
    return AdapterShape.model_validate(memos.adapters.activate(adapter, actor=acting.actor))


@router.delete("/{adapter}", status_code=204, name="remove")
def remove_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> None:
    """Remove an adapter and its files."""
    memos.adapters.remove(adapter, actor=acting.actor)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK):
            yield block


@activation_router.get("", name="show")
def show_prefix(memos: CurrentMemos, target: CurrentTarget) -> CubePrefix:
    """Return the memories that prompts of a cube begin with, and how many blocks of it are kept where."""
    return memos.kv.show(target.cube, actor=target.actor)


@activation_router.post("/compose", status_code=202, name="compose")
def compose_prefix(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> ComposingShape:
    """Have what prompts of a cube begin with composed in the background, by what is hot and pinned now."""
    target = target_of(memos, caller, body, new=False)
    return ComposingShape(cube=target.cube, task=memos.kv.compose(target.cube, actor=target.actor))


@activation_router.post("/warm", name="warm")
async def warm_prefix(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner) -> Warmed:
    """Have the model compute what prompts of a cube begin with, so that the next answer begins sooner."""

    def warmed() -> Warmed:
        target = target_of(memos, caller, body, new=False)
        return memos.kv.warm(target.cube, actor=target.actor)

    return await runner.run(warmed)


@activation_router.post("/drop", name="drop")
def drop_kv(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> DroppedShape:
    """Remove what is kept of a cube's prompts; it is computed again when it is needed."""
    target = target_of(memos, caller, body, new=False)
    return DroppedShape(cube=target.cube, blocks=memos.kv.drop(target.cube, actor=target.actor))


@activation_router.get("/stats", name="stats")
def kv_stats(memos: CurrentMemos, acting: CurrentIdentity) -> KvStats:
    """Return how full the tiers are with what is kept of all cubes; for admins."""
    return memos.kv.stats(actor=acting.actor)


@activation_router.post("/verify", name="verify")
def verify_kv(memos: CurrentMemos, acting: CurrentIdentity) -> DamagedShape:
    """Read every block on the disk and remove the damaged ones; for admins."""
    return DamagedShape(damaged=list(memos.kv.verify(actor=acting.actor)))
