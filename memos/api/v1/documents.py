"""Routes of `/documents`, `/knowledge-bases` and `/images`."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Annotated

from fastapi import File, Form, Query, Request, UploadFile
from pydantic import Field
from starlette.responses import Response

from memos.api.dialects import attachment, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.streaming import poll_for
from memos.api.v1.common import (
    BYTES,
    Body,
    CubeBody,
    CubeId,
    CurrentIdentity,
    CurrentItem,
    CurrentTarget,
    FileId,
    IdempotencyKey,
    Limit,
    RequestTarget,
    Text,
    Timeout,
    creation,
    target_of,
    value_router,
)
from memos.core.browsing import DocumentPassage
from memos.core.types import EraseReceipt, FileState, Item, StoredFile
from memos.errors import InvalidInput
from memos.kernel.cubes import KnowledgeBase
from memos.kernel.memos import MemOS

router = value_router("documents")
knowledge_router = value_router("knowledge-bases", prefix="/knowledge-bases")
images_router = value_router("images", prefix="/images")


class DocumentBody(CubeBody):
    """A file."""

    name: str = Field(description="File name; its extension tells the format")
    content: str = Field(description="Content in base64")


@router.post("/documents", status_code=201, name="add")
def add_document(
    body: DocumentBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> StoredFile:
    """Keep a file and have it read in the background; the same bytes again are the same file."""
    try:
        data = base64.b64decode(body.content, validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidInput("content", "is not valid base64 (RFC 4648, with padding, without line breaks)") from error
    return _taken_in(memos, target_of(memos, caller, body, new=True), (body.name, data), idempotency_key)


@router.post("/documents/upload", status_code=201, name="upload")
def upload_document(
    memos: CurrentMemos,
    caller: CurrentCaller,
    file: Annotated[UploadFile, File(description="The file")],
    cube: Annotated[str | None, Form(description="Cube; default: the user's own cube")] = None,
    user: Annotated[str | None, Form(description="User or agent to act for; default: the owner of the key")] = None,
    idempotency_key: IdempotencyKey = None,
) -> StoredFile:
    """Keep a file that is sent as a form, and have it read in the background."""
    most = memos.settings.limits.file_bytes
    data = file.file.read(most + 1)
    target = target_of(memos, caller, CubeBody(user=user, cube=cube), new=True)
    return _taken_in(memos, target, (file.filename or "", data), idempotency_key)


@router.get("/documents", name="list_")
def list_documents(
    memos: CurrentMemos,
    target: CurrentTarget,
    state: Annotated[list[str], Query(description="Only in these states; default: all but deleted ones")] = [],  # noqa: B006
    limit: Limit = 10_000,
    after: Annotated[str | None, Query(description="Continue after this file")] = None,
) -> Sequence[StoredFile]:
    """Return a cube's files, the newest first."""
    return memos.documents.list(**target, states=state, limit=limit, after=after)


@router.get("/documents/{file}", name="get")
def get_document(file: FileId, memos: CurrentMemos, where: CurrentItem) -> StoredFile:
    """Return a file as it stands, also a deleted one."""
    return memos.documents.get(file, **where)


@router.get("/documents/{file}/wait", name="wait")
async def wait_for_document(
    file: FileId, request: Request, memos: CurrentMemos, acting: CurrentIdentity, timeout_s: Timeout = 30.0
) -> StoredFile:
    """Return a file when it was read or given up, or as it stands when the time is over."""
    found: StoredFile | None = None
    async for found in poll_for(request, lambda: memos.documents.get(file, actor=acting.actor), timeout_s):
        if found.state is not FileState.PROCESSING:
            break
    assert found is not None  # the first poll comes at once
    return found


@router.get("/documents/{file}/content", responses=BYTES, response_class=Response, name="content")
def document_content(file: FileId, memos: CurrentMemos, where: CurrentItem) -> Response:
    """Return a file's original bytes, or its extracted text if something was masked."""
    data = memos.documents.content(file, **where)
    return attachment(data, memos.documents.get(file, **where).name)


@router.get("/documents/{file}/markdown", name="markdown")
def document_markdown(file: FileId, memos: CurrentMemos, where: CurrentItem) -> Text:
    """Return a file as it was read."""
    return Text(text=memos.documents.markdown(file, **where))


