"""`/images`: the images of messages, their bytes, and what a model said of them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from memos.api.families import Opened
from memos.api.v1.common import BYTES, ERRORS, Acting, FileId, ItemCube, attachment
from memos.api.v1.shapes import FileShape, ItemShape

router = APIRouter(prefix="/images", tags=["images"], responses=ERRORS)


@router.get("/{file}")
def get(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> FileShape:
    """Return what is known of an image."""
    return FileShape.model_validate(memos.images.get(file, cube=cube, actor=acting.actor))


@router.get("/{file}/content", responses=BYTES, response_class=Response)
def content(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> Response:
    """Return an image's bytes as they came; its media type is in what is known of it."""
    data = memos.images.content(file, cube=cube, actor=acting.actor)
    return attachment(data, memos.images.get(file, cube=cube, actor=acting.actor).name)


@router.get("/{file}/description")
def description(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> ItemShape | None:
    """Return what a model said of an image; null while none has looked."""
    found = memos.images.description(file, cube=cube, actor=acting.actor)
    return None if found is None else ItemShape.model_validate(found)
