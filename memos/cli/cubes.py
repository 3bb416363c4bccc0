"""The commands of `memos cubes` that carry a cube in a file: dump, inspect, load."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from memos.cli.shared import (
    Actor,
    AsJson,
    DataDir,
    cell,
    console,
    errors,
    interruptible,
    opened,
    progress_bar,
    say,
    show,
    sure,
)
from memos.core.settings import Settings
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput
from memos.kernel.transfer import DumpInfo
from memos.memcube.dump.container import MAGIC, is_sealed
from memos.memcube.dump.load import Loaded

travel_app = typer.Typer(rich_markup_mode=None)

_SHOWN = 50

Dump = Annotated[Path, typer.Argument(help="File of a dump")]


@travel_app.command()
def dump(  # noqa: PLR0913, PLR0917 - one parameter an option
    cube: Annotated[str, typer.Argument(help="Id of the cube")],
    file: Annotated[Path, typer.Argument(help="New file; it will hold all of the cube's memory text")],
    seal: Annotated[
        bool, typer.Option("--seal", help="Seal it with a passphrase: MEMOS_CUBE_PASSPHRASE, or asked for")
    ] = False,
    vectors: Annotated[
        bool, typer.Option("--vectors/--no-vectors", help="Also write vectors, so that a load need not compute them")
    ] = True,
    kv: Annotated[
        bool, typer.Option("--kv/--no-kv", help="Also write the KV that models in this process keep of its prompts")
    ] = False,
    adapters: Annotated[
        bool, typer.Option("--adapters/--no-adapters", help="Also write the adapters that answer for it")
    ] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a cube as it is now, with its history, into one file."""
    passphrase = _passphrase(twice=True) if seal else None
    with interruptible("there is no file yet"), opened(data_dir) as memos, progress_bar("rows", as_json) as on_progress:
        made = memos.transfer.dump(
            cube,
            file,
            passphrase=passphrase,
            vectors=vectors,
            kv=kv,
            adapters=adapters,
            actor=actor,
            on_progress=on_progress,
        )
    show(made, as_json, lambda: say(f"dumped {_told(made)} to {file}"))