@router.get("/documents/{file}/passages", name="passages")
def document_passages(
    file: FileId,
    memos: CurrentMemos,
    where: CurrentItem,
    start: Annotated[int, Query(description="Only from this character of its Markdown on")] = 0,
    page: Annotated[int | None, Query(description="Only of this page")] = None,
    limit: Annotated[int, Query(description="Maximum number of passages, at most 1,000")] = 100,
) -> Sequence[DocumentPassage]:
    """Return a file's passages in order, which together are its Markdown; go on at the `end` of the last one."""
    return memos.documents.passages(file, **where, start=start, page=page, limit=limit)


@router.post("/documents/{file}/read-again", status_code=202, name="read_again")
def read_document_again(file: FileId, memos: CurrentMemos, where: CurrentItem) -> StoredFile:
    """Read a file again in the background, also a failed or deleted one; returns the file that replaces it."""
    return memos.documents.read_again(file, **where)


@router.delete("/documents/{file}", name="delete")
def delete_document(file: FileId, memos: CurrentMemos, where: CurrentItem) -> StoredFile:
    """Take a file out of sight with all that was made of it; it is erased when the retention period is over."""
    return memos.documents.delete(file, **where)


@router.post("/documents/{file}/erase", name="erase")
def erase_document(file: FileId, memos: CurrentMemos, where: CurrentItem) -> EraseReceipt:
    """Remove a file, its passages and all that was made of them, for good."""
    return memos.documents.erase(file, **where)


def _taken_in(memos: MemOS, target: RequestTarget, file: tuple[str, bytes], key: str | None) -> StoredFile:
    given = [file[0], hashlib.sha256(file[1]).hexdigest()] if key is not None else None
    return memos.idempotency.once(
        creation(key, "documents.add", target, given),
        lambda: memos.documents.add(file, **target),
        ids=lambda stored: [stored.id],
        again=lambda ids: memos.documents.get(ids[0], actor=target["actor"]),
    )


class CreateBaseBody(Body):
    """A new knowledge base."""

    id: str = Field(description="Id, also used as a cube id")
    description: str = Field("", description="Description")
    redact_pii: bool = Field(False, description="Mask personal data in its documents")


@knowledge_router.post("", status_code=201, name="create")
def create_knowledge_base(
    body: CreateBaseBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> KnowledgeBase:
    """Make an empty knowledge base: a cube of documents, which are added with its id as the cube."""
    actor = resolve_identity(memos, caller, body.user).actor
    return memos.idempotency.once(
        creation(idempotency_key, "knowledge.create", RequestTarget(actor=actor, cube=body.id), body),
        lambda: memos.knowledge.create(body.id, body.description, actor=actor, redact_pii=body.redact_pii),
        ids=lambda base: [base.id],
        again=lambda ids: memos.knowledge.get(ids[0], actor=actor),
    )


@knowledge_router.get("", name="list_")
def list_knowledge_bases(memos: CurrentMemos, acting: CurrentIdentity) -> Sequence[KnowledgeBase]:
    """Return the knowledge bases one may read, by id."""
    return memos.knowledge.list(actor=acting.actor)


@knowledge_router.get("/{cube:path}", name="get")
def get_knowledge_base(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> KnowledgeBase:
    """Return a knowledge base, and how many of its files are in which state."""
    return memos.knowledge.get(cube, actor=acting.actor)


@knowledge_router.delete("/{cube:path}", name="drop")
def drop_knowledge_base(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> EraseReceipt:
    """Erase everything in a knowledge base, then itself."""
    return memos.knowledge.drop(cube, actor=acting.actor)


@images_router.get("/{file}", name="get")
def get_image(file: FileId, memos: CurrentMemos, where: CurrentItem) -> StoredFile:
    """Return what is known of an image."""
    return memos.images.get(file, **where)


@images_router.get("/{file}/content", responses=BYTES, response_class=Response, name="content")
def image_content(file: FileId, memos: CurrentMemos, where: CurrentItem) -> Response:
    """Return an image's original bytes; its media type is in its metadata."""
    data = memos.images.content(file, **where)
    return attachment(data, memos.images.get(file, **where).name)


@images_router.get("/{file}/description", name="description")
def image_description(file: FileId, memos: CurrentMemos, where: CurrentItem) -> Item | None:
    """Return what a model said of an image; null while none has looked."""
    return memos.images.description(file, **where)
