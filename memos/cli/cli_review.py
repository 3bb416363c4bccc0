"""The commands about memories that await review: list, approve, reject, edit."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, ItemId, opened, say, show
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, PendingItem

review_app = typer.Typer(
    help="Look through memories that wait until somebody approves them.", no_args_is_help=True, rich_markup_mode=None
)

_SHOWN_CHARS = 2_000

ExpectedVersion = Annotated[int | None, typer.Option(help="Refuse when the item is at another version")]


@review_app.command("list")
def list_pending(
    cube: CubeName = DEFAULT_CUBE,
    limit: Annotated[int, typer.Option(help="At most so many")] = 50,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List what awaits review with its sources and why, oldest first."""
    with opened(data_dir) as memos:
        found = memos.review.list(cube=cube, actor=actor, limit=limit)

    def human() -> None:
        for waiting in found:
            _tell(waiting)
        if not found:
            say("nothing awaits review")

    show(found, as_json, human)


@review_app.command("approve")
def approve(
    item: ItemId,
    expected_version: ExpectedVersion = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a memory be found."""
    with opened(data_dir) as memos:
        found = memos.review.approve(item, actor=actor, expected_version=expected_version)
    show(found, as_json, lambda: say(f"{found.id} is active"))


@review_app.command("edit")
def edit(
    item: ItemId,
    text: Annotated[str, typer.Argument(help="What it shall say")],
    expected_version: ExpectedVersion = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a memory be found with another text."""
    with opened(data_dir) as memos:
        found = memos.review.edit(item, text, actor=actor, expected_version=expected_version)
    show(found, as_json, lambda: say(f"{found.id} is active"))


@review_app.command("reject")
def reject(item: ItemId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a memory; `memos rollback` lets it wait again."""
    with opened(data_dir) as memos:
        found = memos.review.reject(item, actor=actor)
    show(found, as_json, lambda: say(f"{found.id} is deleted"))


def _tell(waiting: PendingItem) -> None:
    item = waiting.item
    say(f"{item.id}  v{item.version}  {item.type}  {item.speaker}")
    for line in item.memory[:_SHOWN_CHARS].splitlines():
        say(f"    {line}")
    say(f"    why: {waiting.why}")
    for source in item.sources:
        passage = " ".join(source.passage[:_SHOWN_CHARS].split())
        say(f"    {source.trust} source {source.message_id}, {source.speaker}, {source.at:%F %T}: {passage}")
