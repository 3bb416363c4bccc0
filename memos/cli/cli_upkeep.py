"""The commands that keep an installation whole: verify, reindex, reembed; and import, which fills one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from memos.cli.shared import Actor, AsJson, DataDir, ReadMode, console, opened, progress_bar, show
from memos.core.text.render import visible
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import InvalidInput
from memos.reader.importers.formats import Format
from memos.reader.importers.memoryos import FORMAT as MEMORYOS

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
        report = memos.verify(cubes=cube, actor=actor, repair=repair)

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
        count = memos.reindex(cubes=cube, actor=actor, on_progress=on_progress)
    show({"items": count}, as_json, lambda: console.print(f"reindexed {count} items"))


@upkeep_app.command()
def reembed(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Give every cube vectors of the embedder now configured (MEMOS_EMBED__MODEL)."""
    with opened(data_dir) as memos, progress_bar("items", as_json) as on_progress:
        count = memos.reembed(actor=actor, on_progress=on_progress)
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
                memos, file, cube=DEFAULT_CUBE if cube is None else cube, actor=actor, conversation=conversation,
                format=Format(format_) if format_ else None, on_bad=bad, on_progress=on_progress, mode=mode,
            )  # fmt: skip

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
