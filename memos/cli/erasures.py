"""Commands on receipts of erasures, and on requests of persons about what is held of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeNames, Output, Yes, command, one_line, progress_bar, sure, table
from memos.core.erasures import receipts_in
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table

    from memos.core.erasures import ReceiptCheck, SubjectPreview
    from memos.core.types import EraseReceipt
    from memos.kernel.memos import MemOS

_SHOWN = 20
_SHOWN_CHARS = 200

Subject = Annotated[str, typer.Argument(help="User, or with --person the name of somebody who is spoken of")]
Person = Annotated[bool, typer.Option("--person", help="A person who is spoken of, not a user")]
Mentions = Annotated[bool, typer.Option("--mentions", help="Also erase memories of others that mention the person")]


@command
def show_receipt(
    memos: MemOS, receipt: Annotated[str, typer.Argument(help="Id of the receipt")], actor: Actor = LOCAL_OWNER
) -> Output:
    return Output(memos.memories.erase_receipt(receipt, actor=actor), _receipt)


@command
def verify_receipt(
    memos: MemOS,
    receipt: Annotated[
        str,
        typer.Argument(
            help="File with a receipt as JSON, or with all of a forgotten person, '-' for standard input; or an id"
        ),
    ],
    text: Annotated[
        list[Path] | None,
        typer.Option(help="File with what was erased, a text on each line, to look for as well; can be repeated"),
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="Other folder to scan, such as a backup or a server's data; can be repeated"),
    ] = None,
    scan: Annotated[bool, typer.Option("--scan/--no-scan", help="Read every file and row")] = True,
    actor: Actor = LOCAL_OWNER,
    as_json: AsJson = False,
) -> Output:
    texts = [line for file in text or () for line in _read(str(file)).splitlines() if line.strip()]
    folders = [str(each.absolute()) for each in folder or ()]
    given = _read(receipt) if receipt == "-" or _is_there(receipt) else receipt
    receipts = receipts_in(given)
    if not receipts:
        raise InvalidInput("receipt", "is not in it: nothing was erased")
    with progress_bar("files", as_json) as on_progress:
        checks = [
            memos.erasures.verify(each, texts=texts, folders=folders, scan=scan, actor=actor, on_progress=on_progress)
            for each in receipts
        ]
    code = 0 if all(found.passed for found in checks) else 1
    if len(checks) == 1:
        return Output(checks[0], _checked, code=code)
    return Output(checks, lambda several: (line for found in several for line in _checked(found)), code=code)


@command
def preview_subject(
    memos: MemOS,
    subject: Subject,
    person: Person = False,
    cube: CubeNames = None,
    mentions: Mentions = False,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.subjects.preview(subject, kind=_kind(person), cubes=cube, mentions=mentions, actor=actor)
    return Output(found, _previewed)


@command
def export_subject(
    memos: MemOS,
    subject: Subject,
    file: Annotated[Path, typer.Argument(help="New ZIP file")],
    person: Person = False,
    cube: CubeNames = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    made = memos.subjects.export(subject, file.absolute(), kind=_kind(person), cubes=cube, actor=actor)
    return Output(made, f"wrote {made.memories} memories and {made.files} files of {made.cubes} cubes to {file}")


@command(safe="all of it is forgotten, or nothing")
def forget_subject(
    memos: MemOS,
    subject: Subject,
    person: Person = False,
    cube: CubeNames = None,
    mentions: Mentions = False,
    yes: Yes = False,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    kind = _kind(person)
    seen = memos.subjects.preview(subject, kind=kind, cubes=cube, mentions=mentions, actor=actor)
    sure(f"Permanently erase {seen.goes} memories of {len(seen.cubes)} cubes, and what is kept of the {kind}?", yes=yes)
    done = memos.subjects.forget(subject, expected=seen.goes, kind=kind, cubes=cube, mentions=mentions, actor=actor)
    lines = [f"forgot {done.erased} memories; receipts: {', '.join(each.id for each in done.receipts) or 'none'}"]
    lines += [f"{done.name} stands for the user from now on"] if done.name else []
    lines += [f"{done.left} memories of others still mention the person"] if done.left else []
    lines += [f"{done.out_of_reach} memories are in cubes where {actor} may not erase"] if done.out_of_reach else []
    return Output(done, lines)


def _kind(person: bool) -> str:
    return "person" if person else "user"


def _is_there(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # a receipt itself is longer than any name
        return False


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInput(file, f"cannot be read ({error})") from error


def _receipt(receipt: EraseReceipt) -> Iterator[str | Table]:
    yield f"receipt {receipt.id}: {receipt.state}, {len(receipt.item_ids)} memories and files of cube {receipt.cube}"
    rows = ((form.name, form.before, "?" if form.after is None else form.after) for form in receipt.forms)
    yield table("form", "before", "after", rows=rows)
    if receipt.key_destroyed:
        yield "the cube's encryption key was destroyed; backups of it cannot be read any more"
    yield from (f"still in the backup {place}" for place in receipt.backups)


def _checked(found: ReceiptCheck) -> Iterator[str]:
    yield f"receipt {found.receipt}: {'nothing contradicts it' if found.passed else 'it does not hold'}"
    yield from (f"problem: {problem}" for problem in found.problems)
    signer = (
        "" if found.signer is None else f", key {found.signer}{'' if found.signed_here else ' (not of this place)'}"
    )
    yield f"signature {found.signature}{signer}; erasure {found.state or 'unknown here'}"
    if found.scan is not None:
        scan = found.scan
        yield (
            f"read {scan.files} files ({scan.read_bytes / 2**20:,.1f} MiB) and {scan.rows} rows for {scan.texts} texts "
            f"and {scan.fingerprints} fingerprints: {len(scan.remnants)} places"
        )
        yield from (f"found: {trace.place}, byte {trace.offset}, {trace.encoding}" for trace in scan.remnants[:_SHOWN])
        if scan.said_again:
            numbers = {trace.number for trace in scan.said_again}
            yield f"{len(numbers)} passages are in memories that are still there, which say the same"
        if not scan.texts and not scan.fingerprints:
            yield "the receipt has no fingerprints: give what was erased with --text, or nothing was looked for"
    yield from (f"not reached: {place}" for place in found.unreached)


def _previewed(found: SubjectPreview) -> Iterator[str | Table]:
    yield f"{found.goes} memories would go; {found.mentions} of others mention the person"
    rows = (
        (
            each.cube,
            each.relation,
            each.goes + each.derived,
            each.by_others,
            each.mentions,
            each.files,
            "" if each.allowed else "not allowed",
        )
        for each in found.cubes
    )
    yield table("cube", "", "goes", "by others", "mentions", "files", "", rows=rows)
    if found.out_of_reach:
        yield f"{found.out_of_reach} memories are in cubes where you may not erase"
    if found.account:
        yield "account: " + ", ".join(f"{count} {name}" for name, count in found.account.items())
    yield from (f"mentions: {item.cube}: {one_line(item.memory, _SHOWN_CHARS)}" for item in found.sample[:_SHOWN])
