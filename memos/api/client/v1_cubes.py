"""Requests of `/api/v1` about cubes, sharing, users and keys, named as in `MemOS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from memos.api.client import values
from memos.api.client.calls import Call, ClientUsageError, Download, Model, as_field, as_model
from memos.api.client.openmem import existing
from memos.api.client.v1_requests import Query, as_list, changing, getting, listed, making, nothing, path_of, queried
from memos.errors import Conflict

# A server writes and checks a whole file before it answers.
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
    """Write a cube with its history to a new file and return its path.

    The file appears only once it is complete. With a passphrase it is encrypted; `kv` adds key-value caches, and
    `adapters` the weights of active adapters.
    Raises: InvalidInput, NotFound, PermissionDenied, Conflict (the file exists).
    """
    target, query = new_file(file), {"vectors": vectors, "kv": kv, "adapters": adapters, "user": user}
    return fetching(path_of("cubes", ("cube", cube), "dump"), target, query, _sealed(passphrase), least_s=_SILENT_S)


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
    """Load a dump as a new cube, or with `merge` into an existing one; all of it or nothing.

    Its content is untrusted unless `trust` is set, and what was erased stays erased unless `restore_erased` is.
    Raises: InvalidInput (damaged, encrypted, or not a dump), Conflict (the id is taken), NotFound, PermissionDenied.
    """
    query = {"cube": cube, "merge": merge, "trust": trust, "restore_erased": restore_erased, "user": user}
    return _sending("load", values.Loaded, query, passphrase, file)


def inspect_dump(file: str | Path, *, passphrase: str | None = None) -> Call[values.Dump]:
    """Check a dump and describe it without loading it. Raises: InvalidInput (damaged, encrypted, or not a dump)."""
    return replace(_sending("inspect", values.Dump, {}, passphrase, file), repeatable=True)


def run_import(
    file: str | Path,
    *,
    cube: str | None = None,
    conversation: str | None = None,
    format: str | None = None,
    on_bad: str = "skip",
    mode: str = "rough",
    owner: str | None = None,
    together: bool = False,
    time_zone: str | None = None,
    date_order: str | None = None,
    user: str | None = None,
) -> Call[values.ImportSummary]:
    """Store the messages of an export, a ZIP archive too; importing it again adds only what is missing.

    Raises: InvalidInput (a record cannot be read), NotFound, Conflict, PermissionDenied.
    """
    about = {"cube": cube, "format": format, "conversation": conversation, "user": user, "owner": owner}
    how = {"on_bad": on_bad, "mode": mode, "time_zone": time_zone, "date_order": date_order}
    query = {**about, **how, "together": together or None}
    return replace(_sent(("imports",), values.ImportSummary, query, file), repeatable=True)


def preview_import(
    file: str | Path,
    *,
    cube: str | None = None,
    conversation: str | None = None,
    format: str | None = None,
    limit: int = 2_000,
    time_zone: str | None = None,
    date_order: str | None = None,
    user: str | None = None,
) -> Call[values.ImportPreview]:
    """Return what the first `limit` records of an export would store. Raises: InvalidInput, NotFound."""
    query = {"cube": cube, "format": format, "conversation": conversation, "limit": limit, "user": user}
    query |= {"time_zone": time_zone, "date_order": date_order}
    return replace(_sent(("imports", "preview"), values.ImportPreview, query, file), repeatable=True)


def list_backups(*, user: str | None = None) -> Call[values.BackupPlan]:
    """Return where backups are written, and the known ones. Admins only. Raises: PermissionDenied."""
    return getting(path_of("backups"), as_model(values.BackupPlan), {"user": user})


def create_backup(*, user: str | None = None) -> Call[values.StartedTask]:
    """Begin a backup into the configured folder. Admins only. Raises: PermissionDenied, Conflict (no folder is set)."""
    return changing("POST", path_of("backups"), as_model(values.StartedTask), body={"user": user})


def _sent(path: tuple[str, ...], model: type[Model], query: Query, file: str | Path) -> Call[Model]:
    upload = existing("file", file)
    headers = {"Content-Type": "application/octet-stream"}
    told = queried({**query, "name": Path(file).name})
    call = Call("POST", path_of(*path), as_model(model), query=told, headers=headers, least_s=_SILENT_S)
    return replace(call, upload=upload)


def new_file(file: str | Path) -> Path:
    """Return the path of a file to write. Raises: Conflict (it exists), InvalidInput."""
    try:
        target = Path(file).expanduser()
        there, folder = target.exists(), target.parent.is_dir()
    except (TypeError, ValueError, OSError, RuntimeError):
        raise ClientUsageError("file", f"must be a path; got {file!r:.200}") from None
    if there:
        raise Conflict(f"{target} exists already; choose another name, or remove it first.")
    if not folder:
        raise ClientUsageError("file", f"its folder does not exist: {str(target)!r:.200}")
    return target


def fetching(
    path: str, target: Path, query: Query, headers: Mapping[str, str] | None = None, *, least_s: float
) -> Download[Path]:
    """Return a download of a file."""
    call = Call("GET", path, lambda _: target, queried(query), headers or {}, repeatable=True, least_s=least_s)
    return Download(call, target)


def _sending(word: str, model: type[Model], query: Query, passphrase: str | None, file: str | Path) -> Call[Model]:
    path, headers = path_of("cubes", word), {"Content-Type": "application/octet-stream", **_sealed(passphrase)}
    call = Call("POST", path, as_model(model), query=queried(query), headers=headers, least_s=_SILENT_S)
    return replace(call, upload=existing("file", file))


def _sealed(passphrase: str | None) -> dict[str, str]:
    if passphrase is None:
        return {}
    fine = isinstance(passphrase, str) and 0 < len(passphrase) <= _LONGEST_PASSPHRASE
    # A header's value has no line ends, and loses spaces around it.
    if not fine or not passphrase.isprintable() or passphrase != passphrase.strip():
        raise ClientUsageError(
            "passphrase", f"must be 1 to {_LONGEST_PASSPHRASE:,} printable characters, without a space at either end"
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
    """Create an empty cube. Raises: InvalidInput, Conflict (the id is taken)."""
    body = {"id": cube, "description": description, "time_zone": time_zone, "redact_pii": redact_pii, "user": user}
    return making(path_of("cubes"), as_model(values.Cube), body, idempotency_key)


def list_cubes(*, user: str | None = None) -> Call[list[values.Cube]]:
    """Return the cubes the key can read, by id."""
    return getting(path_of("cubes"), as_list(values.Cube), {"user": user})


def get_cube(cube: str, *, user: str | None = None) -> Call[values.Cube]:
    """Return one cube. Raises: NotFound."""
    return getting(path_of("cubes", ("cube", cube)), as_model(values.Cube), {"user": user})


def change_cube(
    cube: str, *, description: str | None = None, redact_pii: bool | None = None, user: str | None = None
) -> Call[values.Cube]:
    """Change a cube's description, or whether personal data is masked in it. Raises: InvalidInput, NotFound."""
    body = {"description": description, "redact_pii": redact_pii, "user": user}
    return changing("PATCH", path_of("cubes", ("cube", cube)), as_model(values.Cube), body=body)


