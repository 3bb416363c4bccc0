"""Routes of `/cubes`: create, get, change and drop cubes, verify and share them, and move them as streamed files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import IO, Annotated, Any

from anyio import to_thread
from fastapi import Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from memos.api.dialects import file_response, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos, RequestRefused
from memos.api.v1.common import (
    Body,
    CubeId,
    CurrentIdentity,
    IdempotencyKey,
    IdentityId,
    RequestTarget,
    UserName,
    creation,
    value_router,
)
from memos.api.values import Dump, Loaded, Revoked
from memos.core.identities import Grant
from memos.core.types import Cube, EraseReceipt, VerifyReport
from memos.errors import InvalidInput
from memos.kernel.activity import ActivityPoint
from memos.kernel.memos import MemOS
from memos.kernel.statistics import Overview
from memos.kernel.transfer import DUMP_BYTES, open_dump, scratch_file, write_scratch

router = value_router("cubes")


class CreateCubeBody(Body):
    """A new cube; its owner is whom the request is for."""

    id: str = Field(description="Its id")
    description: str = Field("", description="Description of the cube")
    time_zone: str | None = Field(None, description="Time zone for times without one; default: the server's")
    redact_pii: bool = Field(False, description="Mask personal data in what is added")


class ChangeCubeBody(Body):
    """Changes to a cube; omitted fields keep their values."""

    description: str | None = Field(None, description="Description of the cube")
    redact_pii: bool | None = Field(None, description="Mask personal data in what is added from now on")


class VerifyBody(Body):
    """A verification, and whether to repair what it finds."""

    repair: bool = Field(False, description="Repair the indexes from the ledger")


class GrantBody(BaseModel):
    """A role on a cube for an identity."""

    model_config = ConfigDict(extra="forbid")

    role: str = Field("reader", description="`reader`, `editor` or `owner`")


@router.post("/cubes", status_code=201)
def create(
    body: CreateCubeBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> Cube:
    """Make an empty cube."""
    actor = resolve_identity(memos, caller, body.user).actor
    return memos.idempotency.once(
        creation(idempotency_key, "cubes.create", RequestTarget(actor=actor, cube=body.id), body),
        lambda: memos.cubes.create(body.id, actor=actor, **body.given("id")),
        ids=lambda cube: [cube.id],
        again=lambda ids: memos.cubes.get(ids[0], actor=actor),
    )


@router.get("/cubes")
def list_(memos: CurrentMemos, acting: CurrentIdentity) -> list[Cube]:
    """Return the cubes one may read, by id."""
    return memos.cubes.list(actor=acting.actor)


@router.get("/overview")
def overview(
    memos: CurrentMemos,
    acting: CurrentIdentity,
    cube: Annotated[list[str], Query(description="Cubes; default: the busiest readable cubes")] = [],  # noqa: B006
) -> Overview:
    """Return how full the tiers are, and what the background does."""
    return memos.statistics.overview(cube or None, actor=acting.actor)


@router.get("/activity")
def activity(
    memos: CurrentMemos,
    caller: CurrentCaller,
    minutes: Annotated[int, Query(description="How far back, at most 1,440")] = 60,
    step: Annotated[int, Query(description="Minutes of an interval")] = 1,
) -> Sequence[ActivityPoint]:
    """Return adds and searches of this server's process over time and how long they took, for admins."""
    return memos.activity.recent(minutes=minutes, step=step, actor=caller.identity.id)


# What ends in a word comes first: a cube's id may have slashes.


