"""Commands on users, agents and groups, and their API keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import Actor, Output, command, table
from memos.core.audit import AuditEntry
from memos.core.identities import Identity, Key
from memos.core.types import LOCAL_OWNER

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS

_LONGEST_DAYS = 36_500

Id = Annotated[str, typer.Argument(help="User, agent or group")]
GroupId = Annotated[str, typer.Argument(help="Group")]
Member = Annotated[str, typer.Argument(help="User or agent")]


@command
def create_user(
    memos: MemOS,
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id; a user or agent gets a cube of that id")],
    kind: Annotated[str, typer.Option(help="user, agent or group")] = "user",
    name: Annotated[str, typer.Option(help="Name for people")] = "",
    acts_for: Annotated[str | None, typer.Option(help="User an agent acts for")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything")] = False,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    made = memos.users.create(id_, kind=kind, name=name, acts_for=acts_for, admin=admin, actor=actor)
    return Output(made, f"created {_told(made)}")


@command
def list_users(
    memos: MemOS,
    kind: Annotated[str | None, typer.Option(help="Only this kind: user, agent or group")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number")] = 100,
    after: Annotated[str, typer.Option(help="Continue after this id")] = "",
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.users.list(kind=kind, limit=limit, after=after, actor=actor)
    empty = "no users: this installation has a single owner, and any name has all rights"
    return Output(found, map(_told, found), empty)


@command
def show_user(memos: MemOS, id_: Id, actor: Actor = LOCAL_OWNER) -> Output:
    return Output(memos.users.get(id_, actor=actor), _told)


@command
def enable_user(memos: MemOS, id_: Id, actor: Actor = LOCAL_OWNER) -> Output:
    return Output(memos.users.enable(id_, actor=actor), _told)


@command
def disable_user(memos: MemOS, id_: Id, actor: Actor = LOCAL_OWNER) -> Output:
    return Output(memos.users.enable(id_, enabled=False, actor=actor), _told)


@command
def offboard(
    memos: MemOS,
    id_: Id,
    transfer_to: Annotated[
        str | None, typer.Option(help="User or agent who owns their cubes from now on; default: the cubes stay theirs")
    ] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    done = memos.users.offboard(id_, transfer_to=transfer_to, actor=actor)
    lines = [
        f"{', '.join((done.identity, *done.agents))}: disabled, {done.keys} keys revoked, {done.sessions} sessions and "
        f"{done.shares} shares ended",
        *([f"left {', '.join(done.groups)}"] if done.groups else []),
        *(f"{cube} belongs to {transfer_to}" for cube in done.transferred),
        *(f"{cube} is kept: `memos cube transfer` or `memos cube drop`" for cube in done.kept),
    ]
    return Output(done, lines)


@command
def audit(
    memos: MemOS,
    cube: Annotated[list[str] | None, typer.Option(help="Only events and reads of this cube; can be repeated")] = None,
    by: Annotated[str | None, typer.Option(help="Only what this user or agent did")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind, such as read; can be repeated")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number")] = 100,
    before: Annotated[
        str | None, typer.Option(help="Continue behind the entry with this id, which `--json` tells")
    ] = None,
    reads: Annotated[
        bool | None, typer.Option("--record-reads/--no-record-reads", help="Record reads from now on, or no longer")
    ] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    if reads is not None:
        memos.audit.record_reads(enabled=reads, actor=actor)
        return Output({"record_reads": reads}, f"reads are {'' if reads else 'no longer '}recorded")
    found = memos.audit.list(cubes=cube or None, by=by, kinds=kind or (), before=before, limit=limit, actor=actor)
    rows = ((f"{each.at:%Y-%m-%d %H:%M:%S}", each.actor, each.kind, each.cube or "", _about(each)) for each in found)
    return Output(found, table("at", "who", "what", "cube", "about", rows=rows, whole="at"), "nothing yet")


def _about(entry: AuditEntry) -> str:
    """Return the memory, key or group that an entry is about, or with whom a cube was shared."""
    body = entry.body if isinstance(entry.body, dict) else {}
    role = f" ({body['role']})" if "role" in body else ""
    return entry.subject or f"{body.get('identity', '')}{role}"


@command
def join_group(memos: MemOS, group: GroupId, member: Member, actor: Actor = LOCAL_OWNER) -> Output:
    memos.users.join(group, member, actor=actor)
    return Output({"group": group, "member": member}, f"{member} is now in {group}")


@command
def leave_group(memos: MemOS, group: GroupId, member: Member, actor: Actor = LOCAL_OWNER) -> Output:
    memos.users.leave(group, member, actor=actor)
    return Output({"group": group, "member": member}, f"Removed {member} from {group}")


@command
def list_members(memos: MemOS, group: GroupId, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.users.members(group, actor=actor)
    return Output(found, found, "no members")


@command
def create_key(
    memos: MemOS,
    identity: Annotated[str, typer.Argument(help="User or agent the key is for")],
    name: Annotated[str, typer.Argument(help="Name of the key, such as where it is used")],
    right: Annotated[
        list[str] | None, typer.Option(help="Rights of the key: read, write, own; can be repeated")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, max=_LONGEST_DAYS, help="Days until it expires")] = None,
    cube: Annotated[
        list[str] | None, typer.Option(help="The only cube it reaches; can be repeated; default: all of its owner's")
    ] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    rights = tuple(right) if right else ("read", "write", "own")
    made = memos.keys.create(identity, name, rights=rights, expires_at=expires_at, cubes=cube or None, actor=actor)
    told = f"Key {made.key.name!r} of {made.key.identity}, id {made.key.id}, shown only once: {made.secret}"
    return Output(made, told)


@command
def rotate_key(
    memos: MemOS,
    key: Annotated[str, typer.Argument(help="Id of the key to replace")],
    hours: Annotated[float, typer.Option(help="Hours that the replaced key goes on working")] = 24.0,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    made = memos.keys.rotate(key, overlap_s=hours * 3_600, actor=actor)
    told = f"Key {made.key.name!r} of {made.key.identity}, id {made.key.id}, shown only once: {made.secret}"
    return Output(made, [told, f"{key} works for another {hours:g} hours"])


@command
def list_keys(
    memos: MemOS,
    identity: Annotated[str | None, typer.Argument(help="User or agent; default: everyone")] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.keys.list(identity, actor=actor)
    rows = (
        (
            key.id,
            key.identity,
            key.name,
            " ".join(key.rights),
            "all" if key.cubes is None else " ".join(key.cubes),
            _state(key),
            "never" if key.last_used_at is None else key.last_used_at.isoformat(timespec="minutes"),
        )
        for key in found
    )
    return Output(found, table("id", "of", "name", "rights", "cubes", "state", "last used", rows=rows, whole="id"))


@command
def revoke_key(
    memos: MemOS, key: Annotated[str, typer.Argument(help="Id of the key")], actor: Actor = LOCAL_OWNER
) -> Output:
    found = memos.keys.revoke(key, actor=actor)
    return Output(found, f"{found.id} is revoked")


def _told(identity: Identity) -> str:
    marks = [str(identity.kind), *(["admin"] if identity.admin else []), *(["disabled"] if identity.disabled else [])]
    marks += [f"acts for {identity.acts_for}"] if identity.acts_for else []
    named = f"  {identity.name}" if identity.name != identity.id else ""
    return f"{identity.id}  {', '.join(marks)}{named}"


def _state(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "open"
    ended = key.expires_at <= datetime.now(UTC)
    return f"{'ended' if ended else 'until'} {key.expires_at:%Y-%m-%d}"
