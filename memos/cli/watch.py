"""Commands that watch an installation: its events, and its numbers as a live view."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from memos.cli.shared import AsJson, CubeName, DataDir, Output, command, console, opened, show_json
from memos.core.text.rendering import visible
from memos.core.types import DEFAULT_CUBE, Event, TaskState
from memos.errors import InvalidInput, shown

if TYPE_CHECKING:
    from memos.kernel.statistics import Overview

_LISTED = 100
_BODY_CHARS = 160
_ABOUT_CHARS = 80
_WIDTH = 110
_ENDED = (TaskState.DONE, TaskState.FAILED, TaskState.DEAD, TaskState.CANCELLED)


@command(opens=False)
def events(
    cube: CubeName = DEFAULT_CUBE,
    after: Annotated[int | None, typer.Option(help="Only events after this number")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only events of this kind; can be repeated")] = None,
    limit: Annotated[int | None, typer.Option(help=f"Maximum number ({_LISTED} unless following)")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new events; with --after, print the older ones first")
    ] = False,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; one line per event when following")] = False,
) -> Output | None:
    with _while_read() as unread, opened(data_dir) as memos:
        if not follow:
            found = memos.events.list(
                cube, after=after or 0, kinds=kind or (), limit=_LISTED if limit is None else limit
            )
            return Output(found, map(_told, found), "no such event")
        if limit is not None and limit < 1:
            raise InvalidInput("limit", f"must be a whole number from 1, not {shown(limit)}")
        for event in islice(memos.events.follow(cube, after=after, kinds=kind or (), stop=unread), limit):
            if as_json:
                show_json(event, indent=None)
            else:
                sys.stdout.write(f"{_told(event)}\n")  # not by rich: a line is one line however long it is
            sys.stdout.flush()
    return None


@command(opens=False)
def top(
    cube: Annotated[
        list[str] | None, typer.Option("--cube", "-c", help="Only this cube, with its hottest topics; can be repeated")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit; the default without a terminal")] = False,
    every: Annotated[float, typer.Option(help="Seconds between updates")] = 2.0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> Output | None:
    if not 0.1 <= every <= 3600:
        raise InvalidInput("--every", f"must be a number of seconds from 0.1 to 3600, not {shown(every)}")
    with _while_read(), opened(data_dir) as memos:
        now = memos.statistics.overview(cube or None)
        if as_json or once or not console.is_terminal or console.is_dumb_terminal:
            return Output(now, _drawn(now))
        with Live(frame(now), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                now = memos.statistics.overview(cube or None, since=now)
                live.update(frame(now), refresh=True)


def frame(now: Overview) -> Group:
    left_out = f", {now.more_cubes} more not shown" if now.more_cubes else ""
    told = f"{now.at:%F %T} UTC  {len(now.cubes)} cubes{left_out}  {now.tokens_today:,} tokens today"
    parts: list[RenderableType] = [Text(told), _cubes_table(now), _tasks_table(now)]
    if now.running:
        parts.append(_running_table(now))
    if any(cube.hottest for cube in now.cubes):
        parts.append(_hottest_table(now))
    return Group(*parts)


def _drawn(now: Overview) -> str:
    # Tables need room: output that goes to a file is 110 columns wide, however narrow the window.
    paper = console if console.is_terminal else Console(emoji=False, width=max(_WIDTH, console.width))
    with paper.capture() as captured:
        paper.print(frame(now))
    return captured.get().rstrip("\n")


def _cubes_table(now: Overview) -> Table:
    counts = ("messages", "short pages", "open segments", "archived", "long items", "waiting", "running")
    table = _table(("cube",), (*counts, "adds/s", "moves/min", "tokens today"))
    for cube in now.cubes:
        tiers = (cube.messages, cube.short_pages, cube.open_segments, cube.archived_segments, cube.long_items)
        counted = (*tiers, cube.waiting, cube.running)
        rates = (f"{cube.adds_per_s:.1f}", f"{cube.moves_per_min:.1f}", f"{cube.tokens_today:,}")
        table.add_row(_cell(cube.cube), *(f"{number:,}" for number in counted), *rates)
    return table


def _tasks_table(now: Overview) -> Table:
    table = _table(("tasks",), ("waiting", "running", *(f"{state} in 1 h" for state in _ENDED)))
    for kind, states in now.tasks.items():
        row = (states.get(state, 0) for state in (TaskState.WAITING, TaskState.RUNNING, *_ENDED))
        table.add_row(_cell(kind), *(f"{number:,}" if number else "" for number in row))
    return table


def _running_table(now: Overview) -> Table:
    table = _table(("running", "cube"), ("done", "for"))
    for task in now.running:
        since = 0.0 if task.started_at is None else max(0.0, (now.at - task.started_at).total_seconds())
        table.add_row(_cell(task.kind), _cell(task.cube or "(all)"), f"{task.progress:.0%}", f"{since:.0f} s")
    return table


def _hottest_table(now: Overview) -> Table:
    table = _table(("cube",), ("heat", "pages"), ("about",))
    for cube in now.cubes:
        for segment in cube.hottest:
            about = _cell(segment.summary[:_ABOUT_CHARS] or ", ".join(segment.keywords))
            table.add_row(_cell(cube.cube), f"{segment.heat:.2f}", f"{segment.pages:,}", about)
    return table


def _table(words: tuple[str, ...], numbers: tuple[str, ...], last: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in words:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    for name in last:
        table.add_column(name, no_wrap=True)
    return table


def _cell(text: str) -> Text:
    """Return text on one line, without markup and with nothing that could steer the terminal."""
    return Text(visible(" ".join(text.split())))


def _told(event: Event) -> str:
    body = "(erased)" if event.body is None else json.dumps(event.body, ensure_ascii=False)
    if len(body) > _BODY_CHARS:
        body = f"{body[:_BODY_CHARS]}…"
    about = f"{event.seq:>6}  {event.at:%F %T}  {event.kind:9}  {event.actor}  {event.item or '-'}  {body}"
    return visible(" ".join(about.splitlines()))


@contextmanager
def _while_read() -> Iterator[threading.Event]:
    """Yield an event that is set when nobody reads the output any more; that ends a command without an error."""
    unread = threading.Event()
    _watch_reader(unread)
    try:
        yield unread
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would be refused again when the process ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _watch_reader(unread: threading.Event) -> None:
    """Set the event when the pipe that is written to is closed at its other end, also while nothing is written."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # no file at all
        return
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return
    pipe = select.poll()
    pipe.register(descriptor, 0)  # poll reports errors regardless of the requested events

    def watch() -> None:
        pipe.poll()
        unread.set()

    threading.Thread(target=watch, name="memos-reader", daemon=True).start()