@router.get("/cubes/{cube:path}/stats")
def stats(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> Overview:
    """Return how full a cube's tiers are, and what the background does in it."""
    return memos.statistics.overview([cube], actor=acting.actor)


@router.post("/cubes/{cube:path}/verify")
def verify(cube: CubeId, body: VerifyBody, memos: CurrentMemos, caller: CurrentCaller) -> VerifyReport:
    """Compare a cube with itself and its indexes."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return memos.maintenance.verify(cubes=[cube], actor=actor, repair=body.repair)


@router.get("/cubes/{cube:path}/grants")
def grants(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> Sequence[Grant]:
    """Return who was given which role on a cube."""
    return memos.sharing.grants(cube, actor=acting.actor)


@router.put("/cubes/{cube:path}/grants/{identity:path}")
def share(cube: CubeId, identity: IdentityId, body: GrantBody, memos: CurrentMemos, acting: CurrentIdentity) -> Grant:
    """Give somebody a role on a cube, in place of the one given before; `*` is everyone."""
    return memos.sharing.grant(cube, identity, body.role, actor=acting.actor)


@router.delete("/cubes/{cube:path}/grants/{identity:path}")
def unshare(cube: CubeId, identity: IdentityId, memos: CurrentMemos, acting: CurrentIdentity) -> Revoked:
    """Take a role back."""
    return Revoked(revoked=memos.sharing.revoke(cube, identity, actor=acting.actor))


class OwnerBody(BaseModel):
    """A new owner."""

    model_config = ConfigDict(extra="forbid")

    owner: str = Field(description="User or agent who owns the cube from now on")


@router.put("/cubes/{cube:path}/owner", status_code=204)
def transfer(cube: CubeId, body: OwnerBody, memos: CurrentMemos, acting: CurrentIdentity) -> None:
    """Make somebody else the owner of a cube; other roles on it stay. For its owners."""
    memos.sharing.transfer(cube, body.owner, actor=acting.actor)


@router.get("/cubes/{cube:path}")
def get(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> Cube:
    """Return one cube."""
    return memos.cubes.get(cube, actor=acting.actor)


@router.patch("/cubes/{cube:path}")
def change(cube: CubeId, body: ChangeCubeBody, memos: CurrentMemos, caller: CurrentCaller) -> Cube:
    """Describe a cube anew, or have personal data masked in it, or not."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return memos.cubes.change(cube, actor=actor, **body.given())


@router.delete("/cubes/{cube:path}")
def drop(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> EraseReceipt:
    """Erase everything in a cube, then the cube."""
    return memos.cubes.drop(cube, actor=acting.actor)


files_router = value_router("cubes", prefix="/cubes")

_BLOCK = 1 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}

Vectors = Annotated[bool, Query(description="Include vectors, so that the same embedder need not compute them again")]
Kv = Annotated[
    bool, Query(description="Include the prompt prefix, and the KV cache that models in the server keep for it")
]
Learned = Annotated[bool, Query(description="Include the weights of the cube's active adapters")]
Passphrase = Annotated[
    str | None, Header(alias="X-Memos-Passphrase", description="Passphrase the file is encrypted with, in UTF-8")
]


@files_router.get(
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
    user: UserName = None,
    passphrase: Passphrase = None,
) -> Response:
    """Return a cube as a file, with its history; its owners may."""
    actor = resolve_identity(memos, caller, user, new=False).actor
    out = open_dump(
        memos.transfer, cube, passphrase=_decoded(passphrase), vectors=vectors, kv=kv, adapters=adapters, actor=actor
    )
    return file_response(out, f"{_UNSAFE.sub('_', cube)[:80] or 'cube'}.memcube")


@files_router.post("/load", status_code=201, openapi_extra=FILE_BODY)
async def load(
    request: Request,
    memos: CurrentMemos,
    caller: CurrentCaller,
    cube: Annotated[str | None, Query(description="Id of the new cube; default: the id in the file")] = None,
    merge: Annotated[bool, Query(description="Load into the existing cube with that id")] = False,
    trust: Annotated[bool, Query(description="Trust its memories like those added here")] = False,
    restore_erased: Annotated[bool, Query(description="Also restore memories that were erased here since")] = False,
    user: UserName = None,
    passphrase: Passphrase = None,
) -> Loaded:
    """Load a dump, sent as the body, as a new cube of the user's or into one that is there; all of it or nothing."""
    with scratch_file(memos.transfer) as file:
        await receive_file(request, memos, file)

        def loaded() -> Loaded:
            actor = resolve_identity(memos, caller, user, new=False).actor
            secret = _decoded(passphrase)
            done = memos.transfer.load(
                file, cube=cube, merge=merge, trust=trust, restore_erased=restore_erased, passphrase=secret, actor=actor
            )
            return Loaded.model_validate(done)

        return await to_thread.run_sync(loaded)


@files_router.post("/inspect", openapi_extra=FILE_BODY)
async def inspect(request: Request, memos: CurrentMemos, caller: CurrentCaller, passphrase: Passphrase = None) -> Dump:
    """Read a whole dump, sent as the body, and say what it is of; nothing is loaded."""
    with scratch_file(memos.transfer) as file:
        await receive_file(request, memos, file)

        def inspected() -> Dump:
            found = memos.transfer.inspect(file, passphrase=_decoded(passphrase), actor=caller.identity.id)
            return Dump.model_validate(found)

        return await to_thread.run_sync(inspected)


async def receive_file(request: Request, memos: MemOS, file: IO[bytes]) -> None:
    """Write a request's body into a file, block by block. Raises: RequestRefused (too large), BackendUnavailable."""
    most, size, held = DUMP_BYTES, 0, bytearray()

    def write() -> None:
        write_scratch(memos.transfer, file, held)

    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise RequestRefused(413, f"The file is larger than {most:,} bytes, the limit of a file.")
        held += chunk
        if len(held) >= _BLOCK:
            await to_thread.run_sync(write)
            held.clear()
    if held:
        await to_thread.run_sync(write)


def _decoded(header: str | None) -> str | None:
    try:
        return None if header is None else header.encode("latin-1").decode()
    except UnicodeError as error:
        raise InvalidInput("X-Memos-Passphrase", "must be UTF-8") from error
