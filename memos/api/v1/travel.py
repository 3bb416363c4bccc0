"""Routes that dump, load and inspect cubes as files, streamed both ways; a file is never held in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

from memos.api.dialects import resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos, RequestRefused
from memos.api.v1.common import ERRORS, CubeId
from memos.api.v1.shapes import ValueRoute
from memos.api.values import Dump, Loaded
from memos.errors import InvalidInput
from memos.kernel.memos import MemOS
from memos.kernel.transfer import open_dump, scratch_file, write_scratch

router = APIRouter(route_class=ValueRoute, prefix="/cubes", tags=["cubes"], responses=ERRORS)

_BLOCK = 1 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}

Vectors = Annotated[bool, Query(description="Also the vectors, so that the same embedder need not make them again")]
Kv = Annotated[bool, Query(description="Also what prompts begin with, and the KV that models in the server keep of it")]
Learned = Annotated[bool, Query(description="Also the weights of the adapters that answer for the cube")]
Passphrase = Annotated[
    str | None, Header(alias="X-Memos-Passphrase", description="What the file is sealed with, in UTF-8")
]
User = Annotated[str | None, Query(description="User or agent to act for; default: whom the key belongs to")]


@router.get(
    "/{cube}/dump",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "The file"}},
)
def dump(
    cube: CubeId,
    memos: CurrentMemos,
    caller: CurrentCaller,
    vectors: Vectors = True,
    kv: Kv = False,
    adapters: Learned = False,
    user: User = None,
    passphrase: Passphrase = None,
) -> StreamingResponse:
    """Return a cube as a file, with its history; its owners may."""
    actor = resolve_identity(memos, caller, user, new=False).actor
    out = open_dump(
        memos.transfer, cube, passphrase=_decoded(passphrase), vectors=vectors, kv=kv, adapters=adapters, actor=actor
    )
    size = out.seek(0, 2)
    out.seek(0)
    name = _UNSAFE.sub("_", cube)[:80] or "cube"
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{name}.memcube"',
        "Cache-Control": "no-store",
    }
    blocks = _blocks(out)
    closing = BackgroundTask(out.close)
    return StreamingResponse(blocks, media_type="application/octet-stream", headers=headers, background=closing)


@router.post("/load", status_code=201, openapi_extra=_FILE)
async def load(
    request: Request,
    memos: CurrentMemos,
    caller: CurrentCaller,
    cube: Annotated[str | None, Query(description="Id to load it under; default: its own")] = None,
    merge: Annotated[bool, Query(description="Load into the cube of that id, which is there")] = False,
    trust: Annotated[bool, Query(description="Trust what it says as what was said here")] = False,
    restore_erased: Annotated[bool, Query(description="Also bring back what was erased here since")] = False,
    user: User = None,
    passphrase: Passphrase = None,
) -> Loaded:
    """Load a dump, sent as the body, as a new cube of the user's or into one that is there; all of it or nothing."""
    with scratch_file(memos.transfer) as file:
        await _take(request, memos, file)

        def loaded() -> Loaded:
            actor = resolve_identity(memos, caller, user, new=False).actor
            done = memos.transfer.load(
                file,
                cube=cube,
                merge=merge,
                trust=trust,
                restore_erased=restore_erased,
                passphrase=_decoded(passphrase),
                actor=actor,
            )
            return Loaded.model_validate(done)

        return await to_thread.run_sync(loaded)


@router.post("/inspect", openapi_extra=_FILE)
async def inspect(request: Request, memos: CurrentMemos, caller: CurrentCaller, passphrase: Passphrase = None) -> Dump:
    """Read a whole dump, sent as the body, and say what it is of; nothing is loaded."""
    with scratch_file(memos.transfer) as file:
        await _take(request, memos, file)

        def inspected() -> Dump:
            found = memos.transfer.inspect(file, passphrase=_decoded(passphrase), actor=caller.identity.id)
            return Dump.model_validate(found)

        return await to_thread.run_sync(inspected)


async def _take(request: Request, memos: MemOS, file: IO[bytes]) -> None:
    """Write the body to a file, block by block. Raises: RequestRefused (it is too large)."""
    most, size, held = memos.settings.limits.dump_bytes, 0, bytearray()

    def write() -> None:
        write_scratch(memos.transfer, file, held)

    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise RequestRefused(
                413, f"The file has more than the {most:,} bytes that are taken (MEMOS_LIMITS__DUMP_BYTES)."
            )
        held += chunk
        if len(held) >= _BLOCK:
            await to_thread.run_sync(write)
            held.clear()
    if held:
        await to_thread.run_sync(write)


def _decoded(header: str | None) -> str | None:
    """Return a header as the UTF-8 it was sent as. Raises: InvalidInput."""
    try:
        return None if header is None else header.encode("latin-1").decode()
    except UnicodeError as error:
        raise InvalidInput("X-Memos-Passphrase", "must be UTF-8") from error


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK):
            yield block
