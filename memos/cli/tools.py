"""The commands about tools: what was called, how often it worked, what came of one call."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, cell, console, opened, say, show
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Item
from memos.errors import NotFound

tools_app = typer.Typer(
    help="See which tools were called, with what result.", no_args_is_help=True, rich_markup_mode=None
)

_SHOWN_CHARS = 2_000


@tools_app.command("list")
def list_tools(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """List tools: how often each was called, how it went, when last, and the last lesson.

    calls: those that were answered; worked: the share of them that did not fail, ? when no answer says; last lesson:
    what the latest failure, or what ended it, taught.
    """
    with opened(data_dir) as memos:
        found = memos.tools.list(cube=cube, actor=actor)

    def human() -> None:
        table = Table("tool", "calls", "worked", "last used", "last lesson")
        for use in found:
            rate = "?" if use.success_rate is None else f"{use.success_rate:.0%}"
            used = "" if use.last_used is None else f"{use.last_used:%F %T}"
            table.add_row(cell(use.tool), str(use.calls), rate, used, cell(use.lesson or ""))
        console.print(table)

    show(found, as_json, human)


@tools_app.command("show")
def show_tool(
    tool: Annotated[str, typer.Argument(help="The tool's name")],
    arguments: Annotated[str | None, typer.Argument(help="Arguments of one call, as JSON")] = None,
    limit: Annotated[int, typer.Option(help="At most so many calls")] = 20,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the calls of a tool, the newest first, or one call, with what came of it."""
    with opened(data_dir) as memos:
        if arguments is None:
            found = memos.tools.calls(tool, cube=cube, actor=actor, limit=limit)
        else:
            one = memos.tools.called(tool, arguments, cube=cube, actor=actor)
            found = () if one is None else (one,)
    if not found:
        raise NotFound("call of", tool, "See which tools there are with `memos tools list`.")

    def human() -> None:
        for item in found:
            _tell(item)

    show(found, as_json, human)


def _tell(item: Item) -> None:
    say(f"{item.id}  v{item.version}  {item.info.get('last_used', '')}")
    for line in item.memory[:_SHOWN_CHARS].splitlines():
        say(f"    {line}")
    for source in item.sources:
        passage = " ".join(source.passage[:_SHOWN_CHARS].split())
        say(f"    {source.trust} source {source.message_id}, {source.speaker}, {source.at:%F %T}: {passage}")
