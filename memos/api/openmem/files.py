"""Knowledge bases and their files: create, upload as JSON or form, list, download and delete."""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.responses import Response

from memos.api.dialects import attachment
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.openmem import details, shapes
from memos.api.openmem.shapes import Body, Empty, deleting, ok, only_one, page_of, required
from memos.core.identities import Caller
from memos.core.message_shapes import Shaped, shape_messages
from memos.core.text.validation import check_name
from memos.core.types import Json, StoredFile
from memos.errors import Conflict, InvalidInput, NotFound
from memos.kernel.memos import MemOS

MOST_FILES: Final = 20

_DATA_URL: Final = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

File = tuple[str, bytes]
_Taking = Callable[[str, str | None, Json], File]


Fetch = Callable[[str, str], File]
"""Returns what is at a web address; the first argument names it in errors. Raises: InvalidInput, BackendUnavailable."""


def file_of(where: str, name: str | None, content: Json, most: int, fetch: Fetch) -> File:
    if not isinstance(content, str) or not content:
        raise InvalidInput(where, "must be the file's bytes as base64")
    if _REMOTE.match(content):
        called, data = fetch(where, content)
        return name or called, data
    data = _decoded(where, content, most)
    # Files of one name would replace each other.
    return name or f"file-{hashlib.sha256(data).hexdigest()[:12]}", data


def _decoded(where: str, content: str, most: int) -> bytes:
    head = _DATA_URL.match(content, 0, 256)
    data = content[head.end() :] if head else content
    if len(data) // 4 * 3 > most + 2:
        raise InvalidInput(where, f"has over {most:,} bytes; split it, or raise MEMOS_LIMITS__FILE_BYTES")
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(where, "is not valid base64 (RFC 4648, with padding, without line breaks)") from error


def without_files(messages: Json, most: int, fetch: Fetch) -> tuple[Json | Shaped, tuple[File, ...]]:
    """Return messages in our shape with names and digests in place of files, and the files. Raises: InvalidInput."""
    shaped = shape_messages(messages)
    if not isinstance(shaped.messages, list):
        return messages, ()
    files: list[File] = []

    def taking(where: str, name: str | None, content: Json) -> File:
        return file_of(where, name, content, most, fetch)

    told = zip(shaped.places, shaped.messages, strict=True)
    kept = [_message(f"messages[{place}]", message, files, taking) for place, message in told]
    return replace(shaped, messages=kept), tuple(files)


def _message(where: str, message: Json, files: list[File], taking: _Taking) -> Json:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    parts = [_part(f"{where}.content[{n}]", part, files, taking) for n, part in enumerate(content)]
    return {**message, "content": parts}


def _part(where: str, part: Json, files: list[File], taking: _Taking) -> Json:
    file = part.get("file") if isinstance(part, Mapping) and part.get("type") == "file" else None
    if not isinstance(file, Mapping) or file.get("file_data") is None:
        return part
    given = file.get("filename")
    given = None if given is None else check_name(f"{where}.file.filename", given)
    if len(files) >= MOST_FILES:
        raise InvalidInput(where, f"has more than {MOST_FILES} files; send the others in another request")
    name, data = taking(f"{where}.file.file_data", given, file["file_data"])
    files.append((name, data))
    rest = {key: value for key, value in file.items() if key != "file_data"}
    return {**part, "file": {**rest, "filename": name, "sha256": hashlib.sha256(data).hexdigest()}}


router = APIRouter(tags=["knowledge bases"])

_NAME_CHARS: Final = 200
_PAGE: Final = 100
_MOST_IDS: Final = 1_000
_TYPES: Final = (None, "", "file", "document", "doc")


class CreateBody(Body):
    """A new knowledge base."""

    knowledgebase_name: str | None = Field(None, description="Name; required")
    knowledgebase_description: str | None = Field(None, description="Description")


class BaseBody(Body):
    """A knowledge base."""

    knowledgebase_id: str | None = Field(None, description="Knowledge base; required")


class OneFile(Body):
    """A file."""

    name: str | None = Field(None, description="File name; its extension tells the format")
    content: str | None = Field(None, description="Content as base64; required")
    type: str | None = Field(None, description="`file`")


class FilesBody(BaseBody):
    """Files to keep and read."""

    file: list[OneFile] | None = Field(None, description="At most 20 files; required")


class WhichFiles(Body):
    """A selection of files."""

    file_ids: list[str] | None = Field(None, description="These files")
    knowledgebase_id: str | None = Field(None, description="Or all files of a knowledge base")
    type: str | None = Field(None, description="`file`")
    page: int | None = Field(None, description="Page, from 1")
    page_size: int | None = Field(None, description="Files per page; default 10, at most 100")


class FileIds(Body):
    """Files to delete."""

    file_ids: list[str] | None = Field(None, description="Files; required")


class FileId(Body):
    """A file to download."""

    file_id: str | None = Field(None, description="File; required")


