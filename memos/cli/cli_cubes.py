"""The commands about cubes; dump and load are in `cli_travel`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from memos.cli.cubes import travel_app
from memos.cli.shared import Actor, AsJson, DataDir, cell, console, opened, show, sure
from memos.core.types import LOCAL_OWNER

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
