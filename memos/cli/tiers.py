"""The commands about tiers: topics, what is read into long-term memory, what is kept, moved and shown first."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, opened, say, show
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.kernel.memos import MemOS
from memos.scheduler.rules import TierSettings

tiers_app = typer.Typer(rich_markup_mode=None)

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or leave it to whoever is open")]
AnyId = Annotated[str, typer.Argument(metavar="id", help="Id of an item or a segment")]


@tiers_app.command()
def segments(
    cube: CubeName = DEFAULT_CUBE,
    limit: Annotated[int, typer.Option(help="At most so many")] = 20,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the topics of a cube's older exchanges, the hottest first."""
    with opened(data_dir) as memos:
        found = memos.tiers.segments(cube=cube, limit=limit)

    def human() -> None:
        for segment in found:
            kept = "  pinned" if segment.pinned else ""
            say(f"{segment.id}  {segment.state}{kept}  heat {segment.heat:.2f}  {segment.pages} pages")
            say(f"    about: {', '.join(segment.keywords[:5])}")
            for line in segment.summary.splitlines():
                say(f"    {line}")
        if not found:
            say(f"no topics yet: {_newest(memos)}")

    show(found, as_json, human)


@tiers_app.command()
def analyse(
    cube: CubeName = DEFAULT_CUBE,
    everything: Annotated[
        bool, typer.Option("--everything", help="Read all there is, also what is not hot and what was just said")
    ] = False,
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read older exchanges into long-term memory: facts, preferences, instructions, traits.

    Without --everything the newest ones of each conversation (10) are left alone.
    """
    with opened(data_dir) as memos:
        if wait:  # what was just added is on its way to where it is read
            _ended(memos, cube, wait=True)
        memos.tiers.analyse(cube=cube, everything=everything, actor=actor)
        counts = _ended(memos, cube, wait=wait)
        topics = memos.tiers.segments(cube=cube, limit=1)

    def human() -> None:
        say(_told(counts))
        if not topics:
            say(f"nothing to read yet: {_newest(memos)}")

    show({"cube": cube, "tasks": counts}, as_json, human)


@tiers_app.command()
def consolidate(
    cube: CubeName = DEFAULT_CUBE,
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Put a cube's facts in order now: one current value a key, doubles joined."""
    with opened(data_dir) as memos:
        memos.tiers.consolidate(cube=cube, actor=actor)
        _show_ended(memos, {"cube": cube}, wait=wait, as_json=as_json)


@tiers_app.command()
def reflect(
    cube: CubeName = DEFAULT_CUBE,
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Have the chat model conclude what several facts of a cube show together."""
    with opened(data_dir) as memos:
        memos.tiers.reflect(cube=cube, actor=actor)
        _show_ended(memos, {"cube": cube}, wait=wait, as_json=as_json)


@tiers_app.command()
def pin(
    id_: AnyId,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Keep an item in working memory, or a segment out of the archive."""
    with opened(data_dir) as memos:
        memos.tiers.pin(id_, cube=cube, actor=actor)
    show({"id": id_, "pinned": True}, as_json, lambda: say(f"{id_} is pinned"))


@tiers_app.command()
def unpin(
    id_: AnyId,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Take a pin back."""
    with opened(data_dir) as memos:
        memos.tiers.pin(id_, cube=cube, actor=actor, pinned=False)
    show({"id": id_, "pinned": False}, as_json, lambda: say(f"{id_} is not pinned"))


@tiers_app.command()
def move(
    segment: Annotated[str, typer.Argument(help="Segment id")],
    tier: Annotated[str, typer.Argument(help="long: read it now; archive: rank it lower; mid: bring it back")],
    cube: CubeName = DEFAULT_CUBE,
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Send a topic to another tier by hand."""
    with opened(data_dir) as memos:
        memos.tiers.move(segment, tier, cube=cube, actor=actor)
        _show_ended(memos, {"cube": cube, "segment": segment, "tier": tier}, wait=wait, as_json=as_json)


@tiers_app.command()
def working(
    conversation: Annotated[str | None, typer.Argument(help="Conversation; without one, that of the cube")] = None,
    cube: CubeName = DEFAULT_CUBE,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of it")] = 1_000,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the working memory that a prompt begins with."""
    with opened(data_dir) as memos:
        found = memos.tiers.working_memory(conversation, cube=cube, actor=actor, max_tokens=max_tokens)
    show(found, as_json, lambda: say(found.text or "nothing to keep in mind yet"))


def _ended(memos: MemOS, cube: str, *, wait: bool) -> dict[str, int]:
    """Return the cube's tasks by state, after they ended when that is waited for."""
    if wait:
        memos.tasks.wait(cubes=[cube])
    return {str(state): count for state, count in memos.tasks.counts(cubes=[cube]).items()}


def _show_ended(memos: MemOS, about: dict[str, str], *, wait: bool, as_json: bool) -> None:
    counts = _ended(memos, about["cube"], wait=wait)
    show({**about, "tasks": counts}, as_json, lambda: say(_told(counts)))


def _newest(memos: MemOS) -> str:
    capacity = TierSettings.of(memos.settings.heat).short_capacity
    return f"the newest {capacity} exchanges of a conversation stay as they are"


def _told(counts: dict[str, int]) -> str:
    return "tasks of the cube: " + (", ".join(f"{count} {state}" for state, count in counts.items()) or "none")
