"""The commands about knowledge bases: make and drop them, add files and wait for them, list and delete files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from memos.cli.shared import Actor, AsJson, DataDir, cell, console, errors, opened, progress_bar, say, show, sure
from memos.core.text.render import visible
from memos.core.types import LOCAL_OWNER, FileState, StoredFile
from memos.errors import InvalidInput
from memos.kernel.memos import MemOS

kb_app = typer.Typer(
    help="Knowledge bases: documents to be searched, alone or with cubes (`memos search --cube`).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FAILED = 1

Base = Annotated[str, typer.Argument(help="Id of the knowledge base")]


@kb_app.command("create")
def create(
    kb: Base,
    description: Annotated[str, typer.Option(help="What it is about")] = "",
    redact_pii: Annotated[bool, typer.Option("--redact-pii", help="Mask personal data in its documents")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an empty knowledge base."""
    with opened(data_dir) as memos:
        made = memos.knowledge.create(kb, description, actor=actor, redact_pii=redact_pii)
    show(made, as_json, lambda: say(f"created {made.id}"))


@kb_app.command("list")
def list_(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the knowledge bases."""
    with opened(data_dir) as memos:
        found = memos.knowledge.list(actor=actor)

    def human() -> None:
        table = Table("knowledge base", "items", "files", "description")
        for base in found:
            table.add_row(*map(cell, (base.id, str(base.items), _counted(base.files), base.description)))
        console.print(table)

    show(found, as_json, human)


@kb_app.command("show")
def show_base(kb: Base, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show a knowledge base and how far its files are."""
    with opened(data_dir) as memos:
        base = memos.knowledge.get(kb, actor=actor)
    told = f"{base.id}: {base.items} items, files: {_counted(base.files)}"
    show(base, as_json, lambda: say(f"{told}  {base.description}".rstrip()))


@kb_app.command("drop")
def drop(
    kb: Base,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Erase a knowledge base with all its files, for good; prints the receipt."""
    sure(f"Erase knowledge base {kb!r} with all its files for good?", yes=yes)
    with opened(data_dir) as memos:
        receipt = memos.knowledge.drop(kb, actor=actor)
    show(receipt, as_json, lambda: say(f"receipt {receipt.id}: {receipt.state}, {len(receipt.item_ids)} items"))


@kb_app.command("add")
def add(
    kb: Base,
    files: Annotated[list[Path], typer.Argument(help="PDF, DOCX, PPTX, XLSX, EPUB, HTML, CSV, Markdown or text")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are read and found")] = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Add files; exit code 1 when one of them could not be taken or read, the others are added all the same."""
    with opened(data_dir) as memos:
        known = {file.id for file in memos.knowledge.files(kb, actor=actor)}
        kept: list[StoredFile] = []
        refused: list[dict[str, str]] = []
        for path in files:
            try:
                kept.append(memos.knowledge.add(kb, path, actor=actor))
            except InvalidInput as error:
                refused.append({"name": path.name, "error": error.reason})
        if wait:
            kept = _read(memos, kept, quiet=as_json)
    told = {"files": kept, "refused": refused}

    def human() -> None:
        for file in kept:
            say(_line(file) + ("  (was there already)" if file.id in known else ""))
        for one in refused:
            errors.print(visible(f"{one['name']}: {one['error']}"), markup=False, highlight=False, soft_wrap=True)

    show(told, as_json, human)
    if refused or any(file.state is FileState.FAILED for file in kept):
        raise typer.Exit(_FAILED)


@kb_app.command("files")
def list_files(
    kb: Base,
    state: Annotated[list[str] | None, typer.Option(help="Only files in this state; may be repeated")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the files of a knowledge base, the newest first; deleted ones only when asked for."""
    with opened(data_dir) as memos:
        found = memos.knowledge.files(kb, actor=actor, states=state or ())

    def human() -> None:
        for file in found:
            say(_line(file))
        if not found:
            say("no files")

    show(found, as_json, human)


@kb_app.command("delete")
def delete(
    kb: Base,
    file: Annotated[str, typer.Argument(help="File id")],
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Take a file out of sight with all that was made of it; it is erased when the retention period is over."""
    with opened(data_dir) as memos:
        gone = memos.knowledge.delete(kb, file, actor=actor)
    show(gone, as_json, lambda: say(f"deleted {gone.name}"))


def _read(memos: MemOS, kept: list[StoredFile], *, quiet: bool) -> list[StoredFile]:
    with progress_bar("reading", quiet) as tell:
        read: list[StoredFile] = []
        for file in kept:
            if tell is not None:
                tell(len(read), len(kept))
            read.append(memos.documents.wait(file.id))
    return read


def _counted(found: object) -> str:
    states = dict(found) if isinstance(found, dict) else {}
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"


def _line(file: StoredFile) -> str:
    parts = [f"{file.info['passages']} passages"] if "passages" in file.info else []
    parts += [f"{file.info['pages']} pages"] if "pages" in file.info else []
    told = f"  ({', '.join(parts)})" if parts else ""
    return f"{file.id}  {file.state}  {file.name}{told}" + (f": {file.error}" if file.error else "")