def drop_cube(cube: str, *, user: str | None = None) -> Call[values.EraseReceipt]:
    """Erase a cube with everything in it. This cannot be undone. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("cubes", ("cube", cube)), as_model(values.EraseReceipt), query={"user": user})


def grant(cube: str, identity: str, role: str = "reader", *, user: str | None = None) -> Call[values.Grant]:
    """Give somebody, or `*` (everyone), a role on a cube. Raises: InvalidInput, NotFound, PermissionDenied."""
    path = path_of("cubes", ("cube", cube), "grants", ("identity", identity))
    return changing("PUT", path, as_model(values.Grant), body={"role": role}, query={"user": user})


def revoke(cube: str, identity: str, *, user: str | None = None) -> Call[bool]:
    """Take a role back; return False if there was none. Raises: NotFound, PermissionDenied."""
    path = path_of("cubes", ("cube", cube), "grants", ("identity", identity))
    return changing("DELETE", path, as_field(values.Revoked, lambda found: found.revoked), query={"user": user})


def grants(cube: str, *, user: str | None = None) -> Call[list[values.Grant]]:
    """Return the roles given on a cube. Raises: NotFound, PermissionDenied."""
    return getting(path_of("cubes", ("cube", cube), "grants"), as_list(values.Grant), {"user": user})


def transfer(cube: str, owner: str, *, user: str | None = None) -> Call[None]:
    """Make somebody else the owner of a cube. Raises: InvalidInput, NotFound, Conflict, PermissionDenied."""
    path = path_of("cubes", ("cube", cube), "owner")
    return changing("PUT", path, nothing, body={"owner": owner}, query={"user": user})


def me(*, cube: str | None = None) -> Call[values.Me]:
    """Return the identity of the client's key, and its rights, or those it has in a cube. Raises: NotFound (cube)."""
    return getting(path_of("me"), as_model(values.Me), {"cube": cube})


def create_user(
    id_: str,
    *,
    kind: str = "user",
    name: str = "",
    acts_for: str | None = None,
    admin: bool = False,
    idempotency_key: str | None = None,
) -> Call[values.Identity]:
    """Create a user, agent or group. Admins only. Raises: InvalidInput, Conflict, NotFound, PermissionDenied."""
    body = {"id": id_, "kind": kind, "name": name, "acts_for": acts_for, "admin": admin}
    return making(path_of("users"), as_model(values.Identity), body, idempotency_key)


def list_users(*, kind: str | None = None, limit: int = 100, after: str = "") -> Call[list[values.Identity]]:
    """Return users, agents and groups by id. Admins only. Raises: InvalidInput, PermissionDenied."""
    return getting(path_of("users"), as_list(values.Identity), {"kind": kind, "limit": limit, "after": after or None})


def get_user(id_: str) -> Call[values.Identity]:
    """Return a user, agent or group. Raises: NotFound, PermissionDenied."""
    return getting(path_of("users", ("id_", id_)), as_model(values.Identity))


