"""The requests of `/api/v1` about cubes, sharing, users and keys: each function describes one, named as in `MemOS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from memos.api.client import values
from memos.api.client.calls import Call, ClientUsageError, Download, Reply, as_model
from memos.api.client.openmem import existing
from memos.api.client.v1_requests import as_list, changing, getting, making, nothing, path_of, queried
from memos.errors import Conflict

# The requests of `/api/v1` that move cubes as files: each function describes one, named as in `MemOS.travel`.

# A server writes and checks a whole file before it says anything.
_SILENT_S = 1_800.0
_LONGEST_PASSPHRASE = 1_024


def dump_cube(
    cube: str,
    file: str | Path,
    *,
    passphrase: str | None = None,
    vectors: bool = True,
    kv: bool = False,
    adapters: bool = False,
    user: str | None = None,
) -> Download[Path]:
    """Write a cube with its history into a new file, which appears whole or not at all; return its path.

    With a passphrase it is sealed; with `kv` it has what models in the server keep of its prompts, with `adapters`
    the weights of those that answer for it.
    Raises: InvalidInput, NotFound, PermissionDenied, Conflict (the file is there).
    """
    target, query = new_file(file), queried({"vectors": vectors, "kv": kv, "adapters": adapters, "user": user})
    call = Call(
        "GET",
        path_of("cubes", ("cube", cube), "dump"),
        lambda _: target,
        query=query,
        headers=_sealed(passphrase),
        repeatable=True,
        least_s=_SILENT_S,
    )
    return Download(call, target)


def load_cube(
    file: str | Path,
    *,
    cube: str | None = None,
    merge: bool = False,
    trust: bool = False,
    restore_erased: bool = False,
    passphrase: str | None = None,
    user: str | None = None,
) -> Call[values.Loaded]:
    """Load a dump as a new cube, under its own id or `cube`; with `merge` into one that is there. All of it or nothing.

    What it says counts as untrusted unless `trust`; what was erased there stays erased unless `restore_erased`.
    Raises: InvalidInput (damaged, sealed, none), Conflict (the id is taken), NotFound, PermissionDenied.
    """
    query = {"cube": cube, "merge": merge, "trust": trust, "restore_erased": restore_erased, "user": user}
    return Call(
        "POST",
        path_of("cubes", "load"),
        as_model(values.Loaded),
        query=queried(query),
        headers=_sent(passphrase),
        upload=existing("file", file),
        least_s=_SILENT_S,
    )


def inspect_dump(file: str | Path, *, passphrase: str | None = None) -> Call[values.Dump]:
    """Have a dump checked and say what it is of, loading nothing. Raises: InvalidInput (damaged, sealed, none)."""
    return Call(
        "POST",
        path_of("cubes", "inspect"),
        as_model(values.Dump),
        headers=_sent(passphrase),
        upload=existing("file", file),
        least_s=_SILENT_S,
        repeatable=True,
    )


def new_file(file: str | Path) -> Path:
    """Return where a file is to be written. Raises: Conflict (it is there), InvalidInput."""
    try:
        target = Path(file).expanduser()
        there, folder = target.exists(), target.parent.is_dir()
    except (TypeError, ValueError, OSError, RuntimeError):
        raise ClientUsageError("file", f"is no path: {file!r:.200}") from None
    if there:
        raise Conflict(f"{target} exists already; choose another name, or remove it first.")
    if not folder:
        raise ClientUsageError("file", f"lies in no folder that is there: {str(target)!r:.200}")
    return target


def _sent(passphrase: str | None) -> dict[str, str]:
    return {"Content-Type": "application/octet-stream", **_sealed(passphrase)}


def _sealed(passphrase: str | None) -> dict[str, str]:
    if passphrase is None:
        return {}
    fine = isinstance(passphrase, str) and 0 < len(passphrase) <= _LONGEST_PASSPHRASE
    # A header's value has no line ends, and loses spaces around it.
    if not fine or not passphrase.isprintable() or passphrase != passphrase.strip():
        raise ClientUsageError(
            "passphrase", f"must be 1 to {_LONGEST_PASSPHRASE:,} printable characters without spaces around"
        )
    return {"X-Memos-Passphrase": passphrase}


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
    body = {"id": cube, "description": description, "time_zone": time_zone, "redact_pii": redact_pii, "user": user}
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
        "identity": identity,
        "name": name,
        "rights": list(rights),
        "user": user,
        "limits": None if limits is None else dict(limits),
        "expires_at": None if expires_at is None else expires_at.isoformat(),
    }
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
