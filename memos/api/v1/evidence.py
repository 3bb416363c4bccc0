"""`/memories/…`: where a memory comes from, its images, that it was used or is pinned, and erasing it for good."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from memos.api.families import Asked, Opened
from memos.api.v1.common import ERRORS, Acting, CubeBody, InCube, ItemBody, ItemCube, ItemId, actor_of, place_of
from memos.api.v1.shapes import EraseReceiptShape, ExtractionShape, FileShape, SourceShape

router = APIRouter(tags=["memories"], responses=ERRORS)

ReceiptId = Annotated[str, Path(description="Id of a receipt")]


class EraseBody(ItemBody):
    """What to erase."""

    item_ids: list[str] = Field(description="Ids of memories of one cube")
    wait: bool = Field(True, description="Answer when files and logs are purged too; else the receipt says `purging`")


class UsedBody(CubeBody):
    """What was used."""

    item_ids: list[str] = Field(description="Ids of memories an answer was made from")
    confirmed: bool = Field(False, description="A person called them right")


@router.post("/memories/erase")
def erase(body: EraseBody, memos: Opened, caller: Asked) -> EraseReceiptShape:
    """Remove memories in every form, with what was made of them."""
    actor = actor_of(memos, caller, body)
    return EraseReceiptShape.model_validate(memos.erase(body.item_ids, cube=body.cube, actor=actor, wait=body.wait))


@router.get("/erasures/{receipt}")
def erase_receipt(receipt: ReceiptId, memos: Opened, acting: Acting) -> EraseReceiptShape:
    """Return an erasure's receipt as it stands."""
    return EraseReceiptShape.model_validate(memos.erase_receipt(receipt, actor=acting.actor))


@router.post("/memories/used", status_code=204)
def used(body: UsedBody, memos: Opened, caller: Asked) -> None:
    """Say that an answer was made from memories: they get hot. Ids that are none count nothing."""
    place = place_of(memos, caller, body, new=False)
    memos.used(body.item_ids, cube=place.cube, actor=place.actor, confirmed=body.confirmed)


@router.get("/memories/{item}/sources")
def sources(item: ItemId, memos: Opened, acting: Acting, cube: ItemCube = None) -> list[SourceShape]:
    """Return the passages a memory comes from."""
    found = memos.get(item, cube=cube, actor=acting.actor)
    return [SourceShape.model_validate(source) for source in found.sources]


@router.get("/memories/{item}/extractions")
def extractions(item: ItemId, memos: Opened, acting: Acting, cube: ItemCube = None) -> list[ExtractionShape]:
    """Return what read a message into facts, or read a fact."""
    found = memos.extractions(item, cube=cube, actor=acting.actor)
    return [ExtractionShape.model_validate(each) for each in found]


@router.get("/memories/{item}/images")
def images(item: ItemId, memos: Opened, acting: Acting, cube: ItemCube = None) -> list[FileShape]:
    """Return the images of a message."""
    return [FileShape.model_validate(each) for each in memos.images.of(item, cube=cube, actor=acting.actor)]


@router.put("/memories/{item}/pin", status_code=204)
def pin(item: ItemId, memos: Opened, place: InCube) -> None:
    """Keep a memory in working memory."""
    memos.pin(item, cube=place.cube, actor=place.actor)


@router.delete("/memories/{item}/pin", status_code=204)
def unpin(item: ItemId, memos: Opened, place: InCube) -> None:
    """Let a memory leave working memory again."""
    memos.pin(item, cube=place.cube, actor=place.actor, pinned=False)
