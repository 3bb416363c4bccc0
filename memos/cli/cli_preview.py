"""The command that shows what would be stored of a file, and stores nothing."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.table import Table

from memos.cli.shared import AsJson, cell, console, errors, say, say_masked, show
from memos.core.clock import SystemClock
from memos.core.settings import Settings
from memos.errors import InvalidInput
from memos.kernel.opening import askers_of
from memos.reader.arguments import zone_of
from memos.reader.preview import PATTERNS, Preview, PreviewFact, Reading, preview, read_input

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
            ZoneInfo(settings.time_zone) if time_zone is None else zone_of(time_zone), SystemClock().now(),
            settings.limits, settings.mask_secrets, redact_pii, mode != "rough",
            (lambda: None) if asker is None else (lambda: asker.reader),
        )  # fmt: skip
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
