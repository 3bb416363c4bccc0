"""Routes of `/users`, `/groups`, `/me`, `/keys`, `/sessions` and `/audit`."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import Path, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from memos.api import values
from memos.api.dialects import resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import (
    Body,
    CurrentIdentity,
    IdempotencyKey,
    IdentityId,
    Limit,
    RequestTarget,
    creation,
    value_router,
)
from memos.core.audit import AuditEntry, ChainReport
from memos.core.identities import Identity, Key, NewKey, Offboarding, Session

router = value_router("users")
keys_router = value_router("keys", prefix="/keys")
sessions_router = value_router("sessions", prefix="/sessions")
audit_router = value_router("audit", prefix="/audit")


class CreateUserBody(BaseModel):
    """A new user, agent or group."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description="Id; a user or agent gets a cube with that id")
    kind: str = Field("user", description="`user`, `agent` or `group`")
    name: str = Field("", description="Display name; default: the id")
    acts_for: str | None = Field(None, description="User an agent acts for")
    admin: bool = Field(False, description="Whether it has all rights")


class EnableBody(BaseModel):
    """Changes to an identity."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = Field(description="Whether it is enabled; a disabled one has no rights")


@router.get("/me", name="me")
async def get_me(
    memos: CurrentMemos,
    caller: CurrentCaller,
    cube: Annotated[str | None, Query(description="Return the rights in this cube instead of those of the key")] = None,
) -> values.Me:
    """Return whom the key of this request stands for, and what it may do."""
    identity = values.Identity.model_validate(caller.identity)
    rights = caller.key.rights
    if cube is not None:
        rights = await to_thread.run_sync(partial(memos.cubes.rights, cube, actor=caller.identity.id))
    return values.Me(identity=identity, rights=rights)


@router.post("/users", status_code=201, name="create")
def create_user(
    body: CreateUserBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> Identity:
    """Make a user, agent or group."""
    actor = caller.identity.id
    return memos.idempotency.once(
        creation(idempotency_key, "users.create", RequestTarget(actor=actor, cube=body.id), body),
        lambda: memos.users.create(
            body.id, kind=body.kind, name=body.name, acts_for=body.acts_for, admin=body.admin, actor=actor
        ),
        ids=lambda identity: [identity.id],
        again=lambda ids: memos.users.get(ids[0], actor=actor),
    )


@router.get("/users", name="list_")
def list_users(
    memos: CurrentMemos,
    caller: CurrentCaller,
    kind: Annotated[str | None, Query(description="Only `user`, `agent` or `group`")] = None,
    limit: Limit = 100,
    after: Annotated[str, Query(description="Continue after this id")] = "",
) -> list[Identity]:
    """Return users, agents and groups by id."""
    return memos.users.list(kind=kind, limit=limit, after=after, actor=caller.identity.id)


@router.get("/users/{identity:path}", name="get")
def get_user(identity: IdentityId, memos: CurrentMemos, caller: CurrentCaller) -> Identity:
    """Return a user, agent or group."""
    return memos.users.get(identity, actor=caller.identity.id)


@router.patch("/users/{identity:path}", name="enable")
def enable_user(identity: IdentityId, body: EnableBody, memos: CurrentMemos, caller: CurrentCaller) -> Identity:
    """Enable or disable a user, agent or group; a disabled one may do nothing, and keeps its data."""
    return memos.users.enable(identity, enabled=body.enabled, actor=caller.identity.id)


class OffboardBody(BaseModel):
    """Body of `POST /users/{identity}/offboard`."""

    model_config = ConfigDict(extra="forbid")

    transfer_to: str | None = Field(None, description="User or agent who owns them then; default: they stay theirs")


@router.post("/users/{identity:path}/offboard", name="offboard")
def offboard_user(identity: IdentityId, body: OffboardBody, memos: CurrentMemos, caller: CurrentCaller) -> Offboarding:
    """End all access of a user or agent who leaves: keys, sessions, roles and memberships; for admins.

    Their memories stay. Repeating it changes nothing more.
    """
    return memos.users.offboard(identity, transfer_to=body.transfer_to, actor=caller.identity.id)


@router.get("/groups/{group:path}/members", name="members")
def list_members(group: IdentityId, memos: CurrentMemos, caller: CurrentCaller) -> values.Members:
    """Return a group's members by id."""
    return values.Members(group=group, members=memos.users.members(group, actor=caller.identity.id))


