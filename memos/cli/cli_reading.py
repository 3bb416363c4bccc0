"""The commands about fine reading: have messages read into facts, and say what read them."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, ItemId, opened, say, show
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER

reading_app = typer.Typer(rich_markup_mode=None)


@reading_app.command("read-finely")
def read_finely(
    conversation: Annotated[str | None, typer.Argument(help="Conversation; without one, all of the cube")] = None,
    cube: CubeName = DEFAULT_CUBE,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done")] = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read what was added roughly into facts; what was read so is not read again."""
    with opened(data_dir) as memos:
        tasks = memos.read_finely(conversation, cube=cube, actor=actor)
        if wait:
            memos.tasks.wait(cubes=[cube])
        failed = [task.id for task in memos.tasks.list(cubes=[cube], kinds=["read"], states=["failed", "dead"])]

    def human() -> None:
        say(f"conversations {'read' if wait else 'to read'}: {len(tasks)}")
        if failed:
            say(f"tasks that failed: {len(failed)}; see `memos tasks show {failed[0]}`, and `memos tasks retry`")

    show({"tasks": tasks, "failed": failed}, as_json, human)
    if wait and failed:
        raise typer.Exit(1)


@reading_app.command()
def extractions(item: ItemId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show what read a message into facts, or what a fact was read by."""
    with opened(data_dir) as memos:
        found = memos.extractions(item, actor=actor)

    def human() -> None:
        for record in found:
            say(f"{record.at:%F %T}  {record.reader}  {record.model or 'without a model'}")
            if record.output is not None:
                say(f"    {record.output}")
        if not found:
            say("nothing has read it into facts yet")

    show(found, as_json, human)
