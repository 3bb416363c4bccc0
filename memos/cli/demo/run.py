"""Runs the demonstration on a real installation and prints what happens as tables."""

from __future__ import annotations

import json
import shutil
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from memos.cli.shared import DataDir, command, opened
from memos.cli.shared import console as terminal
from memos.core.text.rendering import passage_of, visible
from memos.core.types import Hit, SearchResult
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS

CUBE = "demo"
HITS = 5
_SHOWN_CHARS, _PASSAGE_CHARS = 300, 1_500


@command(opens=False, has_json=False)
def demo(
    data_dir: DataDir = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder of the demo")] = False,
    svg: Annotated[Path | None, typer.Option(help="Also save the output as an SVG")] = None,
) -> None:
    if svg is not None and not svg.parent.is_dir():
        raise InvalidInput("--svg", f"the folder {svg.parent} does not exist; make it or choose another")
    folder = data_dir or Path(tempfile.mkdtemp(prefix="memos-demo-"))
    # Tables need room: output that goes to a file or a narrow window is still 110 columns wide.
    out = Console(record=svg is not None, width=max(110, terminal.width) if svg is None else 110)
    try:
        with opened(folder) as memos:
            run_demo(memos, out)
    finally:
        if data_dir is None and not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if data_dir is None and not keep:
        out.print(
            "See it in a browser: [bold]make console[/bold], or `memos demo --keep` and `memos console --data-dir`."
        )
    else:
        out.print(f"See it in a browser: [bold]memos console --data-dir {escape(str(folder))}[/bold]")
    if svg is not None:
        out.save_svg(str(svg), title="memos demo")


def run_demo(memos: MemOS, console: Console) -> None:
    conversation, plan = _load("conversation.json"), _load("questions.json")
    if CUBE not in {cube.id for cube in memos.cubes.list()}:
        memos.cubes.create(CUBE, description=conversation["title"], time_zone="Europe/Paris")
    ids = _read(memos, conversation, console)
    for entry in plan["questions"]:
        result = memos.search(entry["question"], cubes=[CUBE], top_k=HITS)
        console.print(hits_table(result, f"{entry['question']}  [dim]({entry['why']})[/dim]"))
    _correct(memos, plan["correction"], ids, console)
    _update(memos, plan["update"], ids, console)
    _erase(memos, plan["erase"], ids, console)
    report = memos.maintenance.verify()
    state = "clean" if report.clean else f"{len(report.differences)} differences"
    console.print(f"\n[bold]verify[/bold]: {report.items} items, ledger and indexes {state}.")


def _load(name: str) -> Any:
    return json.loads(resources.files("memos.cli.demo").joinpath(name).read_text(encoding="utf-8"))


def _read(memos: MemOS, conversation: Any, console: Console) -> dict[str, str]:
    console.print(f"[bold]Reading[/bold] “{conversation['title']}” into cube [cyan]{CUBE}[/cyan]")
    ids: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("messages", total=sum(len(s["messages"]) for s in conversation["sessions"]))
        for session in conversation["sessions"]:
            for exchange in _exchanges(session["messages"]):
                receipt = memos.add(exchange, cube=CUBE, conversation=session["id"])
                ids.update(zip((message["message_id"] for message in exchange), receipt.item_ids, strict=True))
                progress.advance(task, len(exchange))
    return ids


def _exchanges(messages: list[Any]) -> list[list[Any]]:
    """Group messages so that each group starts with a user."""
    groups: list[list[Any]] = []
    for message in messages:
        if message["role"] == "user" or not groups:
            groups.append([])
        groups[-1].append(message)
    return groups


def hits_table(result: SearchResult, title: str, *, ids: bool = False) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", expand=True)
    for name, width in (("score", 6), ("relevance", 9), ("said", 14)):
        table.add_column(name, min_width=width, no_wrap=True)
    # Folded, or Chinese, which has no spaces, would end at the edge; at 80 characters an id is in one piece.
    table.add_column("source passage", ratio=1, overflow="fold")
    for hit in result.hits:
        *cells, passage = _cells(hit)
        table.add_row(*cells, f"{passage}\n[dim]{hit.item.id}[/dim]" if ids else passage)
    return table


def _cells(hit: Hit) -> tuple[str, ...]:
    source = hit.sources[0] if hit.sources else None
    said = [f"{source.at:%Y-%m-%d %a}"] if source else []
    said += [cut(hit.item.speaker, 14)] if hit.item.speaker else []
    # The source of an edited memory has its old text.
    passage = source.passage if source and hit.passage is None and hit.item.version == 1 else passage_of(hit)
    shown = cut(passage, _PASSAGE_CHARS if hit.passage else _SHOWN_CHARS)
    return f"{hit.score:.3f}", f"{hit.relevance:.2f}", "\n".join([*said, hit.item.tier]), shown


def cut(text: str, limit: int) -> str:
    """Return text as a table shows it: one line of so many characters at most, no markup, nothing invisible."""
    line = " ".join(text.split())
    return escape(visible(line if len(line) <= limit else line[: limit - 1] + "…"))


def _correct(memos: MemOS, plan: Any, ids: dict[str, str], console: Console) -> None:
    before = memos.clock.now()
    receipt = memos.feedback(plan["text"], cube=CUBE, speaker="Maya")
    console.print(f"\n[bold]feedback[/bold] “{plan['text']}”")
    for item_id in receipt.superseded:
        old = memos.get(item_id)
        console.print(f"  supersedes [yellow]{cut(old.memory, 90)}[/yellow] (valid to {old.valid_to:%Y-%m-%d})")
    question = "Which city does Maya live in?"
    console.print(hits_table(memos.search(question, cubes=[CUBE], top_k=2), f"{question}  [dim](now)[/dim]"))
    past = memos.search(question, cubes=[CUBE], top_k=2, as_of=before)
    console.print(hits_table(past, f"{question}  [dim](as of a moment before the correction)[/dim]"))
    _history(memos, ids[plan["about"]], console)


def _update(memos: MemOS, plan: Any, ids: dict[str, str], console: Console) -> None:
    item = memos.get(ids[plan["message_id"]])
    memos.update(item.id, plan["new_text"], expected_version=item.version, reason="the date changed")
    console.print("\n[bold]update[/bold] of one memory, with its history:")
    _history(memos, item.id, console)


def _history(memos: MemOS, item_id: str, console: Console) -> None:
    table = Table(title=f"history of {item_id}", title_justify="left", title_style="bold", expand=True)
    for name in ("v", "when", "who", "why", "status"):
        table.add_column(name, no_wrap=True)
    table.add_column("memory", ratio=1, overflow="fold")
    for entry in memos.memories.history(item_id):
        row = (str(entry.version), f"{entry.recorded_at:%H:%M:%S}", cut(entry.actor, 22), cut(entry.reason, 22))
        table.add_row(*row, entry.after.status, cut(entry.after.memory, 400))
    console.print(table)


def _erase(memos: MemOS, plan: Any, ids: dict[str, str], console: Console) -> None:
    item = memos.get(ids[plan["message_id"]])
    receipt = memos.erase(item.id)
    console.print(f"\n[bold]erase[/bold] of “{cut(item.memory, 60)}”: [green]{receipt.state}[/green]")
    removed = ", ".join(f"{count} {name}" for name, count in sorted(receipt.removed.items()) if count)
    console.print(f"  receipt {receipt.id}: {removed}; {len(receipt.rebuilt)} neighbours' windows rebuilt;")
    console.print(f"  {', '.join(f'{store} {state}' for store, state in receipt.stores.items())}")
