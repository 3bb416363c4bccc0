"""The commands that copy a whole installation: backup, restore, migrate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from memos.cli.shared import (
    Actor,
    AsJson,
    DataDir,
    ReadMode,
    check_alone,
    console,
    errors,
    interruptible,
    opened,
    progress_bar,
    say,
    show,
    through_server,
)
from memos.core.settings import Settings
from memos.core.text.rendering import visible
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Difference
from memos.errors import InvalidInput
from memos.reader.importers.formats import Format
from memos.reader.importers.memoryos import FORMAT as MEMORYOS

# The commands that keep an installation whole: verify, reindex, reembed; and import, which fills one.

_SHOWN_BAD = 50

upkeep_app = typer.Typer(rich_markup_mode=None)


@upkeep_app.command()
def verify(
    cube: Annotated[list[str] | None, typer.Option("--cube", "-c", help="Only this cube; may be repeated")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Bring the indexes back to the ledger")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare the ledger with itself and the indexes; exit 1 when something differs."""
    with opened(data_dir) as memos:
        report = memos.maintenance.verify(cubes=cube, actor=actor, repair=repair)

    def human() -> None:
        state = "clean" if report.clean else f"{len(report.differences)} differences"
        console.print(f"{report.items} items, {state}, {report.repaired} repaired")
        for difference in report.differences[:50]:
            line = f"{difference.store} {difference.kind} {difference.subject}: {difference.detail}"
            console.print(line, markup=False, highlight=False)

    show(report, as_json, human)
    if not report.clean:
        raise typer.Exit(1)


@upkeep_app.command()
def reindex(
    cube: Annotated[list[str] | None, typer.Option("--cube", "-c", help="Only this cube; may be repeated")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Build the indexes anew from the ledger."""
    with opened(data_dir) as memos, progress_bar("items", as_json) as on_progress:
        count = memos.maintenance.reindex(cubes=cube, actor=actor, on_progress=on_progress)
    show({"items": count}, as_json, lambda: console.print(f"reindexed {count} items"))


@upkeep_app.command()
def reembed(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Give every cube vectors of the embedder now configured (MEMOS_EMBED__MODEL)."""
    with opened(data_dir) as memos, progress_bar("items", as_json) as on_progress:
        count = memos.maintenance.reembed(actor=actor, on_progress=on_progress)
    show({"items": count}, as_json, lambda: console.print(f"embedded {count} items"))


@upkeep_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="JSON or JSONL chat export; with --format memoryos a folder")],
    cube: Annotated[
        str | None,
        typer.Option("--cube", "-c", help="Cube to use (default: default; of a memoryos folder, one for each user)"),
    ] = None,
    conversation: Annotated[str | None, typer.Option(help="Conversation of messages that name none")] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help=f"{', '.join(Format)}, {MEMORYOS}; without it the file's first entry says"),
    ] = None,
    on_bad: Annotated[str, typer.Option("--on-bad", help="stop or skip, at a record that cannot be read")] = "stop",
    mode: ReadMode = "rough",
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read a chat export into a cube; running it again adds only what is missing."""
    from memos.compat.importing import import_memoryos  # noqa: PLC0415
    from memos.kernel.importing import import_export  # noqa: PLC0415

    if on_bad not in ("stop", "skip"):
        raise InvalidInput("--on-bad", f"{on_bad!r} is unknown; use stop or skip")
    if format_ == MEMORYOS and mode != "rough":
        raise InvalidInput("--mode", "is for chat exports; read a MemoryOS folder finely with `memos read-finely`")
    if format_ is not None and format_ not in {*Format, MEMORYOS}:
        raise InvalidInput("--format", f"{format_!r} is unknown; use one of {', '.join(Format)}, {MEMORYOS}")
    bad: Literal["stop", "skip"] = "skip" if on_bad == "skip" else "stop"
    with opened(data_dir) as memos, progress_bar("messages", as_json) as on_progress:
        if format_ == MEMORYOS:
            summary = import_memoryos(
                memos, file, cube=cube, actor=actor, conversation=conversation, on_bad=bad, on_progress=on_progress
            )
        else:
            summary = import_export(
                memos,
                file,
                cube=DEFAULT_CUBE if cube is None else cube,
                actor=actor,
                conversation=conversation,
                format=Format(format_) if format_ else None,
                on_bad=bad,
                on_progress=on_progress,
                mode=mode,
            )

    def human() -> None:
        counts = [f"{summary.added} added", f"{summary.known} known", f"{len(summary.bad)} bad"]
        counts += [f"{summary.left_out} left out"] if summary.left_out else []
        counts += [f"{summary.out_of_order} out of order"] if summary.out_of_order else []
        told = f"{', '.join(counts)} ({summary.format}, {summary.conversations} conversations)"
        console.print(told, highlight=False, soft_wrap=True)
        if summary.masked:
            console.print(f"{summary.masked} secrets or personal data were masked, not stored", highlight=False)
        if summary.note:
            console.print(summary.note, markup=False, highlight=False, soft_wrap=True)
        for record in summary.bad[:_SHOWN_BAD]:
            line = visible(f"{record.place} {record.problem}")
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if len(summary.bad) > _SHOWN_BAD:
            console.print(
                f"and {len(summary.bad) - _SHOWN_BAD} more bad records; --json lists them all", highlight=False
            )

    show(summary, as_json, human)
    if summary.bad and not summary.added and not summary.known:
        raise typer.Exit(InvalidInput.exit_code)


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
                made = memos.maintenance.backup(folder, on_progress=on_progress)
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
            memos.maintenance.forget_backup(forget)
        found = memos.maintenance.backups()

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
        interruptible("the source is as it was"),
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
