"""`/keys`: make, list and revoke keys; a key's secret is in one answer and nowhere else."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime, Field

from memos.api.auth import who
from memos.api.families import Asked, Opened
from memos.api.v1.common import ERRORS, Acting, Body, IdempotencyKey, Place, creation
from memos.api.v1.shapes_cubes import KeyShape, LimitsShape, NewKeyShape
from memos.core.identities import NewKey

router = APIRouter(prefix="/keys", tags=["keys"], responses=ERRORS)

KeyId = Annotated[str, Path(description="Id of a key")]


class CreateKeyBody(Body):
    """A new key."""

    name: str = Field(description="Its name, such as where it is used")
    identity: str | None = Field(None, description="Whose it is; default: whom the request is for")
    rights: list[str] = Field(
        default=["read", "write", "own"], description="What calls with it may do at the most: `read`, `write`, `own`"
    )
    expires_at: AwareDatetime | None = Field(None, description="When it stops opening anything, with its offset")
    limits: LimitsShape | None = Field(None, description="How much it may use; only admins set this")


@router.post("", status_code=201)
def create(body: CreateKeyBody, memos: Opened, caller: Asked, idempotency_key: IdempotencyKey = None) -> NewKeyShape:
    """Make a key; its secret is shown this once."""
    actor = who(memos, caller, body.user, new=False).actor
    identity = actor if body.identity is None else body.identity
    expires_at: datetime | None = body.expires_at
    limits = None if body.limits is None else body.limits.model_dump(exclude_none=True)
    made = memos.idempotency.once(
        creation(idempotency_key, "keys.create", Place(actor, identity), body),
        lambda: memos.keys.create(
            identity, body.name, rights=body.rights, expires_at=expires_at, limits=limits, actor=actor
        ),
        ids=lambda new: [new.key.id],
        again=lambda ids: NewKey(memos.keys.get(ids[0], actor=actor), ""),
    )
    return NewKeyShape(key=KeyShape.model_validate(made.key), secret=made.secret or None)


@router.get("")
def list_(
    memos: Opened,
    acting: Acting,
    identity: Annotated[str | None, Query(description="Whose keys; default: whom the request is for")] = None,
) -> list[KeyShape]:
    """Return somebody's keys, the oldest first, without their secrets."""
    found = memos.keys.list(acting.actor if identity is None else identity, actor=acting.actor)
    return [KeyShape.model_validate(key) for key in found]


class LimitKeyBody(Body):
    """What a key may use from now on."""

    limits: LimitsShape = Field(description="Its limits, in place of those it has; `{}` takes them away")


@router.put("/{key}/limits")
def limit(key: KeyId, body: LimitKeyBody, memos: Opened, caller: Asked) -> KeyShape:
    """Change how much a key may use; for admins. What it used up today counts towards the new limits."""
    actor = who(memos, caller, body.user, new=False).actor
    return KeyShape.model_validate(memos.keys.limit(key, body.limits.model_dump(exclude_none=True), actor=actor))


@router.delete("/{key}")
def revoke(key: KeyId, memos: Opened, acting: Acting) -> KeyShape:
    """Let a key open nothing any more."""
    return KeyShape.model_validate(memos.keys.revoke(key, actor=acting.actor))
