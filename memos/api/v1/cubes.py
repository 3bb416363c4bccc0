"""Routes of `/cubes`: create, get, change and drop cubes, verify them, and share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from memos.api.dialects import resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import (
    ERRORS,
    Body,
    CubeId,
    CurrentIdentity,
    IdempotencyKey,
    IdentityId,
    RequestTarget,
    creation,
)
from memos.api.v1.shapes import ValueRoute
from memos.api.values import Revoked
from memos.core.identities import Grant
from memos.core.types import Cube, EraseReceipt, VerifyReport
from memos.kernel.statistics import Overview

router = APIRouter(route_class=ValueRoute, tags=["cubes"], responses=ERRORS)


class CreateCubeBody(Body):
    """A new cube; its owner is whom the request is for."""

    id: str = Field(description="Its id")
    description: str = Field("", description="What it is for")
    time_zone: str | None = Field(None, description="Zone that times without one are read in; default: the server's")
    redact_pii: bool = Field(False, description="Mask personal data in what is added")


class ChangeCubeBody(Body):
    """What to change; what is left out stays."""

    description: str | None = Field(None, description="What it is for")
    redact_pii: bool | None = Field(None, description="Mask personal data in what is added from now on")


class VerifyBody(Body):
    """What to do about what is wrong."""

    repair: bool = Field(False, description="Bring the indexes back to the ledger")


class GrantBody(BaseModel):
    """What somebody may do with a cube."""

    model_config = ConfigDict(extra="forbid")

    role: str = Field("reader", description="`reader`, `editor` or `owner`")


@router.post("/cubes", status_code=201)
def create(
    body: CreateCubeBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> Cube:
    """Make an empty cube."""
    actor = resolve_identity(memos, caller, body.user).actor
    return memos.idempotency.once(
        creation(idempotency_key, "cubes.create", RequestTarget(actor, body.id), body),
        lambda: memos.cubes.create(
            body.id, actor=actor, description=body.description, time_zone=body.time_zone, redact_pii=body.redact_pii
        ),
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
    cube: Annotated[list[str], Query(description="Cubes; default: the busiest one may read")] = [],  # noqa: B006
) -> Overview:
    """Return how full the tiers are, and what the background does."""
    return memos.statistics.overview(cube or None, actor=acting.actor)


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


@router.get("/cubes/{cube:path}")
def get(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> Cube:
    """Return one cube."""
    return memos.cubes.get(cube, actor=acting.actor)


@router.patch("/cubes/{cube:path}")
def change(cube: CubeId, body: ChangeCubeBody, memos: CurrentMemos, caller: CurrentCaller) -> Cube:
    """Describe a cube anew, or have personal data masked in it, or not."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return memos.cubes.change(cube, actor=actor, description=body.description, redact_pii=body.redact_pii)


@router.delete("/cubes/{cube:path}")
def drop(cube: CubeId, memos: CurrentMemos, acting: CurrentIdentity) -> EraseReceipt:
    """Erase everything in a cube, then the cube."""
    return memos.cubes.drop(cube, actor=acting.actor)
