"""The commands about knowledge bases: make and drop them, add files and wait for them, list and delete files."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.table import Table

from memos.cli.shared import (
    Actor,
    AsJson,
    DataDir,
    cell,
    console,
    errors,
    opened,
    progress_bar,
    say,
    say_masked,
    show,
    sure,
)
from memos.core.clock import SystemClock
from memos.core.settings import Settings
from memos.core.text.rendering import visible
from memos.core.types import LOCAL_OWNER, FileState, StoredFile
from memos.errors import InvalidInput
from memos.kernel.memos import MemOS
from memos.kernel.opening import askers_of
from memos.reader.arguments import zone_of
from memos.reader.preview import PATTERNS, Preview, PreviewFact, Reading, preview, read_input

# The command that shows what would be stored of a file, and stores nothing.

preview_app = typer.Typer(rich_markup_mode=None)

_MODES = ("rough", PATTERNS, "fine")
_SHOWN_CHARS = 300
_SHOWN_BAD = 20


@preview_app.command()
def read(
    file: Annotated[str, typer.Argument(help="Text, JSON, JSONL or chat export; '-' reads standard input")],
    mode: Annotated[
        str, typer.Option(help="rough: no facts; patterns: facts by pattern; fine: by the configured model, if any")
    ] = PATTERNS,
    limit: Annotated[int, typer.Option(help="Most messages")] = 200,
    redact_pii: Annotated[bool, typer.Option("--redact-pii", help="Mask personal data as well")] = False,
    time_zone: Annotated[str | None, typer.Option(help="Zone of times without an offset")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what would be stored of a file: items, what is masked, and facts. Nothing is written."""
    settings = Settings()
    if mode not in _MODES:
        raise InvalidInput("--mode", f"{mode!r} is unknown; use one of {', '.join(_MODES)}")
    if limit < 1:
        raise InvalidInput("--limit", f"must be at least 1, not {limit}")
    with ExitStack() as stack:
        asker = askers_of(settings, stack) if mode == "fine" else None
        reading = Reading(
            ZoneInfo(settings.time_zone) if time_zone is None else zone_of(time_zone),
            SystemClock().now(),
            settings.mask_secrets,
            redact_pii,
            mode != "rough",
            (lambda: None) if asker is None else (lambda: asker.reader),
        )
        if file == "-":
            given = read_input(sys.stdin.buffer, "standard input", reading, limit)
        else:
            try:
                with Path(file).open("rb") as opened:
                    given = read_input(opened, file, reading, limit)
            except OSError as error:
                raise InvalidInput(file, f"cannot be read ({error.strerror})") from error
        found = preview(given, reading)
    show(found, as_json, lambda: _tell(found))
    if found.problems and not found.items:
        raise typer.Exit(InvalidInput.exit_code)


def _tell(found: Preview) -> None:
    table = Table("#", "when", "speaker", "memory", "names", "valid")
    for item in found.items:
        about = item.speaker if item.trust == "trusted" else f"{item.speaker} ({item.trust})"
        valid = f"{item.valid_from:%F}" if item.valid_from else ""
        valid += f" to {item.valid_to:%F}" if item.valid_to else ""
        row = (f"{item.said_at:%F %H:%M}", about, _cut(item.memory), ", ".join(item.entities[:5]), valid)
        table.add_row(str(item.number), *map(cell, row))
    if found.items:
        console.print(table)
    say_masked(found.masked)
    if found.facts:
        console.print(_facts(found.facts))
    if found.by is not None:
        refused = f", {found.rejected} refused: not in the messages" if found.rejected else ""
        say(f"{len(found.facts)} facts by {found.by}{refused}")
    for place, problem in found.problems[:_SHOWN_BAD]:
        say(f"{place} {problem}")
    if found.more:
        errors.print("There are more messages; --limit shows more of them.")
    say("nothing was stored")


def _facts(facts: tuple[PreviewFact, ...]) -> Table:
    table = Table("type", "subject", "key", "value", "valid", "quote")
    for fact in facts:
        kind = f"{fact.type}, awaits review" if fact.waits else str(fact.type)
        valid = f"{fact.valid_from:%F}" if fact.valid_from else ""
        valid += f" to {fact.valid_to:%F}" if fact.valid_to else ""
        key = (fact.key or "").rpartition("|")[2]
        row = (kind, fact.subject, key, fact.value or "", valid, _cut(" … ".join(fact.quotes)))
        table.add_row(*map(cell, row))
    return table


def _cut(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _SHOWN_CHARS else f"{one_line[:_SHOWN_CHARS]}…"


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