@router.post("/create/knowledgebase")
def create(body: CreateBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Make a knowledge base of the key's owner; the same sent again within a minute makes no second one."""
    name = required("knowledgebase_name", body.knowledgebase_name)
    if len(name) > _NAME_CHARS:
        raise InvalidInput("knowledgebase_name", f"has over {_NAME_CHARS} characters")
    told = "\n".join(text for text in (name, body.knowledgebase_description) if text)
    submission = memos.submissions.take(caller.identity.id, f"create/knowledgebase{told}", [])
    base = f"kb-{submission.id}"
    with suppress(Conflict):  # the same request made it
        memos.knowledge.create(base, told, actor=caller.identity.id)
    memos.submissions.answered(submission, {"knowledgebase": base})
    return ok({"id": base})


@router.post("/delete/knowledgebase")
def delete(body: BaseBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Erase a knowledge base with all its files."""
    base = shapes.base_of(memos, caller, required("knowledgebase_id", body.knowledgebase_id))
    with deleting():
        memos.knowledge.drop(base, actor=caller.identity.id)
    return ok({"success": True})


@router.post(
    "/add/knowledgebase-file",
    openapi_extra={"requestBody": {"content": {"application/json": {}, "multipart/form-data": {}}}},
)
async def add_files(request: Request, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Keep files and have them read: JSON, or a form of parts `file` with the knowledge base in the query."""
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        base, files = await _of_form(request, memos.settings.limits.file_bytes)
    else:
        base, files = await _of_json(request, memos)
    kept = await to_thread.run_sync(_keep, memos, caller, base, files)
    return ok([details.file(file) for file in kept])


@router.post("/get/knowledgebase-file")
def get_files(body: WhichFiles, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return files and how far they are read."""
    which = only_one(file_ids=body.file_ids, knowledgebase_id=body.knowledgebase_id)
    _check_type(body.type)
    number, size = page_of(body.page, "page_size", body.page_size, _PAGE)
    if which == "file_ids":
        found = _named(memos, caller, body.file_ids or [])
    else:
        base = shapes.base_of(memos, caller, body.knowledgebase_id or "")
        found = list(memos.knowledge.files(base, actor=caller.identity.id))
    shown = found[(number - 1) * size : number * size]
    told = [details.file(file) for file in shown]
    return ok({"file_detail_list": told, "total": len(found), "page": number, "page_size": size})


@router.post("/delete/knowledgebase-file")
def delete_files(body: FileIds, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Take files out of sight with all that was made of them."""
    found = _named(memos, caller, required("file_ids", body.file_ids))
    with deleting():
        for file in found:
            memos.documents.delete(file.id, cube=file.cube, actor=caller.identity.id)
    return ok({"success": True})


@router.post("/download/knowledgebase-file", response_class=Response)
def download(body: FileId, memos: CurrentMemos, caller: CurrentCaller) -> Response:
    """Return a file's bytes."""
    [file] = _named(memos, caller, [required("file_id", body.file_id)])
    data = memos.documents.content(file.id, cube=file.cube, actor=caller.identity.id)
    return attachment(data, file.name)


async def _of_json(request: Request, memos: MemOS) -> tuple[str, list[File]]:
    try:
        raw = await request.json()
    except (ValueError, RecursionError) as error:
        raise InvalidInput("body", "is not valid JSON") from error
    try:
        body = FilesBody.model_validate(raw)
    except ValidationError as error:
        told = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(told) from error
    given = required("file", body.file)
    base = required("knowledgebase_id", body.knowledgebase_id)
    _check_count(len(given))
    files = []
    for place, file in enumerate(given):
        here = f"file[{place}]"
        content = required(f"{here}.content", file.content)
        most, fetch = memos.settings.limits.file_bytes, memos.documents.fetch
        files.append(await to_thread.run_sync(file_of, here, file.name or None, content, most, fetch))
    return base, files


async def _of_form(request: Request, most: int) -> tuple[str, list[File]]:
    base = required("knowledgebase_id", request.query_params.get("knowledgebase_id"))
    _check_type(request.query_params.get("type"))
    async with request.form(max_files=MOST_FILES + 1) as form:
        parts = [part for part in form.getlist("file") if isinstance(part, UploadFile)]
        if not parts:
            raise Empty("file", "is required; send the files as parts of this name")
        _check_count(len(parts))
        files = []
        for place, part in enumerate(parts):
            if part.size is not None and part.size > most:
                raise InvalidInput(f"file[{place}]", f"has over {most:,} bytes; split it")
            files.append((part.filename or f"file-{place + 1}", await part.read()))
    return base, files


def _keep(memos: MemOS, caller: Caller, base: str, files: Sequence[File]) -> list[StoredFile]:
    cube = shapes.base_of(memos, caller, base)
    return [memos.knowledge.add(cube, file, actor=caller.identity.id) for file in files]


def _named(memos: MemOS, caller: Caller, ids: Sequence[str]) -> list[StoredFile]:
    """Return files by id. Raises: NotFound, also for a file outside knowledge bases."""
    if len(ids) > _MOST_IDS:
        raise InvalidInput("file_ids", f"has {len(ids):,} ids, more than the limit of {_MOST_IDS:,}")
    found = [memos.documents.get(id_, actor=caller.identity.id) for id_ in dict.fromkeys(ids)]
    bases = {file.cube: file for file in found}
    for cube, file in bases.items():
        try:
            shapes.base_of(memos, caller, cube)
        except NotFound as error:
            raise NotFound("file", file.id) from error
    return found


def _check_count(count: int) -> None:
    if count > MOST_FILES:
        raise InvalidInput("file", f"has {count} files, more than the limit of {MOST_FILES} per request")


def _check_type(type_: str | None) -> None:
    if type_ not in _TYPES:
        raise InvalidInput("type", "is unknown; use file, or leave it out")
