"""Commands on what goes in and out, and on a whole installation: import, preview, checks, backups and moves."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from memos.cli.shared import (
    Actor,
    AsJson,
    CubeNames,
    DataDir,
    Output,
    ReadMode,
    check_alone,
    command,
    one_line,
    progress_bar,
    settings_of,
    table,
    through_server,
)
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Difference
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table

    from memos.kernel.importing import BadRecord, ImportPreview, ImportSummary
    from memos.kernel.memos import MemOS
    from memos.kernel.relocation import MoveSummary, RestoreSummary
    from memos.reader.preview import Preview, PreviewFact

_SHOWN = 50
_SHOWN_CHARS = 300
_REEMBED = (
    "The cubes were embedded with another embedder; run `memos data reembed`, or restore the former MEMOS_EMBED__MODEL."
)

Backup = Annotated[str, typer.Argument(help="Folder of the backup, or s3://BUCKET/PREFIX")]


@command
def import_(
    memos: MemOS,
    files: Annotated[
        list[str],
        typer.Argument(help="Export: file, ZIP, folder or several; or the URL of a Qdrant or Neo4j server"),
    ],
    cube: Annotated[
        str | None,
        typer.Option("--cube", "-c", help="Cube to use (default: default; for a memoryos folder, one per user)"),
    ] = None,
    conversation: Annotated[str | None, typer.Option(help="Conversation id for messages without one")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Format such as chatgpt, whatsapp or mem0; default: recognised")
    ] = None,
    on_bad: Annotated[str, typer.Option("--on-bad", help="On a record that cannot be read: skip or stop")] = "skip",
    mode: ReadMode = "rough",
    owner: Annotated[str | None, typer.Option(help="Take only this user's memories of the other program")] = None,
    owners: Annotated[
        str, typer.Option(help="Memories of several users: refuse, split (a cube each) or together")
    ] = "refuse",
    time_zone: Annotated[str | None, typer.Option(help="Time zone of times without an offset")] = None,
    date_order: Annotated[
        str | None, typer.Option(help="WhatsApp: what comes first in a date, day or month; default: read from the file")
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Collection of a Qdrant server, or database of a Neo4j server")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Say what would be stored, and store nothing")] = False,
    actor: Actor = LOCAL_OWNER,
    as_json: AsJson = False,
) -> Output:
    from memos.compat.importing import import_memoryos  # noqa: PLC0415
    from memos.kernel.importing import import_export, preview_export  # noqa: PLC0415
    from memos.reader.importers.formats import Format  # noqa: PLC0415
    from memos.reader.importers.memoryos import FORMAT as MEMORYOS  # noqa: PLC0415
    from memos.reader.importers.sources import ExportOptions  # noqa: PLC0415

    _check_choice("--on-bad", on_bad, "skip", "stop")
    _check_choice("--owners", owners, "refuse", "split", "together")
    if date_order is not None:
        _check_choice("--date-order", date_order, "day", "month")
    if format_ == MEMORYOS and mode != "rough":
        raise InvalidInput(
            "--mode", "applies to chat exports only; for a MemoryOS folder, run `memos memory extract` after the import"
        )
    if format_ is not None:
        _check_choice("--format", format_, *Format, MEMORYOS)
    given: Any = files[0] if len(files) == 1 else files
    options = ExportOptions(date_order=cast(Any, date_order), collection=collection)
    how: dict[str, Any] = {"conversation": conversation}
    if format_ != MEMORYOS:
        how |= {"format": Format(format_) if format_ else None, "time_zone": time_zone, "options": options}
        how |= {"cube": DEFAULT_CUBE if cube is None else cube, "actor": actor}
    if preview:
        if format_ == MEMORYOS:
            raise InvalidInput("--preview", "shows other formats than memoryos")
        found = preview_export(memos, given, **how)
        return Output(found, _shown_preview(found))
    with progress_bar("messages", as_json) as on_progress:
        how |= {"on_bad": on_bad, "on_progress": on_progress}
        if format_ == MEMORYOS:
            summary = import_memoryos(memos, Path(files[0]), cube=cube, actor=actor, **how)
        else:
            summary = import_export(memos, given, mode=mode, owner=owner, owners=cast(Any, owners), **how)
    nothing = summary.bad and not (summary.added or summary.known or summary.updated)
    return Output(summary, _imported(summary), code=InvalidInput.exit_code if nothing else 0)


def _check_choice(option: str, given: str, *choices: str) -> None:
    if given not in choices:
        raise InvalidInput(option, f"must be one of {', '.join(choices)}; got {given!r}")


def _shown_preview(found: ImportPreview) -> Iterator[str | Table]:
    more = " or more; only the first records were read" if found.more else ""
    yield f"{found.format}: {found.messages} messages of {found.conversations} conversations{more}"
    if found.owners:
        yield f"of {len(found.owners)} users: {', '.join(found.owners[:_SHOWN])}"
    yield from _not_taken(found.left_out_by, found.bad, found.bad_count)
    rows = (
        (
            each.conversation,
            "" if each.said_at is None else f"{each.said_at:%F %H:%M}",
            each.speaker,
            one_line(each.text, _SHOWN_CHARS),
        )
        for each in found.first
    )
    yield table("conversation", "when", "speaker", "text", rows=rows)
    yield "nothing was stored"


def _imported(summary: ImportSummary) -> Iterator[str]:
    counts = [f"{summary.added} added", f"{summary.known} known", f"{len(summary.bad)} bad"]
    counts += [f"{summary.updated} updated"] if summary.updated else []
    counts += [f"{summary.left_out} left out"] if summary.left_out else []
    counts += [f"{summary.out_of_order} out of order"] if summary.out_of_order else []
    yield f"{', '.join(counts)} ({summary.format}, {summary.conversations} conversations)"
    if len(summary.cubes) > 1:
        yield f"in {len(summary.cubes)} cubes: {', '.join(summary.cubes[:_SHOWN])}"
    if summary.masked:
        yield f"{summary.masked} secrets or personal data were masked before storing"
    if summary.note:
        yield summary.note
    yield from _not_taken(summary.left_out_by, summary.bad, len(summary.bad))


def _not_taken(left_out: Mapping[str, int], bad: Sequence[BadRecord], count: int) -> Iterator[str]:
    for reason, number in sorted(left_out.items(), key=lambda each: -each[1])[:_SHOWN]:
        yield f"left out: {number} {reason}"
    yield from (f"{record.place} {record.problem}" for record in bad[:_SHOWN])
    if count > _SHOWN:
        yield f"and {count - _SHOWN} more bad records; --json lists them all"


@command(opens=False)
def preview(
    file: Annotated[str, typer.Argument(help="Text, JSON, JSONL or chat export; '-' reads standard input")],
    mode: Annotated[
        str,
        typer.Option(
            help="rough: no facts; patterns: facts by pattern; fine: facts by the configured model, else by pattern"
        ),
    ] = "patterns",
    limit: Annotated[int, typer.Option(help="Most messages")] = 200,
    redact_pii: Annotated[bool, typer.Option("--redact-pii", help="Also mask personal data")] = False,
    time_zone: Annotated[str | None, typer.Option(help="Time zone of times without an offset")] = None,
) -> Output:
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    from memos.core.clock import SystemClock  # noqa: PLC0415
    from memos.kernel.opening import askers_of  # noqa: PLC0415
    from memos.reader import preview as reading  # noqa: PLC0415
    from memos.reader.arguments import zone_of  # noqa: PLC0415

    settings = settings_of(None)
    modes = ("rough", reading.PATTERNS, "fine")
    if mode not in modes:
        raise InvalidInput("--mode", f"must be one of {', '.join(modes)}; got {mode!r}")
    if limit < 1:
        raise InvalidInput("--limit", f"must be at least 1; got {limit}")
    with ExitStack() as stack:
        asker = askers_of(settings, stack) if mode == "fine" else None
        wanted = reading.Reading(
            ZoneInfo(settings.time_zone) if time_zone is None else zone_of(time_zone),
            SystemClock().now(),
            settings.mask_secrets,
            redact_pii,
            mode != "rough",
            (lambda: None) if asker is None else (lambda: asker.reader),
        )
        if file == "-":
            given = reading.read_input(sys.stdin.buffer, "standard input", wanted, limit)
        else:
            try:
                with Path(file).open("rb") as source:
                    given = reading.read_input(source, file, wanted, limit)
            except OSError as error:
                raise InvalidInput(file, f"cannot be read ({error.strerror})") from error
        found = reading.preview(given, wanted)
    code = InvalidInput.exit_code if found.problems and not found.items else 0
    notes = ["There are more messages; raise --limit to see them."] if found.more else []
    return Output(found, _previewed(found), code=code, masked=found.masked, notes=notes)


def _previewed(found: Preview) -> Iterator[str | Table]:
    if found.items:
        rows = (
            (
                item.number,
                f"{item.said_at:%F %H:%M}",
                item.speaker if item.trust == "trusted" else f"{item.speaker} ({item.trust})",
                one_line(item.memory, _SHOWN_CHARS),
                ", ".join(item.entities[:5]),
                _span(item.valid_from, item.valid_to),
            )
            for item in found.items
        )
        yield table("#", "when", "speaker", "memory", "names", "valid", rows=rows)
    if found.facts:
        yield table("type", "subject", "key", "value", "valid", "quote", rows=map(_fact, found.facts))
    if found.by is not None:
        refused = f", {found.rejected} rejected as not in the messages" if found.rejected else ""
        yield f"{len(found.facts)} facts by {found.by}{refused}"
    yield from (f"{place} {problem}" for place, problem in found.problems[:_SHOWN])
    yield "nothing was stored"


def _fact(fact: PreviewFact) -> tuple[str, ...]:
    kind = f"{fact.type}, awaits review" if fact.waits else str(fact.type)
    key = (fact.key or "").rpartition("|")[2]
    quote = one_line(" … ".join(fact.quotes), _SHOWN_CHARS)
    return kind, fact.subject, key, fact.value or "", _span(fact.valid_from, fact.valid_to), quote


def _span(since: datetime | None, until: datetime | None) -> str:
    return (f"{since:%F}" if since else "") + (f" to {until:%F}" if until else "")


@command
def verify(
    memos: MemOS,
    cube: CubeNames = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair the indexes from the ledger")] = False,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    report = memos.maintenance.verify(cubes=cube, actor=actor, repair=repair)
    state = "clean" if report.clean else f"{len(report.differences)} differences"
    lines = [f"{report.items} items, {state}, {report.repaired} repaired", *_differences(report.differences)]
    return Output(report, lines, code=0 if report.clean else 1)


@command
def reindex(memos: MemOS, cube: CubeNames = None, actor: Actor = LOCAL_OWNER, as_json: AsJson = False) -> Output:
    with progress_bar("items", as_json) as on_progress:
        count = memos.maintenance.reindex(cubes=cube, actor=actor, on_progress=on_progress)
    return Output({"items": count}, f"reindexed {count} items")


@command
def reembed(memos: MemOS, actor: Actor = LOCAL_OWNER, as_json: AsJson = False) -> Output:
    with progress_bar("items", as_json) as on_progress:
        count = memos.maintenance.reembed(actor=actor, on_progress=on_progress)
    return Output({"items": count}, f"embedded {count} items")


@command(opens=False, safe="no backups yet")
def backup(
    folder: Annotated[
        str, typer.Argument(help="New folder for the backup, or s3://BUCKET/PREFIX; it will contain memory text")
    ],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> Output:
    from memos.kernel.relocation import backup as back_up  # noqa: PLC0415
    from memos.memcube.backup.places import place_of  # noqa: PLC0415

    here = settings_of(data_dir)
    with progress_bar("rows", as_json) as on_progress:
        memos = through_server(here)
        if memos is None:
            made = back_up(here, folder, on_progress=on_progress)
        else:
            with memos:
                made = memos.maintenance.backup(folder, on_progress=on_progress)
    told = {"folder": str(place_of(folder)), "backup": made.id, "created_at": made.created_at, "rows": made.rows}
    return Output(told, f"backed up {made.rows} rows to {folder}")


@command
def backups(
    memos: MemOS,
    forget: Annotated[
        str | None,
        typer.Option("--forget", help="Forget a backup whose folder was removed, so that receipts no longer list it"),
    ] = None,
) -> Output:
    if forget is not None:
        memos.maintenance.forget_backup(forget)
    found = memos.maintenance.backups()
    lines = []
    for made in found:
        state = "" if made.finished_at else ", cut off"
        waiting = f", {made.untold} erasures not yet noted in the backup" if made.untold else ""
        lines.append(f"{made.created_at:%F %T} {made.folder}{state}{waiting}")
    return Output(found, lines)


@command(opens=False, safe="nothing was restored, or the indexes are not complete yet")
def restore(
    folder: Backup,
    replace: Annotated[bool, typer.Option("--replace", help="Permanently replace existing memories")] = False,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="Copy of keys.json of an encrypted backup (default: the one beside the backup)"),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> Output:
    from memos.kernel.relocation import restore as put_back  # noqa: PLC0415

    here = settings_of(data_dir)
    check_alone("data restore", here)
    with progress_bar("rows, then index", as_json) as on_progress:
        done = put_back(folder, here, replace=replace, on_rows=on_progress, on_items=on_progress, keys_file=keys)
    told = f"restored {done.items} items of {done.created_at:%F %T}, left out {done.erased_again} erased since"
    if done.unreadable:
        told += f"; {done.unreadable} erased cubes cannot be read, as their keys were destroyed"
    return _arrived(done, told)


_CUT_OFF = "nothing was lost; run the command again to finish"


@command(opens=False, safe=_CUT_OFF)
def encrypt(data_dir: DataDir = None) -> Output:
    from memos.kernel.encryption import encrypt as convert  # noqa: PLC0415

    here = settings_of(data_dir)
    check_alone("data encrypt", here)
    done = convert(here)
    lines = [f"{done.home} is encrypted; keep the master key, and a copy of keys.json beside your backups"]
    lines += [f"not encrypted, made before: {folder}" for folder in done.plain_backups]
    return Output(done, lines)


@command(opens=False, safe=_CUT_OFF)
def decrypt(data_dir: DataDir = None) -> Output:
    from memos.kernel.encryption import decrypt as convert  # noqa: PLC0415

    here = settings_of(data_dir)
    check_alone("data decrypt", here)
    done = convert(here)
    return Output(done, f"{done.home} is not encrypted any more; unset MEMOS_ENCRYPTION_KEY")


@command(opens=False, safe="the master key is the old or the new one")
def rotate_key(
    to: Annotated[str, typer.Option("--to", help="Where the new master key is: file:PATH, env:NAME, …")],
    data_dir: DataDir = None,
) -> Output:
    from memos.kernel.encryption import rotate  # noqa: PLC0415

    done = rotate(settings_of(data_dir), to)
    lines = [f"the master key was changed; set MEMOS_ENCRYPTION_KEY={done.setting} before the next start"]
    lines += [f"the old master key still opens the copy of the keys in {folder}" for folder in done.not_renewed]
    return Output(done, lines)


@command(opens=False, safe="the source was not changed")
def migrate(
    source: Annotated[str, typer.Option("--from", help="Folder of an installation, or a TOML file of settings")],
    target: Annotated[str, typer.Option("--to", help="New folder, or a TOML file of settings")],
    as_json: AsJson = False,
) -> Output:
    from memos.kernel import relocation  # noqa: PLC0415

    there, here = relocation.settings_of("--from", source), relocation.settings_of("--to", target)
    check_alone("data migrate", there)
    check_alone("data migrate", here)
    with progress_bar("rows, then index", as_json) as on_progress:
        done = relocation.migrate(there, here, on_rows=on_progress, on_items=on_progress)
    before = f", {done.known} of them before" if done.known else ""
    told = f"copied {done.rows} rows{before}; counts and digests of every table are equal"
    return _arrived(done, told)


def _arrived(done: RestoreSummary | MoveSummary, told: str) -> Output:
    code, notes = int(bool(done.differences)), [] if done.indexed else [_REEMBED]
    return Output(done, [told, *_differences(done.differences)], code=code, notes=notes)


def _differences(found: Sequence[Difference]) -> list[str]:
    return [f"{each.store} {each.kind} {each.subject}: {each.detail}" for each in found[:_SHOWN]]