@travel_app.command()
def inspect(file: Dump, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Read a whole dump, see that it is undamaged, and say what it is of; load nothing."""
    passphrase = _passphrase_for(file)
    with opened(data_dir) as memos:
        found = memos.transfer.inspect(file, passphrase=passphrase, actor=actor)

    def human() -> None:
        say(f"cube {found.cube}: {_told(found)}, made {found.created_at:%F %T} UTC by hippocube {found.program}")
        fits = "the one here" if found.fits else "another one than here: a load embeds anew"
        say(f"embedder {found.embedder}, {fits}; {'sealed' if found.sealed else 'not sealed'}, {found.bytes:,} bytes")
        for name in found.left_out:
            say(f"not loaded by this version: {name}")

    show(found, as_json, human)


@travel_app.command()
def load(  # noqa: PLR0913, PLR0917 - one parameter an option
    file: Dump,
    as_: Annotated[str | None, typer.Option("--as", help="Id to load it under (default: its own)")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Load into the cube of that id, which is there")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Trust what it says as what was said here")] = False,
    restore_erased: Annotated[
        bool, typer.Option("--restore-erased", help="Also bring back what was erased here since")
    ] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Load a dump as a new cube of the actor's, or into one that is there; all of it or nothing."""
    passphrase = _passphrase_for(file)
    with (
        interruptible("nothing was loaded, or all of it"),
        opened(data_dir) as memos,
        progress_bar("rows", as_json) as on_progress,
    ):
        done = memos.transfer.load(
            file,
            cube=as_,
            merge=merge,
            trust=trust,
            restore_erased=restore_erased,
            passphrase=passphrase,
            actor=actor,
            on_progress=on_progress,
        )
    show(done, as_json, lambda: _say_loaded(done))


def _say_loaded(done: Loaded) -> None:
    how = "merged into" if done.merged else "loaded as"
    say(f"{how} {done.cube}: {done.items} items, {done.versions} versions, {done.files} files")
    if done.skipped:
        say(f"{done.skipped} were here already")
    if done.erased:
        say(f"{done.erased} were erased here and stay so; --restore-erased brings them back")
    if done.unsourced:
        say(f"{done.unsourced} are untrusted and said to come from messages that are here already: left out")
    if done.differing:
        say(f"{len(done.differing)} are here at another version and stay as they are:")
    for item in done.differing[:_SHOWN]:
        say(f"  {item}")
    for name in done.left_out:
        say(f"not loaded by this version: {name}")
    if done.kv_blocks:
        say(f"{done.kv_blocks} blocks of activation memory")
    if done.kv_left_out:
        say(f"blocks of activation memory were left out: {done.kv_left_out}")
    if done.adapters:
        say(f"{done.adapters} adapters passed their examination: memos adapters allow, then activate, lets one answer")
    if done.adapters_left_out:
        say(f"adapters were left out: {done.adapters_left_out}")
    if not done.trusted:
        say("it counts as untrusted; --trust would have changed that")


def _told(made: DumpInfo) -> str:
    counts = made.counts
    kept = f", {made.kv_blocks} blocks of KV" if made.kv_blocks else ""
    kept += f", {made.adapters} adapters" if made.adapters else ""
    return (
        f"{counts['items']} items, {counts['versions']} versions, {counts['files']} files, {made.vectors} vectors{kept}"
    )


def _passphrase_for(file: Path) -> str | None:
    """Ask for a passphrase when the file is sealed."""
    try:
        with file.open("rb") as given:
            sealed = is_sealed(given.read(len(MAGIC)))
    except OSError:
        return None  # opening it says why
    return _passphrase(twice=False) if sealed else None


def _passphrase(*, twice: bool) -> str:
    """Return the passphrase of the settings, else ask; never an argument, which every user of the machine can see."""
    known = Settings().cube_passphrase
    if known is not None:
        return known.get_secret_value()
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        if not line:
            raise InvalidInput("passphrase", "is needed and nobody can be asked; set MEMOS_CUBE_PASSPHRASE")
        return line.rstrip("\r\n")
    given = getpass.getpass("Passphrase: ", stream=sys.stderr)
    if twice and getpass.getpass("Once more: ", stream=sys.stderr) != given:
        errors.print("They differ; nothing was written.")
        raise typer.Exit(2)
    return given


# The commands about cubes; dump and load are in `cli_travel`.

cubes_app = typer.Typer(help="Make, list, drop, dump and load cubes.", no_args_is_help=True, rich_markup_mode=None)
cubes_app.add_typer(travel_app)


@cubes_app.command("list")
def cubes_list(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the cubes."""
    with opened(data_dir) as memos:
        found = memos.cubes.list(actor=actor)

    def human() -> None:
        table = Table("cube", "items", "owner", "time zone", "embedder", "description")
        for cube in found:
            row = (cube.id, str(cube.items), cube.owner, cube.time_zone, cube.fingerprint.name, cube.description)
            table.add_row(*map(cell, row))
        console.print(table)

    show(found, as_json, human)


@cubes_app.command("create")
def cubes_create(
    cube: Annotated[str, typer.Argument(help="Id of the new cube")],
    description: Annotated[str, typer.Option(help="What it is for")] = "",
    time_zone: Annotated[str | None, typer.Option(help="Zone of times without an offset")] = None,
    redact_pii: Annotated[
        bool, typer.Option("--redact-pii", help="Mask e-mail addresses, phone numbers and so on")
    ] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an empty cube."""
    with opened(data_dir) as memos:
        made = memos.cubes.create(
            cube, actor=actor, description=description, time_zone=time_zone, redact_pii=redact_pii
        )
    show(made, as_json, lambda: console.print(made.id, highlight=False, markup=False))


@cubes_app.command("change")
def cubes_change(
    cube: Annotated[str, typer.Argument(help="Id of the cube")],
    description: Annotated[str | None, typer.Option(help="What it is for")] = None,
    redact_pii: Annotated[
        bool | None, typer.Option("--redact-pii/--keep-pii", help="Mask personal data in what comes in from now on")
    ] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Change what a cube is described as, or whether personal data is masked in it."""
    with opened(data_dir) as memos:
        changed = memos.cubes.change(cube, actor=actor, description=description, redact_pii=redact_pii)
    show(changed, as_json, lambda: console.print(changed.id, highlight=False, markup=False))


@cubes_app.command("drop")
def cubes_drop(
    cube: Annotated[str, typer.Argument(help="Id of the cube")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Erase a cube with everything in it."""
    sure(f"Erase cube {cube!r} and everything in it for good?", yes=yes)
    with opened(data_dir) as memos:
        receipt = memos.cubes.drop(cube, actor=actor)
    show({"cube": cube, "receipt": receipt}, as_json, lambda: console.print(f"dropped {cell(cube)}"))
