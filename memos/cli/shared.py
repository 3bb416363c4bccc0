"""What the groups of commands share: options, an installation open for one command, output for people or programs."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from memos.api import endpoint
from memos.api.serialization import view
from memos.core.settings import Settings
from memos.core.text.rendering import visible
from memos.core.types import Masked
from memos.errors import BackendUnavailable, InvalidInput
from memos.kernel.memos import MemOS

INTERRUPTED = 130

console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of the installation (default: MEMOS_HOME, else per user)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table")]
CubeName = Annotated[str, typer.Option("--cube", "-c", help="Cube to use")]
Actor = Annotated[str, typer.Option("--actor", help="Who asks")]
ReadMode = Annotated[
    str,
    typer.Option(
        "--mode", help="rough, or fine: also read into facts, in the background; `memos tasks wait` waits for that"
    ),
]
ItemId = Annotated[str, typer.Argument(help="Item id")]


@contextmanager
def opened(data_dir: Path | None) -> Iterator[MemOS]:
    """Open the installation for one command, or work through the server that has it open.

    An interrupt closes it in order and says what is safe. People are told of a new one, or a mistyped folder would look
    like lost memories.
    """
    settings = Settings()
    home = settings.home if data_dir is None else data_dir
    is_new = settings.ledger_url is None and not (home / "ledger.db").exists()
    with (
        interruptible("what was acknowledged is stored"),
        through_server(data_dir, settings) or MemOS.open(data_dir, settings=settings) as memos,
    ):
        if is_new and errors.is_terminal:
            errors.print(f"New installation: {visible(str(home))}", markup=False, highlight=False, soft_wrap=True)
        yield memos


def through_server(data_dir: Path | None, settings: Settings) -> MemOS | None:
    """Return the installation through the server that has its folder open, None when there is none."""
    home = settings.home if data_dir is None else data_dir
    if not (home / endpoint.FILE).exists():
        return None
    from memos.api.local.client import served  # noqa: PLC0415 - needs the extra `server`, as who wrote that file has it

    return served(home)


def check_alone(command: str, settings: Settings) -> None:
    """Raise BackendUnavailable when a server has the folder open that a command needs for itself."""
    memos = through_server(None, settings)
    if memos is not None:
        memos.close()
        raise BackendUnavailable(
            f"`memos {command}` needs {settings.home} for itself, and a server has it open: stop the server, "
            "then run it again."
        )


@contextmanager
def interruptible(safe: str) -> Iterator[None]:
    """Turn an interrupt into an exit code and a line that says what is safe."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        errors.print(f"Interrupted; {safe}, run the command again to go on.", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from interrupt


def sure(question: str, *, yes: bool) -> None:
    """Ask before something is lost. Raises: typer.Abort; InvalidInput when nobody can be asked."""
    if yes:
        return
    if sys.stdin.isatty():
        typer.confirm(question, abort=True)
        return
    answer = sys.stdin.readline()  # piped, as by `yes`
    if not answer:
        raise InvalidInput("--yes", "is needed where nobody can be asked; nothing was erased")
    if answer.strip().lower() not in {"y", "yes"}:
        raise typer.Abort


def show(value: Any, as_json: bool, human: Callable[[], None]) -> None:
    """Print a result as JSON, or the way people read it."""
    if as_json:
        sys.stdout.write(json.dumps(view(value), ensure_ascii=sys.stdout.encoding.lower() != "utf-8", indent=2) + "\n")
    else:
        human()


@contextmanager
def progress_bar(what: str, quiet: bool, *, lines: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a progress callback that draws on standard error; None when output is for a program.

    With `lines`, which is for what takes minutes, a file gets a line for each tenth, with the time that is left.
    """
    if quiet:
        yield None
        return
    if lines and not errors.is_terminal:
        yield _Tenths(what).tell
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class _Tenths:
    """Says how far something is, and how long it will still take, where no bar can be drawn; its total may grow."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._total = self._told = -1
        self._first, self._began = 0, 0.0

    def tell(self, done: int, total: int) -> None:
        if total != self._total:
            self._total, self._told = total, -1
            self._first, self._began = done, time.monotonic()
        tenth = done * 10 // max(1, total)
        if tenth > self._told:
            self._told = tenth
            line = f"{self._what}: {done:,} of {total:,}{self._left(done)}"
            errors.print(line, markup=False, highlight=False, soft_wrap=True)

    def _left(self, done: int) -> str:
        if not self._first < done < self._total:
            return ""
        took = time.monotonic() - self._began
        return f", about {took / (done - self._first) * (self._total - done) / 60:.1f} min left"


def say(text: str) -> None:
    """Print a line as it is, nothing invisible in it, and not broken."""
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def say_masked(masked: Iterable[Masked]) -> None:
    """Say on standard error what was not stored as written."""
    kinds: Counter[str] = Counter()
    for each in masked:
        kinds[each.kind] += each.count
    if kinds:
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        errors.print(f"Masked, not stored: {told}", markup=False, highlight=False, soft_wrap=True)


def cell(text: str) -> str:
    """Return text as a table shows it: no markup, nothing invisible."""
    return escape(visible(text))