def enable_user(id_: str, *, enabled: bool = True) -> Call[values.Identity]:
    """Enable or disable an identity. Admins only. Raises: NotFound, PermissionDenied."""
    return changing("PATCH", path_of("users", ("id_", id_)), as_model(values.Identity), body={"enabled": enabled})


def offboard_user(id_: str, *, transfer_to: str | None = None) -> Call[values.Offboarding]:
    """End all access of a user or agent who leaves. Admins only. Raises: InvalidInput, NotFound, PermissionDenied."""
    path = path_of("users", ("id_", id_), "offboard")
    return changing("POST", path, as_model(values.Offboarding), body={"transfer_to": transfer_to})


def members(group: str) -> Call[tuple[str, ...]]:
    """Return the members of a group by id. Admins only. Raises: NotFound, PermissionDenied."""
    path = path_of("groups", ("group", group), "members")
    return getting(path, as_field(values.Members, lambda found: found.members))


def join(group: str, member: str) -> Call[None]:
    """Add a user or agent to a group. Admins only. Raises: InvalidInput, NotFound, PermissionDenied."""
    return changing("PUT", path_of("groups", ("group", group), "members", ("member", member)), nothing)


def leave(group: str, member: str) -> Call[None]:
    """Remove a member from a group. Admins only. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("groups", ("group", group), "members", ("member", member)), nothing)


def create_key(
    identity: str | None,
    name: str,
    *,
    rights: Sequence[str] = ("read", "write", "own"),
    expires_at: datetime | None = None,
    limits: Mapping[str, int | None] | None = None,
    cubes: Sequence[str] | None = None,
    user: str | None = None,
) -> Call[values.NewKey]:
    """Create a key, for oneself without `identity`. Its secret is in this answer only, so nothing is sent twice.

    Raises: InvalidInput, NotFound, PermissionDenied.
    """
    return changing("POST", path_of("keys"), as_model(values.NewKey), body=locals())


def rotate_key(
    key: str, *, overlap_s: float = 86_400, expires_at: datetime | None = None, user: str | None = None
) -> Call[values.NewKey]:
    """Create a key in place of another, which goes on working for `overlap_s` seconds.

    Raises: InvalidInput, NotFound, Conflict (revoked, expired or replaced already), PermissionDenied.
    """
    body = {"overlap_s": overlap_s, "expires_at": expires_at, "user": user}
    return changing("POST", path_of("keys", ("key", key), "rotate"), as_model(values.NewKey), body=body)


def list_keys(identity: str | None = None, *, user: str | None = None) -> Call[list[values.Key]]:
    """Return the keys of an identity, without their secrets. Raises: PermissionDenied."""
    return getting(path_of("keys"), as_list(values.Key), {"identity": identity, "user": user})


def key_usage(key: str, *, user: str | None = None) -> Call[values.KeyUsage]:
    """Return what a key used up today, UTC, where it is limited. Raises: NotFound."""
    return getting(path_of("keys", ("key", key), "usage"), as_model(values.KeyUsage), {"user": user})


def list_audit(
    *,
    cubes: Sequence[str] = (),
    by: str | None = None,
    kinds: Sequence[str] = (),
    before: str | None = None,
    limit: int = 100,
    user: str | None = None,
) -> Call[list[values.AuditEntry]]:
    """Return who did what when, newest first; `before` is the id of an entry to continue behind.

    Without cubes: events of the readable cubes that changed last, sign-ins, and changes to users and keys.
    Raises: InvalidInput, NotFound (cube).
    """
    query = {"cube": listed(cubes), "by": by, "kind": listed(kinds), "before": before, "limit": limit, "user": user}
    return getting(path_of("audit"), as_list(values.AuditEntry), query)


def records_reads(*, user: str | None = None) -> Call[bool]:
    """Return True if reads of cubes are recorded."""
    path = path_of("audit", "reads")
    return getting(path, as_field(values.RecordsReads, lambda found: found.enabled), {"user": user})


def record_reads(*, enabled: bool = True, user: str | None = None) -> Call[bool]:
    """Record reads of cubes from now on, or no longer. Admins only. Raises: PermissionDenied."""
    answer = as_field(values.RecordsReads, lambda found: found.enabled)
    return changing("PUT", path_of("audit", "reads"), answer, body={"enabled": enabled, "user": user})


def verify_audit(cube: str | None = None, *, user: str | None = None) -> Call[values.ChainReport]:
    """Check that a cube's chain of events or, for admins, that of the access log is whole. Raises: NotFound."""
    return getting(path_of("audit", "verify"), as_model(values.ChainReport), {"cube": cube, "user": user})


def limit_key(key: str, limits: Mapping[str, int | None], *, user: str | None = None) -> Call[values.Key]:
    """Replace a key's limits. Admins only. Raises: InvalidInput, NotFound, PermissionDenied."""
    body = {"limits": dict(limits), "user": user}
    return changing("PUT", path_of("keys", ("key", key), "limits"), as_model(values.Key), body=body)


def revoke_key(key: str, *, user: str | None = None) -> Call[values.Key]:
    """Revoke a key. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("keys", ("key", key)), as_model(values.Key), query={"user": user})
