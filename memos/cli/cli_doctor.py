"""`memos doctor`: tells whether everything an installation needs is there."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from memos.cli.server import Config, settings_of
from memos.cli.shared import AsJson, DataDir, cell, console, show

doctor_app = typer.Typer(rich_markup_mode=None)


@doctor_app.command()
def doctor(
    config: Config = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is not as it should be")] = False,
) -> None:
    """Check what can be reached and is needed, and say what to do; exit 1 when something is bad."""
    from memos.cli.doctor import State, examine  # noqa: PLC0415 - loads the embedder's library

    settings = settings_of(config)
    settings = settings if data_dir is None else settings.model_copy(update={"home": data_dir})
    found = examine(settings)
    shown = [finding for finding in found if not quiet or finding.state in (State.BAD, State.DOUBTFUL)]

    def human() -> None:
        table = Table("", "what", "", show_edge=False)
        for finding in shown:
            table.add_row(finding.state, finding.what, cell(finding.told))
        console.print(table)

    show(shown, as_json, human)
    if any(finding.state is State.BAD for finding in found):
        raise typer.Exit(1)
