"""Commands on the tiers of memory: topics, what is read into long-term memory, pins, moves and the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import Actor, CubeName, Output, Wait, command
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.scheduler.rules import TierSettings

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS

AnyId = Annotated[str, typer.Argument(metavar="ID", help="Id of a memory or a topic")]


@command
def topics(
    memos: MemOS, cube: CubeName = DEFAULT_CUBE, limit: Annotated[int, typer.Option(help="Maximum number")] = 20
) -> Output:
    found = memos.tiers.segments(cube=cube, limit=limit)
    lines = []
    for topic in found:
        pinned = "  pinned" if topic.pinned else ""
        lines.append(f"{topic.id}  {topic.state}{pinned}  heat {topic.heat:.2f}  {topic.pages} pages")
        lines.append(f"    about: {', '.join(topic.keywords[:5])}")
        lines += [f"    {line}" for line in topic.summary.splitlines()]
    return Output(found, lines, f"no topics yet: {_newest(memos)}")


@command
def analyse(
    memos: MemOS,
    cube: CubeName = DEFAULT_CUBE,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything", help="Extract everything, including topics that are not hot and the newest messages"
        ),
    ] = False,
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    if wait:  # what was just added is on its way to where it is read
        memos.tasks.wait(cubes=[cube])
    memos.tiers.analyse(cube=cube, everything=everything, actor=actor)
    ended = _ended(memos, {"cube": cube}, wait=wait)
    if memos.tiers.segments(cube=cube, limit=1):
        return ended
    return Output(ended.value, [str(ended.human), f"nothing to extract yet: {_newest(memos)}"])


@command
def consolidate(memos: MemOS, cube: CubeName = DEFAULT_CUBE, wait: Wait = True, actor: Actor = LOCAL_OWNER) -> Output:
    memos.tiers.consolidate(cube=cube, actor=actor)
    return _ended(memos, {"cube": cube}, wait=wait)


@command
def reflect(memos: MemOS, cube: CubeName = DEFAULT_CUBE, wait: Wait = True, actor: Actor = LOCAL_OWNER) -> Output:
    memos.tiers.reflect(cube=cube, actor=actor)
    return _ended(memos, {"cube": cube}, wait=wait)


@command
def pin(memos: MemOS, id_: AnyId, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    memos.tiers.pin(id_, cube=cube, actor=actor)
    return Output({"id": id_, "pinned": True}, f"{id_} is pinned")


@command
def unpin(memos: MemOS, id_: AnyId, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    memos.tiers.pin(id_, cube=cube, actor=actor, pinned=False)
    return Output({"id": id_, "pinned": False}, f"{id_} is not pinned")


@command
def move(
    memos: MemOS,
    topic: Annotated[str, typer.Argument(help="Id of a topic")],
    tier: Annotated[str, typer.Argument(help="long: extract facts now; archive: rank lower; mid: restore")],
    cube: CubeName = DEFAULT_CUBE,
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    memos.tiers.move(topic, tier, cube=cube, actor=actor)
    return _ended(memos, {"cube": cube, "segment": topic, "tier": tier}, wait=wait)


@command
def context(
    memos: MemOS,
    conversation: Annotated[str | None, typer.Argument(help="Conversation; default: the whole cube")] = None,
    cube: CubeName = DEFAULT_CUBE,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens")] = 1_000,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.tiers.working_memory(conversation, cube=cube, actor=actor, max_tokens=max_tokens)
    return Output(found, found.text or "the working memory is empty")


def _ended(memos: MemOS, about: dict[str, str], *, wait: bool) -> Output:
    """Return the cube's tasks by state, after they ended when that is waited for."""
    cubes = [about["cube"]]
    if wait:
        memos.tasks.wait(cubes=cubes)
    counts = {str(state): count for state, count in memos.tasks.counts(cubes=cubes).items()}
    told = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"
    return Output({**about, "tasks": counts}, f"tasks of the cube: {told}")


def _newest(memos: MemOS) -> str:
    capacity = TierSettings.of(memos.settings.heat).short_capacity
    return f"the newest {capacity} exchanges of a conversation are not grouped into topics"