@router.put("/groups/{group:path}/members/{member:path}", status_code=204, name="join")
def join_group(group: IdentityId, member: IdentityId, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Make a user or agent a member of a group."""
    memos.users.join(group, member, actor=caller.identity.id)


@router.delete("/groups/{group:path}/members/{member:path}", status_code=204, name="leave")
def leave_group(group: IdentityId, member: IdentityId, memos: CurrentMemos, caller: CurrentCaller) -> None:
    """Take a member out of a group."""
    memos.users.leave(group, member, actor=caller.identity.id)


class LimitsBody(values.KeyLimits):
    """Limits of a key; null means the default of the installation's settings."""

    model_config = ConfigDict(extra="forbid")


KeyId = Annotated[str, Path(description="Id of a key")]


class CreateKeyBody(Body):
    """A new key."""

    name: str = Field(description="Name of the key, such as where it is used")
    identity: str | None = Field(None, description="Owner of the key; default: the user of the request")
    rights: list[str] = Field(default=["read", "write", "own"], description="Rights of the key: `read`, `write`, `own`")
    expires_at: AwareDatetime | None = Field(None, description="Expiry time, with its UTC offset")
    limits: LimitsBody | None = Field(None, description="Limits of the key; only admins can set them")
    cubes: list[str] | None = Field(None, description="The only cubes it reaches; default: all its owner has a role on")


@keys_router.post("", status_code=201, name="create")
def create_key(
    body: CreateKeyBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> values.NewKey:
    """Make a key; its secret is shown this once."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    identity = actor if body.identity is None else body.identity
    expires_at: datetime | None = body.expires_at
    limits = None if body.limits is None else body.limits.model_dump(exclude_none=True)
    made = memos.idempotency.once(
        creation(idempotency_key, "keys.create", RequestTarget(actor=actor, cube=identity), body),
        lambda: memos.keys.create(
            identity,
            body.name,
            rights=body.rights,
            expires_at=expires_at,
            limits=limits,
            cubes=body.cubes,
            actor=actor,
        ),
        ids=lambda new: [new.key.id],
        again=lambda ids: NewKey(memos.keys.get(ids[0], actor=actor), ""),
    )
    return values.NewKey(key=values.Key.model_validate(made.key), secret=made.secret or None)


@keys_router.get("", name="list_")
def list_keys(
    memos: CurrentMemos,
    acting: CurrentIdentity,
    identity: Annotated[str | None, Query(description="Owner of the keys; default: the user of the request")] = None,
    everyone: Annotated[bool, Query(description="Keys of everybody; for admins")] = False,
) -> list[Key]:
    """Return somebody's keys, the oldest first, without their secrets."""
    whose = acting.actor if identity is None else identity
    return memos.keys.list(None if everyone else whose, actor=acting.actor)


@keys_router.get("/{key}/usage", name="used")
def key_usage(key: KeyId, memos: CurrentMemos, acting: CurrentIdentity) -> values.KeyUsage:
    """Return what a key used up today, UTC. Only what is limited is counted; keys made with a key count as that one."""
    found = memos.keys.get(key, actor=acting.actor)
    limits = values.KeyLimits.model_validate(memos.quotas.limits_of(found))
    return values.KeyUsage(**memos.keys.used(key, actor=acting.actor), limits=limits)


class LimitKeyBody(Body):
    """New limits of a key."""

    limits: LimitsBody = Field(description="New limits, replacing the current ones; `{}` removes them")


@keys_router.put("/{key}/limits", name="limit")
def limit_key(key: KeyId, body: LimitKeyBody, memos: CurrentMemos, caller: CurrentCaller) -> Key:
    """Change how much a key may use; for admins. What it used up today counts towards the new limits."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return memos.keys.limit(key, body.limits.model_dump(exclude_none=True), actor=actor)


class RotateKeyBody(Body):
    """A rotation of a key."""

    overlap_s: float = Field(86_400, description="Seconds that the replaced key goes on working")
    expires_at: AwareDatetime | None = Field(
        None, description="Expiry time of the new key; default: it lasts as long as the replaced one was made for"
    )


@keys_router.post("/{key}/rotate", status_code=201, name="rotate")
def rotate_key(
    key: KeyId,
    body: RotateKeyBody,
    memos: CurrentMemos,
    caller: CurrentCaller,
    idempotency_key: IdempotencyKey = None,
) -> values.NewKey:
    """Make a key in place of another, with its name, rights, cubes and limits; its secret is shown this once."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    made = memos.idempotency.once(
        creation(idempotency_key, "keys.rotate", RequestTarget(actor=actor, cube=key), body),
        lambda: memos.keys.rotate(key, overlap_s=body.overlap_s, expires_at=body.expires_at, actor=actor),
        ids=lambda new: [new.key.id],
        again=lambda ids: NewKey(memos.keys.get(ids[0], actor=actor), ""),
    )
    return values.NewKey(key=values.Key.model_validate(made.key), secret=made.secret or None)


@keys_router.delete("/{key}", name="revoke")
def revoke_key(key: KeyId, memos: CurrentMemos, acting: CurrentIdentity) -> Key:
    """Revoke a key, so that it no longer grants access."""
    return memos.keys.revoke(key, actor=acting.actor)


@sessions_router.get("", name="list_")
def list_sessions(memos: CurrentMemos, acting: CurrentIdentity) -> list[Session]:
    """Return who is signed in to the console, newest first: everybody for an admin, else one's own sessions."""
    return memos.sessions.list(actor=acting.actor)


@sessions_router.delete("/{session}", status_code=204, name="revoke")
def revoke_session(
    session: Annotated[str, Path(description="Id of a session")], memos: CurrentMemos, acting: CurrentIdentity
) -> None:
    """End a session."""
    memos.sessions.revoke(session, actor=acting.actor)


AuditCubes = Annotated[
    list[str], Query(description="Cubes; default: the readable cubes that changed last, with sign-ins and keys")
]


@audit_router.get("", name="list_")
def list_audit(
    memos: CurrentMemos,
    acting: CurrentIdentity,
    cube: AuditCubes = [],  # noqa: B006
    by: Annotated[str | None, Query(description="Only what this user or agent did")] = None,
    kind: Annotated[list[str], Query(description="Only of these kinds, such as `share` or `key-create`")] = [],  # noqa: B006
    before: Annotated[str | None, Query(description="Continue behind the entry with this id")] = None,
    limit: Annotated[int, Query(description="Maximum number of entries, at most 1,000")] = 100,
) -> list[AuditEntry]:
    """Return who did what when, newest first: events of cubes one may read, sign-ins, and changes to users and keys."""
    return memos.audit.list(cubes=cube or None, actor=acting.actor, by=by, kinds=kind, before=before, limit=limit)


class RecordReadsBody(Body):
    """Whether reads are recorded."""

    enabled: bool = Field(description="Record reads of cubes from now on, or no longer")


@audit_router.get("/reads", name="records_reads")
def get_records_reads(memos: CurrentMemos, acting: CurrentIdentity) -> values.RecordsReads:
    """Return whether reads are recorded."""
    return values.RecordsReads(enabled=memos.audit.records_reads(actor=acting.actor))


@audit_router.put("/reads", name="record_reads")
def set_records_reads(body: RecordReadsBody, memos: CurrentMemos, caller: CurrentCaller) -> values.RecordsReads:
    """Record reads of cubes from now on, or no longer; for admins."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return values.RecordsReads(enabled=memos.audit.record_reads(enabled=body.enabled, actor=actor))


@audit_router.get("/verify", name="verify")
def verify_audit(
    memos: CurrentMemos,
    acting: CurrentIdentity,
    cube: Annotated[str | None, Query(description="The cube; default: the access log, for admins")] = None,
) -> ChainReport:
    """Check that a cube's chain of events, or that of the access log, is whole."""
    return memos.audit.verify(cube, actor=acting.actor)
