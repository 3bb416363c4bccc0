"""Commands on memories that await review, on corrections in doubt, and on the tools that were called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import (
    Actor,
    CubeName,
    ExpectedVersion,
    ItemId,
    Output,
    command,
    one_line,
    relation_line,
    table,
)
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Item
from memos.errors import NotFound

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS

_SHOWN_CHARS = 2_000


@command
def list_pending(
    memos: MemOS,
    cube: CubeName = DEFAULT_CUBE,
    limit: Annotated[int, typer.Option(help="Maximum number")] = 50,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.review.list(cube=cube, actor=actor, limit=limit)
    lines = (line for each in found for line in _lines(each.item, str(each.item.type), each.item.speaker, why=each.why))
    return Output(found, lines, "nothing awaits review")


@command
def approve(memos: MemOS, item: ItemId, expected_version: ExpectedVersion = None, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.review.approve(item, actor=actor, expected_version=expected_version)
    return Output(found, f"{found.id} is active")


@command
def edit(
    memos: MemOS,
    item: ItemId,
    text: Annotated[str, typer.Argument(help="New text")],
    expected_version: ExpectedVersion = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.review.edit(item, text, actor=actor, expected_version=expected_version)
    return Output(found, f"{found.id} is active")


@command
def reject(memos: MemOS, item: ItemId, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.review.reject(item, actor=actor)
    return Output(found, f"{found.id} is deleted")


@command
def relations(
    memos: MemOS,
    cube: CubeName = DEFAULT_CUBE,
    limit: Annotated[int, typer.Option(help="Maximum number")] = 50,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.review.relations(cube=cube, actor=actor, limit=limit)
    ids = sorted({id_ for each in found for id_ in (each.newer, each.older)})
    wanted = {"id": {"in": ids}}
    items = memos.memories.list(cube=cube, actor=actor, filter=wanted, limit=len(ids)) if ids else []
    texts = {item.id: one_line(item.memory[:_SHOWN_CHARS]) for item in items}
    lines = []
    for each in found:
        lines.append(relation_line(each))
        lines.append(f"    newer: {texts.get(each.newer, 'deleted')}")
        lines.append(f"    older: {texts.get(each.older, 'deleted')}")
    return Output(found, lines, "no correction is in doubt")


@command
def decide(
    memos: MemOS,
    newer: Annotated[str, typer.Argument(help="Id of the newer memory")],
    older: Annotated[str, typer.Argument(help="Id of the older memory")],
    holds: Annotated[
        bool,
        typer.Option(
            "--holds/--does-not-hold", help="Whether the newer one replaces it; if not, they have no relation"
        ),
    ],
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.review.decide(newer, older, holds=holds, actor=actor)
    return Output(found, map(relation_line, found))


@command
def list_tools(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.tools.list(cube=cube, actor=actor)
    rows = (
        (
            use.tool,
            use.calls,
            "?" if use.success_rate is None else f"{use.success_rate:.0%}",
            "" if use.last_used is None else f"{use.last_used:%F %T}",
            use.lesson or "",
        )
        for use in found
    )
    return Output(found, table("tool", "calls", "worked", "last used", "last lesson", rows=rows))


@command
def show_tool(
    memos: MemOS,
    tool: Annotated[str, typer.Argument(help="The tool's name")],
    arguments: Annotated[str | None, typer.Argument(help="Only calls with these arguments, as JSON")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of calls")] = 20,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    if arguments is None:
        found = memos.tools.calls(tool, cube=cube, actor=actor, limit=limit)
    else:
        one = memos.tools.called(tool, arguments, cube=cube, actor=actor)
        found = () if one is None else (one,)
    if not found:
        raise NotFound("call of", tool, "List the tools with `memos memory tools list`.")
    return Output(found, (line for item in found for line in _lines(item, str(item.info.get("last_used", "")))))


def _lines(item: Item, *about: str, why: str | None = None) -> Iterator[str]:
    yield "  ".join((item.id, f"v{item.version}", *about))
    yield from (f"    {line}" for line in item.memory[:_SHOWN_CHARS].splitlines())
    if why is not None:
        yield f"    why: {why}"
    for source in item.sources:
        passage = one_line(source.passage[:_SHOWN_CHARS])
        yield f"    {source.trust} source {source.message_id}, {source.speaker}, {source.at:%F %T}: {passage}"
