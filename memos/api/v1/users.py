"""`/users`, `/groups` and `/me`: users, agents and groups, and who is a member of what. For admins, but for `/me`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from memos.api.families import Asked, Opened
from memos.api.v1.common import ERRORS, IdempotencyKey, IdentityId, Limit, Place, creation
from memos.api.v1.shapes_cubes import IdentityShape, MembersShape, MeShape

router = APIRouter(tags=["users"], responses=ERRORS)


class CreateUserBody(BaseModel):
    """A new user, agent or group."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description="Its id; a user or agent gets a cube of that id")
    kind: str = Field("user", description="`user`, `agent` or `group`")
    name: str = Field("", description="Its name for people; default: the id")
    acts_for: str | None = Field(None, description="User an agent acts for")
    admin: bool = Field(False, description="Whether it may do everything")


class EnableBody(BaseModel):
    """What to change."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = Field(description="Whether it may do what its roles allow, or nothing")


@router.get("/me")
def me(caller: Asked) -> MeShape:
    """Return whom the key of this request stands for."""
    identity = IdentityShape.model_validate(caller.identity)
    return MeShape(identity=identity, rights=[str(right) for right in caller.key.rights])


@router.post("/users", status_code=201)
def create(body: CreateUserBody, memos: Opened, caller: Asked, idempotency_key: IdempotencyKey = None) -> IdentityShape:
    """Make a user, agent or group."""
    actor = caller.identity.id
    made = memos.idempotency.once(
        creation(idempotency_key, "users.create", Place(actor, body.id), body),
        lambda: memos.users.create(
            body.id, kind=body.kind, name=body.name, acts_for=body.acts_for, admin=body.admin, actor=actor
        ),
        ids=lambda identity: [identity.id],
        again=lambda ids: memos.users.get(ids[0], actor=actor),
    )
    return IdentityShape.model_validate(made)


@router.get("/users")
def list_(
    memos: Opened,
    caller: Asked,
    kind: Annotated[str | None, Query(description="Only `user`, `agent` or `group`")] = None,
    limit: Limit = 100,
    after: Annotated[str, Query(description="Go on behind this id")] = "",
) -> list[IdentityShape]:
    """Return users, agents and groups by id."""
    found = memos.users.list(kind=kind, limit=limit, after=after, actor=caller.identity.id)
    return [IdentityShape.model_validate(identity) for identity in found]


@router.get("/users/{identity:path}")
def get(identity: IdentityId, memos: Opened, caller: Asked) -> IdentityShape:
    """Return a user, agent or group."""
    return IdentityShape.model_validate(memos.users.get(identity, actor=caller.identity.id))


@router.patch("/users/{identity:path}")
def enable(identity: IdentityId, body: EnableBody, memos: Opened, caller: Asked) -> IdentityShape:
    """Let a user, agent or group do what its roles allow, or nothing; nothing of theirs is removed."""
    return IdentityShape.model_validate(memos.users.enable(identity, enabled=body.enabled, actor=caller.identity.id))


@router.get("/groups/{group:path}/members")
def members(group: IdentityId, memos: Opened, caller: Asked) -> MembersShape:
    """Return a group's members by id."""
    return MembersShape(group=group, members=list(memos.users.members(group, actor=caller.identity.id)))


@router.put("/groups/{group:path}/members/{member:path}", status_code=204)
def join(group: IdentityId, member: IdentityId, memos: Opened, caller: Asked) -> None:
    """Make a user or agent a member of a group."""
    memos.users.join(group, member, actor=caller.identity.id)


@router.delete("/groups/{group:path}/members/{member:path}", status_code=204)
def leave(group: IdentityId, member: IdentityId, memos: Opened, caller: Asked) -> None:
    """Take a member out of a group."""
    memos.users.leave(group, member, actor=caller.identity.id)
