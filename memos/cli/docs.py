"""Commands on knowledge bases: create and drop them, add files and wait for them, list and delete files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import Actor, AsJson, Output, Wait, Yes, command, progress_bar, sure, table
from memos.core.types import LOCAL_OWNER, FileState, StoredFile
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS

Base = Annotated[str, typer.Argument(help="Id of the knowledge base")]


@command
def create(
    memos: MemOS,
    kb: Base,
    description: Annotated[str, typer.Option(help="Description of the knowledge base")] = "",
    redact_pii: Annotated[bool, typer.Option("--redact-pii", help="Mask personal data in its documents")] = False,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    made = memos.knowledge.create(kb, description, actor=actor, redact_pii=redact_pii)
    return Output(made, f"created {made.id}")


@command
def list_(memos: MemOS, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.knowledge.list(actor=actor)
    rows = ((base.id, base.items, _counted(base.files), base.description) for base in found)
    return Output(found, table("knowledge base", "items", "files", "description", rows=rows))


@command
def show(memos: MemOS, kb: Base, actor: Actor = LOCAL_OWNER) -> Output:
    base = memos.knowledge.get(kb, actor=actor)
    told = f"{base.id}: {base.items} items, files: {_counted(base.files)}"
    return Output(base, f"{told}  {base.description}".rstrip())


@command
def drop(memos: MemOS, kb: Base, yes: Yes = False, actor: Actor = LOCAL_OWNER) -> Output:
    sure(f"Permanently erase knowledge base {kb!r} with all its files?", yes=yes)
    receipt = memos.knowledge.drop(kb, actor=actor)
    return Output(receipt, f"receipt {receipt.id}: {receipt.state}, {len(receipt.item_ids)} items")


@command
def add(
    memos: MemOS,
    kb: Base,
    files: Annotated[list[Path], typer.Argument(help="PDF, DOCX, PPTX, XLSX, EPUB, HTML, CSV, Markdown or text")],
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
    as_json: AsJson = False,
) -> Output:
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
    lines = [_line(file) + ("  (added before)" if file.id in known else "") for file in kept]
    failed = bool(refused) or any(file.state is FileState.FAILED for file in kept)
    notes = [f"{each['name']}: {each['error']}" for each in refused]
    return Output({"files": kept, "refused": refused}, lines, code=int(failed), notes=notes)


@command
def files(
    memos: MemOS,
    kb: Base,
    state: Annotated[list[str] | None, typer.Option(help="Only files in this state; can be repeated")] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.knowledge.files(kb, actor=actor, states=state or ())
    return Output(found, map(_line, found), "no files")


@command
def delete(
    memos: MemOS, kb: Base, file: Annotated[str, typer.Argument(help="File id")], actor: Actor = LOCAL_OWNER
) -> Output:
    gone = memos.knowledge.delete(kb, file, actor=actor)
    return Output(gone, f"deleted {gone.name}")


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
