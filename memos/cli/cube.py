"""Commands on cubes: the cubes themselves, cube files, who may use them, and rules of retention."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import (
    Actor,
    AsJson,
    CubeName,
    Output,
    Yes,
    command,
    complain,
    progress_bar,
    settings_of,
    sure,
    table,
)
from memos.core.retention import RetentionAction, RetentionEffect, RetentionRule
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS
    from memos.kernel.transfer import DumpInfo
    from memos.memcube.dump.load import Loaded

_SHOWN = 50

CubeId = Annotated[str, typer.Argument(help="Id of the cube")]
CubeFile = Annotated[Path, typer.Argument(help="Cube file written by `memos export`")]
Grantee = Annotated[str, typer.Argument(help="User, agent or group; '*' is everyone")]


@command
def list_(memos: MemOS, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.cubes.list(actor=actor)
    rows = (
        (cube.id, cube.items, cube.owner, cube.time_zone, cube.fingerprint.name, cube.description) for cube in found
    )
    return Output(found, table("cube", "items", "owner", "time zone", "embedder", "description", rows=rows))


@command
def create(
    memos: MemOS,
    cube: CubeId,
    description: Annotated[str, typer.Option(help="Description of the cube")] = "",
    time_zone: Annotated[str | None, typer.Option(help="Time zone of times without an offset")] = None,
    redact_pii: Annotated[
        bool, typer.Option("--redact-pii", help="Mask personal data such as e-mail addresses and phone numbers")
    ] = False,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    made = memos.cubes.create(cube, actor=actor, description=description, time_zone=time_zone, redact_pii=redact_pii)
    return Output(made, made.id)


@command
def edit(
    memos: MemOS,
    cube: CubeId,
    description: Annotated[str | None, typer.Option(help="Description of the cube")] = None,
    redact_pii: Annotated[
        bool | None, typer.Option("--redact-pii/--keep-pii", help="Mask personal data in what is added from now on")
    ] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    changed = memos.cubes.change(cube, actor=actor, description=description, redact_pii=redact_pii)
    return Output(changed, changed.id)


@command
def drop(memos: MemOS, cube: CubeId, yes: Yes = False, actor: Actor = LOCAL_OWNER) -> Output:
    sure(f"Permanently erase cube {cube!r} and everything in it?", yes=yes)
    receipt = memos.cubes.drop(cube, actor=actor)
    return Output({"cube": cube, "receipt": receipt}, f"dropped {cube}")


@command(safe="there is no file yet")
def export(
    memos: MemOS,
    cube: CubeId,
    file: Annotated[Path, typer.Argument(help="New file; it will contain all memory text of the cube")],
    seal: Annotated[
        bool, typer.Option("--seal", help="Encrypt the file with a passphrase, from MEMOS_CUBE_PASSPHRASE or a prompt")
    ] = False,
    vectors: Annotated[
        bool, typer.Option("--vectors/--no-vectors", help="Include vectors, so that a load need not compute them")
    ] = True,
    kv: Annotated[
        bool, typer.Option("--kv/--no-kv", help="Include the KV cache that models in this process keep for its prompts")
    ] = False,
    adapters: Annotated[bool, typer.Option("--adapters/--no-adapters", help="Include its active adapters")] = False,
    actor: Actor = LOCAL_OWNER,
    as_json: AsJson = False,
) -> Output:
    passphrase = _passphrase(twice=True) if seal else None
    with progress_bar("rows", as_json) as on_progress:
        parts = {"vectors": vectors, "kv": kv, "adapters": adapters}
        made = memos.transfer.dump(cube, file, passphrase=passphrase, **parts, actor=actor, on_progress=on_progress)
    return Output(made, f"dumped {_contents(made)} to {file}")


@command
def inspect(memos: MemOS, file: CubeFile, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.transfer.inspect(file, passphrase=_passphrase_for(file), actor=actor)
    fits = "the one here" if found.fits else "not the configured one: a load embeds again"
    lines = [
        f"cube {found.cube}: {_contents(found)}, made {found.created_at:%F %T} UTC by hippocube {found.program}",
        f"embedder {found.embedder}, {fits}; {'sealed' if found.sealed else 'not sealed'}, {found.bytes:,} bytes",
        *(f"not supported by this version, not loaded: {name}" for name in found.left_out),
    ]
    return Output(found, lines)


@command(safe="either everything was loaded or nothing")
def load(
    memos: MemOS,
    file: CubeFile,
    as_: Annotated[str | None, typer.Option("--as", help="Id of the new cube (default: the id in the file)")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Load into the existing cube with that id")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Trust its memories like those added here")] = False,
    restore_erased: Annotated[
        bool, typer.Option("--restore-erased", help="Also restore memories that were erased here since")
    ] = False,
    actor: Actor = LOCAL_OWNER,
    as_json: AsJson = False,
) -> Output:
    passphrase = _passphrase_for(file)
    with progress_bar("rows", as_json) as on_progress:
        how = {"merge": merge, "trust": trust, "restore_erased": restore_erased}
        done = memos.transfer.load(file, cube=as_, **how, passphrase=passphrase, actor=actor, on_progress=on_progress)
    return Output(done, _loaded(done))


def _loaded(done: Loaded) -> Iterator[str]:
    how = "merged into" if done.merged else "loaded as"
    yield f"{how} {done.cube}: {done.items} items, {done.versions} versions, {done.files} files"
    if done.skipped:
        yield f"{done.skipped} existed already"
    if done.erased:
        yield f"{done.erased} were erased here and are left out; --restore-erased restores them"
    if done.unsourced:
        yield f"{done.unsourced} were left out: they are untrusted and name messages that exist here as their source"
    if done.differing:
        yield f"{len(done.differing)} exist here at another version and were not changed:"
    yield from (f"  {item}" for item in done.differing[:_SHOWN])
    yield from (f"not supported by this version, not loaded: {name}" for name in done.left_out)
    if done.kv_blocks:
        yield f"{done.kv_blocks} blocks of activation memory"
    if done.kv_left_out:
        yield f"blocks of activation memory were left out: {done.kv_left_out}"
    if done.adapters:
        how = "`memos model adapter allow`, then `activate`, lets one answer"
        yield f"{done.adapters} adapters passed their evaluation: {how}"
    if done.adapters_left_out:
        yield f"adapters were left out: {done.adapters_left_out}"
    if not done.trusted:
        yield "its memories count as untrusted; load with --trust to trust them"


def _contents(made: DumpInfo) -> str:
    counts = made.counts
    kept = f", {made.kv_blocks} blocks of KV" if made.kv_blocks else ""
    kept += f", {made.adapters} adapters" if made.adapters else ""
    return (
        f"{counts['items']} items, {counts['versions']} versions, {counts['files']} files, {made.vectors} vectors{kept}"
    )


def _passphrase_for(file: Path) -> str | None:
    from memos.memcube.dump.container import MAGIC, is_sealed  # noqa: PLC0415

    try:
        with file.open("rb") as given:
            sealed = is_sealed(given.read(len(MAGIC)))
    except OSError:
        return None  # opening it says why
    return _passphrase(twice=False) if sealed else None


def _passphrase(*, twice: bool) -> str:
    """Return the passphrase of the settings, else ask; never an argument, which every user of the machine can see."""
    known = settings_of(None).cube_passphrase
    if known is not None:
        return known.get_secret_value()
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        if not line:
            raise InvalidInput(
                "passphrase", "is required; set MEMOS_CUBE_PASSPHRASE, or run the command in a terminal to be asked"
            )
        return line.rstrip("\r\n")
    given = getpass.getpass("Passphrase: ", stream=sys.stderr)
    if twice and getpass.getpass("Once more: ", stream=sys.stderr) != given:
        complain("The passphrases differ; nothing was written.")
        raise typer.Exit(2)
    return given


@command
def share(
    memos: MemOS,
    cube: CubeId,
    identity: Grantee,
    role: Annotated[str, typer.Option(help="reader, editor or owner")] = "reader",
    actor: Actor = LOCAL_OWNER,
) -> Output:
    given = memos.sharing.grant(cube, identity, role, actor=actor)
    return Output(given, f"{given.identity} is {given.role} of {given.cube}")


@command
def unshare(memos: MemOS, cube: CubeId, identity: Grantee, actor: Actor = LOCAL_OWNER) -> Output:
    taken = memos.sharing.revoke(cube, identity, actor=actor)
    told = f"{identity} has no role on {cube} any more" if taken else f"{identity} was given no role on {cube}"
    return Output({"cube": cube, "identity": identity, "revoked": taken}, told)


@command
def shares(memos: MemOS, cube: CubeId, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.sharing.grants(cube, actor=actor)
    lines = (
        f"{given.identity}  {given.role}  since {given.created_at:%Y-%m-%d}, by {given.created_by}" for given in found
    )
    return Output(found, lines, "shared with nobody")


@command
def transfer(
    memos: MemOS,
    cube: CubeId,
    owner: Annotated[str, typer.Argument(help="User or agent who owns it from now on")],
    actor: Actor = LOCAL_OWNER,
) -> Output:
    memos.sharing.transfer(cube, owner, actor=actor)
    return Output({"cube": cube, "owner": owner}, f"{cube} belongs to {owner}")


_DONE = {
    RetentionAction.ARCHIVE: ("archive", "archived"),
    RetentionAction.DELETE: ("delete", "deleted"),
    RetentionAction.ERASE: ("erase", "erased"),
}
_LOSING = (RetentionAction.DELETE, RetentionAction.ERASE)


@command
def list_rules(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.retention.list(cube=cube, actor=actor)
    return Output(found, map(_rule, found), "no rules")


@command
def add_rule(
    memos: MemOS,
    action: Annotated[str, typer.Argument(help="archive, delete or erase")],
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only memories of this type; can be repeated")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only memories with this tag; can be repeated")] = None,
    status: Annotated[list[str] | None, typer.Option(help="Only memories with this status; can be repeated")] = None,
    age_days: Annotated[float, typer.Option(help="Only memories stored at least this many days ago")] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Confirm a rule that matches every memory")] = False,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    about = {"types": type_ or [], "tags": tag or [], "statuses": status or []}
    rule = memos.retention.add(action=action, cube=cube, actor=actor, **about, age_days=age_days, yes=yes)
    return Output(rule, _rule(rule))


@command
def remove_rule(
    memos: MemOS, rule: Annotated[str, typer.Argument(help="Rule id")], actor: Actor = LOCAL_OWNER
) -> Output:
    removed = memos.retention.remove(rule, actor=actor)
    return Output(removed, f"removed rule {removed.id}")


@command
def run_rules(
    memos: MemOS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation")] = False,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    effects = memos.retention.preview(cube=cube, actor=actor)
    if not dry_run:
        lost = [effect for effect in effects if effect.count and effect.rule.action in _LOSING]
        if lost:
            sure(f"{' and '.join(map(_loss, lost)).capitalize()} of cube {cube!r}?", yes=yes)
        effects = memos.retention.run(cube=cube, actor=actor)
    lines = (_effect(effect, done=not dry_run) for effect in effects)
    return Output(effects, lines, "no rules" if dry_run else "no memory was old enough")


def _rule(rule: RetentionRule) -> str:
    wanted = [
        f"{name} {' or '.join(words)}"
        for name, words in (("type", rule.types), ("tag", rule.tags), ("status", rule.statuses))
        if words
    ]
    age = f" at least {rule.age_days:g} days old" if rule.age_days else " of any age"
    return f"{rule.id}  {rule.action} {', '.join(wanted) or 'everything'},{age}"


def _loss(effect: RetentionEffect) -> str:
    more = f" and {effect.derived} made of them" if effect.derived else ""
    return f"{effect.rule.action} {effect.count} memories{more}"


def _effect(effect: RetentionEffect, *, done: bool) -> str:
    now, past = _DONE[effect.rule.action]
    more = f", and {effect.derived} made of them" if effect.derived else ""
    lines = [f"rule {effect.rule.id} {past if done else f'would {now}'} {effect.count} memories{more}"]
    lines += [f"    {item}" for item in effect.items]
    if effect.count > len(effect.items):
        lines.append(f"    and {effect.count - len(effect.items)} more")
    return "\n".join(lines)
