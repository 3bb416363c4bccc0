"""The commands about who may do what: users, agents and groups, their keys, and roles on cubes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.table import Column, Table

from memos.cli.shared import Actor, AsJson, DataDir, cell, console, opened, say, show
from memos.core.identities import Identity, Key
from memos.core.types import LOCAL_OWNER

users_app = typer.Typer(
    help="Users, agents and groups of the installation.", no_args_is_help=True, rich_markup_mode=None
)
keys_app = typer.Typer(help="Keys for the server.", no_args_is_help=True, rich_markup_mode=None)
share_app = typer.Typer(help="Say who may do what with a cube.", no_args_is_help=True, rich_markup_mode=None)

_LONGEST_DAYS = 36_500

Id = Annotated[str, typer.Argument(help="User, agent or group")]
GroupId = Annotated[str, typer.Argument(help="Group")]
Member = Annotated[str, typer.Argument(help="User or agent")]
CubeId = Annotated[str, typer.Argument(help="Cube")]
Grantee = Annotated[str, typer.Argument(help="User, agent or group; '*' is everyone")]


@users_app.command("create")
def create_user(  # noqa: PLR0913, PLR0917 - one parameter an option
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id; a user or agent gets a cube of that id")],
    kind: Annotated[str, typer.Option(help="user, agent or group")] = "user",
    name: Annotated[str, typer.Option(help="Name for people")] = "",
    acts_for: Annotated[str | None, typer.Option(help="User an agent acts for")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a user, agent or group; the first one closes the installation to names that are none."""
    with opened(data_dir) as memos:
        made = memos.users.create(id_, kind=kind, name=name, acts_for=acts_for, admin=admin, actor=actor)
    show(made, as_json, lambda: say(f"created {_told(made)}"))


@users_app.command("list")
def list_users(
    kind: Annotated[str | None, typer.Option(help="Only users, agents or groups: user, agent, group")] = None,
    limit: Annotated[int, typer.Option(help="At most so many")] = 100,
    after: Annotated[str, typer.Option(help="Go on behind this id")] = "",
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List users, agents and groups by id."""
    with opened(data_dir) as memos:
        found = memos.users.list(kind=kind, limit=limit, after=after, actor=actor)

    def human() -> None:
        for identity in found:
            say(_told(identity))
        if not found:
            say("no users: the installation is one person's, and any name may do everything")

    show(found, as_json, human)


@users_app.command("show")
def show_user(id_: Id, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show a user, agent or group."""
    with opened(data_dir) as memos:
        found = memos.users.get(id_, actor=actor)
    show(found, as_json, lambda: say(_told(found)))


@users_app.command("enable")
def enable_user(id_: Id, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Let a user, agent or group do what its roles allow again."""
    with opened(data_dir) as memos:
        found = memos.users.enable(id_, actor=actor)
    show(found, as_json, lambda: say(_told(found)))


@users_app.command("disable")
def disable_user(id_: Id, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Let a user, agent or group do nothing; nothing of theirs is removed."""
    with opened(data_dir) as memos:
        found = memos.users.enable(id_, enabled=False, actor=actor)
    show(found, as_json, lambda: say(_told(found)))


@users_app.command("join")
def join_group(
    group: GroupId, member: Member, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Make a user or agent a member of a group."""
    with opened(data_dir) as memos:
        memos.users.join(group, member, actor=actor)
    show({"group": group, "member": member}, as_json, lambda: say(f"{member} is in {group}"))


@users_app.command("leave")
def leave_group(
    group: GroupId, member: Member, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Take a member out of a group."""
    with opened(data_dir) as memos:
        memos.users.leave(group, member, actor=actor)
    show({"group": group, "member": member}, as_json, lambda: say(f"{member} is not in {group}"))


@users_app.command("members")
def list_members(group: GroupId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List a group's members by id."""
    with opened(data_dir) as memos:
        found = memos.users.members(group, actor=actor)
    show(found, as_json, lambda: say("\n".join(found) or "no members"))


@keys_app.command("create")
def create_key(
    identity: Annotated[str, typer.Argument(help="User or agent it is for")],
    name: Annotated[str, typer.Argument(help="Its name, such as where it is used")],
    right: Annotated[
        list[str] | None, typer.Option(help="What it may do at the most: read, write, own; may be repeated")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, max=_LONGEST_DAYS, help="Days until it ends")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its secret, this once."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with opened(data_dir) as memos:
        rights = tuple(right) if right else ("read", "write", "own")
        made = memos.keys.create(identity, name, rights=rights, expires_at=expires_at, actor=actor)

    def human() -> None:
        say(f"Key {made.key.name!r} of {made.key.identity}, id {made.key.id}, shown this once: {made.secret}")

    show(made, as_json, human)


@keys_app.command("list")
def list_keys(
    identity: Annotated[str | None, typer.Argument(help="Whose; default: all there are")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List keys, the oldest first, without their secrets."""
    with opened(data_dir) as memos:
        found = memos.keys.list(identity, actor=actor)

    def human() -> None:
        table = Table(Column("id", no_wrap=True), "of", "name", "rights", Column("state", overflow="fold"), "last used")
        for key in found:
            used = "never" if key.last_used_at is None else key.last_used_at.isoformat(timespec="minutes")
            table.add_row(*map(cell, (key.id, key.identity, key.name, " ".join(key.rights), _state(key), used)))
        console.print(table)

    show(found, as_json, human)


@keys_app.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(help="Id of the key")],
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a key open nothing any more."""
    with opened(data_dir) as memos:
        found = memos.keys.revoke(key, actor=actor)
    show(found, as_json, lambda: say(f"{found.id} is revoked"))


@share_app.command("grant")
def grant(
    cube: CubeId,
    identity: Grantee,
    role: Annotated[str, typer.Option(help="reader, editor or owner")] = "reader",
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Give somebody a role on a cube, in place of the one given before."""
    with opened(data_dir) as memos:
        given = memos.sharing.grant(cube, identity, role, actor=actor)
    show(given, as_json, lambda: say(f"{given.identity} is {given.role} of {given.cube}"))


@share_app.command("revoke")
def revoke(
    cube: CubeId, identity: Grantee, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Take a role back."""
    with opened(data_dir) as memos:
        taken = memos.sharing.revoke(cube, identity, actor=actor)
    told = f"{identity} has no role on {cube} any more" if taken else f"{identity} was given no role on {cube}"
    show({"cube": cube, "identity": identity, "revoked": taken}, as_json, lambda: say(told))


@share_app.command("list")
def list_grants(cube: CubeId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List who was given which role on a cube."""
    with opened(data_dir) as memos:
        found = memos.sharing.grants(cube, actor=actor)

    def human() -> None:
        for given in found:
            say(f"{given.identity}  {given.role}  since {given.created_at:%Y-%m-%d}, by {given.created_by}")
        if not found:
            say("shared with nobody")

    show(found, as_json, human)


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
