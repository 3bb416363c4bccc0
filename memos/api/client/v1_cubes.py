"""The requests of `/api/v1` about cubes, sharing, users and keys: each function describes one, named as in `MemOS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from memos.api.client import values
from memos.api.client.calls import Call, Reply, as_model
from memos.api.client.own import as_list, changing, getting, making, nothing, path_of


def create_cube(
    cube: str,
    *,
    description: str = "",
    time_zone: str | None = None,
    redact_pii: bool = False,
    user: str | None = None,
    idempotency_key: str | None = None,
) -> Call[values.Cube]:
    """Make an empty cube. Raises: InvalidInput, Conflict (the id is taken)."""
    body = {
        "id": cube, "description": description, "time_zone": time_zone, "redact_pii": redact_pii, "user": user
    }  # fmt: skip
    return making(path_of("cubes"), as_model(values.Cube), body, idempotency_key)


def list_cubes(*, user: str | None = None) -> Call[list[values.Cube]]:
    """Return the cubes one may read, by id."""
    return getting(path_of("cubes"), as_list(values.Cube), {"user": user})


def get_cube(cube: str, *, user: str | None = None) -> Call[values.Cube]:
    """Return one cube. Raises: NotFound."""
    return getting(path_of("cubes", ("cube", cube)), as_model(values.Cube), {"user": user})


def change_cube(
    cube: str, *, description: str | None = None, redact_pii: bool | None = None, user: str | None = None
) -> Call[values.Cube]:
    """Describe a cube anew, or have personal data masked in it, or not. Raises: InvalidInput, NotFound."""
    body = {"description": description, "redact_pii": redact_pii, "user": user}
    return changing("PATCH", path_of("cubes", ("cube", cube)), as_model(values.Cube), body=body)


def drop_cube(cube: str, *, user: str | None = None) -> Call[values.EraseReceipt]:
    """Erase everything in a cube, then the cube; not to be undone. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("cubes", ("cube", cube)), as_model(values.EraseReceipt), query={"user": user})


def grant(cube: str, identity: str, role: str = "reader", *, user: str | None = None) -> Call[values.Grant]:
    """Give a user, agent or group a role on a cube, `*` everyone. Raises: InvalidInput, NotFound, PermissionDenied."""
    path = path_of("cubes", ("cube", cube), "grants", ("identity", identity))
    return changing("PUT", path, as_model(values.Grant), body={"role": role}, query={"user": user})


def revoke(cube: str, identity: str, *, user: str | None = None) -> Call[bool]:
    """Take a role back; False when there was none. Raises: NotFound, PermissionDenied."""

    def read(reply: Reply) -> bool:
        return as_model(values.Revoked)(reply).revoked

    path = path_of("cubes", ("cube", cube), "grants", ("identity", identity))
    return changing("DELETE", path, read, query={"user": user})


def grants(cube: str, *, user: str | None = None) -> Call[list[values.Grant]]:
    """Return who was given which role on a cube. Raises: NotFound, PermissionDenied."""
    return getting(path_of("cubes", ("cube", cube), "grants"), as_list(values.Grant), {"user": user})


def me() -> Call[values.Me]:
    """Return whom the client's key stands for."""
    return getting(path_of("me"), as_model(values.Me))


def create_user(
    id_: str,
    *,
    kind: str = "user",
    name: str = "",
    acts_for: str | None = None,
    admin: bool = False,
    idempotency_key: str | None = None,
) -> Call[values.Identity]:
    """Make a user, agent or group; for admins. Raises: InvalidInput, Conflict, NotFound, PermissionDenied."""
    body = {"id": id_, "kind": kind, "name": name, "acts_for": acts_for, "admin": admin}
    return making(path_of("users"), as_model(values.Identity), body, idempotency_key)


def list_users(*, kind: str | None = None, limit: int = 100, after: str = "") -> Call[list[values.Identity]]:
    """Return users, agents and groups by id; for admins. Raises: InvalidInput, PermissionDenied."""
    return getting(path_of("users"), as_list(values.Identity), {"kind": kind, "limit": limit, "after": after or None})


def get_user(id_: str) -> Call[values.Identity]:
    """Return a user, agent or group. Raises: NotFound, PermissionDenied."""
    return getting(path_of("users", ("id_", id_)), as_model(values.Identity))


def enable_user(id_: str, *, enabled: bool = True) -> Call[values.Identity]:
    """Let an identity do what its roles allow, or nothing; for admins. Raises: NotFound, PermissionDenied."""
    return changing("PATCH", path_of("users", ("id_", id_)), as_model(values.Identity), body={"enabled": enabled})


def members(group: str) -> Call[tuple[str, ...]]:
    """Return a group's members by id; for admins. Raises: NotFound, PermissionDenied."""

    def read(reply: Reply) -> tuple[str, ...]:
        return as_model(values.Members)(reply).members

    return getting(path_of("groups", ("group", group), "members"), read)


def join(group: str, member: str) -> Call[None]:
    """Make a user or agent a member of a group; for admins. Raises: InvalidInput, NotFound, PermissionDenied."""
    return changing("PUT", path_of("groups", ("group", group), "members", ("member", member)), nothing)


def leave(group: str, member: str) -> Call[None]:
    """Take a member out of a group; for admins. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("groups", ("group", group), "members", ("member", member)), nothing)


def create_key(
    identity: str | None,
    name: str,
    *,
    rights: Sequence[str] = ("read", "write", "own"),
    expires_at: datetime | None = None,
    limits: Mapping[str, int | None] | None = None,
    user: str | None = None,
) -> Call[values.NewKey]:
    """Make a key, without `identity` for oneself; its secret is in this answer alone, so nothing is sent twice.

    Raises: InvalidInput, NotFound, PermissionDenied.
    """
    body = {
        "identity": identity, "name": name, "rights": list(rights), "user": user,
        "limits": None if limits is None else dict(limits),
        "expires_at": None if expires_at is None else expires_at.isoformat(),
    }  # fmt: skip
    return changing("POST", path_of("keys"), as_model(values.NewKey), body=body)


def list_keys(identity: str | None = None, *, user: str | None = None) -> Call[list[values.Key]]:
    """Return somebody's keys, without their secrets. Raises: PermissionDenied."""
    return getting(path_of("keys"), as_list(values.Key), {"identity": identity, "user": user})


def limit_key(key: str, limits: Mapping[str, int | None], *, user: str | None = None) -> Call[values.Key]:
    """Set a key's limits by name, in place of those it has; for admins.

    Raises: InvalidInput, NotFound, PermissionDenied.
    """
    body = {"limits": dict(limits), "user": user}
    return changing("PUT", path_of("keys", ("key", key), "limits"), as_model(values.Key), body=body)


def revoke_key(key: str, *, user: str | None = None) -> Call[values.Key]:
    """Let a key open nothing any more. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("keys", ("key", key)), as_model(values.Key), query={"user": user})
