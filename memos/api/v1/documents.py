"""`/documents`: files are taken in, looked at, given back and removed."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Annotated

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from pydantic import Field
from starlette.responses import Response

from memos.api.families import Asked, Opened
from memos.api.v1.common import (
    BYTES,
    ERRORS,
    Acting,
    CubeBody,
    FileId,
    IdempotencyKey,
    InCube,
    ItemCube,
    Place,
    Timeout,
    attachment,
    creation,
    place_of,
)
from memos.api.v1.shapes import EraseReceiptShape, FileShape, TextShape
from memos.api.waiting import looks
from memos.core.types import FileState, StoredFile
from memos.errors import InvalidInput
from memos.kernel.memos import MemOS

router = APIRouter(tags=["documents"], responses=ERRORS)


class DocumentBody(CubeBody):
    """A file."""

    name: str = Field(description="Its name; the ending says what it is")
    content: str = Field(description="Its bytes in base64")


@router.post("/documents", status_code=201)
def add(body: DocumentBody, memos: Opened, caller: Asked, idempotency_key: IdempotencyKey = None) -> FileShape:
    """Keep a file and have it read in the background; the same bytes again are the same file."""
    try:
        data = base64.b64decode(body.content, validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidInput("content", "is not base64 (RFC 4648, with padding, without line breaks)") from error
    return _taken_in(memos, place_of(memos, caller, body), (body.name, data), idempotency_key)


@router.post("/documents/upload", status_code=201)
def upload(
    memos: Opened,
    caller: Asked,
    file: Annotated[UploadFile, File(description="The file")],
    cube: Annotated[str | None, Form(description="Cube; default: the user's own")] = None,
    user: Annotated[str | None, Form(description="User or agent to act for; default: whom the key belongs to")] = None,
    idempotency_key: IdempotencyKey = None,
) -> FileShape:
    """Keep a file that is sent as a form, and have it read in the background."""
    most = memos.settings.limits.file_bytes
    data = file.file.read(most + 1)
    place = place_of(memos, caller, CubeBody(user=user, cube=cube))
    return _taken_in(memos, place, (file.filename or "", data), idempotency_key)


@router.get("/documents")
def list_(
    memos: Opened,
    place: InCube,
    state: Annotated[list[str], Query(description="Only in these states; default: all but deleted ones")] = [],  # noqa: B006
) -> list[FileShape]:
    """Return a cube's files, the newest first."""
    found = memos.documents.list(cube=place.cube, actor=place.actor, states=state)
    return [FileShape.model_validate(file) for file in found]


@router.get("/documents/{file}")
def get(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> FileShape:
    """Return a file as it stands, also a deleted one."""
    return FileShape.model_validate(memos.documents.get(file, cube=cube, actor=acting.actor))


@router.get("/documents/{file}/wait")
async def wait(file: FileId, request: Request, memos: Opened, acting: Acting, timeout_s: Timeout = 30.0) -> FileShape:
    """Return a file when it was read or given up, or as it stands when the time is over."""
    found: StoredFile | None = None
    async for found in looks(request, lambda: memos.documents.get(file, actor=acting.actor), timeout_s):
        if found.state is not FileState.PROCESSING:
            break
    return FileShape.model_validate(found)


@router.get("/documents/{file}/content", responses=BYTES, response_class=Response)
def content(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> Response:
    """Return a file's bytes as they came; where something was masked, what was read of them."""
    data = memos.documents.content(file, cube=cube, actor=acting.actor)
    return attachment(data, memos.documents.get(file, cube=cube, actor=acting.actor).name)


@router.get("/documents/{file}/markdown")
def markdown(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> TextShape:
    """Return a file as it was read."""
    return TextShape(text=memos.documents.markdown(file, cube=cube, actor=acting.actor))


@router.delete("/documents/{file}")
def delete(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> FileShape:
    """Take a file out of sight with all that was made of it; it is erased when the retention period is over."""
    return FileShape.model_validate(memos.documents.delete(file, cube=cube, actor=acting.actor))


@router.post("/documents/{file}/erase")
def erase(file: FileId, memos: Opened, acting: Acting, cube: ItemCube = None) -> EraseReceiptShape:
    """Remove a file, its passages and all that was made of them, for good."""
    return EraseReceiptShape.model_validate(memos.documents.erase(file, cube=cube, actor=acting.actor))


def _taken_in(memos: MemOS, place: Place, file: tuple[str, bytes], key: str | None) -> FileShape:
    given = [file[0], hashlib.sha256(file[1]).hexdigest()] if key is not None else None
    made = memos.idempotency.once(
        creation(key, "documents.add", place, given),
        lambda: memos.documents.add(file, cube=place.cube, actor=place.actor),
        ids=lambda stored: [stored.id],
        again=lambda ids: memos.documents.get(ids[0], actor=place.actor),
    )
    return FileShape.model_validate(made)
