"""The commands that copy a whole installation: backup, restore, migrate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from memos.cli.shared import (
    AsJson,
    DataDir,
    check_alone,
    errors,
    interruptible,
    opened,
    progress_bar,
    say,
    show,
    through_server,
)
from memos.core.settings import Settings
from memos.core.types import Difference

moving_app = typer.Typer(rich_markup_mode=None)

_SHOWN = 50


@moving_app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="New folder for the backup; it will hold memory text")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a backup of one moment; check it by restoring it elsewhere."""
    from memos.kernel.relocation import backup as back_up  # noqa: PLC0415

    here = _here(data_dir)
    with interruptible("there is no backup yet"), progress_bar("rows", as_json) as on_progress:
        memos = through_server(None, here)
        if memos is None:
            made = back_up(here, folder, on_progress=on_progress)
        else:
            with memos:
                made = memos.backup(folder, on_progress=on_progress)
    told = {"folder": str(folder.resolve()), "backup": made.id, "created_at": made.created_at, "rows": made.rows}
    show(told, as_json, lambda: say(f"backed up {made.rows} rows to {folder}"))


@moving_app.command()
def backups(
    forget: Annotated[
        Path | None, typer.Option("--forget", help="Leave a backup whose folder is gone out of later receipts")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the backups that were made, or forget one that is no more."""
    with opened(data_dir) as memos:
        if forget is not None:
            memos.forget_backup(forget)
        found = memos.backups()

    def human() -> None:
        for made in found:
            state = "" if made.finished_at else ", cut off"
            waiting = f", {made.untold} erasures not told" if made.untold else ""
            say(f"{made.created_at:%F %T} {made.folder}{state}{waiting}")

    show(found, as_json, human)


@moving_app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="Folder of the backup")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the memories that are there, for good")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup back; what was erased since it was made stays erased."""
    from memos.kernel.relocation import restore as put_back  # noqa: PLC0415

    here = _here(data_dir)
    check_alone("restore", here)
    with (
        interruptible("nothing was restored, or the indexes are not whole yet"),
        progress_bar("rows, then index", as_json) as on_progress,
    ):
        done = put_back(folder, here, replace=replace, on_rows=on_progress, on_items=on_progress)

    def human() -> None:
        say(f"restored {done.items} items of {done.created_at:%F %T}, left out {done.erased_again} erased since")
        _say_state(done.indexed, done.differences)

    show(done, as_json, human)
    if done.differences:
        raise typer.Exit(1)


@moving_app.command()
def migrate(
    source: Annotated[str, typer.Option("--from", help="Folder of an installation, or a TOML file of settings")],
    target: Annotated[str, typer.Option("--to", help="New folder, or a TOML file of settings")],
    as_json: AsJson = False,
) -> None:
    """Copy an installation with its whole history to servers, to a folder, or back; the source stays as it is."""
    from memos.kernel.relocation import migrate as move  # noqa: PLC0415
    from memos.kernel.relocation import settings_of  # noqa: PLC0415

    there, here = settings_of("--from", source), settings_of("--to", target)
    check_alone("migrate", there)
    check_alone("migrate", here)
    with (
        interruptible("what was copied is kept"),
        progress_bar("rows, then index", as_json) as on_progress,
    ):
        done = move(there, here, on_rows=on_progress, on_items=on_progress)

    def human() -> None:
        before = f", {done.known} of them before" if done.known else ""
        say(f"copied {done.rows} rows{before}; counts and digests of every table are equal")
        _say_state(done.indexed, done.differences)

    show(done, as_json, human)
    if done.differences:
        raise typer.Exit(1)


def _here(data_dir: Path | None) -> Settings:
    settings = Settings()
    return settings if data_dir is None else settings.model_copy(update={"home": data_dir})


def _say_state(indexed: bool, differences: Sequence[Difference]) -> None:
    if not indexed:
        errors.print("The cubes' embedder is another one: run `memos reembed`, or set MEMOS_EMBED__MODEL back.")
    for difference in differences[:_SHOWN]:
        say(f"{difference.store} {difference.kind} {difference.subject}: {difference.detail}")
